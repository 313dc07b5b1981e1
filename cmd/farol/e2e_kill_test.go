package main

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// slowly is how long each chunk of data to and from S3 takes while a test waits
// for the middle of a stage: long enough that none gets to its end before.
const slowly = 250 * time.Millisecond

// A worker may die at any moment. The next one ends the stage that it was in, and
// in the end everything is there once.
func TestKillAtEachStage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	proxy := s.s3Proxy()
	id := s.depositSample()
	// An item waits before each stage until the test is ready to catch it there.
	s.exec(`UPDATE stage_settings SET paused = true, max_attempts = 10, backoff_first = '100 milliseconds', backoff_most = '200 milliseconds'`)
	// What a killed worker has asked for, and waits for a lock, is not done afterwards.
	s.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET client_connection_check_interval = ''20ms''', current_database()); END $$`)
	worker := s.worker()
	for _, stage := range settings.StageNames() {
		proxy.Delay(slowly)
		release := s.holdEnd(stage)
		before := proxy.Bytes()
		s.exec(`UPDATE stage_settings SET paused = false WHERE stage = $1`, stage)
		worker.eventually("the middle of "+stage, func() bool {
			if item := s.item(id); string(item.Stage) != stage {
				t.Fatalf("%s ended before it could be caught: %+v", stage, item)
			}
			return s.inTheMiddle(id, stage, proxy.Bytes()-before)
		})
		worker.kill()
		testenv.Eventually(t, "its sessions to end", func() bool { return !s.someoneWaits() })
		release()
		proxy.Delay(0)
		worker = s.worker()
		worker.eventually("the end of "+stage, func() bool {
			item := s.item(id)
			return string(item.Stage) != stage || !item.Retry
		})
	}
	s.intact(id)
	for _, stage := range settings.StageNames() {
		if n := ask[int](t, s.db, `SELECT count(*) FROM work_item_attempts WHERE stage = $1 AND outcome = 'killed'`, stage); n < 1 {
			t.Errorf("the ledger names no killed worker at %s", stage)
		}
	}
}

// inTheMiddle reports whether a stage has done a part of its work, and a part only.
// moved is how many bytes went to and from S3 in that time.
func (s *site) inTheMiddle(id int64, stage string, moved int64) bool {
	s.t.Helper()
	if s.item(id).Status != "Started" {
		return false
	}
	switch stage {
	case "Receive":
		return moved > 100_000 // of the three megabytes of the tar
	case "Format Identification", "Store", "Storage Validation":
		n := s.finished(id, stage)
		if n == sampleFiles {
			s.t.Fatalf("%s has finished all files already", stage)
		}
		return n > 0
	case "Record", "Validate", "Reingest Check", "Copy To Staging":
		return s.someoneWaits()
	case "Cleanup":
		return len(keysOf(s.t, s.staging)) == 0 // and the tar is still there
	}
	s.t.Fatalf("the middle of %s is not known", stage)
	return false
}

// holdEnd lets the transaction of Record, or the end of a stage that hardly asks for anything else, begin
// and not end, until release is called.
func (s *site) holdEnd(stage string) (release func()) {
	s.t.Helper()
	table := map[string]string{"Record": "event_records", "Validate": "topic_messages", "Reingest Check": "topic_messages", "Copy To Staging": "topic_messages"}[stage]
	if table == "" {
		return func() {}
	}
	tx, err := s.db.Begin(s.t.Context())
	if err == nil {
		_, err = tx.Exec(s.t.Context(), `LOCK TABLE `+table+` IN SHARE MODE`)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	release = sync.OnceFunc(func() {
		s.t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
		defer cancel()
		err := tx.Rollback(ctx)
		if err != nil && !errors.Is(err, pgx.ErrTxClosed) && !tx.Conn().IsClosed() { // as after a restart of the server
			s.t.Error(err)
		}
	})
	s.t.Cleanup(release) // else the pool would wait for this connection without end
	return release
}

// someoneWaits reports whether a transaction stands where holdEnd keeps it.
func (s *site) someoneWaits() bool {
	s.t.Helper()
	return ask[int](s.t, s.db, `
		SELECT count(*) FROM pg_locks
		WHERE locktype = 'relation' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) > 0
}

// A worker that was asked to stop, and is killed in the midst of a long file, is no worker that was
// lost: as with a service manager that sends SIGKILL some seconds after SIGTERM. Its item's
// attempt does not count, and nobody is alerted.
func TestSIGKILLAfterSIGTERMCountsNoAttempt(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.settings["FAROL_GRACE"] = "10m"
	s.settings["FAROL_LEASE"], s.settings["FAROL_HEARTBEAT"] = "5m", "1m" // nobody waits for it to lapse
	proxy := s.s3Proxy()
	id := s.depositSample()
	const stage = "Store"
	s.exec(`UPDATE stage_settings SET paused = (stage = $1)`, stage)
	worker := s.worker()
	worker.eventually("the item to come to "+stage, func() bool { return s.item(id).Stage == stage })
	proxy.Delay(slowly)
	s.exec(`UPDATE stage_settings SET paused = false`)
	worker.eventually("the middle of "+stage, func() bool { return s.inTheMiddle(id, stage, 0) })
	must.Do(t, worker.Process.Signal(syscall.SIGTERM))
	worker.eventually("the order to stop to be on record", func() bool { return ask[int](t, s.db, `SELECT count(*) FROM workers WHERE draining`) == 1 })
	worker.kill()

	proxy.Delay(0)
	worker = s.worker()
	s.atRest(worker)
	counts(t, s.db, map[string]int{
		`SELECT count(*) FROM work_item_attempts WHERE outcome = 'stopped' AND stage = 'Store'`:                        1,
		`SELECT count(*) FROM work_item_attempts WHERE outcome NOT IN ('done', 'stopped')`:                             0,
		`SELECT count(*) FROM work_item_attempts WHERE attempt > 1`:                                                    0,
		`SELECT count(*) FROM worker_processes WHERE ended_at IS NOT NULL AND ending IN ('killed', 'silent', 'panic')`: 0,
	})
	s.terminate(worker)
	s.intact(id)
}

// A worker that is stopped gives back what it cannot end, at once and with
// no attempt counted.
func TestSIGTERMGivesBackAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.settings["FAROL_GRACE"] = "0s"
	s.settings["FAROL_LEASE"], s.settings["FAROL_HEARTBEAT"] = "5m", "1m" // nobody waits for it to lapse
	proxy := s.s3Proxy()
	id := s.depositSample()
	const stage = "Store"
	s.exec(`UPDATE stage_settings SET paused = (stage = $1)`, stage)
	worker := s.worker()
	worker.eventually("the item to come to "+stage, func() bool { return s.item(id).Stage == stage })
	proxy.Delay(slowly)
	s.exec(`UPDATE stage_settings SET paused = false`)
	worker.eventually("the middle of "+stage, func() bool { return s.inTheMiddle(id, stage, 0) })

	told := time.Now()
	s.terminate(worker)
	if took := time.Since(told); took > testenv.AtOnce {
		t.Errorf("the worker took %v to end", took)
	}
	if item := s.item(id); string(item.Stage) != stage || item.Status != "Pending" || item.Attempt != 0 {
		t.Errorf("item = %+v", item)
	}
	counts(t, s.db, map[string]int{
		`SELECT count(*) FROM work_items WHERE run_at <= now()`:                                  1,
		`SELECT count(*) FROM work_item_attempts WHERE stage = 'Store'`:                          1,
		`SELECT count(*) FROM work_item_attempts WHERE stage = 'Store' AND outcome = 'released'`: 1,
	})

	proxy.Delay(0)
	worker = s.worker()
	s.atRest(worker)
	s.terminate(worker)
	s.intact(id)
}
