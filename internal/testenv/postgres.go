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

	"github.com/farol-preservation/farol/internal/devstack"
	"github.com/farol-preservation/farol/migrations"
)

const templateName = "template_farol"

// template is the migrated database that others are copied from, and the
// connection that copies: PostgreSQL copies a database for one at a time.
type template struct {
	mu    sync.Mutex
	admin *pgx.Conn
	err   error // it could not be made; the next test need not try
}

// Database returns a pool on a migrated database that only this test uses. It
// is dropped when the test ends.
func Database(t testing.TB) *pgxpool.Pool {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	pool, err := pgxpool.New(ctx, DatabaseURL(t)+"&pool_max_conns=16")
	if err != nil {
		t.Fatal("testenv:", err)
	}
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
	if err != nil {
		t.Fatal("testenv:", err)
	}
	return onDatabase(pooler, strings.TrimPrefix(u.Path, "/"))
}

// Psql returns the path of the psql program that came with the server.
func Psql(t testing.TB) string {
	t.Helper()
	dir, err := devstack.PostgresPrograms(os.Getenv("PG_BINDIR"))
	if err != nil {
		t.Fatal("testenv:", err)
	}
	return filepath.Join(dir, "psql")
}

func run(t testing.TB, server, statement string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // t's own has ended in a cleanup
	defer cancel()
	if err := running.template.exec(ctx, server, statement); err != nil {
		t.Fatal("testenv:", err)
	}
}

func (p *template) exec(ctx context.Context, server, statement string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.admin == nil && p.err == nil {
		p.admin, p.err = makeTemplate(ctx, server)
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

func makeTemplate(ctx context.Context, server string) (*pgx.Conn, error) {
	admin, err := pgx.Connect(ctx, server)
	if err != nil {
		return nil, fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+templateName); err != nil {
		return nil, fmt.Errorf("make the template database: %w", err)
	}
	if err := migrations.Up(ctx, onDatabase(server, templateName)); err != nil {
		return nil, fmt.Errorf("make the template database: %w", err)
	}
	// One connection to it would make every copy fail.
	if _, err := admin.Exec(ctx, "ALTER DATABASE "+templateName+" IS_TEMPLATE true ALLOW_CONNECTIONS false"); err != nil {
		return nil, fmt.Errorf("make the template database: %w", err)
	}
	return admin, nil
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
