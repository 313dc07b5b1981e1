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

	"github.com/farol-preservation/farol/internal/rigs/oracle"
	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
)

// redisExperiments take Redis away, fill it, or empty it.
func redisExperiments() []experiment {
	return []experiment{
		trial("redis-refused", "Redis refuses connections for 30 s", allDo, 0.1,
			hold(30*time.Second, refused(all, toRedis))).inShort(),
		trial("redis-long", "Redis refuses connections for 150 s", allDo+", the first within 30 s", 0.1,
			hold(150*time.Second, refused(all, toRedis))),
		trial("redis-stalled", "Redis does not answer for 30 s", allDo, 0.1,
			hold(30*time.Second, stalled(all, toRedis))),
		trial("redis-full", "Redis is at maxmemory for 20 s", allDo, 0.1,
			hold(20*time.Second, once("maxmemory", redisDo("CONFIG", "SET", "maxmemory", "1"), redisDo("CONFIG", "SET", "maxmemory", "0")))).inShort(),
		trial("redis-read-only", "Redis is a read-only replica for 20 s", allDo, 0.1,
			hold(20*time.Second, once("replica", redisDo("REPLICAOF", "127.0.0.1", "9"), redisDo("REPLICAOF", "NO", "ONE")))),
		trial("one-redis-refused", "one worker is refused by Redis, for good", "the others process all bags", 0.05,
			untilDone(2*time.Minute, refused(firstWorker, toRedis))).inShort(),
		trial("redis-emptied", "Redis is emptied (FLUSHALL) every 2 s for 20 s", "costs time only", 0.05,
			hold(20*time.Second, repeated("flush", 2*time.Second, redisDo("FLUSHALL")))),
		trial("redis-killed", "Redis is killed and started again, three times in 20 s", allDo, 0.05,
			hold(20*time.Second, repeated("kill", 6*time.Second, func(ctx context.Context, s *site) error {
				s.Redis.ShutdownNoSave(ctx) // whose answer is the end of the connection
				return nil
			}))),
	}
}

func redisDo(command ...any) step {
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
		trial("pg-cut-each-second", "all connections to PostgreSQL are cut each second while there is work, for 60 s at most; 4 large bags", "all Success", 0.02,
			untilDone(time.Minute, cut(all, toPostgres))).inShort().of(func(bags int) mix { return mix{Bags: bags, Large: 4, Many: 2} }),
		trial("pg-refused", "PostgreSQL refuses connections for 20 s", allDo, 0.1,
			hold(20*time.Second, refused(all, toPostgres))),
		trial("pg-refused-long", "PostgreSQL refuses connections for 60 s, longer than a lease", allDo, 0.1,
			hold(time.Minute, refused(all, toPostgres))),
		trial("pg-killed", "PostgreSQL is killed (SIGKILL) and recovers, twice in 25 s", allDo, 0.1,
			hold(25*time.Second, repeated("kill", 10*time.Second, killPostgres))),
		trial("pg-stalled", "PostgreSQL does not answer for 25 s", allDo, 0.1,
			hold(25*time.Second, stalled(all, toPostgres))),
		trial("one-pg-refused", "one worker is refused by PostgreSQL for 45 s, longer than a lease", "other workers process its items", 0.1,
			hold(45*time.Second, refused(firstWorker, toPostgres))).spends(), // all may be over before it can tell why
		trial("clock-back", "the database's clock is set back by an hour", "costs seconds", 0.2,
			shiftClock(time.Hour)).inShort().promising(clock),
		trial("clock-forward", "the database's clock is set forward by an hour", "costs seconds", 0.2,
			shiftClock(-time.Hour)).promising(clock),
		trial("hour-away", "S3 refuses connections for 40 s, and halfway every stored time ages by an hour", "no attempt used up, nothing parked", 0.1,
			during(inTurn(pause(20*time.Second), shiftClock(-time.Hour), pause(20*time.Second)), refused(all, toS3))).promising(oracle.Promise{Clock: true}),
		trial("clock-failed", "the database's clock is set forward by an hour and back, and what is left in the receiving buckets gets new times, when all bags have ended", "the bags that failed are not tried again", 0,
			inTurn(ended, shiftClock(-time.Hour), newTimes, pause(5*time.Second), shiftClock(time.Hour), pause(5*time.Second))).promising(clock),
		trial("clock-back-killed", "the database's clock is set back by an hour, and all workers are killed at that moment", "leases of dead workers expire soon", 0.2,
			func(ctx context.Context, s *site) error {
				for _, p := range s.workers {
					p.Signal(syscall.SIGKILL)
				}
				return shiftClock(time.Hour)(ctx, s)
			}).promising(clock),
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

// shiftClock adds by to every time in the database that its clock wrote: what is there is as if
// the clock had been set back by so much. A few times are others': that of an upload is S3's, that
// of a file is in its tar, and a provider says until when a copy is readable.
func shiftClock(by time.Duration) step {
	return func(ctx context.Context, s *site) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := injure.SetClock(ctx, s.DB, -by, "bag_date", "mod_time", "readable_until"); err != nil {
			return err //nolint:wrapcheck // it says what it was doing
		}
		s.note("all times shifted by %s", by)
		return nil
	}
}
