package restore

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/registry/requests"
)

// What comes back is the bag that came in: it is valid, each file has the bytes that
// are on record, and an independent tar and sha256sum find it whole.
func TestRestoredBagIsWhatCameIn(t *testing.T) {
	t.Parallel()
	for _, profile := range []bagtest.Profile{bagtest.APTrust, bagtest.BTR} {
		t.Run(fmt.Sprint(profile), func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			spec := pipelinetest.ABag("whole")
			spec.Profile = profile
			a.Ingested(spec)
			item := a.Restored("test.edu/whole")
			url := a.S3.Endpoint + "/" + a.In.RestoreBucket + "/test.edu/whole.tar"
			if item.Status != "Success" || item.Stage != "Resolve" || item.Note != "Object test.edu/whole restored to "+url+"." || item.Outcome != "Bag restoration complete" {
				t.Fatalf("item = %s at %s: %s (%s)", item.Status, item.Stage, item.Note, item.Outcome)
			}
			tar := a.Content(a.RestoreBucket(), "test.edu/whole.tar")
			b := must.Get(bag.Read(context.Background(), bytes.NewReader(tar), bag.ReadOptions{}))(t)
			if v := b.Validate(nil); !v.Valid {
				t.Errorf("not valid: %+v", v.Errors)
			}
			a.SameAsOnRecord(b, "test.edu/whole")
			for tag, want := range map[string]string{
				"Bagging-Software": "Farol", "Bagging-Date": item.CreatedAt.UTC().Format(time.DateOnly), "Original-Bagging-Software": "by hand", "Original-Bagging-Date": "2020-02-02", "Original-Bag-Size": "1 KB",
				"Bag-Size": "3.1 MB",
			} {
				if got, _ := b.Tag("bag-info.txt", tag); got != want {
					t.Errorf("%s = %q, want %q", tag, got, want)
				}
			}
			if left := a.Keys(a.Deps.Staging); len(left) != 0 {
				t.Errorf("left in staging: %v", left)
			}
			if n := pipelinetest.Value[int](a, `SELECT count(*) FROM alerts WHERE type = 'Restoration Completed' AND work_item_id = `+fmt.Sprint(item.ID)); n != 1 {
				t.Errorf("%d alerts", n)
			}
			sumsOf(t, tar)
		})
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
	a.Ingested(pipelinetest.ABag("files"))
	for path, size := range map[string]int{"data/a.txt": 5, "data/empty": 0, "data/larger.bin": 3<<20 + 7} {
		item := a.Restored("test.edu/files/" + path)
		if item.Status != "Success" || item.Stage != "Resolve" || item.Outcome != "File restoration complete" ||
			item.Note != "File test.edu/files/"+path+" restored to "+a.S3.Endpoint+"/"+a.In.RestoreBucket+"/test.edu/files/"+path+"." {
			t.Errorf("%s: %s at %s: %s", path, item.Status, item.Stage, item.Note)
		}
		if got := a.Content(a.RestoreBucket(), "test.edu/files/"+path); len(got) != size {
			t.Errorf("%s: %d bytes, want %d", path, len(got), size)
		}
	}
}

// What is archived is made readable first, and then restored by an item that the
// first one's end makes; none of it spends an attempt.
func TestArchivedObjectIsMadeReadableFirst(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Deps.ColdPoll = 50 * time.Millisecond
	spec := pipelinetest.ABag("cold")
	spec.StorageOption = "Glacier-Deep-OH"
	a.Ingested(spec)
	r := must.Get(requests.In(a.Deps.Registry).RequestRestoration(context.Background(), requests.RestorationRequest{
		Identifier: "test.edu/cold", Class: "DEEP_ARCHIVE", Tier: "Bulk", Days: 10,
	}))(t)
	a.Work()
	first := a.Item(r.Item.ID)
	if first.Status != "Success" || first.Stage != "Resolve" || first.Attempt > 1 ||
		!strings.HasPrefix(first.Note, "The object test.edu/cold is readable now: the copies that DEEP_ARCHIVE restored from the archive stay readable until ") {
		t.Fatalf("first: %s at %s, attempt %d: %s", first.Status, first.Stage, first.Attempt, first.Note)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'snoozed' AND work_item_id = `+fmt.Sprint(first.ID)+`
		AND error ~ '^The archived copies of the object test.edu/cold in DEEP_ARCHIVE are being restored by the provider. \d+ of \d+ files cannot be read yet; with tier Bulk all should be readable by 20'`); n == 0 {
		t.Error("no attempt says what it waits for")
	}
	var then int64
	must.Do(t, a.DB.QueryRow(context.Background(), `SELECT id FROM work_items WHERE action = 'Restore Object'`).Scan(&then))
	if item := a.Item(then); item.Status != "Success" || item.Outcome != "Bag restoration complete" {
		t.Fatalf("then: %s at %s: %s", item.Status, item.Stage, item.Note)
	}
	b, err := bag.Read(context.Background(), bytes.NewReader(a.Content(a.RestoreBucket(), "test.edu/cold.tar")), bag.ReadOptions{})
	if err != nil || !b.Validate(nil).Valid {
		t.Errorf("restored: %v, %+v", err, b.Validate(nil).Errors)
	}
}

// An archived copy that is gone ends its retrieval, once it was looked for twice: the
// first look may have been at the wrong place.
func TestArchivedCopyThatIsGoneEndsTheRetrieval(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	spec := pipelinetest.ABag("thawed")
	spec.StorageOption = "Glacier-Deep-OH"
	a.Ingested(spec)
	key := a.KeyOf("test.edu/thawed/data/a.txt")
	must.Do(t, a.Deps.Targets["Glacier-Deep-OH"].Delete(t.Context(), key))
	r := must.Get(requests.In(a.Deps.Registry).RequestRestoration(t.Context(), requests.RestorationRequest{Identifier: "test.edu/thawed", Class: "DEEP_ARCHIVE", Tier: "Bulk", Days: 10}))(t)
	a.Work()
	if item := a.Item(r.Item.ID); item.Status != "Failed" || item.ErrorCode != "copy-missing" || !strings.Contains(item.Note, "data/a.txt") {
		t.Errorf("item = %s (%s): %s", item.Status, item.ErrorCode, item.Note)
	}
	if ends := pipelinetest.Value[string](a, `SELECT string_agg(outcome || ' ' || error_code, ', ' ORDER BY claim_token) FROM work_item_attempts
		WHERE work_item_id = `+fmt.Sprint(r.Item.ID)); ends != "held copy-missing, fatal copy-missing" {
		t.Errorf("the ledger says %s", ends)
	}
}
