package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/devstack"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/migrations"
	"github.com/farol-preservation/farol/pipeline"
)

// servers are those that the workers need, and a connection to watch them.
type servers struct {
	dir     string
	stack   *devstack.Stack
	db      *pgxpool.Pool // of the superuser
	version string
}

// startServers starts PostgreSQL with the settings that it comes with, but for the number of
// connections, and Redis.
func startServers(ctx context.Context, c config) (_ *servers, err error) {
	dir, err := os.MkdirTemp("", "farol-bench-scale-")
	if err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	s := &servers{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop(context.WithoutCancel(ctx)))
		}
	}()
	binary := filepath.Join(dir, "farol-dev")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/farol-dev")
	build.Dir = ".." // the program's own module pins its libraries
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build farol-dev; run this in the folder bench: %w\n%s", err, out)
	}
	most := 0
	for _, n := range c.workers {
		most = max(most, n)
	}
	s.stack, err = devstack.Start(ctx, devstack.Options{
		Dir: filepath.Join(dir, "stack"), Executable: binary, Only: []devstack.Service{devstack.Postgres, devstack.Redis},
		PostgresSettings: append([]string{
			fmt.Sprintf("max_connections=%d", 50+connections*most), "shared_preload_libraries=pg_stat_statements",
		}, c.postgres...),
	})
	if err != nil {
		return nil, fmt.Errorf("start the servers: %w", err)
	}
	if err := migrations.Up(ctx, s.stack.AdminURL); err != nil {
		return nil, err
	}
	if s.db, err = pgxpool.New(ctx, s.stack.AdminURL+"&application_name=scale-watch"); err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return s, s.prepare(ctx, c)
}

// connections are more than a worker has: see docs/operators.md.
const connections = 20

// institutions is how many deposit.
const institutions = 8

// prepare refuses a server whose commits may be lost: its figures would be worth nothing.
func (s *servers) prepare(ctx context.Context, c config) error {
	var safe bool
	err := s.db.QueryRow(ctx, `
		SELECT current_setting('server_version'), bool_and(current_setting(name) = 'on')
		FROM unnest(ARRAY['fsync', 'synchronous_commit', 'full_page_writes']) name`).Scan(&s.version, &safe)
	if err != nil {
		return fmt.Errorf("read the database's settings: %w", err)
	}
	if !safe {
		return errors.New("fsync, synchronous_commit and full_page_writes must be on")
	}
	if _, err := s.db.Exec(ctx, `CREATE EXTENSION pg_stat_statements`); err != nil {
		return fmt.Errorf("count statements: %w", err)
	}
	_, err = s.db.Exec(ctx, `UPDATE stage_settings SET cap = nullif($1, 0) WHERE stage = 'Record'`, c.recordCap)
	if err != nil {
		return fmt.Errorf("set the cap: %w", err)
	}
	_, err = s.db.Exec(ctx, `
		INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket)
		SELECT 'Bench ' || n, 'bench' || n || '.edu', 'r' || n, 's' || n FROM generate_series(1, $1) n`, institutions)
	if err != nil {
		return fmt.Errorf("make the institutions: %w", err)
	}
	return nil
}

// environment has the settings of a worker.
func (s *servers) environment(c config) map[string]string {
	e := map[string]string{
		"FAROL_DATABASE_URL": s.stack.DatabaseURL, "FAROL_REDIS_URL": s.stack.RedisURL,
		"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", // no stage asks for storage
	}
	if c.pools != "" {
		e["FAROL_POOLS"] = c.pools
	}
	return e
}

// pools are those of a worker.
func (s *servers) pools(c config) ([]pipeline.Pool, error) {
	w, err := settings.Load(s.environment(c), settings.ReadWorker)
	if err != nil {
		return nil, fmt.Errorf("read the settings of a worker: %w", err)
	}
	if len(w.Pools) == 0 {
		return settings.DefaultPools(), nil
	}
	return w.Pools, nil
}

// empty makes runs begin alike: without items, and with nothing of the run before left to be written.
func (s *servers) empty(ctx context.Context) error {
	_, err := s.db.Exec(ctx, `BEGIN; SET LOCAL session_replication_role = replica; -- or it would be refused
		TRUNCATE work_items, work_item_attempts, topic_messages, uploads_in_work, objects_in_work, institution_virtual_times, worker_processes
			RESTART IDENTITY CASCADE; COMMIT`)
	if err != nil {
		return fmt.Errorf("empty the queue: %w", err)
	}
	for _, sql := range []string{`VACUUM ANALYZE work_items, work_item_attempts, topic_messages`, `CHECKPOINT`, `SELECT pg_stat_statements_reset()`} {
		if _, err := s.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("prepare the next run: %s: %w", sql, err)
		}
	}
	return nil
}

func (s *servers) stop(ctx context.Context) error {
	var errs []error
	if s.db != nil {
		s.db.Close()
	}
	if s.stack != nil {
		errs = append(errs, s.stack.Remove(ctx))
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
