package claim_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// putMany makes n items of a stage in one statement.
func (q *queue) putMany(stage registry.Stage, n int) {
	q.t.Helper()
	q.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT i.id, 'Ingest', $1, n || '.tar', 'receiving', repeat('e', 32), 1, now() FROM institutions i, generate_series(1, $2::int) n`, stage, n)
	q.exec(`ANALYZE work_items`)
}

func quiet(o *claim.Options) { o.Log = slog.New(slog.DiscardHandler) }

// claimAll claims until nothing is left.
func claimAll(e *claim.Engine, stage registry.Stage, n int) (all []claim.Item, err error) {
	for {
		items, err := e.Claim(context.Background(), at(stage, n), n)
		if err != nil || len(items) == 0 {
			return all, err
		}
		all = append(all, items...)
	}
}

// Sixty-four claimers of eight processes share out a hundred thousand items.
func TestManyClaimersShareManyItems(t *testing.T) {
	t.Parallel()
	const processes, claimers = 8, 64
	items := testenv.Soak(100_000)
	q := newQueue(t)
	begun := time.Now()
	q.putMany("Receive", items)
	put := time.Since(begun)

	var mu sync.Mutex
	times := map[int64]int{}
	var working sync.WaitGroup
	for range processes {
		e := q.engine(quiet)
		for range claimers / processes {
			working.Go(func() {
				all, err := claimAll(e, "Receive", 50)
				if err != nil {
					t.Errorf("Claim: %v", err)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, item := range all {
					times[item.ID]++
				}
			})
		}
	}
	working.Wait()
	for id, n := range times {
		if n != 1 {
			t.Errorf("item %d was claimed %d times", id, n)
		}
	}
	if len(times) != items {
		t.Errorf("%d items were claimed, want %d", len(times), items)
	}
	if n := value[int](q, `SELECT count(*) FROM work_item_attempts WHERE ended_at IS NULL`); n != items {
		t.Errorf("the ledger has %d running attempts, want %d", n, items)
	}
	testenv.Soaked(t, items, "items shared out to 64 claimers of 8 processes")
	t.Logf("put in %v and claimed in %v", put.Round(time.Millisecond), (time.Since(begun) - put).Round(time.Millisecond))
}

// A thousand workers that slept through their leases change nothing.
func TestThousandZombiesChangeNothing(t *testing.T) {
	t.Parallel()
	const items = 1000
	q := newQueue(t)
	q.putMany("Receive", items)
	before, after := q.engine(quiet), q.engine(quiet)
	zombies := must.Get(claimAll(before, "Receive", 100))(t)
	q.lapse()
	q.reap(after)
	q.exec(`UPDATE work_items SET run_at = now()`)
	heirs, err := claimAll(after, "Receive", 100)
	if err != nil || len(zombies) != items || len(heirs) != items {
		t.Fatalf("%d and %d items were claimed, %v", len(zombies), len(heirs), err)
	}
	const everything = `SELECT md5(string_agg(w::text, '|' ORDER BY id)) || (SELECT md5(string_agg(a::text, '|' ORDER BY a)) FROM work_item_attempts a)
		|| (SELECT count(*) FROM topic_messages) FROM work_items w`
	was := value[string](q, everything)

	results := []claim.Ending{
		{Done: claim.Done{Next: "Validate"}},
		{Result: claim.Fatal("bad", "it is bad")},
		{Result: errors.New("trouble")},
		{Result: claim.Release("stopping")},
	}
	var late sync.WaitGroup
	for i, item := range zombies {
		late.Go(func() {
			end := results[i%len(results)]
			end.Item = item
			if err := before.Settle(context.Background(), []claim.Ending{end})[0]; !errors.Is(err, claim.ErrLost) {
				t.Errorf("item %d: Settle = %v, want ErrLost", item.ID, err)
			}
		})
	}
	late.Wait()
	if value[string](q, everything) != was {
		t.Error("the zombies changed something")
	}
	for i, err := range after.Settle(context.Background(), endings(heirs)) {
		if err != nil {
			t.Errorf("item %d: Settle by its heir = %v", heirs[i].ID, err)
		}
	}
}

func endings(items []claim.Item) []claim.Ending {
	list := make([]claim.Ending, len(items))
	for i, item := range items {
		list[i] = claim.Ending{Item: item, Done: claim.Done{Next: "Validate"}}
	}
	return list
}

// Workers may be killed as often as it takes: each item comes to its end once,
// none is lost, and none is given up on.
func TestTenThousandKillsLoseNothing(t *testing.T) {
	t.Parallel()
	items, kills := testenv.Soak(2000), testenv.Soak(10_000)
	q := newQueue(t)
	q.exec(`UPDATE stage_settings SET max_attempts = 1000, backoff_first = '1 millisecond', backoff_most = '1 millisecond'`)
	q.putMany("Cleanup", items)
	killed, done := 0, 0
	for round := 0; done < items; round++ {
		e := q.engine(quiet) // each process lives for one round
		got := must.Get(e.Claim(context.Background(), at("Cleanup", items), items))(t)
		var ends []claim.Ending
		for i, item := range got {
			if killed < kills && (item.ID+int64(i+round))%7 != 0 {
				killed++ // without another heartbeat
			} else {
				ends = append(ends, claim.Ending{Item: item})
			}
		}
		for i, err := range e.Settle(context.Background(), ends) {
			if err != nil {
				t.Fatalf("item %d: Settle = %v", ends[i].Item.ID, err)
			}
		}
		done += len(ends)
		q.lapse()
		q.reap(q.engine(quiet))
		q.exec(`UPDATE work_items SET run_at = now() WHERE status = 'Pending'`)
	}
	testenv.Soaked(t, killed, "kills of workers")
	if killed != kills {
		t.Errorf("%d workers were killed, want %d", killed, kills)
	}
	for sql, want := range map[string]int{
		`SELECT count(*) FROM work_items WHERE status = 'Success'`:                           items,
		`SELECT count(*) FROM work_items WHERE needs_admin_review`:                           0,
		`SELECT count(*) FROM work_item_attempts WHERE outcome = 'done'`:                     items,
		`SELECT count(DISTINCT work_item_id) FROM work_item_attempts WHERE outcome = 'done'`: items,
		`SELECT count(*) FROM work_item_attempts WHERE outcome = 'lease expired'`:            kills,
		`SELECT count(*) FROM work_item_attempts WHERE outcome IS NULL`:                      0,
	} {
		if n := value[int](q, sql); n != want {
			t.Errorf("%s = %d, want %d", sql, n, want)
		}
	}
}
