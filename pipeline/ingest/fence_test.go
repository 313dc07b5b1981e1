package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// A worker that has lost its item, and has slept through that, changes nothing
// of it any more.
func TestLostItemIsLeftAlone(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("sample.tar", a.Sample())
	o := claim.DefaultOptions()
	o.Lease, o.Heartbeat, o.Log = 300*time.Millisecond, 100*time.Millisecond, a.Deps.Log // and nobody renews them
	stale := must.Get(claim.New(t.Context(), a.DB, o))(t)
	engine := a.Engine()
	for _, step := range Steps(a.Deps) {
		w := a.Hold(stale, step.Stage)
		a.Exec(`UPDATE work_item_attempts SET ended_at = now(), outcome = 'lease expired' WHERE ended_at IS NULL`)
		a.Exec(`UPDATE work_items SET status = 'Pending', claim_token = claim_token + 1,
			lease_expires_at = NULL, node = NULL, pid = NULL, worker = NULL`)
		testenv.Eventually(t, "the old worker to ask", func() bool { return errors.Is(w.Hold.Check(t.Context()), claim.ErrLost) })
		before := a.Everything()
		if err := step.Run.Run(t.Context(), w); err == nil && step.Stage != "Validate" && step.Stage != "Copy To Staging" { // which write nothing
			t.Errorf("%s went to its end without the item", step.Stage)
		}
		if after := a.Everything(); !maps.Equal(before, after) {
			t.Errorf("%s changed something without the item:\n%v\n%v", step.Stage, before, after)
		}
		a.One(engine, step.Stage)
	}
	a.Intact(id)
}

// second is the second claim of an item's pass through a stage.
func (a *archive) second(e *claim.Engine, stage registry.Stage) *pipeline.Work {
	a.T.Helper()
	must.Do(a.T, a.Hold(e, stage).Hold.Settle(context.Background(), claim.Done{}, claim.Release("the test goes on")))
	return a.Hold(e, stage)
}

// Redis may know of a newer claim before the older worker does. The first claim of a pass does not ask.
func TestNewerClaimInRedisEndsTheOlder(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("sample.tar", a.Sample())
	engine := a.Engine()
	for _, s := range Steps(a.Deps) {
		w := a.second(engine, s.Stage)
		if s.Measure != progress.Unmeasured { // so that it keeps progress
			newer := progress.Claim{Item: id, Token: w.Item.Token + 1}
			must.Get(a.Deps.Progress.Begin(t.Context(), newer, "another"))(t)
			if err := s.Run.Run(t.Context(), w); !errors.Is(err, claim.ErrLost) {
				t.Errorf("%s = %v, want ErrLost", s.Stage, err)
			}
		}
		must.Do(t, w.Hold.Settle(t.Context(), claim.Done{}, claim.Release("the test goes on")))
		a.Exec(`UPDATE work_items SET claim_token = claim_token + 2`)
		a.One(engine, s.Stage)
	}
	a.Intact(id)
}

// The tar may be the only copy of a version that is not on record, even if an
// earlier one is.
func TestCleanupKeepsATarThatIsNotOnRecord(t *testing.T) {
	t.Parallel()
	for name, earlier := range map[string]bool{"the first version": false, "a later version": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			if earlier {
				a.Deposit("sample.tar", a.Bag(bagtest.Spec{Name: "sample", Title: "one"}))
				a.Work()
			}
			id := a.Deposit("sample.tar", a.Bag(bagtest.Spec{Name: "sample", Title: "two"}))
			a.Exec(`UPDATE work_items SET claim_token = claim_token + 1, stage = 'Cleanup' WHERE status = 'Pending'`)
			a.One(a.Engine(), "Cleanup")
			if item := a.Item(id); item.Status != "Failed" || item.ErrorCode != "not-recorded" {
				t.Errorf("item = %+v", item)
			}
			if got := a.Keys(a.Receiving); len(got) != 1 {
				t.Errorf("receiving has %v, want the bag that is not on record", got)
			}
		})
	}
}

// Uploads that were never ended cost money and are in no listing; notes of an
// earlier pass outlive their stage.
func TestCleanupEndsUploadsAndForgetsProgress(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	id := a.Deposit("sample.tar", a.Sample())
	engine := a.Engine()
	a.UpTo(engine, "Cleanup")
	a.Exec(`UPDATE work_items SET size = 300 * 1024 * 1024`) // a smaller bag has nothing that goes in parts
	broken := errors.New("broken")
	_, err := a.Deps.Staging.PutParts(ctx, fmt.Sprintf("%d/large", id), storage.Upload{Size: 10 << 20}, storage.Parts{
		Size:   5 << 20,
		Open:   func(context.Context, int64, int64) (io.ReadCloser, error) { return nil, broken },
		SaveID: func(context.Context, string) error { return nil },
	})
	if !errors.Is(err, broken) {
		t.Fatalf("PutParts = %v", err)
	}
	must.Do(t, a.Deps.Progress.Done(ctx, progress.Claim{Item: id, Token: 1 << 40}, "Store@1", map[int]string{1: ""}))
	a.One(engine, "Cleanup")
	a.Intact(id)
	if n, err := a.Deps.Staging.AbortUploads(ctx, "", time.Now().Add(24*time.Hour)); err != nil || n != 0 {
		t.Errorf("%d uploads were left, %v", n, err)
	}
	if left, err := a.Deps.Progress.Summary(ctx, id); err != nil || len(left) != 0 {
		t.Errorf("left in Redis: %v, %v", left, err)
	}
}

