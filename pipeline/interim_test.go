package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
)

// files lists the files of an item in work as path, state and code.
func (a *archive) files(id int64, page FilePage) (lines []string) {
	a.t.Helper()
	ctx := context.Background()
	attempts, err := a.deps.Registry.Attempts(ctx, id)
	if err != nil {
		a.t.Fatal(err)
	}
	m, err := a.deps.Interim(ctx, a.item(id), attempts)
	if err != nil {
		a.t.Fatal(err)
	}
	defer m.Close()
	page.Limit = max(page.Limit, 1)
	list, err := page.Of(m.Files(ctx))
	if err != nil {
		a.t.Fatal(err)
	}
	for _, f := range list {
		lines = append(lines, strings.TrimSpace(f.Path+" "+f.State+" "+f.Code))
	}
	return lines
}

// Each stage adds to what is known of a file, and what the one at work has finished is
// ahead of the others.
func TestFilesOfAnItemInWork(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.reingested(1, "first")
	id := a.deposit("atlas.tar", a.bag(bagtest.Spec{
		Name: "atlas", Files: []bagtest.File{{Path: "data/new", Content: "new"}, {Path: "data/map", Content: "second"}, {Path: "data/key", Content: "key"}},
	}))
	a.deps.recent, a.deps.room = &recent{}, newRoom(0, 0)
	engine := a.engine()
	payload := func() []string {
		return slices.DeleteFunc(a.files(id, FilePage{Limit: 100}), func(line string) bool { return !strings.HasPrefix(line, "data/") })
	}
	if got := payload(); got != nil {
		t.Errorf("before Receive: %q", got)
	}
	for _, step := range []struct{ stage, state, kept string }{
		{"Validate", "received", "received"},
		{"Reingest Check", "received", "received"},
		{"Copy To Staging", "received", "unchanged"},
		{"Format Identification", "staged", "unchanged"},
		{"Store", "identified", "unchanged"},
		{"Storage Validation", "copied", "unchanged"},
		{"Record", "verified", "unchanged"},
		{"Cleanup", "", "unchanged"},
	} {
		a.one(engine, before(step.stage))
		want := []string{"data/key " + step.kept, "data/map " + step.state, "data/new " + step.state}
		if step.stage == "Cleanup" {
			want = []string{"data/key unchanged", "data/map replaced", "data/new added"}
		}
		if diff := cmp.Diff(want, payload()); diff != "" {
			t.Errorf("at %s (-want +got):\n%s", step.stage, diff)
		}
		if step.stage != "Store" {
			continue
		}
		// The stage has finished one file, and failed at another.
		w := a.hold(engine, "Store")
		_, files, _, err := w.toStore(context.Background(), a.deps)
		if err != nil {
			t.Fatal(err)
		}
		first := slices.IndexFunc(files, func(f *file) bool { return f.path == "data/new" })
		err = errors.Join(
			a.deps.Progress.Done(t.Context(), w.claim(), w.passOf(), map[int]string{files[first].index: ""}),
			a.deps.Progress.Fail(t.Context(), w.claim(), progress.Faults{List: []progress.Fault{{Code: "storage-digest", Path: "data/map", Message: "wrong"}}}),
			w.hold.Settle(t.Context(), w.done(""), errors.New("it broke")),
		)
		if err != nil {
			t.Fatal(err)
		}
		want = []string{"data/key unchanged", "data/map failed storage-digest", "data/new copied"}
		if diff := cmp.Diff(want, payload()); diff != "" {
			t.Errorf("in the middle of Store (-want +got):\n%s", diff)
		}
		if err := a.deps.Progress.ClearStage(t.Context(), w.claim(), w.passOf()); err != nil { // it was not true
			t.Fatal(err)
		}
		a.exec(`UPDATE work_items SET run_at = now()`)
	}
	if got := a.files(id, FilePage{State: "packaging", After: "bagit.txt", Limit: 1}); len(got) != 1 || got[0] != "manifest-md5.txt packaging" {
		t.Errorf("a page of the packaging: %q", got)
	}
}

