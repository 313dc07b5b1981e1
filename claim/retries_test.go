package claim_test

import (
	"errors"
	"testing"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// The mirror is notified of each attempt after which the item is tried at the same
// stage again, and of no other, no matter who ends it.
func TestRetriesAreReported(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	e := q.engine()
	id := q.put("Receive", 1)
	reports := func(what string, want int) {
		t.Helper()
		if got := value[int](q, `SELECT count(*) FROM topic_retries WHERE topic = 'ingest01_prefetch' AND work_item_id = $1`, id); got != want {
			t.Errorf("%s: %d retries are reported, want %d", what, got, want)
		}
		q.exec(`DELETE FROM topic_retries`)
		q.exec(`UPDATE work_items SET run_at = now() WHERE status = 'Pending'`)
	}
	q.settle(q.claimOne(e, "Receive"), claim.Done{}, errors.New("trouble"))
	reports("a failed attempt", 1)
	q.settle(q.claimOne(e, "Receive"), claim.Done{}, claim.Release("stopping"))
	reports("a claim that was given back", 0)
	q.claimOne(e, "Receive")
	q.lapse()
	if n, err := e.Reap(t.Context()); n != 1 || err != nil {
		t.Fatalf("Reap = %d, %v", n, err)
	}
	reports("a lease that lapsed", 1)
	q.settle(q.claimOne(e, "Receive"), claim.Done{}, errors.New("trouble"))
	reports("the last attempt", 0)
	q.exec(`SELECT requeue($1)`, id)
	q.settle(q.claimOne(e, "Receive"), claim.Done{Next: "Validate"}, nil)
	reports("a stage that is done", 0)
	q.exec(`INSERT INTO topic_retries (topic, work_item_id, created_at) VALUES ('ingest01_prefetch', $1, now() - interval '25 hours')`, id)
	must.Do(t, e.Tidy(t.Context()))
	reports("what no mirror took for a day", 0)
}
