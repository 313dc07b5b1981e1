package pipeline_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
)

// The slots of a stage hold in the whole process, whichever pools share it; all
// of them are used, and none is lost on the way.
func TestStageSlotsHoldAcrossPools(t *testing.T) {
	t.Parallel()
	const bags, slots = 7, 2
	a := newArchive(t)
	for i := range bags {
		a.Deposit(fmt.Sprintf("bag%d.tar", i), a.Bag(bagtest.Spec{Name: fmt.Sprintf("bag%d", i)}))
	}
	g := &pipelinetest.Gate{Open: make(chan struct{})}
	_, stop := a.Run(a.Deps, []pipeline.Step{{Action: "Ingest", Stage: "Receive", Note: "done", Run: g}, {Action: "Ingest", Stage: "Validate", Note: "", Run: g}}, pipeline.RunnerOptions{
		Pools: []pipeline.Pool{
			{Name: "one", Stages: []string{"Receive"}, Slots: 5}, {Name: "two", Stages: []string{"Receive"}, Slots: 5},
		},
		StageSlots: map[string]int{"Receive": slots},
	})
	for done := range bags {
		testenv.Eventually(t, "the slots to be used", func() bool { return g.In.Load() == int64(min(slots, bags-done)) })
		if n := pipelinetest.Value[int](a, `SELECT count(*) FROM work_items WHERE status = 'Started'`); n > slots {
			t.Errorf("%d items are claimed for %d slots", n, slots)
		}
		g.Open <- struct{}{}
	}
	testenv.Eventually(t, "all items to be at the next stage", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM work_items WHERE stage = 'Validate' AND status = 'Pending'`) == bags
	})
	stop()
	if most := g.Most.Load(); most != slots {
		t.Errorf("%d items were in the stage at once, want %d", most, slots)
	}
}

// With claims of one item each, all slots are used all the same, at once and not
// at the next look.
func TestClaimsOfOneFillAllSlots(t *testing.T) {
	t.Parallel()
	const slots = 4
	a := newArchive(t)
	for i := range slots {
		a.Deposit(fmt.Sprintf("bag%d.tar", i), a.Bag(bagtest.Spec{Name: fmt.Sprintf("bag%d", i)}))
	}
	g := &pipelinetest.Gate{Open: make(chan struct{})}
	_, stop := a.Run(a.Deps, []pipeline.Step{{Action: "Ingest", Stage: "Receive", Note: "done", Run: g}}, pipeline.RunnerOptions{
		Pools: []pipeline.Pool{{Name: "one", Stages: []string{"Receive"}, Slots: slots}}, ClaimMost: map[string]int{"Receive": 1},
	}, func(o *claim.Options) { o.Poll, o.Observer = time.Hour, oneByOne{t} })
	testenv.Eventually(t, "the slots to be used", func() bool { return g.In.Load() == slots })
	close(g.Open)
	stop()
}

// oneByOne observes claims that may take one item each.
type oneByOne struct{ t *testing.T }

func (oneByOne) Settled(time.Duration, int) {}
func (oneByOne) Ended(claim.End)            {}
func (oneByOne) Lost(string)                {}

func (o oneByOne) Claimed(_ time.Duration, items int) {
	if items > 1 {
		o.t.Errorf("a claim took %d items", items)
	}
}
