package pipeline

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
	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// A worker that has lost its item, and has slept through that, changes nothing
// of it any more.
func TestLostItemIsLeftAlone(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.deposit("sample.tar", a.sample())
	o := claim.DefaultOptions()
	o.Lease, o.Heartbeat, o.Log = 300*time.Millisecond, 100*time.Millisecond, a.deps.Log // and nobody renews them
	stale, err := claim.New(t.Context(), a.db, o)
	if err != nil {
		t.Fatal(err)
	}
	engine := a.engine()
	for _, step := range Ingest(a.deps) {
		w := a.hold(stale, step.Stage)
		a.exec(`UPDATE work_item_attempts SET ended_at = now(), outcome = 'lease expired' WHERE ended_at IS NULL`)
		a.exec(`UPDATE work_items SET status = 'Pending', claim_token = claim_token + 1,
			lease_expires_at = NULL, node = NULL, pid = NULL, worker = NULL`)
		testenv.Eventually(t, "the old worker to ask", func() bool { return errors.Is(w.hold.Check(t.Context()), claim.ErrLost) })
		before := a.everything()
		if err := step.run.Run(t.Context(), w); err == nil && step.Stage != "Validate" { // which writes nothing
			t.Errorf("%s went to its end without the item", step.Stage)
		}
		if after := a.everything(); !maps.Equal(before, after) {
			t.Errorf("%s changed something without the item:\n%v\n%v", step.Stage, before, after)
		}
		a.one(engine, step.Stage)
	}
	a.intact(id)
}

// Redis may know of a newer claim before the older worker does.
func TestNewerClaimInRedisEndsTheOlder(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.deposit("sample.tar", a.sample())
	engine := a.engine()
	for _, s := range Ingest(a.deps) {
		w := a.hold(engine, s.Stage)
		switch s.Stage {
		case "Receive", "Copy To Staging", "Format Identification", "Store", "Storage Validation": // which keep progress
			newer := progress.Claim{Item: id, Token: w.item.Token + 1}
			if _, err := a.deps.Progress.Begin(t.Context(), newer, "another"); err != nil {
				t.Fatal(err)
			}
			if err := s.run.Run(t.Context(), w); !errors.Is(err, claim.ErrLost) {
				t.Errorf("%s = %v, want ErrLost", s.Stage, err)
			}
		}
		if err := w.hold.Settle(t.Context(), claim.Done{}, claim.Release("the test goes on")); err != nil {
			t.Fatal(err)
		}
		a.exec(`UPDATE work_items SET claim_token = claim_token + 2`)
		a.one(engine, s.Stage)
	}
	a.intact(id)
}

// hold claims the only item that is due, for a test that runs its stage itself.
func (a *archive) hold(e *claim.Engine, stage string) *work {
	a.t.Helper()
	items, err := e.Claim(context.Background(), claim.Filter{Stages: []claim.Want{{Stage: stage, Most: 1}}}, 1)
	if err != nil || len(items) != 1 {
		a.t.Fatalf("Claim(%s) = %d items, %v", stage, len(items), err)
	}
	return &work{item: items[0], hold: e.Hold(context.Background(), items[0]), log: a.deps.Log}
}

// everything is what there is of bags: objects in all buckets, and rows.
func (a *archive) everything() map[string]string {
	a.t.Helper()
	all := map[string]string{}
	for _, b := range append(slices.Collect(maps.Values(a.deps.Targets)), a.deps.Staging, a.receiving) {
		for o, err := range b.List(context.Background(), "", "") {
			if err != nil {
				a.t.Fatal(err)
			}
			all[b.Name()+"/"+o.Key] = o.ETag + " " + o.LastModified.String()
		}
	}
	for _, table := range []string{"generic_files", "premis_events", "storage_records", "retired_copies"} {
		all[table] = fmt.Sprint(value[int](a, `SELECT count(*) FROM `+table))
	}
	return all
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
				a.deposit("sample.tar", a.bag(bagtest.Spec{Name: "sample", Title: "one"}))
				a.work()
			}
			id := a.deposit("sample.tar", a.bag(bagtest.Spec{Name: "sample", Title: "two"}))
			a.exec(`UPDATE work_items SET claim_token = claim_token + 1, stage = 'Cleanup' WHERE status = 'Pending'`)
			a.one(a.engine(), "Cleanup")
			if item := a.item(id); item.Status != "Failed" || item.ErrorCode != "not-recorded" {
				t.Errorf("item = %+v", item)
			}
			if got := a.keys(a.receiving); len(got) != 1 {
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
	id := a.deposit("sample.tar", a.sample())
	engine := a.engine()
	a.upTo(engine, "Cleanup")
	broken := errors.New("broken")
	_, err := a.deps.Staging.PutParts(ctx, fmt.Sprintf("%d/large", id), storage.Upload{Size: 10 << 20}, storage.Parts{
		Size:   5 << 20,
		Open:   func(context.Context, int64, int64) (io.ReadCloser, error) { return nil, broken },
		SaveID: func(context.Context, string) error { return nil },
	})
	if !errors.Is(err, broken) {
		t.Fatalf("PutParts = %v", err)
	}
	if err := a.deps.Progress.Done(ctx, progress.Claim{Item: id, Token: 1 << 40}, "Store@1", map[int]string{1: ""}); err != nil {
		t.Fatal(err)
	}
	a.one(engine, "Cleanup")
	a.intact(id)
	if n, err := a.deps.Staging.AbortUploads(ctx, "", time.Now().Add(24*time.Hour)); err != nil || n != 0 {
		t.Errorf("%d uploads were left, %v", n, err)
	}
	if left, err := a.deps.Progress.Summary(ctx, id); err != nil || len(left) != 0 {
		t.Errorf("left in Redis: %v, %v", left, err)
	}
}

