package claim_test

import (
	"context"
	"sync"
	"testing"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// Items of all sizes together are no more than were asked for of their stage, and
// no more than its cap.
func TestBoundsOfAStageHoldAcrossSizes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		stage registry.Stage
		most  int
		want  int
	}{
		"asked for one":     {"Receive", 1, 1},
		"asked for three":   {"Receive", 3, 3},
		"a cap of two":      {"Record", 8, 2},
		"less than its cap": {"Record", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			for _, size := range []int64{1, 100 * mib, 2 << 30, 100 << 30} {
				q.put(tc.stage, size)
				q.put(tc.stage, size)
			}
			items, err := q.engine().Claim(context.Background(), at(tc.stage, tc.most), 8)
			if err != nil || len(items) != tc.want {
				t.Errorf("Claim = %d items, %v; want %d", len(items), err, tc.want)
			}
		})
	}
}

// However many processes ask at once, no more items of a capped stage run than
// the cap allows.
func TestStageCapHoldsAcrossProcesses(t *testing.T) {
	t.Parallel()
	const processes = 6
	q := newQueue(t)
	for range 20 {
		q.put("Record", 1)
	}
	var mu sync.Mutex
	var holds []*claim.Hold
	claimAll := func(midway func()) {
		var workers sync.WaitGroup
		for range processes {
			e := q.engine()
			workers.Go(func() {
				items, err := e.Claim(context.Background(), at("Record", 5), 5)
				if err != nil {
					t.Errorf("Claim: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, item := range items {
					holds = append(holds, e.Hold(context.Background(), item))
				}
			})
		}
		midway()
		workers.Wait()
	}
	// All claims are under way before the first one is through: the ledger's rows
	// are kept from them for so long.
	tx := must.Get(q.db.Begin(t.Context()))(t)
	defer tx.Rollback(context.Background()) //nolint:errcheck // it was rolled back, or the test has failed
	must.Get(tx.Exec(t.Context(), `INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker)
		SELECT id, 1, stage, 1, '', 1, '' FROM work_items`))(t)
	claimAll(func() {
		testenv.Eventually(t, "all claims to wait", func() bool {
			return value[int](q, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == processes
		})
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if len(holds) != 2 {
		t.Fatalf("%d items of Record run, want its cap of 2", len(holds))
	}
	q.settle(holds[0], claim.Done{Next: "Cleanup"}, nil)
	claimAll(func() {})
	if len(holds) != 3 {
		t.Errorf("%d items were started after one had ended, want 3", len(holds))
	}
}
