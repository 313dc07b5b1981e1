package ingest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// A good bag ends with every file in every bucket of its option, on record, and
// nothing of it left elsewhere.
func TestGoodBagIsStoredAndRecorded(t *testing.T) {
	t.Parallel()
	for option, targets := range map[string][]string{
		"Standard":        {"Standard-VA", "Standard-OR"},
		"Wasabi-TX":       {"Wasabi-TX"},
		"Glacier-Deep-OH": {"Glacier-Deep-OH"},
	} {
		t.Run(option, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			id := a.Deposit("good.tar", a.Bag(bagtest.Spec{
				Name: "good", Title: "A good bag", StorageOption: option,
				Files: []bagtest.File{
					{Path: "data/a.txt", Content: "hello"},
					{Path: "data/empty", Content: "", Size: 0},
					{Path: "data/two  spaces and é.xml", Content: "<?xml version=\"1.0\"?>\n<a/>\n"},
					{Path: "data/larger.bin", Size: 700 << 10},
				},
			}))
			a.Work()
			item := a.Item(id)
			if item.Status != "Success" || item.Stage != "Cleanup" || item.Outcome != "Ingest complete" || item.IntellectualObjectID == nil {
				t.Fatalf("item = %+v", item)
			}
			const files = 6 // four of the payload and two tag files
			for _, target := range targets {
				if n := len(a.Keys(a.Deps.Targets[target])); n != files {
					t.Errorf("%s has %d objects, want %d", target, n, files)
				}
			}
			if n := pipelinetest.Value[int](a, `SELECT count(*) FROM storage_records`); n != files*len(targets) {
				t.Errorf("%d storage records, want %d", n, files*len(targets))
			}
			if left := a.Keys(a.Deps.Staging); len(left) != 0 {
				t.Errorf("left in staging: %v", left)
			}
			if left := a.Keys(a.Receiving); len(left) != 0 {
				t.Errorf("left in receiving: %v", left)
			}
			if s, err := a.Deps.Progress.Summary(context.Background(), id); err != nil || len(s) != 0 {
				t.Errorf("left in Redis: %v, %v", s, err)
			}
			var uuid string
			must.Do(t, a.DB.QueryRow(context.Background(), `SELECT uuid::text FROM generic_files WHERE identifier = 'test.edu/good/data/a.txt'`).Scan(&uuid))
			if option == "Wasabi-TX" { // which rejects some characters in headers
				object, err := a.Deps.Targets[option].Head(context.Background(), uuid)
				if err != nil || object.Metadata["bagpath-encoded"] != "data%2Fa.txt" || object.Metadata["bagpath"] != "" {
					t.Errorf("copy in Texas = %+v, %v", object, err)
				}
			}
			if option != "Standard" {
				return
			}
			if got := string(a.Content(a.Deps.Targets["Standard-VA"], uuid)); got != "hello" {
				t.Errorf("stored %q", got)
			}
			object, err := a.Deps.Targets["Standard-OR"].Head(context.Background(), uuid)
			if err != nil || object.StorageClass != "GLACIER" || object.ContentType != "text/plain" ||
				object.Metadata["bag"] != "test.edu/good" || object.Metadata["bagpath"] != "data/a.txt" {
				t.Errorf("copy in Oregon = %+v, %v", object, err)
			}
		})
	}
}

// A bag that is wrong ends as failed, says why, and stays where it is.
func TestWrongBagIsRefusedWithItsReasons(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	files := []bagtest.File{{Path: "data/a.txt", Content: "a"}, {Path: "data/b.txt", Content: "b"}}
	whole := a.Bag(bagtest.Spec{Name: "cut", Files: []bagtest.File{{Path: "data/a.bin", Size: 100_000}}})
	for name, tc := range map[string]struct {
		tar   []byte
		Stage registry.Stage
		note  []string
	}{
		"corrupt.tar": {a.Bag(bagtest.Spec{Name: "corrupt", Files: files, Corrupt: []string{"data/b.txt"}}), "Validate", []string{"data/b.txt"}},
		"missing.tar": {a.Bag(bagtest.Spec{Name: "missing", Files: files, Leave: []string{"data/a.txt"}}), "Validate", []string{"data/a.txt", "missing"}},
		"option.tar":  {a.Bag(bagtest.Spec{Name: "option", Files: files, StorageOption: "Attic"}), "Validate", []string{"Attic"}},
		"cut.tar":     {whole[:60_000], "Receive", []string{"data/a.bin"}},
		"text.tar":    {[]byte(strings.Repeat("this is no tar ", 100)), "Receive", nil},
		"escape.tar":  {a.Bag(bagtest.Spec{Name: "escape", Files: files, Entries: []bagtest.Entry{{Name: "escape/../../etc/passwd", Type: '0', Content: "x"}}}), "Validate", []string{`component ".."`}},
	} {
		id := a.Deposit(name, tc.tar)
		a.Work()
		item := a.Item(id)
		if item.Status != "Failed" || item.Stage != tc.Stage || !item.NeedsAdminReview || item.Outcome != "Ingest failed due to fatal error." {
			t.Errorf("%s: item = %+v", name, item)
		}
		for _, part := range tc.note {
			if !strings.Contains(item.Note, part) {
				t.Errorf("%s: note %q does not mention %q", name, item.Note, part)
			}
		}
		if attempts := pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE work_item_id = $1 AND stage = $2`, id, tc.Stage); attempts != 1 {
			t.Errorf("%s: %d attempts at %s, want 1", name, attempts, tc.Stage)
		}
		if got := a.Keys(a.Receiving); len(got) == 0 || !strings.Contains(strings.Join(got, " "), name) {
			t.Errorf("%s is no longer in receiving: %v", name, got)
		}
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM intellectual_objects`); n != 0 {
		t.Errorf("%d objects on record", n)
	}
}

