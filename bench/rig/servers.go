package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/devstack"
	"github.com/farol-preservation/farol/migrations"
)

// Servers are those that a program measures on, and a connection to look on.
type Servers struct {
	Dir   string
	Stack *devstack.Stack
	DB    *pgxpool.Pool // of the superuser

	kept bool // the directory stays
}

// Start starts PostgreSQL, with the settings that it comes with but for those of o, and what else
// o names, and brings the database up to date. Their data is in dir, where it stays; if that is "",
// it is in a temporary directory. It is called in the folder bench.
func Start(ctx context.Context, dir string, o devstack.Options) (_ *Servers, err error) {
	s := &Servers{Dir: dir, kept: dir != ""}
	if !s.kept {
		if s.Dir, err = os.MkdirTemp("", "farol-bench-"); err != nil {
			return nil, fmt.Errorf("make the data directory: %w", err)
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
		}
	}()
	farol, err := devstack.Build(ctx, "..", s.Dir)
	if err != nil {
		return nil, err
	}
	o.Dir, o.Executable, o.Only = filepath.Join(s.Dir, "stack"), farol+"-dev", append(o.Only, devstack.Postgres)
	if s.Stack, err = devstack.Start(ctx, o); err != nil {
		return nil, fmt.Errorf("start the servers: %w", err)
	}
	if err := migrations.Up(ctx, s.Stack.AdminURL); err != nil {
		return nil, err
	}
	if s.DB, err = pgxpool.New(ctx, s.Stack.AdminURL+"&application_name=bench-looks-on"); err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return s, MustBeDurable(ctx, s.DB)
}

// MustBeDurable refuses a server whose commits may be lost: its figures would be worth nothing.
func MustBeDurable(ctx context.Context, db *pgxpool.Pool) error {
	var fsync, commit, pages string
	err := db.QueryRow(ctx, `SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('full_page_writes')`).
		Scan(&fsync, &commit, &pages)
	if err != nil {
		return fmt.Errorf("read the database's settings: %w", err)
	}
	if fsync != "on" || commit != "on" || pages != "on" {
		return fmt.Errorf("fsync is %s, synchronous_commit %s, full_page_writes %s: all must be on", fsync, commit, pages)
	}
	return nil
}

// Stop stops the servers, and deletes their data if it is in a temporary directory.
func (s *Servers) Stop(ctx context.Context) error {
	if s.DB != nil {
		s.DB.Close()
	}
	switch {
	case s.Stack == nil:
	case s.kept:
		return s.Stack.Stop(ctx)
	default:
		if err := s.Stack.Remove(ctx); err != nil {
			return err
		}
	}
	if s.kept {
		return nil
	}
	return os.RemoveAll(s.Dir)
}
