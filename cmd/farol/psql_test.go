package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// What an administrator types into psql, as a user who is a member of
// farol_admin and of nothing else. $OWNER is the database as its owner sees it.
func TestPsqlScripts(t *testing.T) {
	t.Parallel()
	states := must.Get(os.ReadFile(filepath.Join("testdata", "psql", "states.sql")))(t)
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "psql"),
		RequireExplicitExec: true,
		Setup: func(e *testscript.Env) error {
			tb := e.T().(testing.TB)
			owner := testenv.DatabaseURL(tb)
			for name, value := range asAdministrator(tb, owner) {
				e.Setenv(name, value)
			}
			e.Setenv("FAROL_DATABASE_URL", owner)
			e.Setenv("OWNER", owner)
			e.Setenv("PATH", filepath.Dir(testenv.Psql(tb))+string(filepath.ListSeparator)+os.Getenv("PATH"))
			db, err := pgx.Connect(tb.Context(), owner)
			if err != nil {
				return err
			}
			defer db.Close(tb.Context())
			_, err = db.Exec(tb.Context(), string(states))
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"sql": cmdSQL},
	})
}

// asAdministrator makes a user who may log in and is a member of farol_admin,
// and returns what psql has to know of it.
func asAdministrator(t testing.TB, owner string) map[string]string {
	t.Helper()
	ctx := context.Background() // the test's own has ended in a cleanup
	u := must.Get(url.Parse(owner))(t)
	do := func(sql string) {
		t.Helper()
		db := must.Get(pgx.Connect(ctx, owner))(t)
		defer db.Close(ctx)
		must.Get(db.Exec(ctx, sql))(t)
	}
	name, password := "ann_"+strings.ToLower(rand.Text()[:12]), rand.Text()
	do(fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s' IN ROLE farol_admin", name, password))
	t.Cleanup(func() { do("DROP ROLE " + name) })
	return map[string]string{
		"PGHOST": u.Hostname(), "PGPORT": u.Port(), "PGDATABASE": strings.TrimPrefix(u.Path, "/"),
		"PGUSER": name, "PGPASSWORD": password, "PSQLRC": os.DevNull, "PGOPTIONS": "-c timezone=UTC",
	}
}