// A second version stores what changed, keeps uuids, switches the record, and
// leaves no old bytes behind.
func TestReingest(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ctx := context.Background()
	version := func(title string, files ...bagtest.File) []byte {
		return a.Bag(bagtest.Spec{Name: "letters", Title: title, Files: files})
	}
	a.Deposit("letters.tar", version("one", bagtest.File{Path: "data/same", Content: "same"}, bagtest.File{Path: "data/changes", Content: "one"}))
	a.Work()
	uuid := func(path string) string {
		return pipelinetest.Value[string](a, `SELECT uuid::text FROM generic_files WHERE identifier = 'test.edu/letters/' || $1`, path)
	}
	same, changes := uuid("data/same"), uuid("data/changes")
	before := must.Get(a.Deps.Targets["Standard-VA"].Head(ctx, same))(t)

	// The new version asks for another option, and gets the object's.
	id := a.Deposit("letters.tar", a.Bag(bagtest.Spec{Name: "letters", Title: "two", StorageOption: "Wasabi-VA", Files: []bagtest.File{
		{Path: "data/same", Content: "same"}, {Path: "data/changes", Content: "two"}, {Path: "data/new", Content: "new"},
	}}))
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Fatalf("item = %+v", item)
	}
	if uuid("data/same") != same || uuid("data/changes") != changes {
		t.Error("a file changed its uuid")
	}
	after, err := a.Deps.Targets["Standard-VA"].Head(ctx, same)
	if err != nil || !after.LastModified.Equal(before.LastModified) {
		t.Errorf("an unchanged file was stored again: %v, %v", after.LastModified, err)
	}
	for _, target := range []string{"Standard-VA", "Standard-OR"} {
		key := pipelinetest.Value[string](a, `SELECT s.key FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
			WHERE f.identifier = 'test.edu/letters/data/changes' AND s.target = $1`, target)
		if !strings.HasPrefix(key, changes+".") {
			t.Errorf("changed content in %s is under %s, want %s.…", target, key, changes)
		}
		keys := strings.Join(a.Keys(a.Deps.Targets[target]), " ")
		if !strings.Contains(keys, key) || strings.Contains(keys+" ", changes+" ") {
			t.Errorf("%s has %s; want the new bytes of %s and not the old", target, keys, changes)
		}
	}
	if n := len(a.Keys(a.Deps.Targets["Wasabi-VA"])); n != 0 {
		t.Errorf("%d objects in Wasabi-VA: the object's storage option changed", n)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM checksums c JOIN generic_files f ON f.id = c.generic_file_id WHERE f.identifier LIKE '%/data/changes'`); n != 8 {
		t.Errorf("%d checksums of the changed file, want 8", n)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM retired_copies`); n != 0 {
		t.Errorf("%d copies still to be deleted", n)
	}
}

