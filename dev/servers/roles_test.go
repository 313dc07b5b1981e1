package servers_test

import (
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Farol works as a role that is no superuser and owns nothing, and migrates as
// another that owns the database and is none either.
func TestFarolIsNoSuperuser(t *testing.T) {
	t.Parallel()
	s := start(t, devstack.Options{Dir: filepath.Join(tempDir(t), "data"), Only: []devstack.Service{devstack.Postgres}})
	for url, want := range map[string]string{s.DatabaseURL: "farol false", s.OwnerURL: "farol_owner false", s.AdminURL: "postgres true"} {
		conn := must.Get(pgx.Connect(t.Context(), url))(t)
		var got string
		if err := conn.QueryRow(t.Context(), `SELECT rolname || ' ' || rolsuper FROM pg_roles WHERE rolname = session_user`).Scan(&got); err != nil || got != want {
			t.Errorf("role = %s, %v; want %s", got, err, want)
		}
		_, err := conn.Exec(t.Context(), `CREATE TABLE of_`+want[:5]+` (a int)`)
		if (err == nil) != (url != s.DatabaseURL) {
			t.Errorf("%s makes a table: %v", want, err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
