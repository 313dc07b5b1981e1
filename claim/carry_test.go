package claim_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// carry ends a claim whose stage is done and begins the next.
func (q *queue) carry(h *claim.Hold, done claim.Done) *claim.Item {
	q.t.Helper()
	next, err := h.Carry(context.Background(), done)
	if err != nil {
		q.t.Fatalf("Carry: %v", err)
	}
	return next
}

// bothSQL is all that two attempts in a row leave of an item, without what identifies it.
const bothSQL = `
SELECT jsonb_build_object(
	'item', to_jsonb(w) - '{id,name,virtual_start,bag_date,created_at,queued_at,date_processed,run_at,updated_at,stage_started_at,lease_expires_at}'::text[]
		|| jsonb_build_object('lease', lease_expires_at - updated_at, 'begun', stage_started_at = updated_at, 'due', run_at <= updated_at),
	'attempts', (SELECT jsonb_agg(to_jsonb(a) - '{work_item_id,claimed_at,heartbeat_at,ended_at}'::text[]
			|| jsonb_build_object('ended', a.ended_at > a.claimed_at, 'beat', a.heartbeat_at >= a.claimed_at) ORDER BY claim_token)
		FROM work_item_attempts a WHERE work_item_id = w.id),
	'in order', (SELECT bool_and(b.claimed_at >= a.ended_at) FROM work_item_attempts a JOIN work_item_attempts b USING (work_item_id)
		WHERE a.work_item_id = w.id AND a.claim_token < b.claim_token),
	'messages', (SELECT array_agg(topic ORDER BY id) FROM topic_messages WHERE work_item_id = w.id))
FROM work_items w WHERE w.id = $1`

