package pipeline

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/registry/requests"
)

// A deletion that finds a copy gone, which nobody here has deleted, deletes nothing and
// says so. It goes on when a person has accepted that, or the copy is back.
func TestDeletionTellsOfMissingCopies(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		doomed string
		lost   []string // paths whose copy in Standard-OR is gone
	}{
		"one file":              {"test.edu/lossy/data/b.txt", []string{"b.txt"}},
		"one file of an object": {"test.edu/lossy", []string{"b.txt"}},
		"each file":             {"test.edu/lossy", []string{"a.txt", "b.txt"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.ingested(bagtest.Spec{Name: "lossy", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}, {Path: "data/b.txt", Content: "b"}}})
			for _, path := range tc.lost {
				if err := a.deps.Targets["Standard-OR"].Delete(context.Background(), a.copyKey(path)); err != nil {
					t.Fatal(err)
				}
			}
			before := a.allCopies()
			d := a.doomed(tc.doomed)
			a.work()
			id := value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`)
			item := a.item(id)
			if item.Status != "Suspended" || item.ErrorCode != "copies-missing" || !item.NeedsAdminReview || !strings.Contains(item.Note, "--accept-missing") {
				t.Errorf("item = %s (%s): %s", item.Status, item.ErrorCode, item.Note)
			}
			for _, path := range tc.lost {
				if !strings.Contains(item.Note, "data/"+path+" in Standard-OR") {
					t.Errorf("the note does not name %s: %s", path, item.Note)
				}
			}
			if after := a.allCopies(); !slices.Equal(before, after) {
				t.Errorf("copies were deleted: %v, left of %v", after, before)
			}
			if n := value[int](a, `SELECT count(*) FROM deletion_receipts WHERE found_missing AND removed_at IS NULL`); n != len(tc.lost) {
				t.Errorf("%d receipts of missing copies, want %d", n, len(tc.lost))
			}

			// Without a word from a person it is the same again.
			if _, err := a.deps.Registry.Requeue(context.Background(), id, ""); err != nil {
				t.Fatal(err)
			}
			a.work()
			if item := a.item(id); item.Status != "Suspended" || !slices.Equal(before, a.allCopies()) {
				t.Errorf("requeued: %s: %s", item.Status, item.Note)
			}
			if n, err := requests.In(a.deps.Registry).AcceptMissing(context.Background(), id, "an.admin@test.edu"); err != nil || int(n) != len(tc.lost) {
				t.Fatalf("AcceptMissing = %d, %v", n, err)
			}
			if _, err := a.deps.Registry.Requeue(context.Background(), id, ""); err != nil {
				t.Fatal(err)
			}
			a.work()
			if item := a.item(id); item.Status != "Success" {
				t.Fatalf("accepted: %s: %s", item.Status, item.Note)
			}
			a.missingIsOnRecord(d.ID, len(tc.lost))
		})
	}
}

// missingIsOnRecord fails the test unless receipts and events tell what was deleted,
// what was found missing, and who has accepted that.
func (a *archive) missingIsOnRecord(request int64, lost int) {
	a.t.Helper()
	receipts, err := requests.In(a.deps.Registry).Receipts(context.Background(), request, 100)
	if err != nil {
		a.t.Fatal(err)
	}
	missing := 0
	for _, r := range receipts {
		if r.Missing {
			missing++
		}
		if r.Missing != (r.RemovedAt == nil) || r.Missing != strings.HasSuffix(r.AcceptedBy, " (an.admin@test.edu)") || r.AbsentAt == nil || r.SeenAt == nil {
			a.t.Errorf("receipt %+v", r)
		}
	}
	if missing != lost {
		a.t.Errorf("%d receipts of missing copies, want %d", missing, lost)
	}
	if n := value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'deletion' AND generic_file_id IS NOT NULL
		AND outcome_information LIKE '%missing: % (an.admin@test.edu) let the deletion go on.'`); n != lost {
		a.t.Errorf("%d events tell of missing copies, want %d", n, lost)
	}
}

// A copy that was missing and is there again is deleted like any other.
func TestDeletionGoesOnWhenTheCopyIsBack(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(bagtest.Spec{Name: "back", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}}})
	target, key := a.deps.Targets["Standard-VA"], a.copyKey("a.txt")
	content := a.content(target, key)
	if err := target.Delete(context.Background(), key); err != nil {
		t.Fatal(err)
	}
	d := a.doomed("test.edu/back/data/a.txt")
	a.work()
	a.overwrite(target, key, content)
	id := value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`)
	if _, err := a.deps.Registry.Requeue(context.Background(), id, ""); err != nil {
		t.Fatal(err)
	}
	a.work()
	if item := a.item(id); item.Status != "Success" {
		t.Fatalf("item = %s: %s", item.Status, item.Note)
	}
	a.isDeleted(d, "test.edu/back/data/a.txt")
	a.missingIsOnRecord(d.ID, 0)
}
