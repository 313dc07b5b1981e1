package migrations_test

import (
	"context"
	"database/sql"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver
	"github.com/pressly/goose/v3"

	"github.com/farol-preservation/farol/internal/testenv"
)

// migrated is a database with all migrations, and the way back from them.
func migrated(t *testing.T) (*goose.Provider, *pgx.Conn) {
	t.Helper()
	url := testenv.DatabaseURL(t)
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() }) //nolint:errcheck // the database goes with the test
	p, err := goose.NewProvider(goose.DialectPostgres, db, os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, url)
	t.Cleanup(func() { c.Close(context.Background()) }) //nolint:errcheck // likewise
	return p, c
}

// What the janitor has done is known before and after, whichever way one goes: two
// would make their rounds at once if its lease were forgotten.
func TestJanitorsRoundsOutliveTheMigration(t *testing.T) {
	p, c := migrated(t)
	const began, until = `'2026-11-22 10:00:00+00'::timestamptz`, `'2026-11-22 10:02:00+00'::timestamptz`
	if _, err := p.DownTo(t.Context(), 18); err != nil {
		t.Fatal(err)
	}
	exec(t, c, `UPDATE janitor SET holder = 'one', held_until = `+until+`, began_at = `+began+`, ended_at = `+began+`, error = 'redis'`)
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !value[bool](t, c, `SELECT (holder, held_until, began_at, ended_at, error, next_run_at, runs) = ('one', `+until+`, `+began+`, `+began+`, 'redis',
			`+began+` + interval '15 minutes', 1) FROM schedules WHERE job = 'janitor'`) {
		t.Errorf("the schedule is %s", value[string](t, c, `SELECT s::text FROM schedules s WHERE job = 'janitor'`))
	}
	if !value[bool](t, c, `SELECT has_column_privilege('farol_admin', 'schedules', 'paused', 'UPDATE') AND has_column_privilege('farol_admin', 'schedules', 'next_run_at', 'UPDATE')
			AND NOT has_column_privilege('farol_admin', 'schedules', 'held_until', 'UPDATE') AND has_table_privilege('farol_admin', 'spot_restores', 'SELECT')`) {
		t.Error("an administrator can do more, or less, than pause jobs and run them")
	}
	if _, err := p.DownTo(t.Context(), 18); err != nil {
		t.Fatal(err)
	}
	if !value[bool](t, c, `SELECT (holder, held_until, began_at, ended_at, error) = ('one', `+until+`, `+began+`, `+began+`, 'redis') FROM janitor`) {
		t.Errorf("the janitor's row is %s", value[string](t, c, `SELECT j::text FROM janitor j`))
	}
	if !value[bool](t, c, `SELECT has_table_privilege('farol_admin', 'janitor', 'SELECT')`) {
		t.Error("an administrator cannot see the janitor's rounds")
	}
}

// Requests, fixity and schedules can be taken back, and come again.
func TestSchemaGoesBackAndForth(t *testing.T) {
	p, c := migrated(t)
	const objects = `SELECT string_agg(relkind::text || ' ' || relname, ', ' ORDER BY relname) || ' ' || (SELECT count(*) FROM pg_proc WHERE pronamespace = 'public'::regnamespace)
		FROM pg_class WHERE relnamespace = 'public'::regnamespace`
	before := value[string](t, c, objects)
	if _, err := p.DownTo(t.Context(), 16); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := value[string](t, c, objects); after != before {
		t.Errorf("there is\n%s\nand was\n%s", after, before)
	}
}
