package migrations_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/migrations"
)

// login makes a role of a random name in the cluster and returns a connection of it
// to the database of url.
func login(t *testing.T, super *pgx.Conn, at, grants string) *pgx.Conn {
	t.Helper()
	name, password := "role_"+strings.ToLower(rand.Text()[:12]), rand.Text()
	exec(t, super, `CREATE ROLE `+name+` LOGIN PASSWORD '`+password+`'`)
	exec(t, super, strings.ReplaceAll(grants, "$role", name))
	u := must.Get(url.Parse(at))(t)
	u.User = url.UserPassword(name, password)
	c := connect(t, u.String())
	t.Cleanup(func() {
		c.Close(context.Background())
		exec(t, super, `DROP OWNED BY `+name)
		exec(t, super, `DROP ROLE `+name)
	})
	return c
}

func denied(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "42501"
}

// The role that works has its rights to what there is, and to what later migrations
// bring; the schema is not its own.
func TestWorkingRoleOwnsNothing(t *testing.T) {
	t.Parallel()
	owner, super := empty(t)
	up(t, owner)
	works := login(t, super, owner, `SELECT grant_work('$role')`)
	for _, sql := range []string{
		`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore')`,
		`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, bag_date, size, object_identifier)
			SELECT id, 'Ingest', 'Receive', 'a.tar', 'receiving', 'e', now(), 1, 'x' FROM institutions`,
		`SELECT pause_all('Upgrade')`, `SELECT resume_all()`,
		`SELECT * FROM goose_db_version`,
	} {
		if _, err := works.Exec(t.Context(), sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	for _, sql := range []string{
		`DROP TABLE event_records`, `DROP VIEW premis_events`, `ALTER TABLE work_items DISABLE TRIGGER ALL`, `TRUNCATE work_item_audit`, `CREATE TABLE mine (a int)`,
		`DROP FUNCTION requeue(bigint, text)`, `DELETE FROM goose_db_version`, `UPDATE auditor_rights SET columns = ''`,
		`CREATE OR REPLACE FUNCTION virtual_cost(size bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'`,
	} {
		if _, err := works.Exec(t.Context(), sql); !denied(err) {
			t.Errorf("%s: %v, want it denied", sql, err)
		}
	}
	c := connect(t, owner)
	defer c.Close(context.Background())
	exec(t, c, `CREATE TABLE later (a int)`)
	exec(t, c, `CREATE FUNCTION later() RETURNS int LANGUAGE sql AS 'SELECT 1'`)
	exec(t, c, `REVOKE EXECUTE ON FUNCTION later() FROM PUBLIC`)
	up(t, owner) // as the next release does
	if _, err := works.Exec(t.Context(), `INSERT INTO later SELECT later()`); err != nil {
		t.Errorf("what a later migration brings: %v", err)
	}
	if err := migrations.Up(t.Context(), works.Config().ConnString()); err != nil {
		t.Errorf("who works finds nothing to migrate, and fails: %v", err)
	}
}

// An auditor reads what is on record and how it came to be, and no secret.
func TestAuditorReadsAndNothingElse(t *testing.T) {
	t.Parallel()
	owner, super := empty(t)
	up(t, owner)
	auditor := login(t, super, owner, `SELECT grant_audit('$role')`)
	exec(t, super, oneItem)
	for _, table := range strings.Fields(value[string](t, super, `SELECT string_agg(on_table, ' ') FROM auditor_rights WHERE columns = ''`)) {
		if _, err := auditor.Exec(t.Context(), `SELECT * FROM `+table); err != nil {
			t.Errorf("%s: %v", table, err)
		}
	}
	for _, sql := range []string{
		`SELECT approved_by FROM deletion_requests`, `SELECT subject FROM alerts`, `SELECT * FROM why_not(1)`,
	} {
		if _, err := auditor.Exec(t.Context(), sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	for _, sql := range []string{
		`SELECT * FROM api_tokens`, `SELECT password_hash FROM users`, `SELECT * FROM sessions`, `SELECT * FROM links`, `SELECT content FROM alerts`, `SELECT * FROM posted_messages`,
		`UPDATE premis_events SET outcome = 'Success'`, `DELETE FROM work_item_audit`, `SELECT pause_all()`, `SELECT requeue(1)`,
		`SELECT plan_make('cancel', 'true')`,
	} {
		if _, err := auditor.Exec(t.Context(), sql); !denied(err) {
			t.Errorf("%s: %v, want it denied", sql, err)
		}
	}
}

func up(t *testing.T, url string) {
	t.Helper()
	must.Do(t, migrations.Up(t.Context(), url))
}

// What one role has done until now is parted into owner and worker as docs/operators.md
// says, and both go on.
func TestOneRoleIsPartedIntoTwo(t *testing.T) {
	t.Parallel()
	both, super := empty(t)
	up(t, both)
	u := must.Get(url.Parse(both))(t)
	old := u.User.Username()
	owner := login(t, super, both, ``)
	exec(t, super, `REASSIGN OWNED BY `+old+` TO `+owner.Config().User)
	exec(t, super, `ALTER DATABASE `+old+` OWNER TO `+owner.Config().User)
	t.Cleanup(func() {
		exec(t, super, `ALTER DATABASE `+old+` OWNER TO `+old+`; REASSIGN OWNED BY `+owner.Config().User+` TO `+old)
	})
	up(t, owner.Config().ConnString())
	exec(t, owner, `SELECT grant_work('`+old+`')`)
	works := connect(t, both)
	defer works.Close(context.Background())
	for _, sql := range []string{
		`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore')`,
		`SELECT pause_all('Upgrade')`, `SELECT resume_all()`,
	} {
		if _, err := works.Exec(t.Context(), sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	if _, err := works.Exec(t.Context(), `ALTER TABLE work_items DISABLE TRIGGER ALL`); !denied(err) {
		t.Errorf("the old role still owns tables: %v", err)
	}
}

// A new cluster of docker-compose.yml has both roles, whatever their passwords are made
// of, and nobody comes in as the superuser by the network.
func TestRolesOfANewCluster(t *testing.T) {
	t.Parallel()
	server := testenv.NewServer(t)
	u := must.Get(url.Parse(server.URL))(t)
	u.Path = "/postgres"
	super := connect(t, u.String())
	exec(t, super, `DROP DATABASE farol WITH (FORCE)`)
	exec(t, super, `DROP ROLE farol, farol_owner, farol_admin, farol_auditor`)
	exec(t, super, `DROP ROLE IF EXISTS farol_serve, farol_web`)
	super.Close(context.Background())
	password, _ := u.User.Password()
	const ofOwner, ofWorker, ofServer = `o'w\n"e r`, `$(w) '; -- `, `"s'`
	c := osexec.CommandContext(t.Context(), "sh", "../deploy/postgres/roles.sh")
	c.Env = []string{
		"PATH=" + filepath.Dir(testenv.Psql(t)) + ":" + os.Getenv("PATH"), "PGHOST=" + u.Hostname(), "PGPORT=" + u.Port(), "PGPASSWORD=" + password,
		"POSTGRES_USER=" + u.User.Username(), "FAROL_OWNER_PASSWORD=" + ofOwner, "FAROL_WORK_PASSWORD=" + ofWorker, "FAROL_SERVE_PASSWORD=" + ofServer,
	}
	if said, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if _, err := pgx.Connect(t.Context(), u.String()); err == nil {
		t.Error("the superuser has a password")
	}
	u.Path, u.User = "/farol", url.UserPassword("farol_owner", ofOwner)
	up(t, u.String())
	u.User = url.UserPassword("farol", ofWorker)
	works := connect(t, u.String())
	defer works.Close(context.Background())
	exec(t, works, `INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore')`)
	if _, err := works.Exec(t.Context(), `CREATE TABLE mine (a int)`); !denied(err) {
		t.Errorf("farol makes a table: %v", err)
	}
	u.User = url.UserPassword("farol_serve", ofServer)
	serves := connect(t, u.String())
	defer serves.Close(context.Background())
	var actor string
	exec(t, serves, `SELECT set_config('farol.actor', 'ann@test.edu', false)`)
	if err := serves.QueryRow(t.Context(), `SELECT acting_user()`).Scan(&actor); err != nil || actor != "ann@test.edu" {
		t.Errorf("the server for people acts as %q, %v", actor, err)
	}
}
