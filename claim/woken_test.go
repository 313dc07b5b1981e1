package claim_test

import (
	"testing"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/registry"
)

// A pool is woken by work that it takes, in this process and in others, and not by
// that of its neighbours: it would claim in vain.
func TestPoolIsWokenByItsOwnWork(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	worker, other := unpolled(t, q), unpolled(t, q)
	small := claim.Filter{Stages: []claim.Want{{Stage: "Validate", Most: 1}}, MaxSize: 64 * mib}
	large := claim.Filter{Stages: small.Stages, MinSize: 64 * mib}
	elsewhere := claim.Filter{Stages: []claim.Want{{Stage: "Store", Most: 1}}}
	for name, e := range map[string]*claim.Engine{"the same process": worker, "another": other} {
		t.Run(name, func(t *testing.T) {
			var woken [3]<-chan struct{}
			for i, f := range []claim.Filter{small, large, elsewhere} {
				look, stop := e.Wakes(t.Context(), f)
				defer stop()
				woken[i] = look.C
			}
			q.put("Receive", 1)
			for { // what wakes all, such as the beginning of listening, is over once work wakes one alone
				done(t, worker, "Receive", "Validate")
				select {
				case <-woken[0]:
				case <-time.After(testenv.Patience):
					t.Fatal("the pool that takes the item was not woken")
				}
				if len(woken[1]) == 0 && len(woken[2]) == 0 {
					return
				}
				for _, look := range woken[1:] {
					select {
					case <-look:
					default:
					}
				}
				if q.put("Receive", 1); value[int](q, `SELECT count(*) FROM work_items`) > 50 {
					t.Fatal("pools that cannot take the items were woken each time")
				}
			}
		})
	}
}

// Those who wait for a capped stage are woken when an item leaves it, wherever that goes.
func TestPoolIsWokenWhenACapHasSpace(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	worker, other := unpolled(t, q), unpolled(t, q)
	for range 3 {
		q.put("Record", 1)
	}
	items, err := worker.Claim(t.Context(), at("Record", 3), 3)
	if err != nil || len(items) != 2 {
		t.Fatalf("Claim = %d items, %v; want the cap of two", len(items), err)
	}
	holds := []*claim.Hold{worker.Hold(t.Context(), items[0]), worker.Hold(t.Context(), items[1])}
	look, stop := other.Wakes(t.Context(), at("Record", 1))
	defer stop()
	for len(look.C) > 0 {
		<-look.C
	}
	if got, err := other.Claim(t.Context(), at("Record", 1), 1); err != nil || len(got) != 0 {
		t.Fatalf("Claim = %d items, %v; want none beyond the cap", len(got), err)
	}
	q.settle(holds[0], claim.Done{Next: "Cleanup"}, nil)
	for deadline := time.After(testenv.Patience); ; {
		select {
		case <-look.C:
		case <-deadline:
			t.Fatal("the pool that waits for the capped stage was not woken")
		}
		if got, err := other.Claim(t.Context(), at("Record", 1), 1); err != nil || len(got) == 1 {
			return
		}
	}
}

// unpolled is a process that learns of work by notifications alone.
func unpolled(t *testing.T, q *queue) *claim.Engine {
	t.Helper()
	e := q.engine(func(o *claim.Options) { o.Poll = time.Hour })
	running(t, e)
	return e
}

// done takes an item through a stage.
func done(t *testing.T, e *claim.Engine, stage, next registry.Stage) {
	t.Helper()
	items, err := e.Claim(t.Context(), at(stage, 1), 1)
	if err != nil || len(items) != 1 {
		t.Fatalf("Claim = %d items, %v", len(items), err)
	}
	if err := e.Settle(t.Context(), []claim.Ending{{Item: items[0], Done: claim.Done{Next: next}}})[0]; err != nil {
		t.Fatal(err)
	}
}
