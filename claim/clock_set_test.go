package claim_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// aboutAnHour is by how much clocks are set here, see [testenv.SetClock].
const aboutAnHour = time.Hour + 7*time.Millisecond

// The database's clock may be set by an hour, forward and back, as often as it
// likes, while all is under way: nothing is lost, nothing is done twice, no attempt
// is spent, and it is over in seconds.
func TestClockIsSetWhileWorkersRun(t *testing.T) {
	t.Parallel()
	c := newCrew(t, testenv.Database(t), 1500)
	c.q.exec(`UPDATE stage_settings SET max_attempts = 3, lease = '10 seconds', heartbeat = '1 second'`)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for range 2 {
		group := c.start(ctx, c.q.db, 3)
		defer func() { stop(); group.Wait() }()
	}
	for _, by := range []time.Duration{aboutAnHour, -aboutAnHour, -aboutAnHour, aboutAnHour} {
		c.goOn()
		testenv.SetClock(t, c.q.db, by)
		begun := time.Now()
		c.goOn()
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("it went on %v after the clock was set by %v", took, by)
		}
	}
	c.account()
	// Few are: those of a worker whose heartbeat was under way in that moment. They do
	// not count.
	testenv.Eventually(t, "workers to tell why they lost claims", func() bool {
		return value[int](c.q, `SELECT count(*) FROM work_item_attempts WHERE outcome <> 'done' AND error_code <> 'clock-set'`) == 0
	})
}

// running starts an engine's upkeep until the test ends.
func (q *queue) running(e *claim.Engine) {
	q.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	q.t.Cleanup(func() {
		stop()
		<-done
	})
}

// firstHeartbeat waits until the engine has sent its first heartbeat.
func (q *queue) firstHeartbeat(e *claim.Engine) {
	q.t.Helper()
	testenv.Eventually(q.t, "a heartbeat", func() bool {
		return value[bool](q, `SELECT EXISTS (SELECT FROM worker_processes WHERE worker = $1)`, e.Worker())
	})
}

// What a dead worker had is taken up again whichever way the clock is set, and a
// waiting item waits no longer than it should.
func TestClockIsSetAfterAWorkerDied(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		by    time.Duration
		alive bool // someone sees it happen
	}{
		"forward":           {aboutAnHour, true},
		"back":              {-aboutAnHour, true},
		"back, nobody sees": {-aboutAnHour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			q.exec(`UPDATE stage_settings SET heartbeat = '500 milliseconds', lease = '2 seconds', backoff_first = '1 second', backoff_factor = 1`)
			dead := q.engine()
			held, snoozed, failed, due := q.put("Store", 1), q.put("Record", 1), q.put("Cleanup", 1), q.put("Validate", 1)
			q.claimOne(dead, "Store").Abandon()
			q.settle(q.claimOne(dead, "Record"), claim.Done{}, claim.Snooze(2*time.Hour, "the provider takes its time"))
			live := q.engine()
			if tc.alive {
				q.running(live)
				q.firstHeartbeat(live)
			}
			q.settle(q.claimOne(dead, "Cleanup"), claim.Done{}, context.DeadlineExceeded)
			testenv.SetClock(t, q.db, tc.by)
			if !tc.alive {
				q.running(live)
			}
			for _, id := range []int64{held, failed, due} {
				testenv.Eventually(t, "items to be due", func() bool { r := q.row(id); return r.Status == "Pending" && r.Due })
			}
			left := value[float64](q, `SELECT extract(epoch FROM run_at - now())::float8 / 3600 FROM work_items WHERE id = $1`, snoozed)
			if want := map[bool]float64{true: 1, false: 2}[tc.by > 0]; left > want+0.01 || left < want-0.1 {
				t.Errorf("what was snoozed for two hours waits %.2f hours more, want %v", left, want)
			}
		})
	}
}

