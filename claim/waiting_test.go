package claim_test

import (
	"context"
	"testing"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// What comes to wait for an item at the moment of its end must not wait
// without end: the end of the one and the arrival of the other are serialized.
func TestItemThatEndsFreesWhatComesToWaitInBetween(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ prepare, arrive string }{
		"a new version": {
			arrive: `INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
				SELECT institution_id, action, 'Receive', name, bucket, repeat('f', 32), 1, now() FROM work_items WHERE id = $1 RETURNING id`,
		},
		"another part, requeued": {
			prepare: `INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
				SELECT institution_id, action, 'Receive', replace(name, '.tar', '.b02.of02.tar'), bucket, repeat('f', 32), 1, now() FROM work_items;
				UPDATE work_items SET status = 'Failed' WHERE stage = 'Receive'`,
			arrive: `SELECT (requeue(id)).id FROM work_items WHERE status = 'Failed' AND $1 > 0`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			first := q.put("Cleanup", 1)
			q.exec(tc.prepare)
			h := q.claimOne(q.engine(), "Cleanup")
			tx := must.Get(q.db.Begin(context.Background()))(t)
			defer tx.Rollback(context.Background()) //nolint:errcheck // it was committed, or the test has failed
			var second int64
			must.Do(t, tx.QueryRow(context.Background(), tc.arrive, first).Scan(&second))

			settled := make(chan error, 1)
			go func() { settled <- h.Settle(context.Background(), claim.Done{}, nil) }()
			testenv.Eventually(t, "the first to have ended, or to stand behind the second", func() bool {
				return len(settled) == 1 || value[bool](q, `SELECT EXISTS (SELECT FROM pg_stat_activity
					WHERE datname = current_database() AND wait_event_type = 'Lock')`)
			})
			must.Do(t, tx.Commit(context.Background()))
			if err := <-settled; err != nil {
				t.Fatal(err)
			}
			if r := q.row(second); !r.Due {
				t.Errorf("the first has ended, and the second still waits: %+v", r)
			}
		})
	}
}
