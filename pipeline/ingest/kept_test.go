package ingest

import (
	"testing"
	"time"
)

// A bad copy that its store keeps under Object Lock is stored again under its key: there the good
// bytes are a new version.
func TestBadCopyInALockedBucketIsStoredAgain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Locked("Standard-VA")
	id := a.Deposit("sample.tar", a.Sample())
	engine := a.Engine()
	a.UpTo(engine, "Storage Validation")
	target := a.Deps.Targets["Standard-VA"]
	key := a.Keys(target)[7]
	a.alter(target, key)
	a.S3.Retain(t, target.Name(), key, time.Now().Add(time.Hour))
	a.One(engine, "Storage Validation")
	if item := a.Item(id); item.Stage != "Store" || item.ErrorCode != "bad-copy" {
		t.Fatalf("item = %+v", item)
	}
	a.Work()
	a.Intact(id)
	a.asItWas(id, truth(t, a.Sample()))
	n := 0
	for _, err := range target.Versions(t.Context(), key) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 3 {
		t.Errorf("%d versions, want the first, the bad one and the good one", n)
	}
}
