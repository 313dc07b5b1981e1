package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/storage"
)

// ingested brings a bag on record.
func (a *archive) ingested(spec bagtest.Spec) {
	a.t.Helper()
	id := a.deposit(spec.Name+".tar", a.bag(spec))
	a.work()
	if item := a.item(id); item.Status != "Success" {
		a.t.Fatalf("the bag was not ingested: %s at %s: %s", item.Status, item.Stage, item.Note)
	}
}

// ask asks for a restoration of something that can be read at any time.
func (a *archive) ask(identifier string) int64 {
	a.t.Helper()
	r, err := requests.In(a.deps.Registry).RequestRestoration(context.Background(), requests.RestorationRequest{
		Identifier: identifier, File: strings.Count(identifier, "/") > 1,
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return r.Item.ID
}

func (a *archive) restoreBucket() *storage.Bucket { return a.bucket(a.in.RestoreBucket) }

// restored asks for something, and returns its item once that is at rest.
func (a *archive) restored(identifier string) registry.WorkItem {
	a.t.Helper()
	id := a.ask(identifier)
	a.work()
	return a.item(id)
}

// aBag has files of all kinds that matter to a restoration.
func aBag(name string) bagtest.Spec {
	return bagtest.Spec{
		Name: name, Tags: []bagtest.Tag{{File: "bag-info.txt", Name: "Bagging-Date", Value: "2020-02-02"}, {File: "bag-info.txt", Name: "Bag-Size", Value: "1 KB"}, {File: "bag-info.txt", Name: "Bagging-Software", Value: "by hand"}},
		Files: []bagtest.File{
			{Path: "custom-tags/notes.txt", Content: "a tag file of its own\n"},
			{Path: "data.txt", Content: "before the payload, if barely\n"},
			{Path: "metadata/last.txt", Content: "and one behind it\n"},
			{Path: "data/a.txt", Content: "hello"},
			{Path: "data/empty", Content: "", Size: 0},
			{Path: "data/100%25 é\u202f.xml", Content: "<?xml version=\"1.0\"?>\n<a/>\n"},
			{Path: "data/" + strings.Repeat("long/", 40) + "name", Content: "deep"},
			{Path: "data/larger.bin", Size: 3<<20 + 7},
		},
	}
}

// What comes back is the bag that came in: it is valid, each file has the bytes that
// are on record, and an independent tar and sha256sum find it whole.
func TestRestoredBagIsWhatCameIn(t *testing.T) {
	t.Parallel()
	for _, profile := range []bagtest.Profile{bagtest.APTrust, bagtest.BTR} {
		t.Run(fmt.Sprint(profile), func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			spec := aBag("whole")
			spec.Profile = profile
			a.ingested(spec)
			item := a.restored("test.edu/whole")
			url := a.s3.Endpoint + "/" + a.in.RestoreBucket + "/test.edu/whole.tar"
			if item.Status != "Success" || item.Stage != "Resolve" || item.Note != "Object test.edu/whole restored to "+url+"." || item.Outcome != "Bag restoration complete" {
				t.Fatalf("item = %s at %s: %s (%s)", item.Status, item.Stage, item.Note, item.Outcome)
			}
			tar := a.content(a.restoreBucket(), "test.edu/whole.tar")
			b, err := bag.Read(context.Background(), bytes.NewReader(tar), bag.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if v := b.Validate(nil); !v.Valid {
				t.Errorf("not valid: %+v", v.Errors)
			}
			a.sameAsOnRecord(b, "test.edu/whole")
			for tag, want := range map[string]string{
				"Bagging-Software": "Farol", "Bagging-Date": item.CreatedAt.UTC().Format(time.DateOnly), "Original-Bagging-Software": "by hand", "Original-Bagging-Date": "2020-02-02", "Original-Bag-Size": "1 KB",
				"Bag-Size": "3.1 MB",
			} {
				if got, _ := b.Tag("bag-info.txt", tag); got != want {
					t.Errorf("%s = %q, want %q", tag, got, want)
				}
			}
			if left := a.keys(a.deps.Staging); len(left) != 0 {
				t.Errorf("left in staging: %v", left)
			}
			if n := value[int](a, `SELECT count(*) FROM alerts WHERE type = 'Restoration Completed' AND work_item_id = `+fmt.Sprint(item.ID)); n != 1 {
				t.Errorf("%d alerts", n)
			}
			sumsOf(t, tar)
		})
	}
}

// sameAsOnRecord compares all files of a bag with the registry.
func (a *archive) sameAsOnRecord(b *bag.Bag, object string) {
	a.t.Helper()
	got := map[string]string{}
	for _, f := range b.Files {
		if f.Preservable() && f.Path != "bag-info.txt" {
			got[object+"/"+f.Path] = f.Digests.Hex(bag.SHA256)
		}
	}
	rows := value[[]string](a, `SELECT array_agg(f.identifier || ' ' || c.digest ORDER BY f.identifier) FROM generic_files f
		JOIN checksums c ON c.generic_file_id = f.id AND c.algorithm = 'sha256' WHERE f.state = 'A' AND f.identifier NOT LIKE '%/bag-info.txt'`)
	var have []string
	for id, sum := range got {
		have = append(have, id+" "+sum)
	}
	slices.Sort(have)
	if !slices.Equal(have, rows) {
		a.t.Errorf("restored\n%s\non record\n%s", strings.Join(have, "\n"), strings.Join(rows, "\n"))
	}
}

// sumsOf has GNU tar unpack a bag, and sha256sum check it by its manifests.
func sumsOf(t *testing.T, tar []byte) {
	t.Helper()
	dir := t.TempDir()
	c := exec.CommandContext(t.Context(), "tar", "-xf", "-", "-C", dir, "--strip-components=1")
	c.Stdin = bytes.NewReader(tar)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v\n%s", err, out)
	}
	check := exec.CommandContext(t.Context(), "sh", "-c", "grep -v 25 manifest-sha256.txt | sha256sum --strict -c - && sha256sum --strict -c tagmanifest-sha256.txt")
	check.Dir = dir
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum: %v\n%s", err, out)
	}
}

