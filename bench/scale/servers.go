package scale

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/pipeline"
)

// servers are those that the workers need.
type servers struct {
	*rig.Servers

	version string
	pooler  *devstack.Stack // nil: there is none
}

// startPooler starts PgBouncer.
func (s *servers) startPooler(ctx context.Context, c config) (err error) {
	s.pooler, err = devstack.Start(ctx, devstack.Options{
		Dir: filepath.Join(s.Dir, "pooler"), Executable: s.Dev, Only: []devstack.Service{devstack.PgBouncer}, PoolerOf: s.Stack.DatabaseURL,
		PoolerSettings: []string{fmt.Sprintf("default_pool_size=%d", c.pooler), fmt.Sprintf("max_client_conn=%d", 50+connections*slices.Max(c.workers))},
	})
	if err != nil {
		return fmt.Errorf("start the pooler: %w", err)
	}
	return nil
}

// Stop stops the servers.
func (s *servers) Stop(ctx context.Context) (err error) {
	if s.pooler != nil {
		err = s.pooler.Stop(ctx)
	}
	return errors.Join(err, s.Servers.Stop(ctx))
}

// startServers starts PostgreSQL with the settings that it comes with, but for the number of
// connections, and Redis.
func startServers(ctx context.Context, c config) (*servers, error) {
	inner, err := rig.Start(ctx, "", devstack.Options{
		Only: []devstack.Service{devstack.Redis},
		PostgresSettings: append([]string{
			fmt.Sprintf("max_connections=%d", 50+connections*slices.Max(c.workers)), "shared_preload_libraries=pg_stat_statements",
		}, c.postgres...),
	})
	if err != nil {
		return nil, err
	}
	s := &servers{Servers: inner}
	err = s.prepare(ctx, c)
	if err == nil && c.pooler > 0 {
		err = s.startPooler(ctx, c)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// connections are more than a worker has: see docs/operators.md.
const connections = 20

// institutions is how many deposit.
const institutions = 8

// prepare counts statements, and makes the institutions.
func (s *servers) prepare(ctx context.Context, c config) error {
	if err := s.DB.QueryRow(ctx, `SELECT current_setting('server_version')`).Scan(&s.version); err != nil {
		return fmt.Errorf("read the database's version: %w", err)
	}
	if _, err := s.DB.Exec(ctx, `CREATE EXTENSION pg_stat_statements`); err != nil {
		return fmt.Errorf("count statements: %w", err)
	}
	_, err := s.DB.Exec(ctx, `UPDATE stage_settings SET cap = nullif($1, 0) WHERE stage = 'Record'`, c.recordCap)
	if err != nil {
		return fmt.Errorf("set the cap: %w", err)
	}
	_, err = s.DB.Exec(ctx, `
		INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket)
		SELECT 'Bench ' || n, 'bench' || n || '.edu', 'r' || n, 's' || n FROM generate_series(1, $1) n`, institutions)
	if err != nil {
		return fmt.Errorf("make the institutions: %w", err)
	}
	return nil
}

// environment has the settings of the nth worker.
func (s *servers) environment(c config, n int) map[string]string {
	e := map[string]string{
		"FAROL_DATABASE_URL": s.Stack.DatabaseURL, "FAROL_REDIS_URL": s.Stack.RedisURL,
		"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", // no stage asks for storage
	}
	if c.pools != "" {
		e["FAROL_POOLS"] = c.pools
	}
	if pools := strings.Split(c.pools, "|"); c.apart {
		e["FAROL_POOLS"] = pools[n%len(pools)]
	}
	if s.pooler != nil {
		e["FAROL_DATABASE_POOLER"], e["FAROL_DATABASE_DIRECT_URL"], e["FAROL_DATABASE_URL"] = "prepared", s.Stack.DatabaseURL, s.pooler.PoolerURL
	}
	return e
}

// pools are those of a worker.
func (s *servers) pools(c config) ([]pipeline.Pool, error) {
	w, err := settings.Load(s.environment(config{pools: c.pools}, 0), settings.Worker{})
	if err != nil {
		return nil, fmt.Errorf("read the settings of a worker: %w", err)
	}
	if len(w.Pools.List) == 0 {
		return settings.DefaultPools(), nil
	}
	return w.Pools.List, nil
}

// empty makes runs begin alike: without items, and with nothing of the run before left to be written.
func (s *servers) empty(ctx context.Context) error {
	_, err := s.DB.Exec(ctx, `BEGIN; SET LOCAL session_replication_role = replica; -- or it would be refused
		TRUNCATE work_items, work_item_attempts, topic_messages, uploads_in_work, objects_in_work, institution_virtual_times, worker_processes
			RESTART IDENTITY CASCADE; COMMIT`)
	if err != nil {
		return fmt.Errorf("empty the queue: %w", err)
	}
	for _, sql := range []string{`VACUUM ANALYZE work_items, work_item_attempts, topic_messages`, `CHECKPOINT`, `SELECT pg_stat_statements_reset()`} {
		if _, err := s.DB.Exec(ctx, sql); err != nil {
			return fmt.Errorf("prepare the next run: %s: %w", sql, err)
		}
	}
	return nil
}
