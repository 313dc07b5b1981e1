package claim_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/dial"
)

// running starts an engine's upkeep and stops it with the test.
func running(t *testing.T, e *claim.Engine) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var upkeep sync.WaitGroup
	upkeep.Go(func() {
		if err := e.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() { stop(); upkeep.Wait() })
}

func quick(o *claim.Options) { o.Heartbeat, o.Lease = 50*time.Millisecond, time.Minute }

// A job that takes longer than a lease keeps its item.
func TestHeartbeatKeepsTheLease(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.put("Receive", 1)
	e := q.engine(quick)
	running(t, e)
	h := q.claimOne(e, "Receive")
	h.CurrentFile("data/\x00\xff") // what a tar may have in it, and no text in the database
	h.CurrentFile("data/film.mov\xff")
	first := value[time.Time](q, `SELECT lease_expires_at FROM work_items WHERE id = $1`, id)
	testenv.Eventually(t, "a renewed lease", func() bool {
		return value[time.Time](q, `SELECT lease_expires_at FROM work_items WHERE id = $1`, id).After(first)
	})
	if got := value[string](q, `SELECT current_file FROM work_item_attempts`); got != "data/film.mov�" {
		t.Errorf("current file = %q", got)
	}
	if err := h.Context().Err(); err != nil {
		t.Errorf("the work was stopped: %v", err)
	}
}

// Anyone who takes an item away from a running worker stops its work.
func TestLostItemStopsItsWork(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"cancelled":      `SELECT cancel(id) FROM work_items`,
		"requeued":       `SELECT requeue(id) FROM work_items`,
		"typed by hand":  `UPDATE work_items SET status = 'Pending'`,
		"failed by hand": `UPDATE work_items SET status = 'Failed'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			q.put("Receive", 1)
			e := q.engine(quick)
			running(t, e)
			h := q.claimOne(e, "Receive")
			q.exec(sql)
			select {
			case <-h.Context().Done():
			case <-time.After(testenv.Patience):
				t.Fatal("the work goes on")
			}
			if cause := context.Cause(h.Context()); !errors.Is(cause, claim.ErrLost) {
				t.Errorf("cause = %v, want ErrLost", cause)
			}
			if err := h.Settle(context.Background(), claim.Done{Next: "Validate"}, nil); !errors.Is(err, claim.ErrLost) {
				t.Errorf("Settle = %v, want ErrLost", err)
			}
		})
	}
}

// A process may lose an item and claim it again before a heartbeat reports
// the loss: the work that it began first has to stop all the same.
func TestItemThatComesBackStopsTheWorkBefore(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.put("Receive", 1)
	e := q.engine()
	first := q.claimOne(e, "Receive")
	q.exec(`SELECT requeue($1)`, id)
	second := q.claimOne(e, "Receive")
	if err := first.Check(context.Background()); !errors.Is(err, claim.ErrLost) {
		t.Errorf("Check of the first = %v, want ErrLost", err)
	}
	if cause := context.Cause(first.Context()); !errors.Is(cause, claim.ErrLost) {
		t.Errorf("the first ended with %v, want ErrLost", cause)
	}
	if err := second.Check(context.Background()); err != nil {
		t.Errorf("Check of the second = %v", err)
	}
}

// A process that cannot reach the database stops its work before another
// worker may claim its items.
func TestProcessWithoutDatabaseStopsItself(t *testing.T) {
	t.Parallel()
	url := testenv.DatabaseURL(t)
	direct := must.Get(dial.Connect(context.Background(), url, "test"))(t)
	defer direct.Close()
	host := direct.Config().ConnConfig
	if strings.HasPrefix(host.Host, "/") {
		t.Fatalf("the test database is on a socket (%s): nothing can be cut", host.Host)
	}
	addr := host.Host + ":" + itoa(host.Port)
	proxy := testenv.NewProxy(t, addr)
	cut := must.Get(dial.Connect(context.Background(), strings.Replace(url, addr, proxy.Addr(), 1), "test"))(t)
	defer cut.Close()
	q := &queue{t, direct}
	q.exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore')`)
	q.put("Receive", 1)
	e := (&queue{t, cut}).engine(func(o *claim.Options) { o.Heartbeat, o.Lease = 100*time.Millisecond, 900*time.Millisecond })
	running(t, e)
	h := q.claimOne(e, "Receive")
	proxy.Cut()
	select {
	case <-h.Context().Done():
	case <-time.After(testenv.Patience):
		t.Fatal("the work goes on")
	}
	if cause := context.Cause(h.Context()); !errors.Is(cause, claim.ErrLost) {
		t.Errorf("cause = %v, want ErrLost", cause)
	}
}

