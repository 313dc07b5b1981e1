package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/devstack"
	"github.com/farol-preservation/farol/migrations"
)

// servers are the database, and the server for people.
type servers struct {
	dir    string
	kept   bool // the directory stays
	stack  *devstack.Stack
	db     *pgxpool.Pool // of the superuser
	server *process
}

func startServers(ctx context.Context, c config, progress io.Writer) (_ *servers, err error) {
	s := &servers{dir: c.dir, kept: c.dir != ""}
	if s.kept {
		err = os.MkdirAll(s.dir, 0o700)
	} else {
		s.dir, err = os.MkdirTemp("", "farol-bench-lists-")
	}
	if err == nil {
		s.dir, err = filepath.Abs(s.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop(context.WithoutCancel(ctx)))
		}
	}()
	found, filled, err := s.filled()
	switch {
	case err != nil:
		return nil, err
	case filled && found != c.sizes:
		return nil, fmt.Errorf("the database in %s has %+v, and not %+v; name the same sizes or another directory", s.dir, found, c.sizes)
	case !filled:
		if err := s.hasSpace(c.sizes); err != nil {
			return nil, err
		}
	}
	if err := s.startDatabase(ctx, c); err != nil {
		return nil, err
	}
	if !filled {
		if err := s.fill(ctx, c.sizes, progress); err != nil {
			return nil, err
		}
	}
	web, err := s.stack.WebURL(ctx)
	if err == nil {
		s.server, err = startServer(web)
	}
	return s, err
}

// startDatabase starts PostgreSQL with the settings that it comes with, but for time between
// checkpoints: a fill would else write each page several times.
func (s *servers) startDatabase(ctx context.Context, c config) (err error) {
	binary := filepath.Join(s.dir, "farol-dev")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/farol-dev")
	build.Dir = ".." // the program's own module pins its libraries
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build farol-dev; run this in the folder bench: %w\n%s", err, out)
	}
	s.stack, err = devstack.Start(ctx, devstack.Options{
		Dir: filepath.Join(s.dir, "stack"), Executable: binary, Only: []devstack.Service{devstack.Postgres},
		PostgresSettings: append([]string{"max_wal_size=2GB", "checkpoint_timeout=15min", "wal_compression=on"}, c.postgres...),
	})
	if err != nil {
		return fmt.Errorf("start the database: %w", err)
	}
	if err := migrations.Up(ctx, s.stack.AdminURL); err != nil {
		return err
	}
	if s.db, err = pgxpool.New(ctx, s.stack.AdminURL+"&application_name=lists-bench"); err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	return nil
}

// note is the file that says what a database was filled with.
const note = "filled.json"

// filled reads what the database of the directory has; false: it is not filled, or not to the end.
func (s *servers) filled() (found sizes, filled bool, err error) {
	text, err := os.ReadFile(filepath.Join(s.dir, note))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(s.dir, "stack")); err == nil {
			return found, false, fmt.Errorf("the database in %s was not filled to the end; delete the directory", s.dir)
		}
		return found, false, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	if err != nil {
		return found, false, fmt.Errorf("read what the database has: %w", err)
	}
	return found, true, nil
}

func (s *servers) fill(ctx context.Context, z sizes, progress io.Writer) error {
	began := time.Now()
	if err := fill(ctx, s.stack.AdminURL, z, progress); err != nil {
		return fmt.Errorf("fill the database: %w", err)
	}
	var size int64
	if err := s.db.QueryRow(ctx, `SELECT pg_database_size(current_database())`).Scan(&size); err != nil {
		return fmt.Errorf("read the size of the database: %w", err)
	}
	fmt.Fprintf(progress, "filled in %s; the database has %.1f GB\n", time.Since(began).Round(time.Second), float64(size)/1e9)
	text, err := json.Marshal(z)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, note), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("note what the database has: %w", err)
	}
	return nil
}

// hasSpace refuses to fill a disk.
func (s *servers) hasSpace(z sizes) error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(s.dir, &disk); err != nil {
		return fmt.Errorf("read the free space of %s: %w", s.dir, err)
	}
	free := disk.Bavail * uint64(disk.Bsize)    //nolint:gosec // no block has a negative size
	if need := z.bytes(); free < uint64(need) { //nolint:gosec // a sum of sizes
		return fmt.Errorf("%s has %.0f GB free, and this takes about %.0f GB; name smaller sizes, or another disk by -dir", s.dir, float64(free)/1e9, float64(need)/1e9)
	}
	return nil
}

func (s *servers) stop(ctx context.Context) error {
	var errs []error
	if s.server != nil {
		errs = append(errs, s.server.stop())
	}
	if s.db != nil {
		s.db.Close()
	}
	switch {
	case s.stack != nil && s.kept:
		errs = append(errs, s.stack.Stop(ctx))
	case s.stack != nil:
		errs = append(errs, s.stack.Remove(ctx))
	}
	if !s.kept {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
