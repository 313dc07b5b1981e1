package claim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

const mib = 1 << 20

// Eight workers that take what they can get share out the items without a
// double and without a rest.
func TestEachItemIsClaimedOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	want := map[int64]int{}
	for range 400 {
		want[q.put("Receive", 1)] = 1
	}

	var mu sync.Mutex
	got := map[int64]int{}
	var workers sync.WaitGroup
	for range 8 {
		e := q.engine()
		workers.Go(func() {
			for {
				items, err := e.Claim(context.Background(), at("Receive", 7), 7)
				if err != nil {
					t.Errorf("Claim: %v", err)
				}
				if len(items) == 0 {
					return
				}
				mu.Lock()
				for _, item := range items {
					got[item.ID]++
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claims by item (-want +got):\n%s", diff)
	}
	if n := value[int](q, `SELECT count(*) FROM work_item_attempts WHERE ended_at IS NULL`); n != 400 {
		t.Errorf("the ledger has %d running attempts, want 400", n)
	}
}

// A claim takes what its filter allows and is due, and nothing else.
func TestClaimTakesOnlyWhatItMay(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		prepare string // applied to the item
		filter  claim.Filter
		want    bool
	}{
		"a due item":                {"", at("Receive", 1), true},
		"another stage":             {"", at("Validate", 1), false},
		"no slot for the stage":     {"", at("Receive", 0), false},
		"a later time":              {`run_at = now() + interval '1 hour'`, at("Receive", 1), false},
		"a finished item":           {`status = 'Failed', retry = false, claim_token = 1`, at("Receive", 1), false},
		"too small":                 {"", claim.Filter{Stages: at("Receive", 1).Stages, MinSize: 101 * mib}, false},
		"just large enough":         {"", claim.Filter{Stages: at("Receive", 1).Stages, MinSize: 100 * mib}, true},
		"too large":                 {"", claim.Filter{Stages: at("Receive", 1).Stages, MaxSize: 100 * mib}, false},
		"just small enough":         {"", claim.Filter{Stages: at("Receive", 1).Stages, MaxSize: 100*mib + 1}, true},
		"a band above":              {"", claim.Filter{Stages: at("Receive", 1).Stages, MinSize: 1 << 30}, false},
		"resized out of the filter": {`size = 1`, claim.Filter{Stages: at("Receive", 1).Stages, MinSize: 2}, false},
		"resized into the filter":   {`size = 5 << 30`, claim.Filter{Stages: at("Receive", 1).Stages, MaxSize: 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			id := q.put("Receive", 100*mib)
			if tc.prepare != "" {
				q.exec(`UPDATE work_items SET `+tc.prepare+` WHERE id = $1`, id)
			}
			items, err := q.engine().Claim(context.Background(), tc.filter, 1)
			if err != nil || (len(items) == 1) != tc.want {
				t.Errorf("Claim = %d items, %v; want one: %v", len(items), err, tc.want)
			}
		})
	}
}

func TestPausedStageIsNotClaimed(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.put("Receive", 1)
	q.exec(`UPDATE stage_settings SET paused = true WHERE stage = 'Receive'`)
	if items, err := q.engine().Claim(context.Background(), at("Receive", 1), 1); err != nil || len(items) != 0 {
		t.Fatalf("Claim = %v, %v; want none while the stage is paused", items, err)
	}
	q.exec(`UPDATE stage_settings SET paused = false WHERE stage = 'Receive'`)
	q.claimOne(q.engine(), "Receive")
}

// Priority goes before the order in which items came.
func TestClaimGoesByPriorityThenStartTime(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	early, late, urgent := q.put("Receive", 1), q.put("Receive", 1), q.put("Receive", 1)
	q.exec(`UPDATE work_items SET priority = -1 WHERE id = $1`, urgent)
	var got []int64
	for e := q.engine(); len(got) < 3; {
		got = append(got, q.claimOne(e, "Receive").Item.ID)
	}
	if want := []int64{urgent, early, late}; !slices.Equal(got, want) {
		t.Errorf("claimed %v, want %v", got, want)
	}
}

// What a stage returns decides, by one table, what becomes of the item.
func TestOutcomes(t *testing.T) {
	t.Parallel()
	cut := errors.New("connection reset")
	for name, tc := range map[string]struct {
		attempts int // that went before
		done     claim.Done
		result   error
		want     row
		ledger   string
		topics   []string
	}{
		"done": {
			done: claim.Done{Next: "Validate", Note: "Read."}, ledger: "done", topics: []string{"ingest02_bag_validation"},
			want: row{Stage: "Validate", Status: "Pending", Retry: true, Due: true, Note: "Read."},
		},
		"transient": {
			result: cut, ledger: "transient",
			want: row{Stage: "Receive", Status: "Pending", Attempt: 1, Retry: true, Note: "connection reset", Code: "transient"},
		},
		"transient with a code": {
			result: fmt.Errorf("a.txt: %w", claim.Transient("bad-copy", cut)), ledger: "transient",
			want: row{Stage: "Receive", Status: "Pending", Attempt: 1, Retry: true, Note: "a.txt: connection reset", Code: "bad-copy"},
		},
		"transient for the last time": {
			attempts: 2, result: cut, ledger: "transient",
			want: row{
				Stage: "Receive", Status: "Suspended", Attempt: 3, Review: true, Due: true, Code: "transient",
				Note: "connection reset Will not retry: failed 3 times. Interim processing data persists.",
			},
		},
		"fatal": {
			result: claim.Fatal("no-title", "The tag Title is missing"), ledger: "fatal",
			want: row{Stage: "Receive", Status: "Failed", Attempt: 1, Review: true, Due: true, Note: "The tag Title is missing", Code: "no-title"},
		},
		"released": {
			attempts: 1, result: claim.Release("stopping"), ledger: "released",
			want: row{Stage: "Receive", Status: "Pending", Attempt: 1, Retry: true, Due: true, Note: "stopping", Code: "released"},
		},
		"snoozed": {
			result: claim.Snooze(time.Hour, "still cold"), ledger: "snoozed",
			want: row{Stage: "Receive", Status: "Pending", Retry: true, Note: "still cold", Code: "snoozed"},
		},
		"cancelled": {
			result: claim.Cancel("bag-changed", "replaced"), ledger: "cancelled",
			want: row{Stage: "Receive", Status: "Cancelled", Attempt: 1, Due: true, Note: "replaced", Code: "bag-changed"},
		},
		"suspended": {
			result: claim.Suspend("bag-gone", "gone"), ledger: "fatal",
			want: row{Stage: "Receive", Status: "Suspended", Attempt: 1, Review: true, Due: true, Note: "gone", Code: "bag-gone"},
		},
		"an error with a NUL in it": {
			result: errors.New("a\x00b\xff"), ledger: "transient",
			want: row{Stage: "Receive", Status: "Pending", Attempt: 1, Retry: true, Note: "a\uFFFDb\uFFFD", Code: "transient"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			id := q.put("Receive", 1)
			e := q.engine()
			for range tc.attempts {
				q.settle(q.claimOne(e, "Receive"), claim.Done{}, errors.New("earlier trouble"))
				q.exec(`UPDATE work_items SET run_at = now() WHERE id = $1`, id)
			}
			q.exec(`DELETE FROM topic_messages`)
			h := q.claimOne(e, "Receive")
			h.CurrentFile("data/a.txt")
			q.settle(h, tc.done, tc.result)

			if diff := cmp.Diff(tc.want, q.row(id)); diff != "" {
				t.Errorf("item (-want +got):\n%s", diff)
			}
			ledger := value[string](q, `SELECT outcome || ' ' || current_file FROM work_item_attempts WHERE claim_token = $1 AND ended_at IS NOT NULL`, h.Item.Token)
			if want := tc.ledger + " data/a.txt"; ledger != want {
				t.Errorf("ledger says %q, want %q", ledger, want)
			}
			topics := value[[]string](q, `SELECT coalesce(array_agg(topic ORDER BY id), '{}') FROM topic_messages WHERE body = $1::text`, fmt.Sprint(id))
			if !slices.Equal(topics, tc.topics) {
				t.Errorf("topic messages %v, want %v", topics, tc.topics)
			}
		})
	}
}

// The end of an ingest carries its outcome.
func TestLastStageEndsInSuccess(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.put("Cleanup", 1)
	q.settle(q.claimOne(q.engine(), "Cleanup"), claim.Done{Note: "All done.", Outcome: "Ingest complete"}, nil)
	want := row{Stage: "Cleanup", Status: "Success", Due: true, Note: "All done."}
	if diff := cmp.Diff(want, q.row(id)); diff != "" {
		t.Errorf("item (-want +got):\n%s", diff)
	}
	if got := value[string](q, `SELECT outcome FROM work_items`); got != "Ingest complete" {
		t.Errorf("outcome = %q", got)
	}
}

// The wait between attempts grows from the stage's first backoff to its most: it is
// 1 s, 1 min and 5 min unless someone has set another.
func TestBackoffGrowsToItsBound(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.exec(`UPDATE stage_settings SET max_attempts = 20`)
	q.exec(`UPDATE stage_settings SET backoff_first = '10 seconds', backoff_factor = 2, backoff_most = '1 minute' WHERE stage = 'Store'`)
	e := q.engine()
	fail := func(h *claim.Hold) { q.settle(h, claim.Done{}, errors.New("trouble")) }
	die := func(h *claim.Hold) { // its worker sends no more heartbeats
		h.Abandon()
		q.lapse()
		q.reap(e)
	}
	for stage, want := range map[registry.Stage][]int{"Receive": {1, 60, 300, 300}, "Store": {10, 20, 40, 60, 60}} {
		for _, end := range []func(*claim.Hold){fail, die} {
			id := q.put(stage, 1)
			var waits []int
			for range want {
				end(q.claimOne(e, stage))
				waits = append(waits, value[int](q, `SELECT round(extract(epoch FROM run_at - updated_at))::int FROM work_items WHERE id = $1`, id))
				q.exec(`UPDATE work_items SET run_at = now()`)
			}
			if !slices.Equal(waits, want) {
				t.Errorf("at %s it waited %v seconds, want %v", stage, waits, want)
			}
			q.exec(`SELECT cancel($1)`, id)
		}
	}
}

// A stage that finds the results of an earlier one gone sends the item back; one
// that is sent back too often needs a person.
func TestSendingBackHasAnEnd(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.put("Store", 1)
	e := q.engine()
	for round := 1; ; round++ {
		h := q.claimOne(e, "Store")
		q.settle(h, claim.Done{}, claim.SendBack("Receive", "the inventory is gone"))
		r := q.row(id)
		if r.Status == "Suspended" {
			if round < 3 || !r.Review {
				t.Errorf("parked in round %d: %+v", round, r)
			}
			return
		}
		if r.Stage != "Receive" || r.Status != "Pending" || r.Attempt != 0 || round > 10 {
			t.Fatalf("round %d: %+v", round, r)
		}
		q.settle(q.claimOne(e, "Receive"), claim.Done{Next: "Store"}, nil)
	}
}

// A worker that slept through its lease must not undo the work of the next one.
func TestStaleClaimChangesNothing(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.put("Receive", 1)
	a, b := q.engine(), q.engine()
	stale := q.claimOne(a, "Receive")
	q.lapse()
	q.reap(b)
	q.exec(`UPDATE work_items SET run_at = now()`)
	current := q.claimOne(b, "Receive")
	before := q.row(id)

	for _, result := range []error{nil, errors.New("the bag cannot be read")} { // each is a statement of its own
		if err := stale.Settle(context.Background(), claim.Done{Next: "Validate"}, result); !errors.Is(err, claim.ErrLost) {
			t.Errorf("Settle(stale, %v) = %v, want ErrLost", result, err)
		}
	}
	if diff := cmp.Diff(before, q.row(id)); diff != "" {
		t.Errorf("the stale claim changed the item (-before +after):\n%s", diff)
	}
	if err := current.Settle(context.Background(), claim.Done{Next: "Validate"}, nil); err != nil {
		t.Errorf("Settle(current) = %v", err)
	}
	if err := current.Settle(context.Background(), claim.Done{Next: "Validate"}, nil); !errors.Is(err, claim.ErrLost) {
		t.Errorf("Settle(current) again = %v, want ErrLost", err)
	}
	if n := value[int](q, `SELECT count(*) FROM topic_messages WHERE topic = 'ingest02_bag_validation'`); n != 1 {
		t.Errorf("%d messages for Validate, want 1", n)
	}
}

// A crash gives the item back after a while and counts, so that an item which
// kills its workers is parked.
func TestCrashesCount(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.put("Receive", 1)
	e := q.engine()
	for crash := 1; crash <= 3; crash++ {
		q.claimOne(e, "Receive")
		if n := q.reap(e); n != 0 {
			t.Fatalf("reaped %d live leases", n)
		}
		q.lapse()
		if n := q.reap(e); n != 1 {
			t.Fatalf("reaped %d lapsed leases, want 1", n)
		}
		r := q.row(id)
		if parked := r.Status == "Suspended"; parked != (crash == 3) || r.Attempt != crash || r.Leased || r.Review != parked {
			t.Fatalf("after crash %d: %+v", crash, r)
		}
		q.exec(`UPDATE work_items SET run_at = now()`)
	}
	if n := value[int](q, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'lease expired'`); n != 3 {
		t.Errorf("the ledger has %d lapsed leases, want 3", n)
	}
}

// Many lapsed leases do not starve each other.
func TestReaperComesToAll(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	for range 230 {
		q.put("Receive", 1)
	}
	e := q.engine()
	if items, err := e.Claim(context.Background(), at("Receive", 230), 230); err != nil || len(items) != 230 {
		t.Fatalf("Claim = %d, %v", len(items), err)
	}
	q.lapse()
	total := 0
	for range 4 {
		total += q.reap(e)
	}
	if total != 230 {
		t.Errorf("reaped %d, want 230", total)
	}
}

func TestPanicInAStageIsAnAttempt(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.put("Receive", 1)
	h := q.claimOne(q.engine(), "Receive")
	var none []error
	result := h.Do(func(context.Context) error { return none[id] })
	q.settle(h, claim.Done{}, result)
	if r := q.row(id); r.Status != "Pending" || r.Attempt != 1 || !strings.Contains(r.Note, "index out of range") {
		t.Errorf("item = %+v", r)
	}
	if got := value[string](q, `SELECT outcome FROM work_item_attempts`); got != "panic" {
		t.Errorf("ledger says %q, want panic", got)
	}
}

func TestLeaseShorterThanThreeHeartbeatsIsRefused(t *testing.T) {
	t.Parallel()
	o := claim.DefaultOptions()
	if err := o.Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	o.Heartbeat, o.Lease = time.Second, 3*time.Second-1
	if err := o.Validate(); err == nil {
		t.Error("a lease shorter than three heartbeats was accepted")
	}
}

// A claim does not wait behind an item that someone else is just changing.
func TestClaimPassesOverLockedItems(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	locked, free := q.put("Receive", 1), q.put("Receive", 1)
	tx := must.Get(q.db.Begin(context.Background()))(t)
	defer tx.Rollback(context.Background()) //nolint:errcheck // it only holds the lock
	must.Get(tx.Exec(context.Background(), `SELECT FROM work_items WHERE id = $1 FOR UPDATE`, locked))(t)
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Patience)
	defer cancel()
	items, err := q.engine().Claim(ctx, at("Receive", 1), 1)
	if err != nil || len(items) != 1 || items[0].ID != free {
		t.Errorf("Claim = %v, %v; want item %d", items, err, free)
	}
}