// A registry that says other things than when the bag was compared with it has
// the bag compared again.
func TestRegistryThatChangedMeanwhileIsAskedAgain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	version := func(text string) []byte {
		return a.bag(bagtest.Spec{Name: "letters", Files: []bagtest.File{{Path: "data/letter", Content: text}}})
	}
	a.deposit("letters.tar", version("one"))
	a.work()
	uuid := value[string](a, `SELECT uuid::text FROM generic_files WHERE identifier LIKE '%/letter'`)
	a.exec(`UPDATE generic_files SET identifier = identifier || '.away' WHERE identifier LIKE '%/letter'`)
	id := a.deposit("letters.tar", version("two"))
	engine := a.engine()
	a.upTo(engine, "Record")
	a.exec(`UPDATE generic_files SET identifier = replace(identifier, '.away', '')`)
	a.one(engine, "Record")
	if item := a.item(id); item.Stage != "Reingest Check" || item.Status != "Pending" {
		t.Fatalf("item is %s at %s, want it sent back to Reingest Check", item.Status, item.Stage)
	}
	a.work()
	if item := a.item(id); item.Status != "Success" {
		t.Errorf("item = %+v", item)
	}
	if got := value[string](a, `SELECT uuid::text FROM generic_files WHERE identifier LIKE '%/letter'`); got != uuid {
		t.Errorf("the file became %s, and was %s", got, uuid)
	}
}

// An object of the same name that belongs to someone else is nobody's to touch.
func TestObjectOfAnotherInstitutionIsNotTouched(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	id := a.deposit("sample.tar", a.sample())
	other, err := a.deps.Registry.AddInstitution(t.Context(), registry.Institution{
		Name: "Other", Identifier: "other.edu", ReceivingBucket: a.s3.Prefix + "other", RestoreBucket: a.s3.Prefix + "otherback",
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.db.Exec(t.Context(), `
		INSERT INTO intellectual_objects (institution_id, identifier, title, description, access, alt_identifier, bag_name,
			bag_group_identifier, bagit_profile_identifier, source_organization, internal_sender_identifier,
			internal_sender_description, etag, storage_option, state)
		VALUES ($1, 'test.edu/sample', 'theirs', '', 'institution', '', 'sample', '', '', '', '', '', 'x', 'Standard', 'A')`, other.ID); err != nil {
		t.Fatal(err)
	}
	a.exec(`UPDATE stage_settings SET max_attempts = 1`)
	a.work()
	if item := a.item(id); item.Status != "Suspended" || item.Stage != "Reingest Check" || !strings.Contains(item.Note, "belongs to institution") {
		t.Errorf("item = %+v", item)
	}
	if title := value[string](a, `SELECT title FROM intellectual_objects`); title != "theirs" {
		t.Errorf("title = %q", title)
	}
}

// Record takes no file that lacks a verified copy, or has one of another option.
func TestRecordWantsEveryCopyVerified(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*copies)
		back   string
	}{
		"one copy missing":     {func(c *copies) { c.Copies = c.Copies[:1] }, "Format Identification"},
		"copies of another":    {func(c *copies) { c.Copies[1].Target = "Wasabi-TX" }, "Storage Validation"},
		"in the other's order": {func(c *copies) { slices.Reverse(c.Copies) }, "Storage Validation"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			ctx := context.Background()
			id := a.deposit("sample.tar", a.sample())
			engine := a.engine()
			a.upTo(engine, "Record")
			w := a.hold(engine, "Record")
			a.deps.recent, a.deps.room = &recent{}, newRoom(0, 0)
			_, inventoryID, err := w.bag(ctx, a.deps)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := readList(ctx, w, a.deps, copiesName, inventoryID, nil, func(c copies) int { return c.Index })
			if err != nil {
				t.Fatal(err)
			}
			changed := rows[5]
			tc.change(&changed)
			rows[5] = changed
			if err := writeList(ctx, w, a.deps, copiesName, inventoryID, nil, len(rows), byIndex(rows)); err != nil {
				t.Fatal(err)
			}
			err = (&record{a.deps}).Run(ctx, w)
			if err := w.hold.Settle(ctx, claim.Done{}, err); err != nil {
				t.Fatal(err)
			}
			if item := a.item(id); item.Stage != tc.back || item.Status != "Pending" {
				t.Errorf("item is %s at %s, want it sent back to %s", item.Status, item.Stage, tc.back)
			}
			if n := value[int](a, `SELECT count(*) FROM generic_files`); n != 0 {
				t.Errorf("%d files on record", n)
			}
			a.work()
			a.intact(id)
		})
	}
}