// A registry that says other things than when the bag was compared with it has
// the bag compared again.
func TestRegistryThatChangedInBetweenIsAskedAgain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	version := func(text string) []byte {
		return a.Bag(bagtest.Spec{Name: "letters", Files: []bagtest.File{{Path: "data/letter", Content: text}}})
	}
	a.Deposit("letters.tar", version("one"))
	a.Work()
	uuid := pipelinetest.Value[string](a, `SELECT uuid::text FROM generic_files WHERE identifier LIKE '%/letter'`)
	a.Exec(`UPDATE generic_files SET identifier = identifier || '.away' WHERE identifier LIKE '%/letter'`)
	id := a.Deposit("letters.tar", version("two"))
	engine := a.Engine()
	a.UpTo(engine, "Record")
	a.Exec(`UPDATE generic_files SET identifier = replace(identifier, '.away', '')`)
	a.One(engine, "Record")
	if item := a.Item(id); item.Stage != "Reingest Check" || item.Status != "Pending" {
		t.Fatalf("item is %s at %s, want it sent back to Reingest Check", item.Status, item.Stage)
	}
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Errorf("item = %+v", item)
	}
	if got := pipelinetest.Value[string](a, `SELECT uuid::text FROM generic_files WHERE identifier LIKE '%/letter'`); got != uuid {
		t.Errorf("the file became %s, and was %s", got, uuid)
	}
}

// An object of the same name that belongs to someone else is nobody's to touch.
func TestObjectOfAnotherInstitutionIsNotTouched(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.Deposit("sample.tar", a.Sample())
	other := must.Get(a.Deps.Registry.AddInstitution(t.Context(), record.Institution{
		Name: "Other", Identifier: "other.edu", ReceivingBucket: a.S3.Prefix + "other", RestoreBucket: a.S3.Prefix + "otherback",
	}))(t)
	must.Get(a.DB.Exec(t.Context(), `
		INSERT INTO intellectual_objects (institution_id, identifier, title, description, access, alt_identifier, bag_name,
			bag_group_identifier, bagit_profile_identifier, source_organization, internal_sender_identifier,
			internal_sender_description, etag, storage_option, state)
		VALUES ($1, 'test.edu/sample', 'theirs', '', 'institution', '', 'sample', '', '', '', '', '', 'x', 'Standard', 'A')`, other.ID))(t)
	a.Exec(`UPDATE stage_settings SET max_attempts = 1`)
	a.Work()
	if item := a.Item(id); item.Status != "Suspended" || item.Stage != "Reingest Check" || !strings.Contains(item.Note, "belongs to institution") {
		t.Errorf("item = %+v", item)
	}
	if title := pipelinetest.Value[string](a, `SELECT title FROM intellectual_objects`); title != "theirs" {
		t.Errorf("title = %q", title)
	}
}

// Record takes no file that lacks a verified copy, or has one of another option.
func TestRecordWantsEveryCopyVerified(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*lists.Copies)
		back   registry.Stage
	}{
		"one copy missing":     {func(c *lists.Copies) { c.Copies = c.Copies[:1] }, "Format Identification"},
		"copies of another":    {func(c *lists.Copies) { c.Copies[1].Target = "Wasabi-TX" }, "Storage Validation"},
		"in the other's order": {func(c *lists.Copies) { slices.Reverse(c.Copies) }, "Storage Validation"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			ctx := context.Background()
			id := a.Deposit("sample.tar", a.Sample())
			engine := a.Engine()
			a.UpTo(engine, "Record")
			w := a.Hold(engine, "Record")
			_, inventoryID, err := a.area(w).Inventory(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			rows := must.Get(lists.Read(ctx, a.area(w), lists.CopiesName, inventoryID, nil, func(c lists.Copies) int { return c.Index }))(t)
			changed := rows[5]
			tc.change(&changed)
			rows[5] = changed
			must.Do(t, lists.Write(ctx, a.area(w), lists.CopiesName, inventoryID, nil, len(rows), lists.ByIndex(rows)))
			err = a.Stage("Record").Run(ctx, w)
			must.Do(t, w.Hold.Settle(ctx, claim.Done{}, err))
			if item := a.Item(id); item.Stage != tc.back || item.Status != "Pending" {
				t.Errorf("item is %s at %s, want it sent back to %s", item.Status, item.Stage, tc.back)
			}
			if n := pipelinetest.Value[int](a, `SELECT count(*) FROM generic_files`); n != 0 {
				t.Errorf("%d files on record", n)
			}
			a.Work()
			a.Intact(id)
		})
	}
}