// The lease of an item in work, and what is known of its worker, fit the clock again
// with the next heartbeat.
func TestClockIsSetBackUnderALiveWorker(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.exec(`UPDATE stage_settings SET heartbeat = '1 second', lease = '10 seconds'`)
	q.put("Store", 1)
	e := q.engine()
	q.running(e)
	h := q.claimOne(e, "Store")
	q.firstHeartbeat(e)
	testenv.SetClock(t, q.db, -aboutAnHour)
	testenv.Eventually(t, "the lease to be as long as leases are", func() bool {
		return value[bool](q, `SELECT lease_expires_at <= now() + interval '10 seconds' FROM work_items`) &&
			value[bool](q, `SELECT bool_and(heartbeat_at <= now()) FROM worker_processes`)
	})
	q.settle(h, claim.Done{Next: "Storage Validation"}, nil)
}

// A heartbeat that its worker has given up may still come to the database, after others that it
// never had. That a heartbeat was sooner than it seems says nothing of the clock.
func TestAStallIsNoSetClock(t *testing.T) {
	t.Parallel()
	url := testenv.DatabaseURL(t)
	q := &queue{t, testPool(t, url)}
	at := q.db.Config().ConnConfig
	direct := net.JoinHostPort(at.Host, itoa(at.Port))
	proxy := testenv.NewProxy(t, direct)
	var logged bytes.Buffer
	e := (&queue{t, testPool(t, strings.Replace(url, direct, proxy.Addr(), 1))}).engine(func(o *claim.Options) {
		o.Heartbeat, o.Lease, o.Log = 500*time.Millisecond, 9*time.Second, slog.New(slog.NewTextHandler(&logged, nil))
	})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	q.firstHeartbeat(e)
	last := value[time.Time](q, `SELECT heartbeat_at FROM worker_processes`)
	var delayed time.Time
	testenv.Eventually(t, "a heartbeat that was given up to come to the database", func() bool {
		now := value[time.Time](q, `SELECT heartbeat_at FROM worker_processes`)
		switch since := time.Since(delayed); {
		case delayed.IsZero() && now.After(last):
			proxy.Delay(8 * time.Second) // more than a heartbeat waits, and than two clocks may differ
			last, delayed = now, time.Now()
		case !delayed.IsZero() && since > 20*time.Second: // none was under way on a connection that had been made
			proxy.Resume()
			delayed = time.Time{}
		}
		return now.After(last.Add(7 * time.Second))
	})
	proxy.Resume()
	for range 2 {
		last = value[time.Time](q, `SELECT heartbeat_at FROM worker_processes`)
		testenv.Eventually(t, "a heartbeat", func() bool { return value[time.Time](q, `SELECT heartbeat_at FROM worker_processes`).After(last) })
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if strings.Contains(logged.String(), "clock was set") || !strings.Contains(logged.String(), "heartbeat failed") {
		t.Errorf("the log of a worker that could not reach the database for some seconds:\n%s", &logged)
	}
}

// A claim that another process ends because the clock was set forward, which knows
// nothing of it, is no failure of the item's.
func TestClaimLostToAClockDoesNotCount(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.put("Store", 1)
	e := q.engine()
	must.Do(t, e.Beat(context.Background()))
	h := q.claimOne(e, "Store")
	testenv.SetClock(t, q.db, aboutAnHour)
	if n := q.reap(e); n != 0 {
		t.Errorf("the worker ended %d of its own leases", n)
	}
	if n := q.reap(q.engine()); n != 1 {
		t.Fatalf("a worker that has just begun ended %d leases, want 1", n)
	}
	must.Do(t, e.Beat(context.Background()))
	if code := value[string](q, `SELECT error_code FROM work_item_attempts`); code != "clock-set" || h.Context().Err() == nil {
		t.Errorf("the ledger says %q, the work goes on: %v", code, h.Context().Err() == nil)
	}
	if n := value[int](q, `SELECT failed_attempts(id, entered_token, claim_token) FROM work_items`); n != 0 {
		t.Errorf("%d attempts count", n)
	}
}
