package claim_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// A thousand requeues while workers run: each takes effect once, or is refused and
// has none. Every step of every token is accounted for by a claim, an end that was
// accepted, or a requeue; and a worker that lost its item was refused its end.
func TestRequeuesDuringARunTakeEffectOnce(t *testing.T) {
	t.Parallel()
	const items, people, wanted = 150, 4, 1000
	c := newCrew(t, testenv.Database(t), items)
	c.q.exec(`SELECT pause_stage('Cleanup', 'So that none ends before it was requeued often.')`)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	workers := []*sync.WaitGroup{c.start(ctx, c.q.db, 4), c.start(ctx, c.q.db, 4)}

	var done atomic.Int64
	var group sync.WaitGroup
	for person := range people {
		group.Go(func() { done.Add(int64(c.requeueMany(person, items, wanted/people))) })
	}
	group.Wait()
	c.q.exec(`SELECT resume_stage('Cleanup')`)
	testenv.Eventually(t, "all items to succeed", func() bool {
		return value[int](c.q, `SELECT count(*) FROM work_items WHERE status = 'Success'`) == items
	})
	stop()
	for _, w := range workers {
		w.Wait()
	}

	const moved = `SELECT count(*) FROM work_item_audit WHERE after->>'claim_token' <> before->>'claim_token'`
	if n := value[int](c.q, moved); n != wanted || done.Load() != wanted {
		t.Errorf("%d requeues took effect, %d of them on record; want %d", done.Load(), n, wanted)
	}
	for sql, want := range map[string]int{
		`SELECT count(*) FROM work_items w WHERE claim_token <>
			(SELECT count(*) + count(*) FILTER (WHERE outcome <> 'cancelled') FROM work_item_attempts WHERE work_item_id = w.id)
			+ (SELECT count(*) FROM work_item_audit WHERE work_item_id = w.id AND after->>'claim_token' <> before->>'claim_token')`: 0,
		`SELECT count(*) FROM topic_messages`: items + wanted +
			value[int](c.q, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'done' AND stage <> 'Cleanup'`),
		`SELECT count(*) FROM work_item_attempts WHERE ended_at IS NULL OR outcome NOT IN ('done', 'cancelled')`: 0,
		`SELECT count(*) FROM work_item_attempts WHERE outcome = 'cancelled'`:                                    c.lost,
		`SELECT count(*) FROM work_item_attempts WHERE outcome = 'done'`:                                         len(c.acked),
		`SELECT count(*) FROM work_item_audit a WHERE before->>'status' = 'Started' AND NOT EXISTS (
			SELECT FROM work_item_attempts t WHERE t.work_item_id = a.work_item_id AND t.claim_token = (a.before->>'claim_token')::bigint
				AND t.outcome = 'cancelled')`: 0,
		`SELECT count(*) FROM uploads_in_work`: 0,
	} {
		if n := value[int](c.q, sql); n != want {
			t.Errorf("%s = %d, want %d", sql, n, want)
		}
	}
	if c.lost == 0 {
		t.Error("no requeue met a running item")
	}
	t.Logf("%d claims lost to %d requeues", c.lost, wanted)
}

// requeueMany requeues items to Receive until as many of the requeues have moved a
// token. The others find the item queued there, and change nothing.
func (c *crew) requeueMany(person, items, wanted int) (moved int) {
	random := rand.New(rand.NewPCG(1, uint64(person)))
	for moved < wanted {
		id := random.Int64N(int64(items)) + 1
		var was, is int64
		err := c.q.db.QueryRow(context.Background(), `
			WITH was AS MATERIALIZED (SELECT claim_token FROM work_items WHERE id = $1 AND retry FOR UPDATE)
			SELECT was.claim_token, after.claim_token FROM was, requeue($1, 'Receive') after`, id).Scan(&was, &is)
		switch {
		case err == nil && is == was+1:
			moved++
		case err != nil || is != was:
			c.q.t.Errorf("requeue of item %d, from token %d to %d: %v", id, was, is, err)
			return moved
		}
	}
	return moved
}

// An end that someone typed for an attempt that runs does not keep the worker
// from telling the true one; after that it is history.
func TestTypedEndOfAnAttemptGivesWayToTheTrueOne(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.put("Receive", 1)
	h := q.claimOne(q.engine(), "Receive")
	q.exec(`UPDATE work_item_attempts SET ended_at = now(), outcome = 'fatal'`)
	q.settle(h, claim.Done{Next: "Validate"}, nil)
	if got := value[string](q, `SELECT outcome FROM work_item_attempts`); got != "done" {
		t.Errorf("the ledger says %q", got)
	}
	testenv.Refused(t, q.db, "attempts are permanent records", `UPDATE work_item_attempts SET outcome = 'fatal'`)
}
