package steps

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// An earlier version that is uploaded again is ingested, as often as it comes.
func TestEarlierVersionComesBack(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.BothReadable()
	first, second := a.AtlasOf(1, "first"), a.AtlasOf(2, "second")
	for i, tar := range [][]byte{first, second, first, second, first} {
		id := a.Deposit("atlas.tar", tar)
		a.Work()
		want := []string{"first", "second"}[i%2]
		if item := a.Item(id); item.Status != "Success" || item.Outcome != "Ingest complete" {
			t.Fatalf("upload %d: %s (%s): %s", i, item.Status, item.Outcome, item.Note)
		}
		if got := a.mapCopies(); !slices.Equal(got, []string{want, want}) {
			t.Errorf("upload %d: copies are %q, want %s", i, got, want)
		}
		if left := a.Keys(a.Receiving); len(left) != 0 {
			t.Errorf("upload %d: %q is left in the receiving bucket", i, left)
		}
	}
}

// What is on record already, whole and good, is answered at once; a bag from which
// something is missing since is ingested. Either way its tar goes.
func TestRepeatedUploadIsAnswered(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		since    func(a *archive)
		repeated bool
	}{
		"nothing":                {func(*archive) {}, true},
		"a file was deleted":     {func(a *archive) { a.Doomed("test.edu/atlas/data/map"); a.Work() }, false},
		"the object was deleted": {func(a *archive) { a.Doomed("test.edu/atlas"); a.Work() }, false},
		"a copy was found bad": {func(a *archive) {
			a.Spoil(a.Deps.Targets["Standard-VA"], "map")
			a.Allow(1000)
			a.MakeDue("%/map")
			a.check()
		}, false},
		"another version came": {func(a *archive) { a.Reingested(2, "another") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.BothReadable()
			tar := a.AtlasOf(1, "first")
			before := a.Deposit("atlas.tar", tar)
			a.Work()
			tc.since(a)
			id := a.Deposit("atlas.tar", tar)
			a.Work()
			item := a.Item(id)
			if repeated := strings.Contains(item.Note, "already on record"); item.Status != "Success" || repeated != tc.repeated {
				t.Fatalf("item = %s: %s", item.Status, item.Note)
			}
			if tc.repeated && (item.Outcome != "Already on record" || item.IntellectualObjectID == nil || !strings.Contains(item.Note, "item 1,") || before != 1) {
				t.Errorf("item = %s: %s", item.Outcome, item.Note)
			}
			if n := pipelinetest.Value[int](a, `SELECT count(DISTINCT stage) FROM work_item_attempts WHERE work_item_id = $1`, id); (n == 2) != tc.repeated {
				t.Errorf("it went through %d stages", n)
			}
			if got := a.mapCopies(); !slices.Equal(got, []string{"first", "first"}) {
				t.Errorf("copies are %q", got)
			}
			if left := a.Keys(a.Receiving); len(left) != 0 || len(a.Keys(a.Deps.Staging)) != 0 {
				t.Errorf("left: %q, and %q in staging", left, a.Keys(a.Deps.Staging))
			}
		})
	}
}

// A copy that is found bad while a repetition is on its way keeps the tar, which heals
// it.
func TestRepetitionThatIsNoneAnyMore(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.BothReadable()
	tar := a.AtlasOf(1, "first")
	a.Deposit("atlas.tar", tar)
	a.Work()
	id := a.Deposit("atlas.tar", tar)
	engine := a.Engine()
	a.One(engine, "Receive")
	if item := a.Item(id); item.Stage != "Cleanup" {
		t.Fatalf("item is at %s: %s", item.Stage, item.Note)
	}
	a.Spoil(a.Deps.Targets["Standard-VA"], "map")
	a.Allow(1000)
	a.MakeDue("%/map")
	a.check()
	a.Work()
	if item := a.Item(id); item.Status != "Success" || item.Outcome != "Ingest complete" {
		t.Errorf("item = %s (%s): %s", item.Status, item.Outcome, item.Note)
	}
	if got, bad := a.mapCopies(), a.openFailures(); !slices.Equal(got, []string{"first", "first"}) || len(bad) != 0 {
		t.Errorf("copies are %q, bad ones %q", got, bad)
	}
}

// One upload that no item can be made of does not hold up the others.
func TestUploadsThatNobodyTakes(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	reader := &upkeep.BucketReader{Registry: a.Deps.Registry, Receiving: a.Deps.Receiving, Log: a.Deps.Log}
	now := time.Now()
	uploads := []registry.Upload{{Key: "one.tar", ETag: "e1", LastModified: now}, {Key: "odd.tar", LastModified: now}, {Key: "two.tar", ETag: "e2", LastModified: now}}
	if n, err := reader.Create(context.Background(), a.In, now, uploads); n != 2 || err != nil {
		t.Errorf("create = %d, %v; want two items", n, err)
	}
	if names := a.Rows(`SELECT name FROM work_items ORDER BY id`); !slices.Equal(names, []string{"one.tar", "two.tar"}) {
		t.Errorf("items of %q", names)
	}
	if !strings.Contains(a.Log.String(), "odd.tar") {
		t.Error("the odd upload is not logged")
	}
}

// The doctor reports after a day the uploads that will never become an item.
func TestDoctorTellsOfUploadsThatNobodyTakes(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	for _, key := range []string{"BAG.TAR", "folder/bag.tar"} {
		must.Get(a.Receiving.Put(context.Background(), key, bytes.NewReader([]byte("x")), storage.Upload{Size: 1}))(t)
	}
	for _, tc := range []struct {
		age    time.Duration
		person bool
	}{{24 * time.Hour, false}, {time.Nanosecond, true}} {
		d := &upkeep.Doctor{Janitor: a.janitor()}
		d.Retention, d.OrphanAge = time.Hour, tc.age
		report := d.Examine(context.Background())
		if len(found(report, "receiving", "bags", "no-bag")) != 2 || report.NeedsPerson() != tc.person {
			t.Errorf("younger than %v: %+v", tc.age, report.Findings)
		}
	}
}
