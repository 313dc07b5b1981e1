package claim_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// What has ended for good leaves the queue's tables with its attempts after a
// while, and the views show it still. What a person may requeue stays.
func TestArchiveTakesWhatHasEndedForGood(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	e := q.engine()
	ends := map[string]error{
		"Success": nil, "Cancelled": claim.Cancel("bag-changed", "replaced"),
		"Failed": claim.Fatal("bad", "it is bad"), "Suspended": claim.Suspend("odd", "it is odd"),
	}
	items := map[string]int64{"Pending": q.put("Receive", 1)}
	for status, end := range ends {
		items[status] = q.put("Cleanup", 1)
		q.settle(q.claimOne(e, "Cleanup"), claim.Done{}, end)
	}
	fresh := q.put("Cleanup", 1)
	q.exec(`UPDATE work_items SET updated_at = now() - interval '31 days' WHERE id <> $1`, fresh)
	q.settle(q.claimOne(e, "Cleanup"), claim.Done{}, nil)

	if n, err := e.Archive(context.Background(), 30*24*time.Hour); err != nil || n != 2 {
		t.Fatalf("Archive = %d, %v; want the two that ended for good", n, err)
	}
	gone := []int64{items["Success"], items["Cancelled"]}
	for status, id := range items {
		if got := value[bool](q, `SELECT EXISTS (SELECT FROM work_items WHERE id = $1)`, id); got == slices.Contains(gone, id) {
			t.Errorf("the %s one is in the queue: %v", status, got)
		}
		if got := value[string](q, `SELECT status FROM all_work_items WHERE id = $1`, id); got != status {
			t.Errorf("the view says %s of the %s one", got, status)
		}
		attempts := value[int](q, `SELECT count(*) FROM attempts WHERE work_item_id = $1`, id)
		left := value[int](q, `SELECT count(*) FROM work_item_attempts WHERE work_item_id = $1`, id)
		if want := map[bool]int{true: 0, false: 1}[status == "Pending"]; attempts != want || (left == 0) != (want == 0 || slices.Contains(gone, id)) {
			t.Errorf("the %s one has %d attempts, %d of them in the queue's table", status, attempts, left)
		}
	}
	if !value[bool](q, `SELECT EXISTS (SELECT FROM work_items WHERE id = $1)`, fresh) {
		t.Error("what ended a moment ago is archived")
	}
}

// An older version of a bag must not overwrite a newer one, however long ago that
// was ingested.
func TestRequeueKnowsOfArchivedVersions(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	e := q.engine()
	older := q.put("Cleanup", 1)
	q.settle(q.claimOne(e, "Cleanup"), claim.Done{}, claim.Fatal("bad", "it is bad"))
	q.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT institution_id, action, stage, name, bucket, repeat('f', 32), 1, now() FROM work_items`)
	q.settle(q.claimOne(e, "Cleanup"), claim.Done{}, nil)
	q.exec(`UPDATE work_items SET updated_at = now() - interval '31 days'`)
	if n, err := e.Archive(context.Background(), 30*24*time.Hour); err != nil || n != 1 {
		t.Fatalf("Archive = %d, %v; want the one that is done", n, err)
	}
	testenv.Refused(t, q.db, "is a newer version of the same bag", `SELECT requeue($1)`, older)
}
