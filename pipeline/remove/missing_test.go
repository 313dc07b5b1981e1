package remove

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
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
			a.Ingested(bagtest.Spec{Name: "lossy", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}, {Path: "data/b.txt", Content: "b"}}})
			for _, path := range tc.lost {
				must.Do(t, a.Deps.Targets["Standard-OR"].Delete(context.Background(), a.CopyKey(path)))
			}
			before := a.AllCopies()
			d := a.Doomed(tc.doomed)
			a.Work()
			id := pipelinetest.Value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`)
			item := a.Item(id)
			if item.Status != "Suspended" || item.ErrorCode != "copies-missing" || !item.NeedsAdminReview || !strings.Contains(item.Note, "Find out why before you delete the others.") {
				t.Errorf("item = %s (%s): %s", item.Status, item.ErrorCode, item.Note)
			}
			for _, path := range tc.lost {
				if !strings.Contains(item.Note, "data/"+path+" in Standard-OR") {
					t.Errorf("the note does not name %s: %s", path, item.Note)
				}
			}
			if after := a.AllCopies(); !slices.Equal(before, after) {
				t.Errorf("copies were deleted: %v, left of %v", after, before)
			}
			if n := pipelinetest.Value[int](a, `SELECT count(*) FROM deletion_receipts WHERE found_missing AND removed_at IS NULL`); n != len(tc.lost) {
				t.Errorf("%d receipts of missing copies, want %d", n, len(tc.lost))
			}
			a.isProven(len(tc.lost))

			// Without a word from a person it is the same again.
			must.Get(a.Deps.Registry.Requeue(context.Background(), id, ""))(t)
			a.Work()
			if item := a.Item(id); item.Status != "Suspended" || !slices.Equal(before, a.AllCopies()) {
				t.Errorf("requeued: %s: %s", item.Status, item.Note)
			}
			a.isProven(len(tc.lost))
			if n, err := requests.In(a.Deps.Registry).AcceptMissing(context.Background(), id, "an.admin@test.edu"); err != nil || int(n) != len(tc.lost) {
				t.Fatalf("AcceptMissing = %d, %v", n, err)
			}
			must.Get(a.Deps.Registry.Requeue(context.Background(), id, ""))(t)
			a.Work()
			if item := a.Item(id); item.Status != "Success" {
				t.Fatalf("accepted: %s: %s", item.Status, item.Note)
			}
			a.missingIsOnRecord(d.ID, len(tc.lost))
		})
	}
}

// isProven fails the test unless so many copies are on record as missing, as a fixity check
// would have it, once each.
func (a *archive) isProven(lost int) {
	a.T.Helper()
	for what, sql := range map[string]string{
		"open failures": `SELECT count(*) FROM bad_copies WHERE problem = 'missing'`,
		"events":        `SELECT count(*) FROM premis_events WHERE event_type = 'fixity check' AND outcome = 'Failure' AND outcome_detail = 'not found'`,
		"alerts":        `SELECT count(*) FROM alerts WHERE type = 'Failed Fixity Check'`,
		"files":         `SELECT count(*) FROM generic_files f WHERE f.last_fixity_check = (SELECT max(date_time) FROM premis_events e WHERE e.generic_file_id = f.id AND e.outcome = 'Failure')`,
	} {
		if n := pipelinetest.Value[int](a, sql); n != lost {
			a.T.Errorf("%d %s of missing copies, want %d", n, what, lost)
		}
	}
}

// missingIsOnRecord fails the test unless receipts and events tell what was deleted,
// what was found missing, and who has accepted that.
func (a *archive) missingIsOnRecord(request int64, lost int) {
	a.T.Helper()
	receipts := must.Get(requests.In(a.Deps.Registry).Receipts(context.Background(), request, 100))(a.T)
	missing := 0
	for _, r := range receipts {
		if r.Missing {
			missing++
		}
		if r.Missing != (r.RemovedAt == nil) || r.Missing != strings.HasSuffix(r.AcceptedBy, " (an.admin@test.edu)") || r.AbsentAt == nil || r.SeenAt == nil {
			a.T.Errorf("receipt %+v", r)
		}
	}
	if missing != lost {
		a.T.Errorf("%d receipts of missing copies, want %d", missing, lost)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'deletion' AND generic_file_id IS NOT NULL
		AND outcome_information LIKE '%missing: % (an.admin@test.edu) let the deletion go on.'`); n != lost {
		a.T.Errorf("%d events tell of missing copies, want %d", n, lost)
	}
}

// A copy that was missing and is there again is deleted like any other.
func TestDeletionGoesOnWhenTheCopyIsBack(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Ingested(bagtest.Spec{Name: "back", Files: []bagtest.File{{Path: "data/a.txt", Content: "a"}}})
	target, key := a.Deps.Targets["Standard-VA"], a.CopyKey("a.txt")
	content := a.Content(target, key)
	must.Do(t, target.Delete(context.Background(), key))
	d := a.Doomed("test.edu/back/data/a.txt")
	a.Work()
	a.Overwrite(target, key, content)
	id := pipelinetest.Value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`)
	must.Get(a.Deps.Registry.Requeue(context.Background(), id, ""))(t)
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Fatalf("item = %s: %s", item.Status, item.Note)
	}
	a.isDeleted(d, "test.edu/back/data/a.txt")
	a.missingIsOnRecord(d.ID, 0)
}