// An item that is carried on is afterwards, in every column, the ledger and the topic log, what
// its twin is that was ended and claimed again. Its worker is told the same of it.
func TestCarryingOnIsAnEndAndAClaim(t *testing.T) {
	t.Parallel()
	for name, done := range map[string]claim.Done{
		"plain":       {Next: "Storage Validation", Note: "Stored."},
		"learnt more": {Next: "Storage Validation", StorageOption: "Glacier-OH", MemoryNeed: 9, Remark: "odd"},
		"capped":      {Next: "Record"},
	} {
		for _, lease := range []string{"its own", "of the process"} {
			t.Run(name+", lease "+lease, func(t *testing.T) {
				t.Parallel()
				q := newQueue(t)
				e := q.engine(func(o *claim.Options) {
					o.MaxAttempts = map[string]int{"Storage Validation": 7}
					if lease == "of the process" {
						o.Lease = 77e9
					}
				})
				q.put("Store", 10)
				q.put("Store", 10)
				q.exec(`DO $do$ BEGIN
					SET LOCAL session_replication_role = replica;
					UPDATE work_items SET object_identifier = 'test.edu/bag';
				END $do$`)
				one, twin := q.claimOne(e, "Store"), q.claimOne(e, "Store")
				next := q.carry(one, done)
				q.settle(twin, done, nil)
				again := q.claimOne(e, done.Next)
				if next == nil {
					t.Fatal("the item is not carried on")
				}
				got, want := value[map[string]any](q, bothSQL, one.Item.ID), value[map[string]any](q, bothSQL, twin.Item.ID)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("an end and a claim (-) and being carried on (+) differ:\n%s", diff)
				}
				if diff := cmp.Diff(again.Item, *next, cmpopts.IgnoreUnexported(claim.Item{}), cmpopts.IgnoreFields(claim.Item{}, "ID", "Name", "BagDate", "CreatedAt", "At")); diff != "" {
					t.Errorf("the worker that claimed (-) and the one that carries on (+) are told different things:\n%s", diff)
				}
				if got := e.Hold(t.Context(), *next).Lease(); got != again.Lease() {
					t.Errorf("the lease is %v, want %v", got, again.Lease())
				}
				if err := e.Beat(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// An item is not carried into a paused stage. It waits there and another worker gets it.
func TestNothingIsCarriedIntoAPausedStage(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.put("Store", 10)
	e := q.engine()
	h := q.claimOne(e, "Store")
	q.exec(`UPDATE stage_settings SET paused = true WHERE stage = 'Storage Validation'`)
	if next := q.carry(h, claim.Done{Next: "Storage Validation", Note: "Stored."}); next != nil {
		t.Errorf("carried on as %+v", next)
	}
	want := row{Stage: "Storage Validation", Status: "Pending", Retry: true, Due: true, Note: "Stored."}
	if got := q.row(id); got != want {
		t.Errorf("the item is %+v, want %+v", got, want)
	}
	q.exec(`UPDATE stage_settings SET paused = false`)
	if h := q.claimOne(q.engine(), "Storage Validation"); h.Item.ID != id {
		t.Errorf("item %d was claimed", h.Item.ID)
	}
}

// However many are carried into a capped stage and claimed there at once, no more run than the
// cap allows. The others wait.
func TestCapHoldsForWhatIsCarriedOn(t *testing.T) {
	t.Parallel()
	const rounds, processes, each = 5, 4, 3
	q := newQueue(t)
	for round := range rounds {
		var workers sync.WaitGroup
		for range processes {
			e := q.engine()
			for range each {
				q.put("Storage Validation", 10)
				q.put("Record", 10)
			}
			items := must.Get(e.Claim(t.Context(), at("Storage Validation", each), each))(t)
			for _, item := range items {
				workers.Go(func() {
					if _, err := e.Hold(context.Background(), item).Carry(context.Background(), claim.Done{Next: "Record"}); err != nil {
						t.Errorf("Carry: %v", err)
					}
				})
			}
			workers.Go(func() {
				if _, err := e.Claim(context.Background(), at("Record", 2), 2); err != nil {
					t.Errorf("Claim: %v", err)
				}
			})
		}
		workers.Wait()
		if n := value[int](q, `SELECT count(*) FROM work_items WHERE stage = 'Record' AND status = 'Started'`); n != 2 {
			t.Fatalf("round %d: %d items of Record run, want its cap of 2", round, n)
		}
		q.exec(`DO $do$ BEGIN
			SET LOCAL session_replication_role = replica;
			DELETE FROM work_item_attempts;
			DELETE FROM work_items;
		END $do$`)
	}
}

// A claim that is lost is not carried on, and nothing changes.
func TestStaleClaimIsNotCarriedOn(t *testing.T) {
	t.Parallel()
	for _, next := range []registry.Stage{"Storage Validation", "Record"} {
		t.Run(string(next), func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			id := q.put("Store", 10)
			h := q.claimOne(q.engine(), "Store")
			q.exec(`SELECT release($1)`, id)
			before := value[map[string]any](q, `SELECT to_jsonb(w) FROM work_items w`)
			item, err := h.Carry(t.Context(), claim.Done{Next: next})
			if !errors.Is(err, claim.ErrLost) || item != nil {
				t.Errorf("Carry = %+v, %v; want that the item is lost", item, err)
			}
			if diff := cmp.Diff(before, value[map[string]any](q, `SELECT to_jsonb(w) FROM work_items w`)); diff != "" {
				t.Errorf("the item has changed:\n%s", diff)
			}
			if n := value[int](q, `SELECT count(*) FROM work_item_attempts`); n != 1 {
				t.Errorf("the ledger has %d attempts, want 1", n)
			}
		})
	}
}

// What is carried into a capped stage waits for a claim there that is not through: so the claim
// is counted.
func TestCarriedItemWaitsForTheCount(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.put("Storage Validation", 10)
	h := q.claimOne(q.engine(), "Storage Validation")
	q.put("Record", 10)
	q.put("Record", 10)
	// The ledger's rows are kept from the claim, so that it is under way.
	tx := must.Get(q.db.Begin(t.Context()))(t)
	defer tx.Rollback(context.Background()) //nolint:errcheck // it was rolled back, or the test has failed
	must.Get(tx.Exec(t.Context(), `INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker)
		SELECT id, 1, stage, 1, '', 1, '' FROM work_items WHERE stage = 'Record'`))(t)
	waits := func(n int) bool {
		return value[int](q, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == n
	}
	var workers sync.WaitGroup
	workers.Go(func() {
		if items, err := q.engine().Claim(context.Background(), at("Record", 2), 2); err != nil || len(items) != 2 {
			t.Errorf("Claim = %d items, %v", len(items), err)
		}
	})
	testenv.Eventually(t, "the claim to wait", func() bool { return waits(1) })
	var through atomic.Bool
	workers.Go(func() {
		defer through.Store(true)
		if next, err := h.Carry(context.Background(), claim.Done{Next: "Record"}); err != nil || next != nil {
			t.Errorf("Carry = %+v, %v; want that the item waits at Record", next, err)
		}
	})
	testenv.Eventually(t, "the end of the other claim to wait, too", func() bool { return waits(2) || through.Load() })
	must.Do(t, tx.Rollback(t.Context()))
	workers.Wait()
	if got := q.row(id); got.Stage != "Record" || got.Status != "Pending" {
		t.Errorf("the item is %s at %s, and two others run there, its cap", got.Status, got.Stage)
	}
}

// While another transaction keeps an item locked that is carried into a capped stage, other workers
// claim items of that stage.
func TestLockedItemKeepsNoCapFromOthers(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	id := q.put("Storage Validation", 10)
	e := q.engine()
	h := q.claimOne(e, "Storage Validation")
	other := q.put("Record", 10)
	tx := must.Get(q.db.Begin(t.Context()))(t)
	defer tx.Rollback(context.Background()) //nolint:errcheck // it was rolled back, or the test has failed
	must.Get(tx.Exec(t.Context(), `SELECT FROM work_items WHERE id = $1 FOR UPDATE`, id))(t)
	var carrying sync.WaitGroup
	carrying.Go(func() {
		if _, err := h.Carry(context.Background(), claim.Done{Next: "Record"}); err != nil {
			t.Errorf("Carry: %v", err)
		}
	})
	testenv.Eventually(t, "the end of the claim to wait", func() bool {
		return value[int](q, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) == 1
	})
	if h := q.claimOne(q.engine(), "Record"); h.Item.ID != other {
		t.Errorf("item %d was claimed, want %d", h.Item.ID, other)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	carrying.Wait()
}

// What a stage leaves is written with the end of its claim, in place of what it left before, and by
// no claim that was lost. It goes with the end of the item.
func TestListGoesWithTheEndOfItsClaim(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	e := q.engine()
	q.put("Validate", 10)
	lists := func(want string) {
		t.Helper()
		if got := value[string](q, `SELECT coalesce(string_agg(name || ' ' || coalesce(convert_from(content, 'UTF8'), '-') || ' ' || staged, ', ' ORDER BY name), '') FROM work_item_lists`); got != want {
			t.Errorf("the lists are %q, want %q", got, want)
		}
	}
	left := func(content []byte) claim.Done {
		return claim.Done{Next: "Store", List: claim.List{Name: "verdict", Content: content}}
	}
	stale := q.claimOne(e, "Validate")
	q.lapse()
	if _, err := e.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	q.exec(`UPDATE work_items SET run_at = now()`)
	h := q.claimOne(e, "Validate")
	if err := stale.Settle(t.Context(), left([]byte("stale")), nil); !errors.Is(err, claim.ErrLost) {
		t.Errorf("a claim that was lost ends with %v", err)
	}
	lists("")
	q.settle(h, left([]byte("first")), claim.Transient("again", errors.New("not done")))
	lists("")
	q.exec(`UPDATE work_items SET run_at = now()`)
	next := q.carry(q.claimOne(e, "Validate"), left([]byte("second")))
	lists("verdict second false")
	q.settle(e.Hold(t.Context(), *next), claim.Done{}, claim.SendBack("Validate", "again"))
	q.settle(q.claimOne(e, "Validate"), left(nil), nil)
	lists("verdict - true")
	q.settle(q.claimOne(e, "Store"), claim.Done{}, claim.SendBack("Validate", "again"))
	q.settle(q.claimOne(e, "Validate"), left([]byte("third")), nil)
	lists("verdict third true")
	q.settle(q.claimOne(e, "Store"), claim.Done{Next: "Cleanup"}, nil)
	q.settle(q.claimOne(e, "Cleanup"), claim.Done{}, nil)
	lists("")
}

// Ends of all kinds that come at once each do what they would do alone.
func TestEndsOfAllKindsGoTogether(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	e := q.engine()
	want := map[int64]string{}
	var workers sync.WaitGroup
	for n := range 60 {
		id := q.put("Storage Validation", 10)
		h := q.claimOne(e, "Storage Validation")
		end := map[int]func() (*claim.Item, error){
			0: func() (*claim.Item, error) {
				return nil, h.Settle(context.Background(), claim.Done{Next: "Record"}, nil)
			},
			1: func() (*claim.Item, error) { return h.Carry(context.Background(), claim.Done{Next: "Cleanup"}) },
			2: func() (*claim.Item, error) {
				return nil, h.Settle(context.Background(), claim.Done{}, claim.Suspend("ask", "why?"))
			},
			3: func() (*claim.Item, error) { return h.Carry(context.Background(), claim.Done{Next: "Record"}) },
		}[n%4]
		want[id] = map[int]string{0: "Record, Pending", 1: "Cleanup, Started", 2: "Storage Validation, Suspended", 3: "Record, any"}[n%4]
		workers.Go(func() {
			next, err := end()
			if err != nil {
				t.Errorf("item %d: %v", id, err)
			}
			if got := q.row(id); (next != nil) != (got.Status == "Started") {
				t.Errorf("item %d is %s at %s, and its worker has %+v", id, got.Status, got.Stage, next)
			}
		})
	}
	workers.Wait()
	for id, want := range want {
		r := q.row(id)
		if got := fmt.Sprintf("%s, %s", r.Stage, r.Status); got != want && want != r.Stage+", any" {
			t.Errorf("item %d is %s, want %s", id, got, want)
		}
	}
	if n := value[int](q, `SELECT count(*) FROM work_items WHERE stage = 'Record' AND status = 'Started'`); n != 2 {
		t.Errorf("%d items of Record run, want its cap of 2", n)
	}
}

// Whether a filter still takes an item that has gone on is decided here as the statements
// decide it.
func TestFilterStillTakesWhatAClaimWouldTake(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	e := q.engine()
	item := claim.Item{ID: q.put("Store", 10), Action: "Ingest", Stage: "Store", Institution: "test.edu"}
	scopes := [][]claim.Scope{
		nil,
		{{Steps: []string{"Store"}}},
		{{Steps: []string{"Receive"}}},
		{{Steps: []string{"Receive", "Store"}, StorageOptions: []string{"Standard", "Glacier-VA"}}},
		{{Steps: []string{"Store"}, Institutions: []string{"test.edu"}}},
		{{Steps: []string{"Store"}, Institutions: []string{"other.edu"}}},
		{{Steps: []string{"Store"}, Institutions: []string{"test.edu"}, StorageOptions: []string{"Glacier-OH"}}},
	}
	seen := map[bool]int{}
	for _, item.StorageOption = range []string{"", "Standard", "Glacier-OH"} {
		for _, need := range []int64{0, 5} {
			q.exec(fmt.Sprintf(`DO $do$ BEGIN
				SET LOCAL session_replication_role = replica;
				UPDATE work_items SET storage_option = nullif('%s', ''), memory_need = %d;
			END $do$`, item.StorageOption, need))
			for _, options := range [][]string{nil, {"Standard"}, {"Standard", "Glacier-OH"}} {
				for _, memory := range []int64{0, 4, 5} {
					for _, without := range scopes {
						f := claim.Filter{Stages: []claim.Want{{Stage: "Store", Most: 1}}, StorageOptions: options, Memory: memory, Without: without}
						ids := must.Get(e.Peek(t.Context(), f, 1))(t)
						if want := len(ids) == 1; f.StillTakes(item, need) != want {
							t.Errorf("an item of option %q that needs %d bytes; %+v takes it: %v, want %v", item.StorageOption, need, f, !want, want)
						}
						seen[len(ids) == 1]++
					}
				}
			}
		}
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("%d filters take the item, and %d do not", seen[true], seen[false])
	}
}
