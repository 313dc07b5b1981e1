package registry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/plans"
)

// Whatever an item was, undoing gives it back to the byte, but for what only
// ever moves on; and workers that wait for such an item are notified.
func TestUndoneItemIsWhatItWas(t *testing.T) {
	t.Parallel()
	ten := 10
	for action, q := range map[string]plans.Request{
		"requeue":  {Action: "requeue", Stage: "Receive"},
		"cancel":   {Action: "cancel"},
		"priority": {Action: "set priority", Priority: &ten},
	} {
		for _, status := range []string{"Pending", "Failed", "Suspended"} {
			t.Run(action+" of "+status, func(t *testing.T) {
				t.Parallel()
				a := newArchive(t)
				id := a.put("bag", "e", "Store", status)
				a.exec(`UPDATE work_items SET priority = -3, needs_admin_review = NOT needs_admin_review`)
				a.exec(`TRUNCATE work_item_audit`)
				before := value[string](a, stood)
				q.Where = "true"
				p := a.apply(a.plan(q))
				if value[string](a, stood) == before {
					t.Fatal("the plan has changed nothing")
				}
				a.exec(`TRUNCATE topic_messages`)
				p = a.undo(p)
				if after := value[string](a, stood); after != before || a.inPlan(p, id) != "undone" {
					t.Errorf("%s\nbefore: %s\nafter:  %s", a.inPlan(p, id), before, after)
				}
				want := 0
				if status == "Pending" && action != "priority" {
					want = 1
				}
				if n := value[int](a, `SELECT count(*) FROM topic_messages WHERE topic = 'ingest06_storage' AND body = $1::bigint::text`, id); n != want {
					t.Errorf("%d topic messages, want %d", n, want)
				}
				if n := value[int](a, `SELECT count(*) FROM work_item_audit`); n != 2 {
					t.Errorf("%d audit rows, want 2", n)
				}
			})
		}
	}
}

// Workers that wait for a stage are notified of an item that comes back to it.
func TestWorkersAreNotifiedOfUndoneItems(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx, stop := context.WithTimeout(t.Context(), testenv.Patience)
	defer stop()
	a.put("bag", "e", "Store", "Pending")
	p := a.apply(a.plan(plans.Request{Action: "cancel", Where: "true"}))
	c := must.Get(a.db.Acquire(ctx))(t)
	defer c.Release()
	must.Get(c.Exec(ctx, `LISTEN farol_work`))(t)
	a.undo(p)
	if n, err := c.Conn().WaitForNotification(ctx); err != nil || n.Payload != "\nStore" {
		t.Errorf("heard %+v, %v; want Store", n, err)
	}
}

// A worker's claim cannot be given back to it. The item goes on at its stage, with
// the progress that was made there, as after a lapsed lease.
func TestUndoneItemOfAWorkerIsPending(t *testing.T) {
	t.Parallel()
	for _, q := range []plans.Request{
		{Action: "requeue", Stage: "Receive", Where: "true"},
		{Action: "cancel", Where: "true"},
	} {
		t.Run(q.Action, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.put("bag", "e", "Store", "Started")
			p := a.undo(a.apply(a.plan(q)))
			item := a.item(id)
			if item.Status != "Pending" || item.Stage != "Store" || item.Attempt != 2 || item.ClaimToken != 4 || item.Worker != nil ||
				item.Note != fmt.Sprintf("The plan %d that took it from its worker was undone", p.ID) {
				t.Errorf("item = %+v", item)
			}
			if entered := value[int](a, `SELECT entered_token FROM work_items`); entered != 1 {
				t.Errorf("its progress goes by %d, want 1 as before", entered)
			}
			if got := a.inPlan(p, id); got != "undone: it is Pending, since its worker has lost it" {
				t.Errorf("the plan says %q", got)
			}
		})
	}
}

