package steps

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/storage"
)

// openFailures are the copies that are bad now.
func (a *archive) openFailures() []string {
	a.T.Helper()
	return a.Rows(`SELECT b.target || ' ' || b.problem FROM fixity_failures b WHERE state = 'open' ORDER BY 1`)
}

// mapCopies reads all copies of the file that are on record.
func (a *archive) mapCopies() (contents []string) {
	a.T.Helper()
	for _, place := range a.Rows(`SELECT s.target || ' ' || s.key FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id
		WHERE f.identifier LIKE '%/map' ORDER BY s.target`) {
		target, key, _ := strings.Cut(place, " ")
		content, err := a.TryContent(a.Deps.Targets[target], key)
		if err != nil {
			a.T.Errorf("%s: %v", place, err)
		}
		contents = append(contents, string(content))
	}
	return contents
}

// A file with any bad copy, known to be bad or not, is stored again from a bag that
// has its bytes: all copies of it, under a key of their own, and the failure is over.
func TestDepositHealsBadCopies(t *testing.T) {
	t.Parallel()
	altered := func(a *archive, target string) { a.Spoil(a.Deps.Targets[target], "map") }
	gone := func(a *archive, target string) {
		must.Do(a.T, a.Deps.Targets[target].Delete(context.Background(), a.CopyKey("map")))
	}
	checked := func(a *archive) {
		a.Allow(1000)
		a.MakeDue("%/map")
		a.check()
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
		"shorter than it was, and unseen": {func(a *archive) {
			a.Overwrite(a.Deps.Targets["Standard-VA"], a.CopyKey("map"), []byte("m"))
		}, 1},
		"on record as bad, whatever its provider says": {func(a *archive) {
			altered(a, "Standard-VA")
			checked(a)
			a.Overwrite(a.Deps.Targets["Standard-VA"], a.CopyKey("map"), []byte("content of the map"))
		}, 1},
		"not in the second, nor on record": {func(a *archive) {
			must.Do(a.T, a.Deps.Targets["Standard-OR"].Delete(context.Background(), a.Keys(a.Deps.Targets["Standard-OR"])...))
			a.Exec(`DELETE FROM storage_records WHERE target = 'Standard-OR'`)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.BothReadable()
			a.Reingested(1, "content of the map")
			before := a.keysOfRecord()
			tc.harm(a)
			for _, day := range []int{2, 3} { // the second time there is nothing to heal
				id := a.Reingested(day, "content of the map")
				if got, want := a.mapCopies(), []string{"content of the map", "content of the map"}; !slices.Equal(got, want) {
					t.Errorf("day %d: copies are %q", day, got)
				}
				if left := a.openFailures(); len(left) != 0 {
					t.Errorf("day %d: bad copies are left: %q", day, left)
				}
				if n := pipelinetest.Value[int](a, `SELECT count(*) FROM fixity_failures WHERE state = 'replaced'`); n != tc.bad {
					t.Errorf("day %d: %d bad copies were replaced, want %d", day, n, tc.bad)
				}
				if n := pipelinetest.Value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'replication' AND detail LIKE 'Replaced a%' AND outcome_information LIKE 'Work item %'`); n != tc.bad {
					t.Errorf("day %d: %d events say so, want %d", day, n, tc.bad)
				}
				for name, b := range map[string]*storage.Bucket{"Standard-VA": a.Deps.Targets["Standard-VA"], "Standard-OR": a.Deps.Targets["Standard-OR"]} {
					want := a.Rows(fmt.Sprintf(`SELECT key FROM storage_records WHERE target = '%s' ORDER BY key COLLATE "C"`, name))
					if got := a.Keys(b); !slices.Equal(got, want) {
						t.Errorf("day %d: %s has %q and the record names %q (item %d)", day, name, got, want, id)
					}
				}
			}
			for _, key := range a.Rows(`SELECT s.key FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.identifier LIKE '%/map'`) {
				if slices.Contains(before, key) || !copyKeyOf.MatchString(key) {
					t.Errorf("the new copies are under %s", key)
				}
			}
		})
	}
}

// keysOfRecord are the keys of the file's copies.
func (a *archive) keysOfRecord() []string {
	a.T.Helper()
	return a.Rows(`SELECT DISTINCT s.key FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.identifier LIKE '%/map'`)
}

// A copy that is found bad after the bag was compared keeps its tar, whose bytes are
// used before it goes.
func TestCleanupKeepsATarThatIsNeeded(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.BothReadable()
	a.Reingested(1, "content of the map")
	id := a.Deposit("atlas.tar", a.AtlasOf(2, "content of the map"))
	engine := a.Engine()
	a.UpTo(engine, "Cleanup")
	a.Spoil(a.Deps.Targets["Standard-VA"], "map")
	a.Allow(1000)
	a.MakeDue("%/map")
	a.check()
	if got := a.openFailures(); len(got) != 1 {
		t.Fatalf("bad copies: %q", got)
	}
	a.One(engine, "Cleanup")
	if item := a.Item(id); item.Stage != "Reingest Check" || !strings.Contains(item.Note, "data/map") {
		t.Errorf("item = %s, %s: %s", item.Stage, item.Status, item.Note)
	}
	if got := a.Keys(a.Receiving); len(got) != 1 {
		t.Errorf("in the receiving bucket: %q", got)
	}
	a.Work()
	if item := a.Item(id); item.Status != "Success" {
		t.Errorf("item = %+v", item)
	}
	if got, left := a.mapCopies(), a.openFailures(); !slices.Equal(got, []string{"content of the map", "content of the map"}) || len(left) != 0 || len(a.Keys(a.Receiving)) != 0 {
		t.Errorf("copies are %q, bad ones left: %q", got, left)
	}
}

// What a restoration sees of copies goes on record as if fixity had seen it, and its
// note says so. What nobody proved is not on record.
func TestRestorationTellsOfBadCopies(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.BothReadable()
	a.Ingested(pipelinetest.Large("bad"))
	a.Flip("Standard-VA", "test.edu/bad/data/a.txt", 2)
	a.Flip("Standard-VA", "test.edu/bad/data/b.bin", 20<<20)
	must.Do(t, a.Deps.Targets["Standard-VA"].Delete(context.Background(), a.KeyOf("test.edu/bad/data/d.txt")))
	item := a.Restored("test.edu/bad")
	if item.Status != "Success" || !strings.Contains(item.Note, "data/a.txt in Standard-VA (altered)") || !strings.Contains(item.Note, "data/d.txt in Standard-VA (missing)") {
		t.Fatalf("%s: %s", item.Status, item.Note)
	}
	want := []string{"test.edu/bad/data/a.txt Standard-VA altered", "test.edu/bad/data/b.bin Standard-VA altered", "test.edu/bad/data/d.txt Standard-VA missing"}
	if got := a.Rows(`SELECT concat_ws(' ', file, target, problem) FROM bad_copies ORDER BY file`); !slices.Equal(got, want) {
		t.Errorf("bad copies: %q", got)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM alerts WHERE type = 'Failed Fixity Check'`); n != 3 {
		t.Errorf("%d alerts, want 3", n)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM premis_events WHERE event_type = 'fixity check' AND outcome = 'Failure'`); n != 3 {
		t.Errorf("%d events, want 3", n)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM storage_records WHERE last_fixity_at IS NOT NULL`); n != 3 {
		t.Errorf("%d copies were read, want 3", n)
	}
	item = a.Restored("test.edu/bad/data/d.txt")
	if item.Status != "Success" || !strings.Contains(item.Note, "Standard-VA (missing)") || strings.Contains(item.Note, "a.txt") {
		t.Errorf("%s: %s", item.Status, item.Note)
	}
}

// copyKeyOf is what the keys of new versions look like.
var copyKeyOf = regexp.MustCompile(`^[0-9a-f-]{36}(\.[0-9a-f]{16})?$`)