func before(stage string) string {
	order := ingestStages()
	return order[slices.Index(order, stage)-1]
}

// A page is sorted whatever order the files come in, and pages leave no file out.
func TestPagesOfFilesAreSorted(t *testing.T) {
	t.Parallel()
	const n = 2_500
	files := func(yield func(*ItemFile, error) bool) {
		for i := range n {
			if !yield(&ItemFile{Path: fmt.Sprintf("data/%05d", i*1_009%n), State: []string{"copied", "staged"}[i%2]}, nil) {
				return
			}
		}
	}
	for _, state := range []string{"", "copied"} {
		var all []string
		for after := ""; ; after = all[len(all)-1] {
			list, err := FilePage{State: state, After: after, Limit: 300}.Of(files)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range list {
				all = append(all, f.Path)
			}
			if len(list) < 300 {
				break
			}
		}
		want := n
		if state != "" {
			want = n / 2
		}
		if len(all) != want || !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != want {
			t.Errorf("state %q: %d files, sorted %v", state, len(all), slices.IsSorted(all))
		}
	}
}

// While a bag is read, the files are those of its checkpoints.
func TestFilesThatReceiveHasRead(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const mib = 1 << 20
	a.deps.checkpointBytes, a.deps.room = mib, newRoom(0, 0)
	id := a.deposit("large.tar", a.bag(bagtest.Spec{Name: "large", Files: []bagtest.File{{Path: "data/a", Size: 2 * mib}, {Path: "data/b", Size: 2 * mib}}}))
	w := a.hold(a.engine(), "Receive")
	ctx, cancel := context.WithCancel(t.Context())
	wire := a.wired()
	wire.next(spoilt{object: "large.tar", at: 4 * mib, how: "cut", times: 100})
	s := &receive{a.deps}
	if err := s.Run(ctx, w); err == nil {
		t.Fatal("the bag was read to its end")
	}
	cancel()
	if got := a.files(id, FilePage{State: "read", Limit: 10}); !slices.Contains(got, "data/a read") || slices.Contains(got, "data/b read") {
		t.Errorf("files = %q", got)
	}
}

// What an item did is told by what is on record, when nothing else is left.
func TestFilesOfAFinishedItem(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	first := a.reingested(1, "first")
	second := a.reingested(2, "second")
	a.doomed("test.edu/atlas/data/map")
	a.work()
	list := func(f registry.ItemFileFilter) (lines []string) {
		t.Helper()
		f.Limit = 100
		files, err := a.deps.Registry.ItemFiles(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range files {
			lines = append(lines, strings.TrimSpace(x.Path+" "+x.State+" "+x.Message))
		}
		return lines
	}
	one, two := a.item(first), a.item(second)
	deletion := a.item(value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`))
	gone := fmt.Sprintf("; item %d deleted it", deletion.ID)
	for _, tc := range []struct {
		what string
		of   registry.ItemFileFilter
		want []string
	}{
		{"the first version", registry.ItemFileFilter{Item: one, Ended: one.UpdatedAt, After: "bag-info.txt"}, []string{"data/key added", "data/map deleted added" + gone}},
		{"the second", registry.ItemFileFilter{Item: two, Ended: two.UpdatedAt, After: "bag-info.txt"}, []string{"data/key left", "data/map deleted replaced" + gone}},
		{"by state", registry.ItemFileFilter{Item: two, Ended: two.UpdatedAt, State: "left", After: "b"}, []string{"data/key left"}},
		{"the deletion", registry.ItemFileFilter{Item: deletion, Ended: deletion.UpdatedAt}, []string{"data/map deleted"}},
	} {
		if diff := cmp.Diff(tc.want, list(tc.of)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.what, diff)
		}
	}
}
