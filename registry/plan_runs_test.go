package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/plans"
)

func ignore(int) {}

func (a *archive) apply(p record.Plan) record.Plan {
	a.t.Helper()
	p = must.Get(plans.In(a.Registry).Apply(context.Background(), p.ID, 5, ignore))(a.t)
	return p
}

func (a *archive) undo(p record.Plan) record.Plan {
	a.t.Helper()
	p = must.Get(plans.In(a.Registry).Undo(context.Background(), p.ID, ignore))(a.t)
	return p
}

// inPlan is what a plan says of an item.
func (a *archive) inPlan(p record.Plan, item int64) string {
	a.t.Helper()
	return value[string](a, `SELECT rtrim(state || ': ' || detail, ': ') FROM plan_items WHERE plan_id = $1 AND work_item_id = $2`, p.ID, item)
}

// stood is an item without what only ever moves on.
const stood = `SELECT string_agg((to_jsonb(w) - '{claim_token,updated_at,virtual_start}'::text[])::text, E'\n' ORDER BY id) FROM work_items w`

// changed fails the test unless so many items were changed by hand, each so often.
func (a *archive) changed(times, items int) {
	a.t.Helper()
	got := value[string](a, `SELECT count(*) || ' items, ' || coalesce(min(n), 0) || ' to ' || coalesce(max(n), 0) || ' times' FROM (
		SELECT count(*) AS n FROM work_item_audit GROUP BY work_item_id) c`)
	if want := fmt.Sprintf("%d items, %d to %d times", items, times, times); got != want {
		a.t.Errorf("the audit has %s, want %s", got, want)
	}
}

// A plan does to each of its items what would be done to it by hand: workers and
// the mirror are notified, and it is in the audit.
func TestAppliedPlanDoesWhatItSays(t *testing.T) {
	t.Parallel()
	ten := 10
	for action, tc := range map[string]struct {
		q          plans.Request
		want       string
		topics     int
		moves      int64
		undoTopics int
	}{
		"requeue":  {plans.Request{Action: "requeue", Stage: "Receive"}, "Pending Receive 0 Requeued for Receive by ", 70, 1, 0},
		"cancel":   {plans.Request{Action: "cancel", Reason: "Trials."}, "Cancelled Validate 0 Trials.", 0, 1, 0},
		"priority": {plans.Request{Action: "set priority", Priority: &ten}, "Failed Validate 10 Note", 0, 0, 0},
	} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.putFailed(70) // more than a batch
			other := a.put("other", "e", "Validate", "Suspended")
			before := value[string](a, stood)
			a.exec(`TRUNCATE topic_messages`)
			tc.q.Where = "status = 'Failed'"
			p := a.plan(tc.q)
			told := 0
			p, err := plans.In(a.Registry).Apply(context.Background(), p.ID, 5, func(n int) { told += n })
			if err != nil || told != 70 || p.State != "applied" || p.Counts["done"] != 70 || p.AppliedAt == nil || p.BegunBy == nil {
				t.Fatalf("ApplyPlan = %+v, %v; told of %d", p, err, told)
			}
			like := value[int](a, `SELECT count(*) FROM work_items WHERE claim_token = 3 + $2 AND id <> $3
				AND concat_ws(' ', status, stage, priority, note) LIKE $1 || '%'`, tc.want, tc.moves, other)
			if like != 70 {
				t.Errorf("%d items are %q", like, tc.want)
			}
			a.changed(1, 70)
			if n := value[int](a, `SELECT count(*) FROM topic_messages WHERE topic = 'ingest01_prefetch'`); n != tc.topics {
				t.Errorf("%d topic messages, want %d", n, tc.topics)
			}
			if a.item(other).Status != "Suspended" {
				t.Error("an item that was not in the plan has changed")
			}
			if p = a.apply(p); p.Counts["done"] != 70 {
				t.Errorf("applied again: %+v", p)
			}
			a.changed(1, 70)

			p = a.undo(p)
			if p.State != "undone" || p.Counts["undone"] != 70 || p.UndoneAt == nil || p.UndoneBy == nil {
				t.Errorf("undone: %+v", p)
			}
			if after := value[string](a, stood); after != before {
				t.Errorf("before:\n%.500s\nafter:\n%.500s", before, after)
			}
			a.changed(2, 70)
			p = a.undo(p)
			a.changed(2, 70)
			if _, err := plans.In(a.Registry).Apply(context.Background(), p.ID, 5, ignore); !errors.Is(err, registry.ErrRefused) {
				t.Errorf("applied after it was undone: %v", err)
			}
		})
	}
}

// What has changed since the plan was made is not what was looked at. It is left
// alone, and if it is much, all of it is.
func TestPlanLeavesAloneWhatHasChanged(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		items     int
		tolerance float64
		refused   bool
	}{
		"just tolerated": {40, 5, false}, // 2 of 40
		"too many":       {39, 5, true},
		"more tolerated": {39, 6, false},
		"none tolerated": {40, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.putFailed(tc.items)
			for range 20 { // those that are refused are no part of what may change
				a.exec(`INSERT INTO work_items (institution_id, action, stage, status, retry, name, bucket, etag, size, bag_date)
					VALUES ($1, 'Ingest', 'Cleanup', 'Success', false, 'done.tar', 'r', 'e', 1, now())`, a.in.ID)
			}
			p := a.plan(plans.Request{Action: "requeue", Where: "true"})
			a.exec(`UPDATE work_items SET priority = 1 WHERE id = 7`)
			must.Get(a.Cancel(context.Background(), 8, ""))(t)
			before := value[string](a, stood)
			p, err := plans.In(a.Registry).Apply(context.Background(), p.ID, tc.tolerance, ignore)
			if tc.refused {
				if !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), fmt.Sprintf("2 of the %d items", tc.items)) {
					t.Errorf("ApplyPlan = %v, want it refused for 2 of %d items", err, tc.items)
				}
				if after := value[string](a, stood); after != before {
					t.Error("an item has changed")
				}
				return
			}
			if err != nil || p.Counts["changed"] != 2 || p.Counts["done"] != int64(tc.items)-2 || p.Counts["refused"] != 20 {
				t.Errorf("ApplyPlan = %+v, %v", p, err)
			}
			if got := a.inPlan(p, 7) + "; " + a.inPlan(p, 8); got != "changed: it is Failed at Validate now; changed: it is Cancelled at Validate now" {
				t.Errorf("the plan says %q", got)
			}
			if a.item(7).Status != "Failed" || a.item(8).Status != "Cancelled" {
				t.Error("an item that had changed was requeued")
			}
		})
	}
}

