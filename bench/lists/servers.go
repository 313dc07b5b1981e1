package lists

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/internal/devstack"
)

// servers are the database, and the server for people.
type servers struct {
	*rig.Servers

	server *process
}

// startServers starts PostgreSQL with the settings that it comes with, but for time between
// checkpoints: a fill would else write each page several times.
func startServers(ctx context.Context, c config, progress io.Writer) (_ *servers, err error) {
	if c.dir != "" {
		err = os.MkdirAll(c.dir, 0o700)
		if err == nil {
			c.dir, err = filepath.Abs(c.dir)
		}
		if err != nil {
			return nil, fmt.Errorf("make the data directory: %w", err)
		}
	}
	found, filled, err := filled(c.dir)
	switch {
	case err != nil:
		return nil, err
	case filled && found != c.sizes:
		return nil, fmt.Errorf("the database in %s has %+v, and not %+v; name the same sizes or another directory", c.dir, found, c.sizes)
	case !filled:
		if err := hasSpace(cmp.Or(c.dir, os.TempDir()), c.sizes); err != nil {
			return nil, err
		}
	}
	s := &servers{}
	s.Servers, err = rig.Start(ctx, c.dir, devstack.Options{
		PostgresSettings: append([]string{"max_wal_size=2GB", "checkpoint_timeout=15min", "wal_compression=on"}, c.postgres...),
	})
	if err != nil {
		return nil, err
	}
	if !filled {
		err = s.fill(ctx, c.sizes, progress)
	}
	web := ""
	if err == nil {
		web, err = s.Stack.WebURL(ctx)
	}
	if err == nil {
		s.server, err = startServer(ctx, web)
	}
	if err != nil {
		return nil, errors.Join(err, s.stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// note is the file that says what a database was filled with.
const note = "filled.json"

// filled reads what the database of a directory has; false: it is not filled, or there is none.
func filled(dir string) (found sizes, filled bool, err error) {
	if dir == "" {
		return found, false, nil
	}
	text, err := os.ReadFile(filepath.Join(dir, note))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, "stack")); err == nil {
			return found, false, fmt.Errorf("the database in %s was not filled to the end; delete the directory", dir)
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
	if err := fill(ctx, s.Stack.AdminURL, z, progress); err != nil {
		return fmt.Errorf("fill the database: %w", err)
	}
	var size int64
	if err := s.DB.QueryRow(ctx, `SELECT pg_database_size(current_database())`).Scan(&size); err != nil {
		return fmt.Errorf("read the size of the database: %w", err)
	}
	fmt.Fprintf(progress, "filled in %s; the database has %.1f GB\n", time.Since(began).Round(time.Second), float64(size)/1e9)
	text, err := json.Marshal(z)
	if err == nil {
		err = os.WriteFile(filepath.Join(s.Dir, note), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("note what the database has: %w", err)
	}
	return nil
}

// hasSpace refuses to fill a disk.
func hasSpace(dir string, z sizes) error {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("read the free space of %s: %w", dir, err)
	}
	free := disk.Bavail * uint64(disk.Bsize)    //nolint:gosec // no block has a negative size
	if need := z.bytes(); free < uint64(need) { //nolint:gosec // a sum of sizes
		return fmt.Errorf("%s has %.0f GB free, and this takes about %.0f GB; name smaller sizes, or another disk by -dir", dir, float64(free)/1e9, float64(need)/1e9)
	}
	return nil
}

func (s *servers) stop(ctx context.Context) (err error) {
	if s.server != nil {
		err = s.server.Stop(ctx)
	}
	return errors.Join(err, s.Stop(ctx))
}