// A copy of a file that no record names may be anyone's; a person looks at it
// before another version goes on record.
func TestExtraCopyIsFound(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	deposit := func(content string) int64 {
		return a.Deposit("letters.tar", a.Bag(bagtest.Spec{Name: "letters", Files: []bagtest.File{{Path: "data/changes", Content: content}}}))
	}
	deposit("one")
	a.Work()
	a.Exec(`UPDATE stage_settings SET max_attempts = 1`)
	target := a.Deps.Targets["Standard-OR"]
	extra := pipelinetest.Value[string](a, `SELECT uuid::text FROM generic_files WHERE identifier LIKE '%/data/changes'`) + ".0123456789abcdef"
	must.Get(target.Put(t.Context(), extra, strings.NewReader("other"), storage.Upload{Size: 5}))(t)
	id := deposit("two")
	a.Work()
	item := a.Item(id)
	if item.Status != "Suspended" || item.ErrorCode != "extra-copy" || item.Stage != "Storage Validation" ||
		!strings.Contains(item.Note, extra) || !strings.Contains(item.Note, "Standard-OR") {
		t.Fatalf("item = %+v", item)
	}
	must.Do(t, target.Delete(t.Context(), extra))
	must.Get(a.Deps.Registry.Requeue(t.Context(), id, ""))(t)
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Errorf("item = %+v", item)
	}
}

// What is no tar stays in the bucket, without an item.
func TestBucketReaderLeavesOtherFilesAlone(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	for _, key := range []string{"readme.txt", "bag.tar.gz", "folder/bag.tar", "a/folder/..tar"} {
		a.DepositRaw(key)
	}
	reader := &upkeep.BucketReader{Registry: a.Deps.Registry, Receiving: a.Deps.Receiving, Log: a.Deps.Log}
	for range 2 { // and says so once
		if n, err := reader.ReadAll(context.Background()); err != nil || n != 0 {
			t.Errorf("ReadAll = %d, %v", n, err)
		}
	}
	if log := a.Log.String(); strings.Count(log, "not a bag") != 4 {
		t.Errorf("log = %s", log)
	}
}

// A version in which nothing changed stores nothing, and is on record as an
// ingest all the same; a file that was deleted since comes back under its uuid.
func TestReingestOfUnchangedAndDeletedFiles(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	version := func(day int) []byte {
		return a.Bag(bagtest.Spec{
			Name: "atlas", Files: []bagtest.File{{Path: "data/map", Content: "map"}, {Path: "data/key", Content: "key"}},
			ModTime: time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC),
			Tags:    []bagtest.Tag{{File: "bag-info.txt", Name: "Bagging-Date", Value: "2026-01-01"}},
		})
	}
	events := func() int {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM premis_events WHERE generic_file_id IS NOT NULL`)
	}
	a.Deposit("atlas.tar", version(1))
	a.Work()
	stored, before := a.Keys(a.Deps.Targets["Standard-VA"]), events()

	id := a.Deposit("atlas.tar", version(2))
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Fatalf("item = %+v", item)
	}
	if got := a.Keys(a.Deps.Targets["Standard-VA"]); !slices.Equal(got, stored) || events() != before {
		t.Errorf("an unchanged version stored %v and made %d events of files", got, events()-before)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'ingestion' AND generic_file_id IS NULL`); n != 2 {
		t.Errorf("%d ingestions of the object on record, want 2", n)
	}

	uuid := pipelinetest.Value[string](a, `SELECT uuid::text FROM generic_files WHERE identifier LIKE '%/map'`)
	a.Exec(`DELETE FROM storage_records WHERE generic_file_id = (SELECT id FROM generic_files WHERE identifier LIKE '%/map')`)
	a.Exec(`UPDATE generic_files SET state = 'D' WHERE identifier LIKE '%/map'`)
	id = a.Deposit("atlas.tar", version(3))
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Fatalf("item = %+v", item)
	}
	if got := pipelinetest.Value[string](a, `SELECT state || ' ' || uuid FROM generic_files WHERE identifier LIKE '%/map'`); got != "A "+uuid {
		t.Errorf("the deleted file is %s, want A %s", got, uuid)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.identifier LIKE '%/map'`); n != 2 {
		t.Errorf("it has %d copies on record, want 2", n)
	}
}

// The parts of a larger whole become one object, one after the other.
func TestPartsOfAWholeBecomeOneObject(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	for part, file := range map[string]string{"fleet.b01.of02": "data/ships", "fleet.b02.of02": "data/crews"} {
		tar := a.Bag(bagtest.Spec{Name: part, Files: []bagtest.File{{Path: file, Content: file}}})
		a.Deposit(part+".tar", tar)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM work_items WHERE waits_for IS NOT NULL`); n != 1 {
		t.Errorf("%d parts wait for the other, want 1", n)
	}
	a.Work()
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM work_items WHERE status = 'Success'`); n != 2 {
		t.Fatalf("%d parts succeeded, want 2", n)
	}
	files := pipelinetest.Value[string](a, `SELECT string_agg(identifier, ' ' ORDER BY identifier) FROM generic_files WHERE identifier LIKE '%/data/%'`)
	if want := "test.edu/fleet/data/crews test.edu/fleet/data/ships"; files != want {
		t.Errorf("on record: %s, want %s", files, want)
	}
}
