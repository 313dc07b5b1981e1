package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/storage"
)

// atlasOf is a bag of two files, whose tar differs from day to day.
func (a *archive) atlasOf(day int, content string) []byte {
	a.t.Helper()
	return a.bag(bagtest.Spec{
		Name: "atlas", Files: []bagtest.File{{Path: "data/map", Content: content}, {Path: "data/key", Content: "key"}},
		ModTime: time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC),
		Tags:    []bagtest.Tag{{File: "bag-info.txt", Name: "Bagging-Date", Value: "2026-01-01"}},
	})
}

// reingested deposits the bag once more, and returns its item when all is at rest.
func (a *archive) reingested(day int, content string) int64 {
	a.t.Helper()
	id := a.deposit("atlas.tar", a.atlasOf(day, content))
	a.work()
	if item := a.item(id); item.Status != "Success" {
		a.t.Fatalf("item = %+v", item)
	}
	return id
}

// openFailures are the copies that are bad now.
func (a *archive) openFailures() []string {
	a.t.Helper()
	return a.rows(`SELECT b.target || ' ' || b.problem FROM fixity_failures b WHERE state = 'open' ORDER BY 1`)
}

// mapCopies reads all copies of the file that are on record.
func (a *archive) mapCopies() (contents []string) {
	a.t.Helper()
	for _, place := range a.rows(`SELECT s.target || ' ' || s.key FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
		WHERE f.identifier LIKE '%/map' ORDER BY s.target`) {
		target, key, _ := strings.Cut(place, " ")
		content, err := a.tryContent(a.deps.Targets[target], key)
		if err != nil {
			a.t.Errorf("%s: %v", place, err)
		}
		contents = append(contents, string(content))
	}
	return contents
}

