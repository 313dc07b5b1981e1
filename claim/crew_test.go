package claim_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// crew is worker processes that take items through three stages, as pipeline
// does: they claim, hold and settle, and settle again while the database does
// not answer.
type crew struct {
	q        *queue
	items    int
	takes    time.Duration                          // the work on an item
	answered func(h claimKey, stage registry.Stage) // of each claim that has ended, in addition to acked

	mu    sync.Mutex
	acked map[claimKey]registry.Stage // stage by claim, of those that the database said have ended
	lost  int                         // claims that another worker had by then
}

type claimKey struct{ item, token int64 }

func crewStages() []registry.Stage { return []registry.Stage{"Receive", "Validate", "Cleanup"} }

// newCrew puts items into a database whose leases are short, so that what an
// outage cuts off is taken up again soon.
func newCrew(t testing.TB, db *pgxpool.Pool, items int) *crew {
	t.Helper()
	c := &crew{q: &queue{t, db}, items: items, acked: map[claimKey]registry.Stage{}}
	c.q.exec(`UPDATE stage_settings SET max_attempts = 1000, backoff_first = '10 milliseconds', backoff_most = '10 milliseconds',
		heartbeat = '200 milliseconds', lease = '2 seconds'`)
	c.q.exec(`
		INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore')`)
	c.q.exec(`
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT i.id, 'Ingest', 'Receive', 'bag-' || n || '.tar', 'receiving', repeat('e', 32), n % 3 * 100000000, now()
		FROM institutions i, generate_series(1, $1) n`, items)
	return c
}

// start runs a process with some workers, until ctx is done.
func (c *crew) start(ctx context.Context, db *pgxpool.Pool, workers int, change ...func(*claim.Options)) *sync.WaitGroup {
	c.q.t.Helper()
	quiet := func(o *claim.Options) { o.Log = slog.New(slog.DiscardHandler) }
	e := (&queue{c.q.t, db}).engine(append(change, quiet)...) //nolint:contextcheck // it lasts as long as the test
	var group sync.WaitGroup
	group.Go(func() {
		if err := e.Run(ctx); err != nil {
			c.q.t.Errorf("Run: %v", err)
		}
	})
	for range workers {
		group.Go(func() { c.work(ctx, e) })
	}
	return &group
}

func (c *crew) work(ctx context.Context, e *claim.Engine) {
	var wants []claim.Want
	for _, s := range crewStages() {
		wants = append(wants, claim.Want{Stage: s, Most: 2})
	}
	for pauseFor(ctx, 10*time.Millisecond) {
		items, err := e.Claim(ctx, claim.Filter{Stages: wants}, 2)
		if err != nil {
			pauseFor(ctx, 50*time.Millisecond) // the engine's caller waits, and asks again
		}
		for _, item := range items {
			for next := &item; next != nil; {
				next = c.settle(e.Hold(context.WithoutCancel(ctx), *next)) //nolint:contextcheck // what was claimed is ended
			}
		}
	}
}

// settle ends a claim as pipeline does: again and again, for as long as nobody
// else can have the item. Two of three items it carries on, and returns.
func (c *crew) settle(h *claim.Hold) (carried *claim.Item) {
	pauseFor(h.Context(), c.takes)
	next := map[registry.Stage]registry.Stage{"Receive": "Validate", "Validate": "Cleanup"}[h.Item.Stage]
	ctx, cancel := context.WithTimeout(context.Background(), h.Lease())
	defer cancel()
	for {
		var err error
		if next != "" && h.Item.ID%3 > 0 {
			carried, err = h.Carry(ctx, claim.Done{Next: next})
		} else {
			err = h.Settle(ctx, claim.Done{Next: next, Outcome: "Ingest complete"}, nil)
		}
		switch {
		case err == nil:
			c.acknowledged(claimKey{h.Item.ID, h.Item.Token}, h.Item.Stage)
			return carried
		case errors.Is(err, claim.ErrLost) || !pauseFor(ctx, 50*time.Millisecond):
			h.Abandon()
			c.mu.Lock()
			c.lost++
			c.mu.Unlock()
			return nil
		}
	}
}

func (c *crew) acknowledged(h claimKey, stage registry.Stage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acked[h] = stage
	if c.answered != nil {
		c.answered(h, stage)
	}
}

func (c *crew) ended() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acked)
}

// goOn waits until the crew has ended some more claims, and fails the test if
// there are none left to be cut off.
func (c *crew) goOn() {
	c.q.t.Helper()
	const more = 150
	from := c.ended()
	testenv.Eventually(c.q.t, fmt.Sprintf("%d claims to end after %d", more, from), func() bool { return c.ended() >= from+more })
	if n := c.ended(); n >= c.items*len(crewStages()) {
		c.q.t.Fatalf("all %d claims have ended: nothing was in work when it should have been hurt", n)
	}
}

// account waits for the end of all items, and holds the row, the ledger and the
// topic log against each other and against the answers to the workers.
func (c *crew) account() {
	c.q.t.Helper()
	testenv.Finally(c.q.t, "all items to succeed", func() bool {
		var n int
		err := c.q.db.QueryRow(context.Background(), `SELECT count(*) FROM work_items WHERE status = 'Success'`).Scan(&n)
		return err == nil && n == c.items
	}, c.ended)
	for sql, want := range map[string]int{
		`SELECT count(*) FROM work_item_attempts WHERE ended_at IS NULL`:                                           0,
		`SELECT count(*) FROM work_item_attempts WHERE outcome = 'done'`:                                           c.items * 3,
		`SELECT count(DISTINCT (work_item_id, stage)) FROM work_item_attempts WHERE outcome = 'done'`:              c.items * 3,
		`SELECT count(*) FROM topic_messages`:                                                                      c.items * 3, // one when it was put, two on its way
		`SELECT count(DISTINCT (work_item_id, topic)) FROM topic_messages`:                                         c.items * 3,
		`SELECT count(*) FROM work_item_attempts WHERE outcome NOT IN ('done', 'lease expired', 'killed', 'held')`: 0,
		`SELECT count(*) FROM work_items WHERE lease_expires_at IS NOT NULL OR worker IS NOT NULL`:                 0,
		`SELECT count(*) FROM uploads_in_work`:                                                                     0,
		`SELECT count(*) FROM work_items WHERE outcome <> 'Ingest complete' OR retry OR error_code <> ''`:          0,
	} {
		if n := value[int](c.q, sql); n != want {
			c.q.t.Errorf("%s = %d, want %d", sql, n, want)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	said := c.ledger()
	for h, stage := range c.acked {
		if got := said[h]; got != string(stage)+": done" {
			c.q.t.Fatalf("item %d ended its claim %d at %s, and its worker knows; the ledger says %q", h.item, h.token, stage, got)
		}
	}
	c.q.t.Logf("%d claims ended, %d of them with an answer, %d lost", c.items*3, len(c.acked), c.lost)
}

// ledger reports what became of each claim, and at which stage: one question for all
// of the thousands.
func (c *crew) ledger() map[claimKey]string {
	c.q.t.Helper()
	rows := must.Get(c.q.db.Query(context.Background(), `SELECT work_item_id, claim_token, concat(stage, ': ', outcome) FROM work_item_attempts`))(c.q.t)
	said := map[claimKey]string{}
	var h claimKey
	var text string
	must.Get(pgx.ForEachRow(rows, []any{&h.item, &h.token, &text}, func() error {
		said[h] = text
		return nil
	}))(c.q.t)
	return said
}

// pauseFor waits for d and reports whether ctx lasted as long.
func pauseFor(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