// An item that was archived has left the queue; a second one of an upload finds
// the first in its place.
func TestPlanReportsWhatItCannotDo(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	gone, first, second := a.put("gone", "e", "Store", "Failed"), a.put("bag", "e", "Store", "Failed"), a.put("bag", "e", "Store", "Failed")
	p := a.requeueAll()
	if p.Counts["planned"] != 3 {
		t.Fatalf("plan = %+v", p)
	}
	a.exec(`SELECT cancel($1)`, gone)
	a.exec(`INSERT INTO work_items_archive SELECT * FROM work_items WHERE id = $1`, gone)
	a.exec(`DELETE FROM work_items WHERE id = $1`, gone)
	p, err := plans.In(a.Registry).Apply(context.Background(), p.ID, 50, ignore)
	if err != nil || p.State != "applied" {
		t.Fatalf("ApplyPlan = %+v, %v", p, err)
	}
	for item, want := range map[int64]string{
		gone: "changed: it has left the queue", first: "done",
		second: fmt.Sprintf("refused: item %d cannot be requeued: item %d is the same upload, and is in the queue", second, first),
	} {
		if got := a.inPlan(p, item); got != want {
			t.Errorf("item %d is %q, want %q", item, got, want)
		}
	}
}

// A rule that the preview does not know refuses its item, and no other.
func TestPlanSurvivesARefusalThatNobodyForesaw(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.putFailed(3)
	p := a.requeueAll()
	a.exec(`ALTER TABLE work_items ADD CONSTRAINT not_two CHECK (id <> 2 OR status = 'Failed')`)
	p = a.apply(p)
	if got := a.inPlan(p, 2); !strings.HasPrefix(got, "refused: ") || !strings.Contains(got, "not_two") || p.Counts["done"] != 2 {
		t.Errorf("item 2 is %q in %+v", got, p)
	}
	a.exec(`ALTER TABLE work_items ADD CONSTRAINT not_three CHECK (id <> 3 OR status = 'Pending')`)
	p = a.undo(p)
	if got := a.inPlan(p, 3); !strings.HasPrefix(got, "not undone: ") || !strings.Contains(got, "not_three") || p.Counts["undone"] != 1 {
		t.Errorf("item 3 is %q in %+v", got, p)
	}
}

// Who writes to plan_items does not get other items changed than were shown.
func TestPlanThatWasTamperedWithIsRefused(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"another item":  `UPDATE plan_items SET work_item_id = 3 WHERE work_item_id = 2`,
		"another token": `UPDATE plan_items SET claim_token = claim_token + 1 WHERE work_item_id = 2`,
		"one more":      `INSERT INTO plan_items SELECT plan_id, 3, claim_token, stage, status, priority, size FROM plan_items WHERE work_item_id = 2`,
		"one less":      `DELETE FROM plan_items WHERE work_item_id = 2`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.putFailed(3)
			p := a.plan(plans.Request{Action: "cancel", Where: "id < 3"})
			a.exec(sql)
			_, err := plans.In(a.Registry).Apply(context.Background(), p.ID, 100, ignore)
			if !errors.Is(err, registry.ErrRefused) || value[int](a, `SELECT count(*) FROM work_items WHERE status = 'Failed'`) != 3 {
				t.Errorf("ApplyPlan = %v", err)
			}
		})
	}
}

func TestPlansAreListedNewestFirst(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.putFailed(1)
	for range 3 {
		a.requeueAll()
	}
	for _, tc := range []struct {
		before int64
		most   int
		want   string
	}{{0, 9, "[3 2 1]"}, {0, 2, "[3 2]"}, {3, 9, "[2 1]"}} {
		list, err := plans.In(a.Registry).List(context.Background(), nil, tc.before, tc.most)
		var ids []int64
		for _, p := range list {
			ids = append(ids, p.ID)
		}
		if err != nil || fmt.Sprint(ids) != tc.want {
			t.Errorf("Plans(%d, %d) = %v, %v, want %s", tc.before, tc.most, ids, err, tc.want)
		}
	}
	for states, want := range map[string]int{"ready": 3, "applying": 0, "applying ready": 3} {
		if list, err := plans.In(a.Registry).List(context.Background(), strings.Fields(states), 0, 9); err != nil || len(list) != want {
			t.Errorf("%s: %d plans, %v", states, len(list), err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Patience)
	defer cancel()
	for _, id := range []int64{0, 4} {
		if _, err := plans.In(a.Registry).Plan(ctx, id); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("Plan(%d) = %v, want ErrNotFound", id, err)
		}
		if _, err := plans.In(a.Registry).Apply(ctx, id, 5, ignore); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("ApplyPlan(%d) = %v, want ErrNotFound", id, err)
		}
		if _, err := plans.In(a.Registry).Undo(ctx, id, ignore); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("UndoPlan(%d) = %v, want ErrNotFound", id, err)
		}
	}
}
