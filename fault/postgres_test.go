package fault_test

import (
	"context"
	"errors"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), address)
	must(t, err)
	t.Cleanup(func() { c.Close(context.Background()) }) //nolint:errcheck // some are broken by the test
	return c
}

func exec(t *testing.T, c *pgx.Conn, statements ...string) (err error) {
	t.Helper()
	for _, sql := range statements {
		if _, err = c.Exec(t.Context(), sql); err != nil {
			return err
		}
	}
	return nil
}

// What a real PostgreSQL says is sorted by its SQLSTATE: none of it is a failure of the content,
// not even what its own rules refuse.
func TestPostgresIsBlamedForItsOwnFailures(t *testing.T) {
	t.Parallel()
	server := testenv.NewServer(t)
	at := func(change func(*url.URL)) string {
		u, err := url.Parse(server.URL)
		must(t, err)
		change(u)
		return u.String()
	}
	reach := func(address string) error {
		c, err := pgx.Connect(t.Context(), address)
		if err == nil {
			err = c.Close(t.Context())
		}
		return err
	}
	server.Exec(`CREATE ROLE stranger LOGIN PASSWORD 'x' CONNECTION LIMIT 0`)
	server.Exec(`CREATE ROLE reader LOGIN PASSWORD 'x'`)
	server.Exec(`CREATE TABLE taken (id int PRIMARY KEY, n int CHECK (n > 0))`)
	as := func(name, password string) string {
		return at(func(u *url.URL) { u.User = url.UserPassword(name, password) })
	}
	for name, tt := range map[string]struct {
		fail func(t *testing.T, c *pgx.Conn) error
		kind fault.Kind
	}{
		"its connection is ended": {func(t *testing.T, c *pgx.Conn) error {
			return exec(t, c, `SELECT pg_terminate_backend(pg_backend_pid())`)
		}, fault.Unavailable},
		"a standby": {func(t *testing.T, c *pgx.Conn) error {
			return exec(t, c, `SET default_transaction_read_only = on`, `CREATE TABLE x ()`)
		}, fault.ReadOnly},
		"a statement took too long": {func(t *testing.T, c *pgx.Conn) error {
			return exec(t, c, `SET statement_timeout = 10`, `SELECT pg_sleep(10)`)
		}, fault.Overloaded},
		"locked": {func(t *testing.T, c *pgx.Conn) error {
			other := connect(t, server.URL)
			must(t, exec(t, other, `CREATE TABLE shut ()`, `BEGIN`, `LOCK TABLE shut`))
			return exec(t, c, `BEGIN`, `LOCK TABLE shut NOWAIT`)
		}, fault.Overloaded},
		"waited too long for a lock": {func(t *testing.T, c *pgx.Conn) error {
			other := connect(t, server.URL)
			must(t, exec(t, other, `CREATE TABLE held ()`, `BEGIN`, `LOCK TABLE held`))
			return exec(t, c, `SET lock_timeout = 10`, `BEGIN`, `LOCK TABLE held`)
		}, fault.Overloaded},
		"no more connections": {func(*testing.T, *pgx.Conn) error { return reach(as("stranger", "x")) }, fault.Overloaded},
		"an unknown role":     {func(*testing.T, *pgx.Conn) error { return reach(as("nobody", "x")) }, fault.Denied},
		"an unknown database": {func(*testing.T, *pgx.Conn) error { return reach(at(func(u *url.URL) { u.Path = "/nothing" })) }, fault.Missing},
		"too few rights": {func(*testing.T, *pgx.Conn) error {
			return exec(t, connect(t, as("reader", "x")), `SELECT * FROM taken`)
		}, fault.Denied},
		"another schema":         {func(t *testing.T, c *pgx.Conn) error { return exec(t, c, `SELECT * FROM no_such_table`) }, fault.WrongAnswer},
		"a column is missing":    {func(t *testing.T, c *pgx.Conn) error { return exec(t, c, `SELECT absent FROM taken`) }, fault.WrongAnswer},
		"a function is missing":  {func(t *testing.T, c *pgx.Conn) error { return exec(t, c, `SELECT no_such_function()`) }, fault.WrongAnswer},
		"out of order":           {func(t *testing.T, c *pgx.Conn) error { return exec(t, c, `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`) }, fault.Overloaded},
		"its disk is full":       {func(t *testing.T, c *pgx.Conn) error { return exec(t, c, `DO $$ BEGIN RAISE disk_full; END $$`) }, fault.Full},
		"a constraint":           {func(t *testing.T, c *pgx.Conn) error { return exec(t, c, `INSERT INTO taken VALUES (1, -1)`) }, fault.Refused},
		"taken already":          {func(t *testing.T, c *pgx.Conn) error { return exec(t, c, `INSERT INTO taken VALUES (1, 1), (1, 1)`) }, fault.Refused},
		"a value too large":      {func(t *testing.T, c *pgx.Conn) error { return exec(t, c, `INSERT INTO taken VALUES (9999999999, 1)`) }, fault.Refused},
		"a string that is none":  {func(t *testing.T, c *pgx.Conn) error { return exec(t, c, `SELECT E'\xff'`) }, fault.Refused},
		"a mistake in statement": {func(t *testing.T, c *pgx.Conn) error { return exec(t, c, `SELEKT`) }, fault.Refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tt.fail(t, connect(t, server.URL))
			var answer *pgconn.PgError
			if !errors.As(err, &answer) {
				t.Fatalf("%v is no answer of PostgreSQL", err)
			}
			if k, ok := fault.Postgres(answer.Code); k != tt.kind || !ok {
				t.Errorf("%v: %q, %t; want %q", err, k, ok, tt.kind)
			}
		})
	}
}
