// Package migrations holds the schema and brings a database up to it.
//
// Tables change by numbered migrations (*.sql), which are never edited once released.
// Functions, views, triggers and comments are in repeatable/*.sql, each once in the form
// that it has now; a file whose content has changed is applied again.
//
// Any number of processes may migrate at once: they wait for each other by an advisory
// lock that each polls, since a waiting backend would hold up an index that is built
// concurrently.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
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

//go:embed *.sql repeatable/*.sql
var files embed.FS

// OldSchemaAdvice is the next step after [ErrOldSchema].
const OldSchemaAdvice = "create an empty database for this version, see docs/upgrading.md"

// ErrOldSchema is the error for a database whose schema is older than the first
// numbered migration.
var ErrOldSchema = errors.New("the database has the schema of an older Farol (migrations 1 to 162), which cannot be migrated in place; nothing was changed")

// firstVersion is the number of the first migration. Lower numbers are those of the
// schema before each table was created whole.
const firstVersion = 201

// Applied is a migration or a repeatable file, and when it was applied; At is zero if
// that is still to come.
type Applied struct {
	Version    int64     `json:"version,omitempty"` // of a migration
	File       string    `json:"file"`
	Repeatable bool      `json:"repeatable,omitempty"`
	At         time.Time `json:"at"`
	Replaced   bool      `json:"replaced,omitempty"` // the database had this content of the file, and has got another since
}

// Up applies what the database at url lacks: each migration in a transaction of its own, then
// in one transaction the repeatable files that have changed and the rights of the roles. Where nothing is lacking it renews the rights and changes nothing else.
// It leaves a file alone that the database had in this program's form before it got another.
// The error is [ErrOldSchema] for a database that has to be made again.
func Up(ctx context.Context, url string) error { return up(ctx, url, false) }

// Reapply is [Up] that replaces the other form too: it takes back what a newer Farol, or
// an earlier state of this one, has changed in functions and views.
func Reapply(ctx context.Context, url string) error { return up(ctx, url, true) }

func up(ctx context.Context, url string, again bool) error {
	return with(ctx, url, func(p *goose.Provider, db *sql.DB) error {
		if _, err := p.Up(ctx); err != nil {
			return fmt.Errorf("migrate the database: %w", err)
		}
		if err := repeat(ctx, p, db, again); err != nil {
			return fmt.Errorf("migrate the database: %w", err)
		}
		return nil
	})
}

// Status lists the migrations in their order, then the repeatable files, with what the
// database at url has of them.
func Status(ctx context.Context, url string) ([]Applied, error) {
	var list []Applied
	err := with(ctx, url, func(p *goose.Provider, db *sql.DB) error {
		status, err := p.Status(ctx)
		if err != nil {
			return fmt.Errorf("read the database's migrations: %w", err)
		}
		for _, s := range status {
			list = append(list, Applied{Version: s.Source.Version, File: s.Source.Path, At: s.AppliedAt})
		}
		repeatables, err := readRepeatables(ctx, db)
		for _, f := range repeatables {
			list = append(list, Applied{File: f.name, Repeatable: true, At: f.appliedAt, Replaced: f.replaced})
		}
		return err
	})
	return list, err
}

// Versions are the numbers of the migrations that this program has, in their order.
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

// Old reports whether versions, as a database has them, are those of a schema that
// cannot be migrated in place.
func Old(versions []int64) bool {
	for _, v := range versions {
		if v > 0 && v < firstVersion {
			return true
		}
	}
	return false
}

func with(ctx context.Context, url string, do func(*goose.Provider, *sql.DB) error) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return fmt.Errorf("read the database URL: %w", err)
	}
	if !strings.Contains(url, "target_session_attrs") { // of several hosts, the primary
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	db := stdlib.OpenDB(*config)
	defer db.Close() //nolint:errcheck // nothing was written through it that has not been answered
	if err := refuseOld(ctx, db); err != nil {
		return err
	}
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

func refuseOld(ctx context.Context, db *sql.DB) error {
	var there, old bool
	err := db.QueryRowContext(ctx, `SELECT to_regclass('goose_db_version') IS NOT NULL`).Scan(&there)
	if err == nil && there {
		err = db.QueryRowContext(ctx, `SELECT EXISTS (SELECT FROM goose_db_version WHERE version_id BETWEEN 1 AND $1)`, firstVersion-1).Scan(&old)
	}
	if err != nil {
		return fmt.Errorf("read the database's migrations: %w", err)
	}
	if old {
		return ErrOldSchema
	}
	return nil
}
