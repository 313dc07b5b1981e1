package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/plans"
)

// An item and what the plan notes of it are one transaction: if the second fails,
// the first has not happened, and the next run does it.
func TestPlanAndItemChangeTogether(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.putFailed(120)
	p := a.requeueAll()
	a.exec(`CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'trouble' USING ERRCODE = 'disk_full'; END $$`)
	trouble := func(item int) {
		a.exec(fmt.Sprintf(`CREATE TRIGGER trouble BEFORE UPDATE ON plan_items FOR EACH ROW WHEN (OLD.work_item_id = %d) EXECUTE FUNCTION trouble()`, item))
	}
	end := func() { a.exec(`DROP TRIGGER trouble ON plan_items`) }
	disk := func(err error) bool {
		var pg *pgconn.PgError
		return errors.As(err, &pg) && pg.Code == "53100"
	}

	trouble(70)
	if _, err := plans.In(a.Registry).Apply(context.Background(), p.ID, 5, ignore); !disk(err) {
		t.Fatalf("ApplyPlan = %v, want the trouble", err)
	}
	a.changed(1, 50) // the first batch
	if n := value[int](a, `SELECT count(*) FROM work_items WHERE status = 'Pending'`); n != 50 {
		t.Errorf("%d items are requeued after the first batch", n)
	}
	end()
	p = a.apply(p)
	a.changed(1, 120)
	trouble(70)
	if _, err := plans.In(a.Registry).Undo(context.Background(), p.ID, ignore); !disk(err) {
		t.Fatalf("UndoPlan = %v, want the trouble", err)
	}
	if n := value[int](a, `SELECT count(*) FROM work_items WHERE status = 'Pending'`); n != 70 {
		t.Errorf("%d items are still requeued after the first batch", n)
	}
	if _, err := plans.In(a.Registry).Apply(context.Background(), p.ID, 5, ignore); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("applied while it is undone in part: %v", err)
	}
	end()
	a.undo(p)
	a.changed(2, 120)
}

// Anyone who thinks better of it in the middle undoes the half that was done.
func TestHalfAppliedPlanIsUndone(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.putFailed(120)
	before := value[string](a, stood)
	p := a.requeueAll()
	if _, err := plans.In(a.Registry).Undo(context.Background(), p.ID, ignore); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("undone before it was applied: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	_, err := plans.In(a.Registry).Apply(ctx, p.ID, 5, func(int) { stop() })
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("ApplyPlan = %v, want it stopped", err)
	}
	a.changed(1, 50)
	if n := value[int](a, `SELECT plan_apply($1, 0)`, p.ID); n != 1 {
		t.Errorf("a batch of no items has %d: then the plan would be at its end", n)
	}
	p = a.undo(p)
	if p.Counts["undone"] != 51 || p.Counts["planned"] != 69 || p.State != "undone" {
		t.Errorf("undone: %+v", p)
	}
	if after := value[string](a, stood); after != before {
		t.Error("the items are not as they were")
	}
}

