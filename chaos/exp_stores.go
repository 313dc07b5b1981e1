package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/internal/oracle"
)

// redisExperiments take Redis away, fill it, or empty it.
func redisExperiments() []experiment {
	return []experiment{
		{
			name: "redis-refused", short: true, does: "Redis refuses connections for 30 s", must: allDo, at: 0.1,
			script: hold(30*time.Second, refused(all, toRedis)),
		},
		{
			name: "redis-long", does: "Redis refuses connections for 150 s", must: allDo + ", the first within 30 s", at: 0.1,
			script: hold(150*time.Second, refused(all, toRedis)),
		},
		{
			name: "redis-stalled", does: "Redis does not answer for 30 s", must: allDo, at: 0.1,
			script: hold(30*time.Second, stalled(all, toRedis)),
		},
		{
			name: "redis-full", short: true, does: "Redis is at maxmemory for 20 s", must: allDo, at: 0.1,
			script: hold(20*time.Second, once("maxmemory", redisDo("CONFIG", "SET", "maxmemory", "1"), redisDo("CONFIG", "SET", "maxmemory", "0"))),
		},
		{
			name: "redis-read-only", does: "Redis is a read-only replica for 20 s", must: allDo, at: 0.1,
			script: hold(20*time.Second, once("replica", redisDo("REPLICAOF", "127.0.0.1", "9"), redisDo("REPLICAOF", "NO", "ONE"))),
		},
		{
			name: "one-redis-refused", short: true, does: "one worker is refused by Redis, for good", must: "the others process all bags", at: 0.05,
			script: untilDone(2*time.Minute, refused(firstWorker, toRedis)),
		},
		{
			name: "redis-emptied", does: "Redis is emptied (FLUSHALL) every 2 s for 20 s", must: "costs time only", at: 0.05,
			script: hold(20*time.Second, repeated("flush", 2*time.Second, redisDo("FLUSHALL"))),
		},
		{
			name: "redis-killed", does: "Redis is killed and started again, three times in 20 s", must: allDo, at: 0.05,
			script: hold(20*time.Second, repeated("kill", 6*time.Second, func(ctx context.Context, s *site) error {
				s.Redis.ShutdownNoSave(ctx) // whose answer is the end of the connection
				return nil
			})),
		},
	}
}

func redisDo(command ...any) func(context.Context, *site) error {
	return func(ctx context.Context, s *site) error {
		if err := s.Redis.Do(ctx, command...).Err(); err != nil {
			return fmt.Errorf("redis %v: %w", command, err)
		}
		return nil
	}
}

// postgresExperiments cut connections to the database, restart it, and set its
// clock.
func postgresExperiments() []experiment {
	clock := oracle.Promise{Clock: true, Spends: true}
	return []experiment{
		{
			name: "pg-cut-each-second", short: true, does: "all connections to PostgreSQL are cut each second while there is work, for 60 s at most; 4 large bags", must: "all Success", at: 0.02,
			mix:    func(bags int) mix { return mix{Bags: bags, Large: 4, Many: 2} },
			script: untilDone(time.Minute, cut(all, toPostgres)),
		},
		{
			name: "pg-refused", does: "PostgreSQL refuses connections for 20 s", must: allDo, at: 0.1,
			script: hold(20*time.Second, refused(all, toPostgres)),
		},
		{
			name: "pg-refused-long", does: "PostgreSQL refuses connections for 60 s, longer than a lease", must: allDo, at: 0.1,
			script: hold(time.Minute, refused(all, toPostgres)),
		},
		{
			name: "pg-killed", does: "PostgreSQL is killed (SIGKILL) and recovers, twice in 25 s", must: allDo, at: 0.1,
			script: hold(25*time.Second, repeated("kill", 10*time.Second, killPostgres)),
		},
		{
			name: "pg-stalled", does: "PostgreSQL does not answer for 25 s", must: allDo, at: 0.1,
			script: hold(25*time.Second, stalled(all, toPostgres)),
		},
		{
			name: "one-pg-refused", does: "one worker is refused by PostgreSQL for 45 s, longer than a lease", must: "other workers process its items", at: 0.1,
			script:  hold(45*time.Second, refused(firstWorker, toPostgres)),
			promise: oracle.Promise{Spends: true}, // all may be over before it can tell why
		},
		{
			name: "clock-back", short: true, does: "the database's clock is set back by an hour", must: "costs seconds", at: 0.2,
			script: shiftClock(time.Hour), promise: clock,
		},
		{
			name: "clock-forward", does: "the database's clock is set forward by an hour", must: "costs seconds", at: 0.2,
			script: shiftClock(-time.Hour), promise: clock,
		},
		{
			name: "hour-away", does: "S3 refuses connections for 40 s, and halfway every stored time ages by an hour", must: "no attempt used up, nothing parked", at: 0.1,
			script: during(inTurn(pause(20*time.Second), shiftClock(-time.Hour), pause(20*time.Second)), refused(all, toS3)), promise: oracle.Promise{Clock: true},
		},
		{
			name: "clock-failed", does: "the database's clock is set forward by an hour and back, and what is left in the receiving buckets gets new times, when all bags have ended", must: "the bags that failed are not tried again",
			script: inTurn(ended, shiftClock(-time.Hour), newTimes, pause(5*time.Second), shiftClock(time.Hour), pause(5*time.Second)), promise: clock,
		},
		{
			name: "clock-back-killed", does: "the database's clock is set back by an hour, and all workers are killed at that moment", must: "leases of dead workers expire soon", at: 0.2,
			script: func(ctx context.Context, s *site) error {
				for _, p := range s.workers {
					p.Signal(syscall.SIGKILL)
				}
				return shiftClock(time.Hour)(ctx, s)
			}, promise: clock,
		},
	}
}

