package deploy_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Every process works as farol, who owns nothing; the migrations alone run as the
// owner; and the superuser of the cluster is nobody's.
func TestProcessesAreNoSuperuser(t *testing.T) {
	t.Parallel()
	p := project(t)
	super := *p.Services["postgres"].Environment["POSTGRES_USER"]
	for name, s := range p.Services {
		address := s.Environment["FAROL_DATABASE_URL"]
		if address == nil {
			continue
		}
		u := must.Get(url.Parse(*address))(t)
		want := "farol"
		if name == "migrate" {
			want = "farol_owner"
		}
		if got := u.User.Username(); got != want || got == super {
			t.Errorf("%s connects as %s, want %s", name, got, want)
		}
	}
	script := must.Get(os.ReadFile(filepath.Join("..", "..", "deploy", "postgres", "roles.sh")))(t)
	for _, role := range []string{"CREATE ROLE farol_owner LOGIN PASSWORD", "CREATE ROLE farol LOGIN PASSWORD", "CREATE DATABASE farol OWNER farol_owner"} {
		if !strings.Contains(string(script), role) {
			t.Errorf("roles.sh does not %s", role)
		}
	}
	if strings.Contains(string(script), "SUPERUSER") {
		t.Error("roles.sh makes a superuser")
	}
}
