package claim_test

import (
	"context"
	"testing"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// An item that comes to lie before the cursor of a partition, without a notification, is
// found without a claim that scans from the beginning.
func TestWhatComesLateIsFoundBesideTheClaims(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	e := q.engine()
	late := q.put("Receive", 1)
	q.exec(`UPDATE work_items SET run_at = now() + interval '1 hour' WHERE id = $1`, late)
	q.put("Receive", 1)
	q.claimOne(e, "Receive") // the cursor is beyond the one that is late
	e.RescansAreExpensive(at("Receive", 1))
	q.exec(`UPDATE work_items SET run_at = now() WHERE id = $1`, late) // the engine is not notified, since it does not listen
	var got []claim.Item
	testenv.Eventually(t, "the late item", func() bool {
		items := must.Get(e.Claim(context.Background(), at("Receive", 1), 1))(t)
		got = append(got, items...)
		if len(got) == 0 {
			e.RescansAreExpensive(at("Receive", 1)) // after a scan that took no time a full rescan is allowed
		}
		return len(got) > 0
	})
	if got[0].ID != late {
		t.Errorf("item %d was claimed, want %d", got[0].ID, late)
	}
}
