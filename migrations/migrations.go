// Package migrations holds the schema and brings a database up to it.
//
// Any number of processes may migrate at once: they take turns by an advisory
// lock that each tries for and none waits in, since a waiting backend would hold
// up an index that is built concurrently.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib" // the database/sql driver that goose runs on
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed *.sql
var files embed.FS

// Applied is one migration and when it was applied; At is zero if it is still
// to come.
type Applied struct {
	Version int64     `json:"version"`
	File    string    `json:"file"`
	At      time.Time `json:"at"`
}

// Up applies what is missing in the database at url, each file in a transaction
// of its own, and gives the roles that work with it their rights to what there is
// then. Where everything is there it changes nothing else.
func Up(ctx context.Context, url string) error {
	return with(url, func(p *goose.Provider, db *sql.DB) error {
		if _, err := p.Up(ctx); err != nil {
			return fmt.Errorf("migrate the database: %w", err)
		}
		if err := grantRoles(ctx, db); err != nil {
			return fmt.Errorf("grant the roles their rights: %w", err)
		}
		return nil
	})
}

// grantRoles takes turns with others that migrate: they would write the same rows of
// the catalogue.
func grantRoles(ctx context.Context, db *sql.DB) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it was committed, or there is nothing to keep
	if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('farol grants', 0))`); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `SELECT grant_roles() WHERE has_function_privilege('grant_roles()', 'EXECUTE')`); err != nil {
		return err
	}
	return tx.Commit()
}

// Status tells which migrations the database at url has, in their order.
func Status(ctx context.Context, url string) ([]Applied, error) {
	var list []Applied
	err := with(url, func(p *goose.Provider, _ *sql.DB) error {
		status, err := p.Status(ctx)
		if err != nil {
			return fmt.Errorf("read the database's migrations: %w", err)
		}
		for _, s := range status {
			list = append(list, Applied{Version: s.Source.Version, File: s.Source.Path, At: s.AppliedAt})
		}
		return nil
	})
	return list, err
}

// Versions are those of the migrations that this program has, in their order.
func Versions() ([]int64, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, fmt.Errorf("list the migrations: %w", err)
	}
	versions := make([]int64, len(names))
	for i, name := range names { // in their order, as the numbers have leading zeros
		if versions[i], err = goose.NumericComponent(name); err != nil {
			return nil, fmt.Errorf("read the number of migration %s: %w", name, err)
		}
	}
	return versions, nil
}

func with(url string, do func(*goose.Provider, *sql.DB) error) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("read the database URL: %w", err)
	}
	if !strings.Contains(url, "target_session_attrs") { // of several hosts, the primary
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	db := stdlib.OpenDB(*config)
	defer db.Close() //nolint:errcheck // nothing was written through it that has not been answered
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 60))
	if err != nil {
		return fmt.Errorf("make the migration lock: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	return do(p, db)
}