// ended waits until all bags have.
func ended(ctx context.Context, s *site) error { return untilDone(s.patience())(ctx, s) }

// newTimes has what is left in the receiving buckets look as if it had been uploaded just now,
// as after a bucket was restored or moved. The gateway takes the times of its files.
func newTimes(_ context.Context, s *site) error {
	left, now := 0, time.Now().Add(time.Minute)
	for _, bucket := range s.Receiving() {
		files, err := filepath.Glob(filepath.Join(s.bucketDir(bucket), "*.tar"))
		for _, file := range files {
			err = errors.Join(err, os.Chtimes(file, now, now))
		}
		if left += len(files); err != nil {
			return fmt.Errorf("change the times of uploads: %w", err)
		}
	}
	if s.note("%d uploads got new times", left); left == 0 {
		return errVoid
	}
	return nil
}

// killPostgres kills the postmaster. The stack starts it again.
func killPostgres(_ context.Context, s *site) error {
	text, err := os.ReadFile(filepath.Join(s.Servers.Dir, "stack", "postgres", "data", "postmaster.pid"))
	if err != nil {
		return nil //nolint:nilerr // it is not up yet
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(line)
	if err != nil || pid < 2 {
		return fmt.Errorf("find PostgreSQL's process in %q: %w", line, err)
	}
	syscall.Kill(pid, syscall.SIGKILL) //nolint:errcheck // it may be gone
	return nil
}

// shiftClock adds by to every time in the database that its clock wrote, in one transaction:
// what is there is as if the clock had been set back by so much. A few times are others':
// that of an upload is S3's, that of a file is in its tar, and a provider says until when a
// copy is readable.
func shiftClock(by time.Duration) func(context.Context, *site) error {
	return func(ctx context.Context, s *site) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		rows, err := s.DB.Query(ctx, `
			SELECT quote_ident(c.table_name), format('UPDATE %I SET %s', c.table_name, string_agg(format('%I = %I + $1::interval', column_name, column_name), ', '))
			FROM information_schema.columns c JOIN pg_class t ON t.oid = to_regclass(quote_ident(c.table_name))
			WHERE c.table_schema = 'public' AND c.data_type = 'timestamp with time zone' AND c.is_generated = 'NEVER'
				AND c.column_name NOT IN ('bag_date', 'mod_time', 'readable_until')
				AND t.relkind IN ('r', 'p') AND NOT t.relispartition AND c.table_name NOT LIKE 'goose%'
			GROUP BY c.table_name ORDER BY c.table_name = 'work_items', c.table_name`)
		if err != nil {
			return fmt.Errorf("find the times: %w", err)
		}
		var tables, updates []string
		for rows.Next() {
			var table, sql string
			if err := rows.Scan(&table, &sql); err != nil {
				return fmt.Errorf("find the times: %w", err)
			}
			tables, updates = append(tables, table), append(updates, sql)
		}
		if err := rows.Err(); err != nil {
			return fmt.Errorf("find the times: %w", err)
		}
		// A clock is set at one moment: nobody writes. Waiting for the tables would be a deadlock.
		return s.shift(ctx, `LOCK TABLE `+strings.Join(tables, ", ")+` IN EXCLUSIVE MODE NOWAIT`, updates, by)
	}
}

func (s *site) shift(ctx context.Context, lock string, updates []string, by time.Duration) error {
	for {
		err := s.shiftOnce(ctx, lock, updates, by)
		var refused *pgconn.PgError
		switch {
		case err == nil:
			s.note("%d tables shifted by %s", len(updates), by)
			return nil
		case !errors.As(err, &refused) || refused.Code != "55P03": // a worker is in the way
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (s *site) shiftOnce(ctx context.Context, lock string, updates []string, by time.Duration) error {
	tx, err := s.DB.Begin(ctx)
	if err != nil {
		return fmt.Errorf("shift the clock: %w", err)
	}
	defer tx.Rollback(ctx)                                                                  //nolint:errcheck // it may be committed
	if _, err := tx.Exec(ctx, `SET LOCAL session_replication_role = replica`); err != nil { // no trigger runs
		return fmt.Errorf("shift the clock: %w", err)
	}
	if _, err := tx.Exec(ctx, lock); err != nil {
		return fmt.Errorf("lock what is shifted: %w", err)
	}
	for _, sql := range updates {
		if _, err := tx.Exec(ctx, sql, by); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("shift the clock: %w", err)
	}
	return nil
}
