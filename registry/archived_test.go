package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
)

// toArchive moves what has ended well or was cancelled out of the queue's tables.
const toArchive = `
	INSERT INTO work_items_archive SELECT * FROM work_items WHERE status IN ('Success', 'Cancelled');
	INSERT INTO work_item_attempts_archive SELECT a.* FROM work_item_attempts a JOIN work_items_archive w ON w.id = a.work_item_id;
	DELETE FROM work_item_attempts WHERE work_item_id IN (SELECT id FROM work_items_archive);
	DELETE FROM work_items WHERE id IN (SELECT id FROM work_items_archive)`

// An item that is in the archive is no item that never was.
func TestArchivedItemsHaveEnded(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.standing("Success")
	a.exec(toArchive)
	for what, err := range map[string]error{
		"requeue": second(a.Requeue(context.Background(), id, "")), "cancel": second(a.Cancel(context.Background(), id, "")),
		"release": second(a.Release(context.Background(), id)), "set_priority": second(a.SetPriority(context.Background(), id, 1)),
	} {
		if !errors.Is(err, registry.ErrRefused) || !strings.Contains(err.Error(), "has ended (Success) and is in the archive") {
			t.Errorf("%s = %v, want it refused as archived", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Only what is in the archive already, and was over before, leaves the tables.
func TestOnlyTheArchivedIsDeleted(t *testing.T) {
	t.Parallel()
	for _, state := range states() {
		a := newArchive(t)
		id := a.standing(state)
		a.exec(`INSERT INTO work_items_archive SELECT * FROM work_items WHERE id = $1`, id)
		_, err := a.db.Exec(context.Background(), `DELETE FROM work_items WHERE id = $1`, id)
		if over := state == "Success" || state == "Cancelled"; (err == nil) != over {
			t.Errorf("%s: DELETE = %v, want it refused: %v", state, err, !over)
		}
	}
	a := newArchive(t)
	a.standing("Cancelled")
	a.exec(`WITH gone AS (DELETE FROM work_items RETURNING *) INSERT INTO work_items_archive SELECT * FROM gone`) // in one statement
}

// An old version is not let loose on what a newer one has stored, even if that is
// in the archive by now; and an upload is in the queue once.
func TestOldVersionsStayParked(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	first := a.upload(etag1, time.Now(), "bag.tar")[0]
	a.exec(`UPDATE work_items SET status = 'Suspended'`)
	newer, _ := a.ingested(etag2, fileRecord("data/a.txt", 1))
	a.exec(toArchive)
	if _, err := a.Requeue(context.Background(), first, ""); err == nil || !strings.Contains(err.Error(), "is a newer version of the same bag") {
		t.Errorf("Requeue of item %d = %v, want it refused for item %d", first, err, newer)
	}

	older := a.upload(etag1, time.Now(), "other.tar")[0]
	a.exec(`UPDATE work_items SET status = 'Suspended' WHERE id = $1`, older)
	repeated, err := a.CreateIngests(context.Background(), a.in, time.Now(), []registry.Upload{{Key: "other.tar", ETag: etag1, Size: 10, LastModified: time.Now().Add(time.Minute), Seen: true}})
	if err != nil || len(repeated) != 1 {
		t.Fatal(repeated, err)
	}
	again := repeated[0]
	a.exec(`UPDATE work_items SET status = 'Failed' WHERE id = $1`, again)
	must.Get(a.Requeue(context.Background(), older, ""))(t)
	if _, err := a.Requeue(context.Background(), again, ""); err == nil || !strings.Contains(err.Error(), "is the same upload, and is in the queue") {
		t.Errorf("Requeue of the same upload = %v, want it refused", err)
	}
}

// What the stage has finished counts for the next worker, and the attempt does
// not; the worker is refused, and the ledger says why.
func TestReleasedItemGoesOnWhereItStood(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.standing("Started")
	entered := value[int64](a, `SELECT entered_token FROM work_items`)
	item := must.Get(a.Release(context.Background(), id))(t)
	if item.Status != "Pending" || item.Stage != "Store" || item.Attempt != 0 || item.ClaimToken != 5 || item.Worker != nil ||
		item.RunAt == nil || item.RunAt.After(item.UpdatedAt) || !strings.HasPrefix(item.Note, "Taken from the worker w by ") {
		t.Errorf("item = %+v", item)
	}
	if got := value[int64](a, `SELECT entered_token FROM work_items`); got != entered {
		t.Errorf("its progress goes by %d, want %d as before", got, entered)
	}
	if got := value[string](a, `SELECT concat_ws(' ', ended_at IS NOT NULL, outcome, error_code) FROM work_item_attempts`); got != "t released by-hand" {
		t.Errorf("attempt = %q", got)
	}
	a.fit(t, "release")
	var refused *pgconn.PgError
	if _, err := a.db.Exec(context.Background(), `SELECT release($1)`, id); !errors.As(err, &refused) || refused.Hint == "" {
		t.Errorf("release of what does not run = %v, want a refusal with a hint", err)
	}
}

// Anyone who brings an upload into the queue holds its object first and then the live
// items of that. A decision about one of these waits for no object, so the two
// never stand in each other's way.
func TestDecisionsAboutLiveItemsWaitForNoObject(t *testing.T) {
	t.Parallel()
	for _, decision := range []string{
		`SELECT requeue($1)`, `SELECT requeue($1, 'Validate')`, `SELECT release($1)`, `SELECT set_priority($1, 5)`, `SELECT cancel($1)`,
		`UPDATE work_items SET stage = 'Validate', status = 'Pending' WHERE id = $1`,
		`SELECT requeue_where('id = ' || $1::bigint, dry_run => false)`,
	} {
		t.Run(decision, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.standing("Started")
			a.somebody(`SELECT lock_object('test.edu/bag')`)
			ctx, stop := context.WithTimeout(context.Background(), testenv.Patience)
			defer stop()
			if _, err := a.db.Exec(ctx, decision, id); err != nil {
				t.Error(err)
			}
		})
	}
}

// An ended item is requeued behind an upload of its object that is just
// coming in: neither holds what the other one waits for.
func TestRequeueAndUploadOfOneObjectAreSerialized(t *testing.T) {
	t.Parallel()
	for _, decision := range []string{
		`SELECT requeue($1)`, `UPDATE work_items SET status = 'Pending' WHERE id = $1`, `SELECT requeue_where('id = ' || $1::bigint, dry_run => false)`,
	} {
		t.Run(decision, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.standingAs(part(1), "Failed")
			tx := a.somebody(`SELECT lock_object(object_identifier) FROM work_items`)
			requeued := make(chan error, 1)
			go func() { requeued <- second(a.db.Exec(context.Background(), decision, id)) }()
			a.someoneWaits()
			if _, err := tx.Exec(t.Context(), `INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
				VALUES ($1, 'Ingest', 'Receive', $2, 'receiving', 'e', 1, now())`, a.in.ID, part(2)); err != nil {
				t.Errorf("the upload: %v", err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Error(err)
			}
			if err := <-requeued; err != nil {
				t.Error(err)
			}
			if got := a.item(id); got.Status != "Pending" || got.WaitsFor == nil {
				t.Errorf("item = %+v, want it to wait behind the upload", got)
			}
			a.fit(t, decision)
		})
	}
}

// A command that the database gives up for the sake of someone else tries again.
func TestDecisionOutlastsADeadlock(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	first, second := a.standingAs("one.tar", "Started"), a.standingAs("two.tar", "Started")
	tx := a.somebody(`SET LOCAL deadlock_timeout = '1h'`, fmt.Sprintf(`SELECT FROM work_items WHERE id = %d FOR UPDATE`, second))
	requeued := make(chan error, 1)
	go func() {
		_, err := a.RequeueWhere(context.Background(), `status = 'Started'`, "", true)
		requeued <- err
	}()
	a.someoneWaits()
	if _, err := tx.Exec(t.Context(), `SELECT FROM work_items WHERE id = $1 FOR UPDATE`, first); err != nil {
		t.Errorf("it was not the command that gave way: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-requeued; err != nil || a.item(first).Status != "Pending" || a.item(second).Status != "Pending" {
		t.Errorf("RequeueWhere = %v", err)
	}
}
