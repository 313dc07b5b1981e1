package claim_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/registry"
)

// fate is what happens to an item at Record, time after time, and what it must
// have come to in the end. It is all that the test knows of right and wrong.
type fate struct {
	tries []try // the last happens every time
	comes string
}

type try int

const (
	works   try = iota
	fails       // with an error that trying again might repair
	damns       // with one that it cannot
	unwants     // the item is cancelled
	dies        // its worker does, and sends no more heartbeats
	stalls      // its worker does, which comes back after its lease and says that the item is bad
	begs        // fails as damns does, and a person requeues the item
)

const (
	atOnce       = "succeeded_at_once"
	afterRetries = "succeeded_after_retries"
	completely   = "failed_completely"
	unwanted     = "cancelled"
)

// fates come to an item by its ID.
func fates() []fate {
	return []fate{
		{[]try{works}, atOnce},
		{[]try{damns}, completely},
		{[]try{works}, atOnce},
		{[]try{fails, fails, works}, afterRetries},
		{[]try{fails}, completely},
		{[]try{dies, dies, works}, afterRetries},
		{[]try{dies}, completely},
		{[]try{stalls, works}, afterRetries},
		{[]try{dies, fails, stalls}, completely},
		{[]try{begs, works}, afterRetries},
		{[]try{fails, dies, begs, fails, dies, works}, afterRetries},
		{[]try{unwants}, unwanted},
		{[]try{fails, unwants}, unwanted},
	}
}

// chaos is a queue whose items meet their fates.
type chaos struct {
	queue

	fates []fate

	mu    sync.Mutex
	tries map[int64]int
	gone  []*claim.Hold // of workers that were killed
	late  []*claim.Hold // of those that stall
	open  atomic.Int64  // items that have not met their end
}

func (c *chaos) fateOf(id int64) fate { return c.fates[id%int64(len(c.fates))] }

// try is what happens to an item this time.
func (c *chaos) try(id int64) try {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.fateOf(id)
	n := min(c.tries[id], len(f.tries)-1)
	c.tries[id]++
	return f.tries[n]
}

// work takes items through their stages until none is left.
func (c *chaos) work(e *claim.Engine) error {
	f := claim.Filter{Stages: []claim.Want{{Stage: "Cleanup", Most: 20}, {Stage: "Record", Most: 20}, {Stage: "Storage Validation", Most: 20}}}
	for c.open.Load() > 0 {
		items, err := e.Claim(context.Background(), f, 20)
		if err != nil {
			return err
		}
		for _, item := range items {
			if err := c.meet(e.Hold(context.Background(), item)); err != nil {
				return err
			}
		}
		if len(items) == 0 {
			<-time.After(2 * time.Millisecond)
		}
	}
	return nil
}

// meet lets an item meet its fate once.
func (c *chaos) meet(h *claim.Hold) error {
	next := map[registry.Stage]registry.Stage{"Storage Validation": "Record", "Record": "Cleanup"}[h.Item.Stage]
	if h.Item.Stage != "Record" {
		return h.Settle(context.Background(), claim.Done{Next: next}, nil)
	}
	var result error
	switch what := c.try(h.Item.ID); what {
	case works:
	case fails:
		result = errors.New("trouble")
	case damns:
		result = claim.Fatal("bad", "it is bad")
	case unwants:
		result = claim.Cancel("unwanted", "nobody wants it")
	case begs:
		if err := h.Settle(context.Background(), claim.Done{}, claim.Fatal("bad", "it is bad")); err != nil {
			return err
		}
		_, err := c.db.Exec(context.Background(), `SELECT requeue($1)`, h.Item.ID)
		return err
	case dies, stalls:
		c.mu.Lock()
		defer c.mu.Unlock()
		if what == stalls {
			c.late = append(c.late, h)
		} else {
			c.gone = append(c.gone, h)
		}
		return nil
	}
	return h.Settle(context.Background(), claim.Done{Next: next}, result)
}

// reap lets the leases of dead workers lapse, and gives their items back. Those
// that stalled come back then, and learn that they are too late.
func (c *chaos) reap(e *claim.Engine) error {
	c.mu.Lock()
	gone, late := c.gone, c.late
	c.gone, c.late = nil, nil
	c.mu.Unlock()
	var ids, tokens []int64
	for _, h := range slices.Concat(gone, late) {
		ids, tokens = append(ids, h.Item.ID), append(tokens, h.Item.Token)
	}
	_, err := c.db.Exec(context.Background(), `
		UPDATE work_items w SET lease_expires_at = now() - interval '1 second'
		FROM unnest($1::bigint[], $2::bigint[]) AS h (id, token) WHERE w.id = h.id AND w.claim_token = h.token`, ids, tokens)
	if err != nil {
		return err
	}
	if _, err := e.Reap(context.Background()); err != nil {
		return err
	}
	for _, h := range gone {
		h.Abandon()
	}
	for _, h := range late {
		if err := h.Settle(context.Background(), claim.Done{}, claim.Fatal("bad", "it is bad")); !errors.Is(err, claim.ErrLost) {
			c.t.Errorf("item %d: the worker that stalled got %v, want that it has lost the item", h.Item.ID, err)
		}
	}
	return nil
}

