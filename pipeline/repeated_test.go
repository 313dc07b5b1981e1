package pipeline

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// An earlier version that is uploaded again is ingested, as often as it comes.
func TestEarlierVersionComesBack(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.bothReadable()
	first, second := a.atlasOf(1, "first"), a.atlasOf(2, "second")
	for i, tar := range [][]byte{first, second, first, second, first} {
		id := a.deposit("atlas.tar", tar)
		a.work()
		want := []string{"first", "second"}[i%2]
		if item := a.item(id); item.Status != "Success" || item.Outcome != "Ingest complete" {
			t.Fatalf("upload %d: %s (%s): %s", i, item.Status, item.Outcome, item.Note)
		}
		if got := a.mapCopies(); !slices.Equal(got, []string{want, want}) {
			t.Errorf("upload %d: copies are %q, want %s", i, got, want)
		}
		if left := a.keys(a.receiving); len(left) != 0 {
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
		"a file was deleted":     {func(a *archive) { a.doomed("test.edu/atlas/data/map"); a.work() }, false},
		"the object was deleted": {func(a *archive) { a.doomed("test.edu/atlas"); a.work() }, false},
		"a copy was found bad": {func(a *archive) {
			a.spoil(a.deps.Targets["Standard-VA"], "map")
			a.allow(1000)
			a.makeDue("%/map")
			a.checked(a.fixity())
		}, false},
		"another version came": {func(a *archive) { a.reingested(2, "another") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.bothReadable()
			tar := a.atlasOf(1, "first")
			before := a.deposit("atlas.tar", tar)
			a.work()
			tc.since(a)
			id := a.deposit("atlas.tar", tar)
			a.work()
			item := a.item(id)
			if repeated := strings.Contains(item.Note, "already on record"); item.Status != "Success" || repeated != tc.repeated {
				t.Fatalf("item = %s: %s", item.Status, item.Note)
			}
			if tc.repeated && (item.Outcome != "Already on record" || item.IntellectualObjectID == nil || !strings.Contains(item.Note, "item 1 ") || before != 1) {
				t.Errorf("item = %s: %s", item.Outcome, item.Note)
			}
			if n := value[int](a, `SELECT count(DISTINCT stage) FROM work_item_attempts WHERE work_item_id = $1`, id); (n == 2) != tc.repeated {
				t.Errorf("it went through %d stages", n)
			}
			if got := a.mapCopies(); !slices.Equal(got, []string{"first", "first"}) {
				t.Errorf("copies are %q", got)
			}
			if left := a.keys(a.receiving); len(left) != 0 || len(a.keys(a.deps.Staging)) != 0 {
				t.Errorf("left: %q, and %q in staging", left, a.keys(a.deps.Staging))
			}
		})
	}
}

// A copy that is found bad while a repetition is on its way keeps the tar, which heals
// it.
func TestRepetitionThatIsNoneAnyMore(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.bothReadable()
	tar := a.atlasOf(1, "first")
	a.deposit("atlas.tar", tar)
	a.work()
	id := a.deposit("atlas.tar", tar)
	engine := a.engine()
	a.one(engine, "Receive")
	if item := a.item(id); item.Stage != "Cleanup" {
		t.Fatalf("item is at %s: %s", item.Stage, item.Note)
	}
	a.spoil(a.deps.Targets["Standard-VA"], "map")
	a.allow(1000)
	a.makeDue("%/map")
	a.checked(a.fixity())
	a.work()
	if item := a.item(id); item.Status != "Success" || item.Outcome != "Ingest complete" {
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
	reader := &BucketReader{Registry: a.deps.Registry, Receiving: a.deps.Receiving, Log: a.deps.Log}
	now := time.Now()
	uploads := []registry.Upload{{Key: "one.tar", ETag: "e1", LastModified: now}, {Key: "odd.tar", LastModified: now}, {Key: "two.tar", ETag: "e2", LastModified: now}}
	if n, err := reader.create(context.Background(), a.in, now, uploads); n != 2 || err != nil {
		t.Errorf("create = %d, %v; want two items", n, err)
	}
	if names := a.rows(`SELECT name FROM work_items ORDER BY id`); !slices.Equal(names, []string{"one.tar", "two.tar"}) {
		t.Errorf("items of %q", names)
	}
	if !strings.Contains(a.log.String(), "odd.tar") || notABag(storage.Object{Key: "odd.tar"}) == "" {
		t.Error("nobody is told of the odd one")
	}
}

// People are told of uploads that no item will ever take, after a day.
func TestDoctorTellsOfUploadsThatNobodyTakes(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	for _, key := range []string{"BAG.TAR", "folder/bag.tar"} {
		if _, err := a.receiving.Put(context.Background(), key, bytes.NewReader([]byte("x")), storage.Upload{Size: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		age    time.Duration
		person bool
	}{{24 * time.Hour, false}, {time.Nanosecond, true}} {
		d := &Doctor{Janitor: &Janitor{Deps: a.deps, Retention: time.Hour, OrphanAge: tc.age}}
		report := d.Examine(context.Background())
		if len(found(report, "receiving", "bags", whyNoBag)) != 2 || report.NeedsPerson() != tc.person {
			t.Errorf("younger than %v: %+v", tc.age, report.Findings)
		}
	}
}