// Work that one process makes wakes another at once, long before its poll.
func TestWorkWakesOtherProcesses(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	never := func(o *claim.Options) { o.Poll = time.Hour }
	maker, waiter := q.engine(never), q.engine(never)
	q.put("Receive", 1)
	h := q.claimOne(maker, "Receive")
	look, stop := waiter.Wakes(context.Background())
	defer stop()
	running(t, maker)
	running(t, waiter)

	<-look.C // a listener looks once when it begins to listen
	q.settle(h, claim.Done{Next: "Validate"}, nil)
	testenv.Eventually(t, "work at Validate", func() bool {
		select {
		case <-look.C:
		default:
			return false
		}
		items, err := waiter.Claim(context.Background(), at("Validate", 1), 1)
		return err == nil && len(items) == 1
	})
}

// The reaper of any process gives back what a dead one held.
func TestDeadWorkersItemsComeBack(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.put("Receive", 1)
	short := func(o *claim.Options) { o.Heartbeat, o.Lease = 100*time.Millisecond, 300*time.Millisecond }
	q.claimOne(q.engine(short), "Receive") // and sends no heartbeat
	e := q.engine(short)
	running(t, e)
	testenv.Eventually(t, "the item to be claimable", func() bool {
		items, err := e.Claim(context.Background(), at("Receive", 1), 1)
		return err == nil && len(items) == 1 && items[0].Attempt == 2
	})
}

// A worker that comes back late does not renew the lease of the one after it,
// and learns that it has lost the item.
func TestLateWorkerDoesNotRenewAnothersLease(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	late, next := q.engine(), q.engine()
	q.put("Receive", 1)
	h := q.claimOne(late, "Receive")
	q.lapse()
	q.reap(next)
	q.exec(`UPDATE work_items SET run_at = now()`)
	q.claimOne(next, "Receive")
	lease := value[time.Time](q, `SELECT lease_expires_at FROM work_items`)
	must.Do(t, late.Beat(context.Background()))
	if err := h.Check(context.Background()); !errors.Is(err, claim.ErrLost) {
		t.Errorf("Check = %v, want ErrLost", err)
	}
	if got := value[time.Time](q, `SELECT lease_expires_at FROM work_items`); !got.Equal(lease) {
		t.Errorf("the lease went from %v to %v", lease, got)
	}
}

// A heartbeat that its process has given up on may come late, with a shorter
// lease than the one after it has asked for.
func TestLateHeartbeatShortensNoLease(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.put("Receive", 1)
	e := q.engine()
	h := q.claimOne(e, "Receive")
	q.exec(`UPDATE work_items SET lease_expires_at = now() + interval '1 hour'`)
	must.Do(t, e.Beat(context.Background()))
	if left := value[float64](q, `SELECT extract(epoch FROM lease_expires_at - now())::float8 FROM work_items`); left < 3500 {
		t.Errorf("%v seconds are left of an hour", left)
	}
	if err := h.Context().Err(); err != nil {
		t.Errorf("the work was stopped: %v", err)
	}
}

// A file's name may be no text at all. It must not keep the process from renewing
// its leases, nor the item from its end.
func TestUnstorableFileNameHarmsNobody(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	e := q.engine()
	ids := []int64{q.put("Receive", 1), q.put("Receive", 1)}
	h, other := q.claimOne(e, "Receive"), q.claimOne(e, "Receive")
	h.CurrentFile("data/\xff\x00.bin")
	q.lapse()
	if err := e.Beat(context.Background()); err != nil {
		t.Fatalf("heartbeat: %v", err)
	}
	if n := value[int](q, `SELECT count(*) FROM work_items WHERE lease_expires_at > now()`); n != 2 {
		t.Errorf("%d leases were renewed, want 2", n)
	}
	if got := value[string](q, `SELECT current_file FROM work_item_attempts WHERE work_item_id = $1`, ids[0]); got != "data/\uFFFD\uFFFD.bin" {
		t.Errorf("current file = %q", got)
	}
	q.settle(h, claim.Done{Next: "Validate", Note: "read \xff"}, nil)
	q.settle(other, claim.Done{Next: "Validate"}, nil)
}
