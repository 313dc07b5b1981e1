package claim_test

import (
	"context"
	"sync"
	"testing"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// Of two transactions that wait for each other the database undoes one. If that
// is the end of claims, they end all the same.
func TestSettlingThatFellToADeadlockIsRepeated(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	e := q.engine()
	one, other := q.put("Receive", 1), q.put("Receive", 1)
	items, err := e.Claim(t.Context(), at("Receive", 2), 2)
	if err != nil || len(items) != 2 {
		t.Fatalf("Claim = %d items, %v", len(items), err)
	}

	tx := must.Get(q.db.Begin(t.Context()))(t)
	defer tx.Rollback(context.Background())
	lock := func(id int64) {
		t.Helper()
		must.Get(tx.Exec(t.Context(), `SELECT FROM work_items WHERE id = $1 FOR UPDATE`, id))(t)
	}
	if _, err := tx.Exec(t.Context(), `SET LOCAL deadlock_timeout = '9s'`); err != nil { // the other one is to be undone
		t.Fatal(err)
	}
	lock(other)
	var settled sync.WaitGroup
	settled.Go(func() {
		for i, err := range e.Settle(t.Context(), []claim.Ending{
			{Item: byID(items, one), Done: claim.Done{Next: "Validate"}}, {Item: byID(items, other), Done: claim.Done{Next: "Validate"}},
		}) {
			if err != nil {
				t.Errorf("Settle %d: %v", i, err)
			}
		}
	})
	testenv.Eventually(t, "the settling to wait for us", func() bool {
		return value[int](q, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
	})
	lock(one) // returns when the settling was undone
	must.Do(t, tx.Commit(t.Context()))
	settled.Wait()
	if n := value[int](q, `SELECT count(*) FROM work_items WHERE stage = 'Validate' AND status = 'Pending'`); n != 2 {
		t.Errorf("%d of the items have moved on, want 2", n)
	}
}

func byID(items []claim.Item, id int64) claim.Item {
	for _, i := range items {
		if i.ID == id {
			return i
		}
	}
	return claim.Item{}
}
