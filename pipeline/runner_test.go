package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
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

// failing is a stage that always ends in the same way.
type failing struct{ end error }

func (f failing) Run(context.Context, *pipeline.Work) error { return f.end }

// How an attempt ended is said in one line, and as it was written: that an item will be retried
// is not said of one that is parked.
func TestTheLogSaysWhatWasWritten(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end    error
		says   []string // one for each attempt, with its level
		status string
	}{
		"attempts used up": {errors.New("the tape is torn"), []string{"WARN stage failed; will retry", "WARN stage failed; will retry", "ERROR giving up: the item is Suspended until a person requeues it"}, "Suspended"},
		"fatal":            {claim.Fatal("invalid-bag", "a bad bag"), []string{"ERROR item needs a person"}, "Failed"},
		"cancelled":        {claim.Cancel("superseded", "a newer one came"), []string{"INFO item cancelled"}, "Cancelled"},
		"sent back": {claim.SendBack("Receive", "its list is gone"), append(slices.Repeat([]string{"WARN results of an earlier stage are gone; the item goes back to it"}, 3),
			"ERROR item needs a person"), "Suspended"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			a.Deposit("bag.tar", a.Bag(bagtest.Spec{Name: "bag"}))
			var log pipelinetest.SyncBuffer
			a.Deps.Log = slog.New(slog.NewJSONHandler(&log, nil))
			a.Exec(`UPDATE stage_settings SET backoff_first = interval '1 millisecond', backoff_most = interval '1 millisecond', max_attempts = 3`)
			_, stop := a.Run(a.Deps, []pipeline.Step{{Action: "Ingest", Stage: "Receive", Run: failing{tc.end}}}, pipeline.RunnerOptions{
				Pools: []pipeline.Pool{{Name: "one", Stages: []string{"Receive"}, Slots: 1}},
			})
			testenv.Eventually(t, "the item to end", func() bool {
				return pipelinetest.Value[string](a, `SELECT status FROM all_work_items`) == tc.status
			})
			stop()
			var said []string
			for line := range strings.Lines(log.String()) {
				var entry struct {
					Level, Msg string
					Item       int64
				}
				if json.Unmarshal([]byte(line), &entry) == nil && entry.Item > 0 {
					said = append(said, entry.Level+" "+entry.Msg)
				}
			}
			if !slices.Equal(said, tc.says) {
				t.Errorf("the log says %q, want %q", said, tc.says)
			}
		})
	}
}