// look reads what the database says at one moment.
func (c *chaos) look() (failed []int64, counted map[string]int, items, open int) {
	err := pgx.BeginTxFunc(context.Background(), c.db, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		rows, _ := tx.Query(context.Background(), `SELECT item FROM failed ORDER BY item`)
		var err error
		if failed, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err != nil {
			return err
		}
		var once, again, lost, cancelled int
		err = tx.QueryRow(context.Background(), `
			SELECT succeeded_at_once, succeeded_after_retries, failed_completely, cancelled FROM outcomes WHERE action = 'all' AND stage = 'all'`).
			Scan(&once, &again, &lost, &cancelled)
		if err != nil {
			return err
		}
		counted = map[string]int{atOnce: once, afterRetries: again, completely: lost, unwanted: cancelled}
		return tx.QueryRow(context.Background(), `SELECT count(*), count(*) FILTER (WHERE retry) FROM work_items`).Scan(&items, &open)
	})
	if err != nil {
		c.t.Errorf("look at the queue: %v", err)
	}
	return failed, counted, items, open
}

// watch compares what the database says with what may be, at every moment, until
// no item is open.
func (c *chaos) watch(items int) {
	for {
		failed, counted, there, open := c.look()
		sum := open
		for _, n := range counted {
			sum += n
		}
		if there != items || sum != items || counted[completely] != len(failed) {
			c.t.Errorf("of %d items %d are there, %d are open, and %v are counted while %d have failed", items, there, open, counted, len(failed))
		}
		for _, id := range failed {
			if f := c.fateOf(id); f.comes != completely && !slices.Contains(f.tries, begs) {
				c.t.Errorf("item %d is among the failed, whose fate it is to have %s", id, f.comes)
			}
		}
		if c.open.Store(int64(open)); open == 0 {
			return
		}
		<-time.After(50 * time.Millisecond)
	}
}

// Whatever happens to ten thousand items, what the queue says of them is true at
// every moment; and in the end the failed are exactly those that never succeeded.
func TestFailedAreExactlyThoseThatNeverSucceeded(t *testing.T) {
	t.Parallel()
	const processes, workers = 8, 32
	items := testenv.Soak(10_000)
	c := &chaos{queue: *newQueue(t), fates: fates(), tries: map[int64]int{}}
	c.exec(`UPDATE stage_settings SET cap = NULL, max_attempts = 3, backoff_first = '1 millisecond', backoff_most = '5 milliseconds'`)
	c.putMany("Storage Validation", items)
	c.open.Store(int64(items))

	var working sync.WaitGroup
	engines := make([]*claim.Engine, processes)
	for i := range engines {
		engines[i] = c.engine(quiet)
	}
	do := func(what func() error) {
		working.Go(func() {
			if err := what(); err != nil {
				t.Error(err)
				c.open.Store(0)
			}
		})
	}
	for w := range workers {
		do(func() error { return c.work(engines[w%processes]) })
	}
	do(func() error {
		for c.open.Load() > 0 {
			if err := c.reap(engines[0]); err != nil {
				return err
			}
			<-time.After(20 * time.Millisecond)
		}
		return nil
	})
	c.watch(items)
	working.Wait()
	testenv.Soaked(t, items, "items, each with its outcome planned beforehand")

	failed, counted, _, _ := c.look()
	want := map[string]int{}
	var never []int64
	for id := value[int64](&c.queue, `SELECT min(id) FROM work_items`); len(never)+want[atOnce]+want[afterRetries]+want[unwanted] < items; id++ {
		f := c.fateOf(id)
		want[f.comes]++
		if f.comes == completely {
			never = append(never, id)
		}
	}
	if !slices.Equal(failed, never) {
		t.Errorf("%d items have failed, want the %d that never succeeded", len(failed), len(never))
	}
	for outcome, n := range want {
		if counted[outcome] != n {
			t.Errorf("%s: %d, want %d", outcome, counted[outcome], n)
		}
	}
	succeeded := value[int](&c.queue, `SELECT count(*) FROM (SELECT work_item_id FROM work_item_attempts WHERE stage = 'Cleanup' AND outcome = 'done'
		GROUP BY work_item_id HAVING count(*) = 1) once`)
	if n := want[atOnce] + want[afterRetries]; succeeded != n {
		t.Errorf("%d items have done their last stage once, want %d", succeeded, n)
	}
}