// Any number may apply the same plan in psql: together they do it once.
func TestManyMayApplyAPlanAtOnce(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.putFailed(200)
	p := a.requeueAll()
	for _, run := range []string{`SELECT plan_apply($1, 7)`, `SELECT plan_undo($1, 7)`} {
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				for n := 1; n > 0; {
					if err := a.db.QueryRow(context.Background(), run, p.ID).Scan(&n); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	a.changed(2, 200)
	if n := value[int](a, `SELECT count(*) FROM work_items WHERE status = 'Failed' AND claim_token = 5`); n != 200 {
		t.Errorf("%d items are as they were, and moved twice", n)
	}
}

// The second caller learns who has the plan.
func TestPlanIsInOneHand(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.putFailed(60)
	p := a.requeueAll()
	began, end := make(chan struct{}), make(chan struct{})
	var first sync.WaitGroup
	first.Go(func() {
		begun := sync.OnceFunc(func() { close(began); <-end })
		if _, err := plans.In(a.Registry).Apply(context.Background(), p.ID, 5, func(int) { begun() }); err != nil {
			t.Error(err)
		}
	})
	<-began
	user := value[string](a, `SELECT session_user::text`)
	_, err := plans.In(a.Registry).Apply(context.Background(), p.ID, 5, ignore)
	if !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "is being applied by") || !strings.Contains(err.Error(), user+", backend process") {
		t.Errorf("the second is told %v", err)
	}
	if _, err := plans.In(a.Registry).Undo(context.Background(), p.ID, ignore); !errors.Is(err, registry.ErrRefused) {
		t.Errorf("who would undo it is told %v", err)
	}
	close(end)
	first.Wait()
	a.changed(1, 60)
	a.undo(p) // nobody has it any more
}

// Workers are not in the way of a plan, nor it in theirs: what they take first
// has changed, and they lose what it takes first.
func TestPlanAndWorkersAtOnce(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.exec(`
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT $1, 'Ingest', 'Receive', 'bag-' || n || '.tar', 'receiving', 'e', n, now() FROM generate_series(1, 400) n`, a.in.ID)
	engine := must.Get(claim.New(t.Context(), a.db, claim.DefaultOptions()))(t)
	inHand, err := engine.Claim(t.Context(), claim.Filter{Stages: []claim.Want{{Stage: "Receive", Most: 10}}}, 10)
	if err != nil || len(inHand) != 10 {
		t.Fatalf("Claim = %d items, %v", len(inHand), err)
	}
	p := a.plan(plans.Request{Action: "cancel", Where: "true"})
	var workers sync.WaitGroup
	var over atomic.Bool
	settled := 0
	began := make(chan struct{})
	workers.Go(func() {
		for begun := sync.OnceFunc(func() { close(began) }); !over.Load(); begun() {
			items, err := engine.Claim(t.Context(), claim.Filter{Stages: []claim.Want{{Stage: "Receive", Most: 10}}}, 10)
			if err != nil {
				t.Error(err)
				return
			}
			for _, i := range items {
				switch err := settle(t.Context(), engine, i); {
				case err == nil:
					settled++
				case !errors.Is(err, claim.ErrLost):
					t.Error(err)
				}
			}
		}
	})
	<-began
	p, err = plans.In(a.Registry).Apply(t.Context(), p.ID, 100, ignore)
	over.Store(true)
	workers.Wait()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range inHand {
		if err := settle(t.Context(), engine, i); !errors.Is(err, claim.ErrLost) {
			t.Errorf("the worker that had item %d before: %v, want ErrLost", i.ID, err)
		}
	}
	t.Logf("%v; the worker moved %d items", p.Counts, settled)
	if p.Counts["done"]+p.Counts["changed"] != 400 || p.Counts["done"] == 0 || p.Counts["changed"] == 0 {
		t.Errorf("plan = %+v", p)
	}
	a.changed(1, int(p.Counts["done"]))
	if n := value[int64](a, `SELECT count(*) FROM work_items w JOIN plan_items i ON i.work_item_id = w.id
		WHERE (i.state = 'done') = (w.status = 'Cancelled') AND (i.state <> 'done' OR w.claim_token = i.token_after)`); n != 400 {
		t.Errorf("%d items are what the plan says of them", n)
	}
}

func settle(ctx context.Context, e *claim.Engine, i claim.Item) error {
	return e.Hold(ctx, i).Settle(ctx, claim.Done{Next: "Validate", Note: "Done"}, nil)
}

// A plan looks at an item when nobody else has it, and decides then.
func TestPlanWaitsForWhoeverHasAnItem(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.putFailed(2)
	p := a.requeueAll()
	tx := a.somebody(`UPDATE work_items SET stage = 'Store', claim_token = claim_token + 1 WHERE id = 2`)
	var applying sync.WaitGroup
	applying.Go(func() { p, _ = plans.In(a.Registry).Apply(context.Background(), p.ID, 100, ignore) })
	a.someoneWaits()
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	applying.Wait()
	if got := a.inPlan(p, 1) + ", " + a.inPlan(p, 2); got != "done, changed: it is Failed at Store now" {
		t.Errorf("the plan says %q", got)
	}
}

// Who brings a new bag into the queue locks its object and then the live items of
// that. A plan that waits for an object has no live item in its hands, and one that
// has some waits for no object, so they never wait for each other in a ring.
func TestPlanAndBucketReaderDoNotCross(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.putFailed(1)
	live := a.put("bag-1.b1.of2", "e", "Validate", "Pending")
	p := a.plan(plans.Request{Action: "requeue", Where: "true", Stage: "Receive"})
	tx := a.somebody(`SELECT lock_object('test.edu/bag-1')`)
	var applying sync.WaitGroup
	applying.Go(func() { a.apply(p) })
	a.someoneWaits()
	if _, err := tx.Exec(t.Context(), `SELECT FROM work_items WHERE id = $1 FOR UPDATE NOWAIT`, live); err != nil {
		t.Errorf("the plan has the live item already: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	applying.Wait()

	a.somebody(`SELECT lock_object('test.edu/bag-1')`)
	if got := a.inPlan(a.undo(p), 1); got != "undone" {
		t.Errorf("the plan says %q", got)
	}
}

// someone is a transaction of someone else, who has run a statement.
func (a *archive) somebody(statements ...string) pgx.Tx {
	a.t.Helper()
	tx := must.Get(a.db.Begin(context.Background()))(a.t)
	a.t.Cleanup(func() { tx.Rollback(context.Background()) })
	for _, sql := range statements {
		if _, err := tx.Exec(context.Background(), sql); err != nil {
			a.t.Fatalf("%s: %v", sql, err)
		}
	}
	return tx
}

// someoneWaits returns when a session waits for a lock of another.
func (a *archive) someoneWaits() {
	a.t.Helper()
	testenv.Eventually(a.t, "a session to wait for a lock", func() bool {
		return value[bool](a, `SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)
	})
}

// Where a plan and someone else wait for each other, the database gives up on
// one. If that is the plan, it tries again.
func TestPlanOutlastsADeadlock(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.putFailed(2)
	p := a.requeueAll()
	tx := a.somebody(`SET LOCAL deadlock_timeout = '1h'`, // so it is the plan that notices
		`SELECT FROM work_items WHERE id = 2 FOR UPDATE`)
	var applying sync.WaitGroup
	applying.Go(func() { a.apply(p) })
	a.someoneWaits()
	if _, err := tx.Exec(t.Context(), `SELECT FROM work_items WHERE id = 1 FOR UPDATE`); err != nil {
		t.Errorf("it was not the plan that gave way: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	applying.Wait()
	a.changed(1, 2)
}
