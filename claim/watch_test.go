package claim_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// While no worker lives, an item of one that is gone comes back all the same: services that
// process no items end its attempt. Several of them do not disturb each other, and the attempt
// ends once.
func TestServicesEndTheAttemptsOfWorkersThatAreGone(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.exec(`UPDATE stage_settings SET heartbeat = '2 seconds', lease = '6 seconds'`)
	id := q.put("Receive", 1)
	q.claimOne(q.engine(), "Receive") // and its process is not heard of again
	q.lapse()
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	for range 3 {
		watching.Go(func() {
			o := claim.DefaultOptions()
			o.Log = slog.New(slog.DiscardHandler)
			claim.Watch(ctx, q.db, o)
		})
	}
	testenv.Eventually(t, "the item to come back", func() bool { return q.row(id).Status == "Pending" })
	stop()
	watching.Wait()
	if got := value[string](q, `SELECT string_agg(outcome, ' ') FROM work_item_attempts`); got != "lease expired" {
		t.Errorf("the ledger has %q", got)
	}
	if n := value[int](q, `SELECT count(*) FROM worker_processes`); n != 0 {
		t.Errorf("%d services count as workers", n)
	}
}

// A worker may allow other numbers of attempts than the settings. They hold for all processes that
// end its attempts.
func TestWorkersOwnNumberOfAttemptsHolds(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.put("Receive", 1)
	e := q.engine(func(o *claim.Options) { o.MaxAttempts = map[string]int{"Receive": 1} })
	h := q.claimOne(e, "Receive")
	q.exec(`INSERT INTO worker_processes (worker, node, pid, host, pid_started, pools, heartbeat)
		VALUES ($1, 'n', 1, 'h', 1, '[{"name": "all", "max_attempts": {"Receive": 1}}]', '10 seconds')`, e.Worker())
	h.Abandon()
	q.lapse()
	q.reap(q.engine())
	if r := q.row(id); r.Status != "Suspended" {
		t.Errorf("item = %+v, want it to be parked after the one attempt that its worker allows", r)
	}
}

// A service that has just started ends no lease before every live worker has renewed its own:
// the database's clock may have been set forward, or the database may have been away.
func TestServiceThatStartsEndsNoLeaseAtOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.put("Receive", 1)
	q.claimOne(q.engine(), "Receive")
	q.lapse()
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	o := claim.DefaultOptions()
	o.Log = slog.New(slog.DiscardHandler)
	claim.Watch(ctx, q.db, o)
	if r := q.row(id); r.Status != "Started" {
		t.Errorf("item = %+v, want it to be left alone", r)
	}
}