// A file comes back with the bytes that are on record, whatever its size.
func TestRestoredFileIsWhatCameIn(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(aBag("files"))
	for path, size := range map[string]int{"data/a.txt": 5, "data/empty": 0, "data/larger.bin": 3<<20 + 7} {
		item := a.restored("test.edu/files/" + path)
		if item.Status != "Success" || item.Stage != "Resolve" || item.Outcome != "File restoration complete" ||
			item.Note != "File test.edu/files/"+path+" restored to "+a.s3.Endpoint+"/"+a.in.RestoreBucket+"/test.edu/files/"+path+"." {
			t.Errorf("%s: %s at %s: %s", path, item.Status, item.Stage, item.Note)
		}
		if got := a.content(a.restoreBucket(), "test.edu/files/"+path); len(got) != size {
			t.Errorf("%s: %d bytes, want %d", path, len(got), size)
		}
	}
}

// What is archived is made readable first, and then restored by an item that the
// first one's end makes; none of it spends an attempt.
func TestArchivedObjectIsMadeReadableFirst(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.deps.ColdPoll = 50 * time.Millisecond
	spec := aBag("cold")
	spec.StorageOption = "Glacier-Deep-OH"
	a.ingested(spec)
	r, err := requests.In(a.deps.Registry).RequestRestoration(context.Background(), requests.RestorationRequest{
		Identifier: "test.edu/cold", Class: "DEEP_ARCHIVE", Tier: "Bulk", Days: 10,
	})
	if err != nil {
		t.Fatal(err)
	}
	a.work()
	first := a.item(r.Item.ID)
	if first.Status != "Success" || first.Stage != "Resolve" || first.Attempt > 1 ||
		!strings.HasPrefix(first.Note, "The object test.edu/cold can be read now: the copies that DEEP_ARCHIVE made readable stay so until ") {
		t.Fatalf("first: %s at %s, attempt %d: %s", first.Status, first.Stage, first.Attempt, first.Note)
	}
	if n := value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'snoozed' AND work_item_id = `+fmt.Sprint(first.ID)+`
		AND error ~ '^The archived copies of the object test.edu/cold in DEEP_ARCHIVE are being made readable. \d+ of \d+ files cannot be read yet; by tier Bulk all should be by 20'`); n == 0 {
		t.Error("no attempt says what it waits for")
	}
	var then int64
	if err := a.db.QueryRow(context.Background(), `SELECT id FROM work_items WHERE action = 'Restore Object'`).Scan(&then); err != nil {
		t.Fatal(err)
	}
	if item := a.item(then); item.Status != "Success" || item.Outcome != "Bag restoration complete" {
		t.Fatalf("then: %s at %s: %s", item.Status, item.Stage, item.Note)
	}
	b, err := bag.Read(context.Background(), bytes.NewReader(a.content(a.restoreBucket(), "test.edu/cold.tar")), bag.ReadOptions{})
	if err != nil || !b.Validate(nil).Valid {
		t.Errorf("restored: %v, %+v", err, b.Validate(nil).Errors)
	}
}

// An archived copy that is gone ends its retrieval, once it was looked for twice: the
// first look may have been at the wrong place.
func TestArchivedCopyThatIsGoneEndsTheRetrieval(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	spec := aBag("thawed")
	spec.StorageOption = "Glacier-Deep-OH"
	a.ingested(spec)
	key := a.keyOf("test.edu/thawed/data/a.txt")
	if err := a.deps.Targets["Glacier-Deep-OH"].Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	r, err := requests.In(a.deps.Registry).RequestRestoration(t.Context(), requests.RestorationRequest{Identifier: "test.edu/thawed", Class: "DEEP_ARCHIVE", Tier: "Bulk", Days: 10})
	if err != nil {
		t.Fatal(err)
	}
	a.work()
	if item := a.item(r.Item.ID); item.Status != "Failed" || item.ErrorCode != "copy-missing" || !strings.Contains(item.Note, "data/a.txt") {
		t.Errorf("item = %s (%s): %s", item.Status, item.ErrorCode, item.Note)
	}
	if ends := value[string](a, `SELECT string_agg(outcome || ' ' || error_code, ', ' ORDER BY claim_token) FROM work_item_attempts
		WHERE work_item_id = `+fmt.Sprint(r.Item.ID)); ends != "held copy-missing, fatal copy-missing" {
		t.Errorf("the ledger says %s", ends)
	}
}