// What went on since is nobody's to take back.
func TestUndoLeavesAloneWhatWentOn(t *testing.T) {
	t.Parallel()
	ten := 10
	requeue := plans.Request{Action: "requeue", Where: "true"}
	cancel := plans.Request{Action: "cancel", Where: "true"}
	first := plans.Request{Action: "set priority", Priority: &ten, Where: "true"}
	for name, tc := range map[string]struct {
		q      plans.Request
		status string
		since  func(a *archive, id int64)
		want   string
	}{
		"claimed": {requeue, "Failed", func(a *archive, id int64) { a.bring(id, "Store", "Started") }, "not undone: it continued: it is Started at Store now"},
		"cancelled": {
			requeue, "Failed", func(a *archive, id int64) { a.exec(`SELECT cancel($1)`, id) },
			"not undone: it continued: it is Cancelled at Store now",
		},
		"archived": {cancel, "Failed", func(a *archive, _ int64) {
			a.exec(`WITH gone AS (DELETE FROM work_items RETURNING *) INSERT INTO work_items_archive SELECT * FROM gone`)
		}, "not undone: it has left the queue"},
		"newer in work": {
			cancel, "Pending", func(a *archive, _ int64) { a.put("bag", "e2", "Receive", "Pending") },
			"not undone: item 2 is a newer version of the same bag",
		},
		"newer ingested": {
			cancel, "Started", func(a *archive, _ int64) { a.put("bag", "e2", "Cleanup", "Success") },
			"not undone: item 2 is a newer version of the same bag",
		},
		"newer archived": {cancel, "Pending", func(a *archive, id int64) {
			a.put("bag", "e2", "Cleanup", "Success")
			a.exec(`WITH gone AS (DELETE FROM work_items WHERE id <> $1 RETURNING *) INSERT INTO work_items_archive SELECT * FROM gone`, id)
		}, "not undone: item 2 is a newer version of the same bag"},
		"newer, but it comes not alive": {cancel, "Failed", func(a *archive, _ int64) { a.put("bag", "e2", "Receive", "Pending") }, "undone"},
		"other priority":                {first, "Pending", func(a *archive, _ int64) { a.exec(`UPDATE work_items SET priority = 11`) }, "not undone: its priority was changed again"},
		"ended":                         {first, "Pending", func(a *archive, id int64) { a.bring(id, "Cleanup", "Success") }, "not undone: it has ended (Success)"},
		"claimed with a priority":       {first, "Pending", func(a *archive, id int64) { a.bring(id, "Store", "Started") }, "undone"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.put("bag", "e1", "Store", tc.status)
			p := a.apply(a.plan(tc.q))
			if p.Counts["done"] != 1 {
				t.Fatalf("plan = %+v", p)
			}
			tc.since(a, id)
			items := `SELECT coalesce((` + stood + `), 'none')`
			before := value[string](a, items)
			p = a.undo(p)
			if got := a.inPlan(p, id); got != tc.want {
				t.Errorf("the plan says %q, want %q", got, tc.want)
			}
			if after := value[string](a, items); strings.HasPrefix(tc.want, "not") && after != before {
				t.Errorf("before: %s\nafter:  %s", before, after)
			}
		})
	}
}

// The parts of a bag stand in one line before and after: those that come back go
// to its end, and none is left waiting for what is no more.
func TestUndoneItemsStandInLine(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	var ids []int64
	for n := range 4 {
		ids = append(ids, a.upload(etag1, time.Now(), part(n))[0])
	}
	cancelled := a.apply(a.plan(plans.Request{Action: "cancel", Where: fmt.Sprintf("id IN (%d, %d)", ids[1], ids[2])}))
	a.undo(cancelled)
	if got, want := fmt.Sprint(a.line(ids...)), fmt.Sprint([]int64{0, ids[3], ids[1], ids[0]}); got != want {
		t.Errorf("they wait for %s, want %s", got, want)
	}
	if n := value[int](a, `SELECT count(*) FROM work_items WHERE (waits_for IS NULL) = isfinite(run_at)`); n != 4 {
		t.Errorf("%d of 4 are due when it is their turn", n)
	}

	// One that waited when the plan came is due once nothing is before it.
	a.exec(`UPDATE work_items SET stage = 'Store', claim_token = claim_token + 1`)
	requeued := a.apply(a.plan(plans.Request{Action: "requeue", Stage: "Receive", Where: fmt.Sprintf("id = %d", ids[3])}))
	a.exec(`SELECT cancel($1)`, ids[0])
	a.undo(requeued)
	if item := a.item(ids[3]); item.RunAt == nil || item.Stage != "Store" || item.WaitsFor != nil {
		t.Errorf("item = %+v, want it due at Store", item)
	}

	// One that is parked again lets go of who came to wait for it.
	a.exec(`SELECT cancel(id) FROM work_items WHERE id <> $1`, ids[3])
	a.exec(`UPDATE work_items SET status = 'Failed' WHERE id = $1`, ids[3])
	again := a.apply(a.plan(plans.Request{Action: "requeue", Where: "status = 'Failed'"}))
	behind := a.upload(etag1, time.Now(), part(9))[0]
	if got := a.line(behind)[0]; got != ids[3] {
		t.Fatalf("the next part waits for %d, want %d", got, ids[3])
	}
	a.undo(again)
	if got := a.line(behind)[0]; got != 0 {
		t.Errorf("the next part waits for %d, which has failed", got)
	}
}