// A file with any bad copy, known to be bad or not, is stored again from a bag that
// has its bytes: all copies of it, under a key of their own, and the failure is over.
func TestDepositHealsBadCopies(t *testing.T) {
	t.Parallel()
	altered := func(a *archive, target string) { a.spoil(a.deps.Targets[target], "map") }
	gone := func(a *archive, target string) {
		if err := a.deps.Targets[target].Delete(context.Background(), a.copyKey("map")); err != nil {
			a.t.Fatal(err)
		}
	}
	checked := func(a *archive) {
		a.allow(1000)
		a.makeDue("%/map")
		a.checked(a.fixity())
	}
	for name, tc := range map[string]struct {
		harm func(a *archive)
		bad  int // copies
	}{
		"one altered, which fixity has seen": {func(a *archive) { altered(a, "Standard-VA"); checked(a) }, 1},
		"one missing, which fixity has seen": {func(a *archive) { gone(a, "Standard-VA"); checked(a) }, 1},
		"one altered, which nobody has seen": {func(a *archive) { altered(a, "Standard-VA") }, 1},
		"the second gone, unseen":            {func(a *archive) { gone(a, "Standard-OR") }, 1},
		"both bad, in different ways":        {func(a *archive) { altered(a, "Standard-VA"); gone(a, "Standard-OR") }, 2},
		"shorter than it was, and unseen":    {func(a *archive) { a.overwrite(a.deps.Targets["Standard-VA"], a.copyKey("map"), []byte("m")) }, 1},
		"on record as bad, whatever its provider says": {func(a *archive) {
			altered(a, "Standard-VA")
			checked(a)
			a.overwrite(a.deps.Targets["Standard-VA"], a.copyKey("map"), []byte("content of the map"))
		}, 1},
		"not in the second, nor on record": {func(a *archive) {
			if err := a.deps.Targets["Standard-OR"].Delete(context.Background(), a.keys(a.deps.Targets["Standard-OR"])...); err != nil {
				a.t.Fatal(err)
			}
			a.exec(`DELETE FROM storage_records WHERE target = 'Standard-OR'`)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.bothReadable()
			a.reingested(1, "content of the map")
			before := a.keysOfRecord()
			tc.harm(a)
			for _, day := range []int{2, 3} { // the second time there is nothing to heal
				id := a.reingested(day, "content of the map")
				if got, want := a.mapCopies(), []string{"content of the map", "content of the map"}; !slices.Equal(got, want) {
					t.Errorf("day %d: copies are %q", day, got)
				}
				if left := a.openFailures(); len(left) != 0 {
					t.Errorf("day %d: bad copies are left: %q", day, left)
				}
				if n := value[int](a, `SELECT count(*) FROM fixity_failures WHERE state = 'replaced'`); n != tc.bad {
					t.Errorf("day %d: %d bad copies were replaced, want %d", day, n, tc.bad)
				}
				if n := value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'replication' AND detail LIKE 'Replaced a%' AND outcome_information LIKE 'Work item %'`); n != tc.bad {
					t.Errorf("day %d: %d events say so, want %d", day, n, tc.bad)
				}
				for name, b := range map[string]*storage.Bucket{"Standard-VA": a.deps.Targets["Standard-VA"], "Standard-OR": a.deps.Targets["Standard-OR"]} {
					want := a.rows(fmt.Sprintf(`SELECT key FROM storage_records WHERE target = '%s' ORDER BY key COLLATE "C"`, name))
					if got := a.keys(b); !slices.Equal(got, want) {
						t.Errorf("day %d: %s has %q and the record names %q (item %d)", day, name, got, want, id)
					}
				}
			}
			for _, key := range a.rows(`SELECT s.key FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.identifier LIKE '%/map'`) {
				if slices.Contains(before, key) || !isCopyKey(key) {
					t.Errorf("the new copies are under %s", key)
				}
			}
		})
	}
}

// keysOfRecord are the keys of the file's copies.
func (a *archive) keysOfRecord() []string {
	a.t.Helper()
	return a.rows(`SELECT DISTINCT s.key FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.identifier LIKE '%/map'`)
}

// A copy that is found bad after the bag was compared keeps its tar, whose bytes are
// used before it goes.
func TestCleanupKeepsATarThatIsNeeded(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.bothReadable()
	a.reingested(1, "content of the map")
	id := a.deposit("atlas.tar", a.atlasOf(2, "content of the map"))
	engine := a.engine()
	a.upTo(engine, "Cleanup")
	a.spoil(a.deps.Targets["Standard-VA"], "map")
	a.allow(1000)
	a.makeDue("%/map")
	a.checked(a.fixity())
	if got := a.openFailures(); len(got) != 1 {
		t.Fatalf("bad copies: %q", got)
	}
	a.one(engine, "Cleanup")
	if item := a.item(id); item.Stage != "Reingest Check" || !strings.Contains(item.Note, "data/map") {
		t.Errorf("item = %s, %s: %s", item.Stage, item.Status, item.Note)
	}
	if got := a.keys(a.receiving); len(got) != 1 {
		t.Errorf("in the receiving bucket: %q", got)
	}
	a.work()
	if item := a.item(id); item.Status != "Success" {
		t.Errorf("item = %+v", item)
	}
	if got, left := a.mapCopies(), a.openFailures(); !slices.Equal(got, []string{"content of the map", "content of the map"}) || len(left) != 0 || len(a.keys(a.receiving)) != 0 {
		t.Errorf("copies are %q, bad ones left: %q", got, left)
	}
}

// What a restoration sees of copies goes on record as if fixity had seen it, and its
// note says so. What nobody proved is not on record.
func TestRestorationTellsOfBadCopies(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.bothReadable()
	a.ingested(large("bad"))
	a.flip("Standard-VA", "test.edu/bad/data/a.txt", 2)
	a.flip("Standard-VA", "test.edu/bad/data/b.bin", 20<<20)
	if err := a.deps.Targets["Standard-VA"].Delete(context.Background(), a.keyOf("test.edu/bad/data/d.txt")); err != nil {
		t.Fatal(err)
	}
	item := a.restored("test.edu/bad")
	if item.Status != "Success" || !strings.Contains(item.Note, "data/a.txt in Standard-VA (altered)") || !strings.Contains(item.Note, "data/d.txt in Standard-VA (missing)") {
		t.Fatalf("%s: %s", item.Status, item.Note)
	}
	want := []string{"test.edu/bad/data/a.txt Standard-VA altered", "test.edu/bad/data/b.bin Standard-VA altered", "test.edu/bad/data/d.txt Standard-VA missing"}
	if got := a.rows(`SELECT concat_ws(' ', file, target, problem) FROM bad_copies ORDER BY file`); !slices.Equal(got, want) {
		t.Errorf("bad copies: %q", got)
	}
	if n := value[int](a, `SELECT count(*) FROM alerts WHERE type = 'Failed Fixity Check'`); n != 3 {
		t.Errorf("%d alerts, want 3", n)
	}
	if n := value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'fixity check' AND outcome = 'Failure'`); n != 3 {
		t.Errorf("%d events, want 3", n)
	}
	if n := value[int](a, `SELECT count(*) FROM storage_records WHERE last_fixity_at IS NOT NULL`); n != 3 {
		t.Errorf("%d copies were read, want 3", n)
	}
	item = a.restored("test.edu/bad/data/d.txt")
	if item.Status != "Success" || !strings.Contains(item.Note, "Standard-VA (missing)") || strings.Contains(item.Note, "a.txt") {
		t.Errorf("%s: %s", item.Status, item.Note)
	}
}
