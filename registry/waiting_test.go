package registry_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// part is the key of a part of the bag.
func part(n int) string { return fmt.Sprintf("bag.b%02d.of20.tar", n) }

// line returns what each of the items waits for; 0 is nothing.
func (a *archive) line(items ...int64) []int64 {
	a.t.Helper()
	var waits []int64
	for _, id := range items {
		waits = append(waits, value[int64](a, `SELECT coalesce(waits_for, 0) FROM work_items WHERE id = $1`, id))
	}
	return waits
}

// However many parts are in work, one that comes again goes to the end of them,
// and what waited for the upload that it replaces moves up.
func TestPartThatIsReplacedGoesBehindAllOthers(t *testing.T) {
	t.Parallel()
	for _, parts := range []int{2, 11, 12} {
		t.Run(fmt.Sprint(parts), func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			ids := []int64{0} // the first part waits for nothing
			for n := range parts {
				ids = append(ids, a.upload(etag1, time.Now(), part(n))[0])
			}
			last := ids[parts]
			anew := a.upload(etag2, time.Now(), part(parts-2))[0]
			if got, want := fmt.Sprint(a.line(last, anew)), fmt.Sprint([]int64{ids[parts-2], last}); got != want {
				t.Errorf("the last part and the new one wait for %s, want %s", got, want)
			}
		})
	}
}

// An item that is requeued goes behind what its object has in work, and what
// comes after it behind that item: never do two go at once.
func TestRequeuedItemJoinsTheLine(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	failed := a.upload(etag1, time.Now(), part(1))[0]
	a.exec(`UPDATE work_items SET status = 'Failed'`)
	second, third := a.upload(etag1, time.Now(), part(2))[0], a.upload(etag1, time.Now(), part(3))[0]
	must.Get(a.Requeue(context.Background(), failed, ""))(t)
	fourth := a.upload(etag1, time.Now(), part(4))[0]
	if got, want := fmt.Sprint(a.line(second, third, failed, fourth)), fmt.Sprint([]int64{0, second, third, failed}); got != want {
		t.Errorf("they wait for %s, want %s", got, want)
	}
	if at := a.item(failed).RunAt; at != nil {
		t.Errorf("the requeued item is due at %v before its turn", at)
	}

	// One of the middle ends: the one behind it takes its place.
	must.Get(a.Cancel(context.Background(), third, ""))(t)
	if got, want := fmt.Sprint(a.line(second, failed, fourth)), fmt.Sprint([]int64{0, second, failed}); got != want {
		t.Errorf("after the third was cancelled they wait for %s, want %s", got, want)
	}
}

// A worker that holds an upload loses it to the next version, and the
// ledger says why.
func TestReplacedUploadIsTakenFromItsWorker(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	first := a.upload(etag1, time.Now(), "bag.tar")[0]
	a.start(first, 4, "Validate")
	a.upload(etag2, time.Now(), "bag.tar")
	item := a.item(first)
	if item.Status != "Cancelled" || item.ClaimToken <= 4 || item.ErrorCode != "superseded" || item.Worker != nil {
		t.Errorf("a worker could still write: %+v", item)
	}
	attempts, err := a.Attempts(context.Background(), first)
	if err != nil || len(attempts) != 1 {
		t.Fatalf("Attempts = %d, %v; want one", len(attempts), err)
	}
	if at := attempts[0]; at.EndedAt == nil || at.Outcome == nil || *at.Outcome != "cancelled" || at.ErrorCode != "superseded" {
		t.Errorf("attempt = %+v, want it cancelled as superseded", at)
	}
}

// Only what is newer and still counts keeps an item from being requeued: the
// same name at another institution, an older upload and one that was given up
// are no newer version.
func TestItemsThatKeepAnotherFromBeingRequeued(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		given   func(a *archive) int64 // what is to be requeued
		refused bool
	}{
		"newer one in work":   {func(a *archive) int64 { return a.failed(etag1, etag2, "") }, true},
		"newer one ingested":  {func(a *archive) int64 { return a.failed(etag1, etag2, "Success") }, true},
		"newer one failed":    {func(a *archive) int64 { return a.failed(etag1, etag2, "Failed") }, false},
		"newer one cancelled": {func(a *archive) int64 { return a.failed(etag1, etag2, "Cancelled") }, false},
		"older one ingested": {func(a *archive) int64 {
			a.ingested(etag1, fileRecord("data/a.txt", 1))
			return a.failed(etag2, "", "")
		}, false},
		"another institution's": {func(a *archive) int64 {
			id := a.failed(etag1, "", "")
			a.in = a.institution("other.edu")
			a.upload(etag2, time.Now(), "bag.tar")
			return id
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := tc.given(a)
			if _, err := a.Requeue(context.Background(), id, ""); (err != nil) != tc.refused {
				t.Errorf("Requeue = %v, want it refused: %v", err, tc.refused)
			}
		})
	}
}

// failed makes an upload that failed and, unless newer is "", a newer version of
// it, which ended as is said.
func (a *archive) failed(etag, newer, ended string) int64 {
	a.t.Helper()
	id := a.upload(etag, time.Now(), "bag.tar")[0]
	a.exec(`UPDATE work_items SET status = 'Failed' WHERE id = $1`, id)
	switch {
	case newer == "":
	case ended == "Success":
		a.ingested(newer, fileRecord("data/a.txt", 1))
	case ended == "":
		a.upload(newer, time.Now(), "bag.tar")
	default:
		a.exec(`UPDATE work_items SET status = $2 WHERE id = $1`, a.upload(newer, time.Now(), "bag.tar")[0], ended)
	}
	return id
}
