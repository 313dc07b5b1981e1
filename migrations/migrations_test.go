package migrations_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/migrations"
)

func TestMain(m *testing.M) { testenv.MainAlone(m) }

// empty is a database without a schema, as its owner sees it, who is no superuser
// and may create no roles; and a superuser's connection to it.
func empty(t *testing.T) (owner string, super *pgx.Conn) {
	t.Helper()
	u := must.Get(url.Parse(testenv.DatabaseURL(t)))(t)
	admin := connect(t, u.String())
	name, password := "plain_"+strings.ToLower(rand.Text()[:12]), rand.Text()
	exec(t, admin, `CREATE ROLE `+name+` LOGIN PASSWORD '`+password+`'`)
	exec(t, admin, `CREATE DATABASE `+name+` OWNER `+name)
	u.Path = "/" + name
	super = connect(t, u.String())
	t.Cleanup(func() {
		super.Close(context.Background())
		exec(t, admin, `DROP DATABASE `+name+` WITH (FORCE)`)
		exec(t, admin, `DROP ROLE `+name)
		admin.Close(context.Background())
	})
	u.User = url.UserPassword(name, password)
	return u.String(), super
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	return must.Get(pgx.Connect(t.Context(), url))(t)
}

func exec(t *testing.T, c *pgx.Conn, sql string) {
	t.Helper()
	if _, err := c.Exec(context.Background(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func value[T any](t *testing.T, c *pgx.Conn, sql string) (v T) {
	t.Helper()
	if err := c.QueryRow(t.Context(), sql).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// stateOf is a digest of the catalog and of what was applied.
const stateOf = `SELECT md5(string_agg(line, E'\n' ORDER BY line)) FROM (
	SELECT concat_ws(' ', oid, relname, relacl::text) AS line FROM pg_class WHERE relnamespace = current_schema()::regnamespace
	UNION ALL SELECT concat_ws(' ', oid, proname, prosrc, proacl::text) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace
	UNION ALL SELECT g::text FROM goose_db_version g UNION ALL SELECT r::text FROM schema_repeatables r) l`

// A database that an earlier version has migrated is refused and left as it is, also where
// functions differ and tables lack.
func TestDatabaseOfAnEarlierVersionIsRefused(t *testing.T) {
	t.Parallel()
	for _, last := range []int{38, 162} {
		owner, super := empty(t)
		up(t, owner)
		exec(t, super, fmt.Sprintf(`UPDATE goose_db_version SET version_id = version_id - 212 + %d WHERE version_id > 0`, last))
		exec(t, super, `DROP TABLE stores; UPDATE schema_repeatables SET digest = 'of another text'`)
		before := value[string](t, super, stateOf)
		_, err := migrations.Status(t.Context(), owner)
		for _, err := range []error{migrations.Up(t.Context(), owner), migrations.Reapply(t.Context(), owner), err} {
			if !errors.Is(err, migrations.ErrOldSchema) {
				t.Errorf("migrations up to %d: %v", last, err)
			}
		}
		if value[string](t, super, stateOf) != before {
			t.Errorf("migrations up to %d: the refusal has changed something", last)
		}
	}
}

const mayRequeue = `SELECT has_function_privilege('farol_admin', 'requeue(bigint, text)', 'EXECUTE')
	AND has_table_privilege('farol_admin', 'queue_depth', 'SELECT') AND has_column_privilege('farol_admin', 'work_items', 'stage', 'UPDATE')`

// Who may create no role migrates all the same, and can grant what is missing
// once someone else has created it.
func TestOwnerWithoutTheRightToCreateRolesMigrates(t *testing.T) {
	owner, super := empty(t)
	exec(t, super, `ALTER ROLE farol_admin RENAME TO farol_admin_of_others`)
	err := migrations.Up(t.Context(), owner)
	exec(t, super, `ALTER ROLE farol_admin_of_others RENAME TO farol_admin`)
	if err != nil {
		t.Fatal(err)
	}
	if value[bool](t, super, mayRequeue) {
		t.Fatal("the role has rights that nobody has granted")
	}
	c := connect(t, owner)
	defer c.Close(t.Context())
	exec(t, c, `SELECT grant_administration('farol_admin')`)
	if !value[bool](t, super, mayRequeue) {
		t.Error("grant_administration has granted nothing")
	}
	// The rights of the owner, who is no superuser, are enough for all of it.
	exec(t, c, oneItem)
	exec(t, super, `SET ROLE farol_admin`)
	for _, sql := range []string{
		`UPDATE work_items SET status = 'Suspended'`, `UPDATE work_items SET status = 'Pending'`, `UPDATE work_items SET note = 'Seen.'`,
		`SELECT requeue(1)`, `SELECT set_priority(1, 1)`, `SELECT * FROM why_not(1)`, `SELECT * FROM requeue_where('true', dry_run => false)`,
		`SELECT pause_stage('Store')`, `SELECT resume_all()`, `UPDATE stage_settings SET cap = 1`, `SELECT cancel(1)`,
		`SELECT * FROM queue_depth, running, needs_review, failed, outcomes, workers, attempts, all_work_items`,
	} {
		exec(t, super, sql)
	}
}

// Another database of the cluster makes the role at the same moment.
func TestRoleThatAnotherSessionCreatesInBetween(t *testing.T) {
	_, super := empty(t)
	url := super.Config().ConnString()
	exec(t, super, `ALTER ROLE farol_admin RENAME TO farol_admin_of_others`)
	other := connect(t, url)
	defer other.Close(t.Context())
	exec(t, other, `BEGIN; CREATE ROLE farol_admin NOLOGIN`)
	done := make(chan error, 1)
	go func() { done <- migrations.Up(t.Context(), url) }()
	testenv.Eventually(t, "the migration to come to the role", func() bool {
		return len(done) > 0 || value[bool](t, super, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	})
	exec(t, other, `COMMIT`)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !value[bool](t, super, mayRequeue) {
		t.Error("the role has no rights")
	}
	exec(t, super, `DROP OWNED BY farol_admin; DROP ROLE farol_admin; ALTER ROLE farol_admin_of_others RENAME TO farol_admin`)
}

// oneItem is an institution with an item, which is 1.
const oneItem = `INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'in', 'out');
	INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
	SELECT id, 'Ingest', 'Receive', 'bag.tar', 'in', 'e', 1, now() FROM institutions`
