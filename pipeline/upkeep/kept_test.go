package upkeep

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
)

// retained has the store of a target keep some of its keys until a time.
func (a *archive) retained(target string, until time.Time, keys ...string) {
	a.T.Helper()
	for _, key := range keys {
		a.S3.Retain(a.T, a.Deps.Targets[target].Name(), key, until)
	}
}

// lapsed ends their retention, as an administrator may, and waits for that.
func (a *archive) lapsed(target string, keys ...string) {
	a.T.Helper()
	a.retained(target, time.Now().Add(time.Second), keys...)
	testenv.Eventually(a.T, "the retention to end", func() bool {
		locks, err := a.Deps.Targets[target].Locks(a.T.Context(), keys...)
		return err == nil && len(locks) == 0
	})
}

// A new version of a bag goes into a locked bucket like into any other. The copies that it replaces
// and that the store keeps are left on the list, with a word on the item; each round of the janitor
// counts them once, and removes them when their time is over. Nothing says before that they are gone.
func TestReplacedCopiesThatTheStoreKeepsStay(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Locked("Standard-OR")
	a.Reingested(1, "first")
	old := a.KeyOf("test.edu/atlas/data/map")
	until := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	a.retained("Standard-OR", until, old)
	id := a.Reingested(2, "second")
	kept := "kept by the store until " + until.Format("2006-01-02 15:04:05") + " UTC"
	if item := a.Item(id); !strings.Contains(item.Note, "Replaced copies that are "+kept+": 1. ") {
		t.Errorf("note: %q, want %q", item.Note, kept)
	}
	const said = `SELECT count(*) FROM premis_events WHERE detail = 'Deleted a replaced copy from preservation storage' AND outcome_detail LIKE '%' || $1`
	left := func(what string, want, events int) {
		t.Helper()
		if there := slices.Contains(a.Keys(a.Deps.Targets["Standard-OR"]), old); there != (want == 1) {
			t.Errorf("%s: the old copy is there: %t", what, there)
		}
		if n := pipelinetest.Value[int](a, `SELECT count(*) FROM retired_copies WHERE key = $1`, old); n != want {
			t.Errorf("%s: %d copies are on the list, want %d", what, n, want)
		}
		if n := pipelinetest.Value[int](a, said, "locked/"+old); n != events {
			t.Errorf("%s: %d events say that the copy is deleted, want %d", what, n, events)
		}
	}
	left("after the ingest", 1, 0)
	if slices.Contains(a.Keys(a.Deps.Targets["Standard-VA"]), old) {
		t.Error("the old copy in the bucket without Object Lock is there")
	}
	for _, report := range []*Report{a.janitor().Look(t.Context()), a.round(), a.round()} {
		i := slices.IndexFunc(report.Findings, func(f Finding) bool { return f.Store == "Standard-OR" && f.Why == "kept-by-store" })
		if i < 0 {
			t.Fatalf("findings = %+v, want the copy that is kept", report.Findings)
		}
		if f := report.Findings[i]; f.Count != 1 || f.Janitor != Waits || f.Due == nil || !f.Due.Equal(until) || f.Person || !slices.Equal(f.Names, []string{old}) {
			t.Errorf("finding = %+v", f)
		}
		if n := counts(report, Removed)["Standard-OR copies replaced"] + counts(report, Removes)["Standard-OR copies replaced"]; n != 0 {
			t.Errorf("%d copies are, or will be, removed that the store keeps", n)
		}
	}
	left("after the janitor", 1, 0)
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM removals WHERE store = 'Standard-OR'`); n != 0 {
		t.Errorf("%d removals are on record", n)
	}

	a.Reingested(3, "first") // another version takes no harm from what is kept
	a.lapsed("Standard-OR", old)
	if got := counts(a.round(), Removed)["Standard-OR copies replaced"]; got != 1 {
		t.Errorf("%d copies were removed, want 1", got)
	}
	left("when its time is over", 0, 1)
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM retired_copies`); n != 0 {
		t.Errorf("%d copies are still to be removed", n)
	}
	if bad := (&Doctor{Janitor: a.janitor()}).Examine(t.Context()); bad.NeedsPerson() {
		t.Errorf("findings = %+v", bad.Findings)
	}
}

// Copies that a cancelled item has left, and that the store keeps, are neither removed nor forgotten.
func TestUnrecordedCopiesThatTheStoreKeepsStay(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.Locked("Standard-OR")
	id := a.halfStored("sample", a.Engine())
	copies := a.Keys(a.Deps.Targets["Standard-OR"])
	a.retained("Standard-OR", time.Now().Add(time.Hour), copies[:2]...)
	a.Fails(id, "Cancelled", "by-hand", 2)
	for range 2 {
		report := a.round()
		if got := counts(report, Waits)["Standard-OR copies kept-by-store"]; got != 2 {
			t.Errorf("%d copies are kept, want 2: %+v", got, report.Findings)
		}
	}
	if n := pipelinetest.Value[int](a, `SELECT coalesce(sum(count), 0) FROM removals WHERE store = 'Standard-OR'`); n != len(copies)-2 {
		t.Errorf("%d removals are on record, want %d", n, len(copies)-2)
	}
	if got := a.Keys(a.Deps.Targets["Standard-OR"]); !slices.Equal(got, copies[:2]) {
		t.Errorf("left: %v, want %v", got, copies[:2])
	}
	for _, f := range (&Doctor{Janitor: a.janitor()}).Examine(t.Context()).Findings {
		if f.Store == "Standard-OR" && (f.Why != "kept-by-store" || f.Count != 2 || f.Person) {
			t.Errorf("finding = %+v", f)
		}
	}
	a.lapsed("Standard-OR", copies[:2]...)
	if got := counts(a.round(), Removed)["Standard-OR copies unrecorded"]; got != 2 {
		t.Errorf("%d copies were removed, want 2", got)
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM unrecorded_copies`); n != 0 {
		t.Errorf("%d items are still to be seen to", n)
	}
}
