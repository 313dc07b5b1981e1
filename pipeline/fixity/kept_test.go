package fixity

import (
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/storage"
)

// A copy that its store keeps under Object Lock is repaired like any other: the good bytes are a
// new version of the key, in one request or in parts. The bad ones stay below it, and in quarantine.
func TestBadCopyInALockedBucketIsRepaired(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.warm()
	a.Locked("Standard-VA")
	contents := map[string]string{"altered": "content of altered", "missing": "content of missing", "large": strings.Repeat("0123456789abcdef", 1<<20)}
	a.Stored(contents)
	first := a.Deps.Targets["Standard-VA"]
	until := time.Now().Add(time.Hour)
	for _, path := range []string{"altered", "large"} {
		a.Spoil(first, path)
		a.S3.Retain(t, first.Name(), a.CopyKey(path), until) // both versions
	}
	a.S3.Retain(t, first.Name(), a.CopyKey("missing"), until)
	if err := first.Delete(t.Context(), a.CopyKey("missing")); err != nil { // which leaves a delete marker
		t.Fatal(err)
	}
	a.foundBad("%/data/%")
	r := a.repairer()
	r.parts = 5 << 20
	a.S3.CreateLocked(t, r.Quarantine.Name())
	for path, d := range a.repaired(r) {
		if d.Result != RepairDone {
			t.Errorf("%s: %+v", path, d)
		}
	}
	for path, content := range contents {
		if got := string(a.Content(first, a.CopyKey(path))); got != content {
			t.Errorf("%s has %d bytes now, want the %d that were ingested", path, len(got), len(content))
		}
		var all []storage.Version
		for v, err := range first.Versions(t.Context(), a.CopyKey(path)) {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, v)
		}
		if len(all) != 3 {
			t.Errorf("%s has %d versions and markers, want what was ingested, what became of it, and what was repaired", path, len(all))
		}
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM fixity_failures WHERE state = 'repaired'`); n != 3 || len(a.Keys(r.Quarantine)) != 2 {
		t.Errorf("%d repairs are on record, %d copies in quarantine", n, len(a.Keys(r.Quarantine)))
	}
}
