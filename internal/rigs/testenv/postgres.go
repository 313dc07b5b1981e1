package testenv

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/migrations"
)

const templateName = "template_farol"

// template is the migrated database that others are copied from, and the
// connection that copies: two copies at once take as long as one after the other.
type template struct {
	mu    sync.Mutex
	admin *pgx.Conn
	made  bool  // by the process that started the server
	err   error // it could not be made; the next test need not try
}

// Database returns a pool on a migrated database that only this test uses. It
// is dropped when the test ends.
func Database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, err := pgxpool.New(ctx, DatabaseURL(t)+"&pool_max_conns=16")
	must(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// DatabaseURL is Database for those who connect themselves; the user is a
// superuser.
func DatabaseURL(t testing.TB) string {
	t.Helper()
	server := stack(t, devstack.Postgres).AdminURL
	name := "t_" + strings.ToLower(rand.Text()[:16])
	run(t, server, fmt.Sprintf("CREATE DATABASE %s TEMPLATE %s STRATEGY file_copy", name, templateName))
	t.Cleanup(func() {
		// FORCE: a test may leave connections behind that it has killed.
		run(t, server, fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", name))
	})
	return onDatabase(server, name)
}

// Pooled is what a URL of [DatabaseURL] is by way of PgBouncer in transaction
// mode, with two connections for all clients of a database.
func Pooled(t testing.TB, direct string) string {
	t.Helper()
	server := stack(t, devstack.Postgres).AdminURL
	pooler := stack(t, devstack.PgBouncer, func(o *devstack.Options) { o.PoolerOf = server }).PoolerURL
	u, err := url.Parse(direct)
	must(t, err)
	return onDatabase(pooler, strings.TrimPrefix(u.Path, "/"))
}

// Psql returns the path of the psql program that came with the server.
func Psql(t testing.TB) string {
	t.Helper()
	dir, err := devstack.PostgresPrograms(os.Getenv("PG_BINDIR"))
	must(t, err)
	return filepath.Join(dir, "psql")
}

func run(t testing.TB, server, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // t's own has ended in a cleanup
	defer cancel()
	must(t, running.template.exec(ctx, server, statement))
}

func (p *template) exec(ctx context.Context, server, statement string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.admin == nil && p.err == nil {
		if p.admin, p.err = pgx.Connect(ctx, server); p.err == nil && !p.made {
			p.err = makeTemplate(ctx, p.admin, server)
		}
	}
	if p.err != nil {
		return p.err
	}
	if _, err := p.admin.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

func (p *template) close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.admin == nil {
		return nil
	}
	return p.admin.Close(ctx)
}

func makeTemplate(ctx context.Context, admin *pgx.Conn, server string) error {
	_, err := admin.Exec(ctx, "CREATE DATABASE "+templateName)
	if err == nil {
		err = migrations.Up(ctx, onDatabase(server, templateName))
	}
	if err == nil {
		err = deleteAtOnce(ctx, onDatabase(server, templateName))
	}
	if err == nil { // one connection to it would make every copy fail
		_, err = admin.Exec(ctx, "ALTER DATABASE "+templateName+" IS_TEMPLATE true ALLOW_CONNECTIONS false")
	}
	if err != nil {
		return fmt.Errorf("make the template database: %w", err)
	}
	return nil
}

// deleteAtOnce has approved deletions of tests wait for nothing, as farol dev has.
func deleteAtOnce(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx) //nolint:errcheck // what it wrote is committed
	if _, err := conn.Exec(ctx, `UPDATE request_settings SET deletion_wait = '0'`); err != nil {
		return fmt.Errorf("set the wait of deletions: %w", err)
	}
	return nil
}

// onDatabase is the server's URL with another database.
func onDatabase(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server // it was made by url.URL.String
	}
	u.Path = "/" + name
	return u.String()
}

// WebURL is a URL of [DatabaseURL] for a role of this test's own that is a member of
// farol_web, as the server for people has one.
func WebURL(t testing.TB, direct string) string {
	t.Helper()
	server := stack(t, devstack.Postgres).AdminURL
	name, password := "web_"+strings.ToLower(rand.Text()[:16]), rand.Text()
	run(t, server, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s' IN ROLE farol_web", name, password))
	t.Cleanup(func() { run(t, server, "DROP ROLE "+name) })
	u, err := url.Parse(direct)
	must(t, err)
	u.User = url.UserPassword(name, password)
	return u.String()
}
