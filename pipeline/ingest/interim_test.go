package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
)

// files lists the files of an item in work as path, state and code.
func (a *archive) files(id int64, page interim.Page) (lines []string) {
	a.T.Helper()
	ctx := context.Background()
	attempts := must.Get(a.Deps.Registry.Attempts(ctx, id))(a.T)
	m := must.Get(InterimReader(a.Deps).Read(ctx, a.Item(id), attempts))(a.T)
	defer m.Close()
	page.Limit = max(page.Limit, 1)
	list := must.Get(page.Of(m.Files(ctx)))(a.T)
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
	a.Reingested(1, "first")
	id := a.Deposit("atlas.tar", a.Bag(bagtest.Spec{
		Name: "atlas", Files: []bagtest.File{{Path: "data/new", Content: "new"}, {Path: "data/map", Content: "second"}, {Path: "data/key", Content: "key"}},
	}))
	engine := a.Engine()
	payload := func() []string {
		return slices.DeleteFunc(a.files(id, interim.Page{Limit: 100}), func(line string) bool { return !strings.HasPrefix(line, "data/") })
	}
	if got := payload(); got != nil {
		t.Errorf("before Receive: %q", got)
	}
	for _, step := range []struct {
		stage       registry.Stage
		state, kept string
	}{
		{"Validate", "received", "received"},
		{"Reingest Check", "received", "received"},
		{"Copy To Staging", "received", "unchanged"},
		{"Format Identification", "received", "unchanged"},
		{"Store", "identified", "unchanged"},
		{"Storage Validation", "copied", "unchanged"},
		{"Record", "verified", "unchanged"},
		{"Cleanup", "", "unchanged"},
	} {
		a.One(engine, before(step.stage))
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
		w := a.Hold(engine, "Store")
		_, files, _, err := a.entered(w).toStore(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		first := slices.IndexFunc(files, func(f *lists.File) bool { return f.Path == "data/new" })
		must.Do(t, errors.Join(
			a.Deps.Progress.Done(t.Context(), w.Claim(), w.Pass(), map[int]string{files[first].Index: ""}),
			a.Deps.Progress.Fail(t.Context(), w.Claim(), progress.Faults{List: []progress.Fault{{Code: "storage-digest", Path: "data/map", Message: "wrong"}}}),
			w.Hold.Settle(t.Context(), claim.Done{}, errors.New("it broke")),
		))
		want = []string{"data/key unchanged", "data/map failed storage-digest", "data/new copied"}
		if diff := cmp.Diff(want, payload()); diff != "" {
			t.Errorf("in the middle of Store (-want +got):\n%s", diff)
		}
		if err := a.Deps.Progress.ClearStage(t.Context(), w.Claim(), w.Pass()); err != nil { // it was not true
			t.Fatal(err)
		}
		a.Exec(`UPDATE work_items SET run_at = now()`)
	}
	if got := a.files(id, interim.Page{State: "packaging", After: "bagit.txt", Limit: 1}); len(got) != 1 || got[0] != "manifest-md5.txt packaging" {
		t.Errorf("a page of the packaging: %q", got)
	}
}

func before(stage registry.Stage) registry.Stage {
	order := stages()
	return order[slices.IndexFunc(order, func(s interim.Stage) bool { return s.Name == stage })-1].Name
}

// While a bag is read, the files are those of its checkpoints.
func TestFilesThatReceiveHasRead(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	const mib = 1 << 20
	a.checkpointEvery(mib)
	id := a.Deposit("large.tar", a.Bag(bagtest.Spec{Name: "large", Files: []bagtest.File{{Path: "data/a", Size: 2 * mib}, {Path: "data/b", Size: 2 * mib}}}))
	w := a.Hold(a.Engine(), "Receive")
	ctx, cancel := context.WithCancel(t.Context())
	wire := a.Wired()
	wire.Next(pipelinetest.Spoilt{Object: "large.tar", At: 4 * mib, How: "cut", Times: 100})
	s := a.Stage("Receive")
	if err := s.Run(ctx, w); err == nil {
		t.Fatal("the bag was read to its end")
	}
	cancel()
	if got := a.files(id, interim.Page{State: "read", Limit: 10}); !slices.Contains(got, "data/a read") || slices.Contains(got, "data/b read") {
		t.Errorf("files = %q", got)
	}
}

// What an item did is told by what is on record, when nothing else is left.
func TestFilesOfAFinishedItem(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	first := a.Reingested(1, "first")
	second := a.Reingested(2, "second")
	a.Doomed("test.edu/atlas/data/map")
	a.Work()
	list := func(f registry.ItemFileFilter) (lines []string) {
		t.Helper()
		f.Limit = 100
		files := must.Get(a.Deps.Registry.ItemFiles(t.Context(), f))(t)
		for _, x := range files {
			lines = append(lines, strings.TrimSpace(x.Path+" "+x.State+" "+x.Message))
		}
		return lines
	}
	one, two := a.Item(first), a.Item(second)
	deletion := a.Item(pipelinetest.Value[int64](a, `SELECT id FROM work_items WHERE action = 'Delete'`))
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
