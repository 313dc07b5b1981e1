package registry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

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
	again := a.upload(etag1, time.Now().Add(time.Minute), "other.tar")[0]
	a.exec(`UPDATE work_items SET status = 'Failed' WHERE id = $1`, again)
	if _, err := a.Requeue(context.Background(), older, ""); err != nil {
		t.Fatal(err)
	}
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
	item, err := a.Release(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
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

// Whoever brings an upload into the queue holds the institution first and then
// the items that it replaces. A decision in the same order never stands in its way.
func TestDecisionsTakeTheirTurnBeforeTheItem(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.standing("Failed")
	ctx := context.Background()
	tx, err := a.db.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx) //nolint:errcheck // it was committed, or the test has failed
	if _, err := tx.Exec(ctx, `SELECT lock_institution($1)`, a.in.ID); err != nil {
		t.Fatal(err)
	}
	requeued := make(chan error, 1)
	go func() { requeued <- second(a.Requeue(ctx, id, "")) }()
	wait(t, "the decision to stand behind the upload", func() bool {
		return value[bool](a, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')`)
	})
	if _, err := tx.Exec(ctx, `SELECT FROM work_items WHERE id = $1 FOR UPDATE NOWAIT`, id); err != nil {
		t.Errorf("the item is held by who waits: %v", err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-requeued; err != nil {
		t.Error(err)
	}
}
