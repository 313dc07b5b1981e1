package ingest

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
	"github.com/farol-preservation/farol/registry"
)

// weighing is a stage that is made here.
type weighing struct{ bytes atomic.Int64 }

func (s *weighing) Run(ctx context.Context, w *work) error {
	_, files, _, err := w.toStore(ctx)
	if err != nil {
		return err
	}
	for _, f := range files {
		s.bytes.Add(f.Size)
	}
	w.Note = fmt.Sprintf("The bag weighs %d bytes", s.bytes.Load())
	return nil
}

// A line in the table adds a stage: every bag then goes through it, and the interim metadata
// of an item has a place for it.
func TestStageIsAddedByALine(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	must.Get(a.Deps.Registry.AddStage(t.Context(), registry.NewStage{Name: "Weighing", After: "Reingest Check"}))(t)
	added := &weighing{}
	a.Steps = func(d pipeline.Deps) []pipeline.Step {
		rows := table(d)
		at := slices.IndexFunc(rows, func(r tableRow) bool { return r.Stage == "Copy To Staging" })
		return enter(d, slices.Insert(rows, at, tableRow{
			pipeline.Step{Stage: "Weighing", Needs: pipeline.NeedStaging | pipeline.NeedDisk}, added,
		}))
	}
	id := a.Deposit("sample.tar", a.Sample())
	a.Work()
	a.Intact(id)
	if n := added.bytes.Load(); n < 4<<20 {
		t.Errorf("the bag weighs %d bytes", n)
	}
	if stages := pipelinetest.Value[string](a, `SELECT string_agg(stage, ' ' ORDER BY claim_token) FROM work_item_attempts WHERE stage IN ('Reingest Check', 'Weighing', 'Copy To Staging')`); stages != "Reingest Check Weighing Copy To Staging" {
		t.Errorf("the bag went through %s", stages)
	}
}
