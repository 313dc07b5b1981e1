package pipeline

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/wake"
	"github.com/farol-preservation/farol/registry"
)

// What a pool asks for is bounded by its free slots, the stage's and the most of
// one claim, late stages first.
func TestReserve(t *testing.T) {
	t.Parallel()
	r := &Runner{
		order: []string{"Receive", "Validate", "Store"}, running: map[string]int{},
		steps:   map[string]Step{"Receive": {Action: "Ingest", Stage: "Receive"}, "Validate": {Action: "Ingest", Stage: "Validate"}, "Store": {Action: "Ingest", Stage: "Store"}},
		options: RunnerOptions{StageSlots: map[string]int{"Receive": 3}, ClaimMost: map[string]int{"Validate": 2}},
	}
	pool := Pool{Stages: []string{"Receive", "Store", "Validate"}}
	for i, want := range []string{
		"[{Store 4} {Validate 2} {Receive 3}]",
		"[{Store 4} {Validate 2} {Receive 0}]", // the places of Receive are taken
	} {
		if got := fmt.Sprint(r.reserve(pool, "Ingest", 4)); got != want {
			t.Errorf("reserve %d = %s, want %s", i+1, got, want)
		}
	}
}

// Large bags hold a slot for long, so a pool of small bags lends few slots to them; and a
// pool that stands alone lends none.
func TestHowManySlotsAreLent(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	small := Pool{Name: "small", MaxSize: gib, Slots: 8}
	large := Pool{Name: "large", MinSize: gib, MaxSize: 64 * gib, Slots: 2}
	huge := Pool{Name: "huge", MinSize: 64 * gib, Slots: 1}
	alone := Pool{Name: "alone", MinSize: gib, Slots: 5, Alone: true}
	for _, tc := range []struct {
		p, n Pool
		want int
	}{
		{small, large, 2}, {large, small, 1}, {large, huge, 0}, {huge, large, 0}, {small, huge, 0}, {huge, small, 0}, {alone, small, 0}, {small, small, 0},
	} {
		if got := tc.p.helps(tc.n); got != tc.want {
			t.Errorf("%s lends %d slots to %s, want %d", tc.p.Name, got, tc.n.Name, tc.want)
		}
	}
}

// Whatever is put and claimed: a claim asks for every stage at which something lies, if the
// pool was woken for it, and does not ask where it has found nothing. Stages with a cap are
// claimed first, as in package claim.
func TestPoolAsksWhereSomethingMayLie(t *testing.T) {
	t.Parallel()
	stages := []registry.Stage{"Cleanup", "Record", "Store", "Receive"}
	capped := func(s registry.Stage) bool { return s == "Record" }
	inOrder := []registry.Stage{"Record", "Cleanup", "Store", "Receive"}
	liesAt := func(at place, p cursor.Partition) bool { return isOf(p, registry.Stage(at.step), []int16{1, 2}) }
	rapid.Check(t, func(t *rapid.T) {
		pool := Pool{Name: "all", Stages: []string{"Cleanup", "Record", "Store", "Receive"}}
		p := &newPoolRuns([]Pool{pool})[0].places
		lies := map[registry.Stage]int{}
		known := map[registry.Stage]bool{} // to be empty
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if stage := rapid.SampledFrom(append(stages, "")).Draw(t, "put"); stage != "" {
				lies[stage] += rapid.IntRange(0, 3).Draw(t, "items")
				p.hear([]cursor.Partition{{Stage: stage, Band: rapid.SampledFrom([]int16{1, 2, wake.AnyBand}).Draw(t, "band")}}, liesAt)
				delete(known, stage)
			}
			if rapid.IntRange(0, 9).Draw(t, "poll") == 0 {
				p.hear([]cursor.Partition{{Band: wake.AnyBand}}, liesAt)
				clear(known)
			}
			p.hear([]cursor.Partition{{Stage: "Store", Band: 3}, {Band: 0}}, liesAt) // of sizes that others take
			for _, s := range stages {
				if empty := p.emptyAt(pool, []string{string(s)}); empty && lies[s] > 0 {
					t.Fatalf("%s is said to be empty, where %d items are", s, lies[s])
				} else if !empty && known[s] {
					t.Fatalf("an item is said to be at %s, where a claim has found none", s)
				}
			}
			n := rapid.IntRange(1, 5).Draw(t, "slots")
			var wants []claim.Want
			for _, s := range stages {
				wants = append(wants, claim.Want{Stage: s, Most: rapid.IntRange(0, n).Draw(t, "most")})
			}
			asked, some := p.worth(pool, registry.Ingest, wants)
			most := map[registry.Stage]int{}
			for i, w := range asked {
				if most[w.Stage] = w.Most; w.Most < wants[i].Most && lies[w.Stage] > 0 {
					t.Fatalf("%d items lie at %s, and %d are asked for where there are slots for %d", lies[w.Stage], w.Stage, w.Most, wants[i].Most)
				}
				if w.Most > 0 && (known[w.Stage] || !some) {
					t.Fatalf("it asks at %s, where it has found nothing; any %v", w.Stage, some)
				}
			}
			var got []claim.Item
			var short []registry.Stage // of the stages that the claim has been through
			for _, s := range inOrder {
				here := min(most[s], lies[s], n-len(got))
				for range here {
					got = append(got, claim.Item{Action: registry.Ingest, Stage: s})
				}
				if lies[s] -= here; here > 0 && !capped(s) || len(got) < n {
					for _, before := range short {
						known[before] = true
					}
				}
				if most[s] > here && len(got) < n {
					short = append(short, s)
					known[s] = known[s] || len(got) == 0
				}
			}
			p.found(pool, registry.Ingest, asked, n, got, capped)
		}
	})
}

// An item goes on in its slot only while none waits that comes before it, wherever that is: at
// its next stage, at a later one, for another action of the pool, or for the pool that lends the
// slot. One that would not be claimed for the slot does not go on either.
func TestItemGoesOnWhereNoneWaits(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		waits   []place // known to wait; all other places are known to be empty
		lent    bool    // the slot, to the pool small
		change  func(r *Runner, item *claim.Item, done *claim.Done, stop func())
		refused bool
	}{
		"none waits":                         {},
		"one at an earlier stage":            {waits: []place{{"own", "Receive"}}},
		"one at the next stage":              {waits: []place{{"own", "Store"}}, refused: true},
		"one at a later stage":               {waits: []place{{"own", "Record"}}, refused: true},
		"one of another action":              {waits: []place{{"own", "Restore Object"}}, refused: true},
		"lent, and none waits":               {lent: true},
		"lent, and one of the lender's":      {lent: true, waits: []place{{"own", "Receive"}}, refused: true},
		"lent, and one at a later stage":     {lent: true, waits: []place{{"small", "Record"}}}, // which small does not take
		"lent, and one at the next":          {lent: true, waits: []place{{"small", "Store"}}, refused: true},
		"the pool does not take the stage":   {lent: true, change: func(_ *Runner, _ *claim.Item, done *claim.Done, _ func()) { done.Next = "Record" }, refused: true},
		"it is another provider's now":       {lent: true, change: func(_ *Runner, _ *claim.Item, done *claim.Done, _ func()) { done.StorageOption = "Glacier-OH" }, refused: true},
		"it needs more memory than there is": {change: func(_ *Runner, _ *claim.Item, done *claim.Done, _ func()) { done.MemoryNeed = 1 << 30 }, refused: true},
		"as much memory as there is":         {change: func(_ *Runner, _ *claim.Item, done *claim.Done, _ func()) { done.MemoryNeed = 1 << 20 }},
		"the step has no slot left":          {change: func(r *Runner, _ *claim.Item, _ *claim.Done, _ func()) { r.running["Store"] = 3 }, refused: true},
		"the step has one slot left":         {change: func(r *Runner, _ *claim.Item, _ *claim.Done, _ func()) { r.running["Store"] = 2 }},
		"the process is stopping":            {change: func(_ *Runner, _ *claim.Item, _ *claim.Done, stop func()) { stop() }, refused: true},
		"the item is at its end":             {change: func(_ *Runner, _ *claim.Item, done *claim.Done, _ func()) { done.Next = "" }, refused: true},
		"its next stage needs what fails": {change: func(r *Runner, _ *claim.Item, _ *claim.Done, _ func()) {
			r.breakers.byName["s3"] = &breaker{state: claim.ServiceFailing, scopes: []claim.Scope{{Steps: []string{"Store"}}}}
		}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, s, stop := slotOfOwn(t, tc.waits...)
			if tc.lent {
				s.of = r.options.Pools[1]
			}
			item, done := claim.Item{Action: "Ingest", Stage: "Receive"}, claim.Done{Next: "Store", StorageOption: "Standard"}
			if tc.change != nil {
				tc.change(r, &item, &done, stop)
			}
			before := r.running["Store"]
			if ok := r.enterNext(s, item, done); ok == tc.refused {
				t.Errorf("goes on: %v", ok)
			}
			if got := r.running["Store"] - before; (got == 1) == tc.refused {
				t.Errorf("%d slots of the step were reserved", got)
			}
		})
	}
}

// noHolds is a queue in which nobody holds a service.
type noHolds struct{ serviceBoard }

func (noHolds) ServiceHolds() []claim.ServiceHold { return nil }

// Where items wait, one slot at a time gives way to them: all others go on until its claim has looked,
// and then the next gives way if there are more.
func TestOneSlotAtATimeGivesWay(t *testing.T) {
	t.Parallel()
	r, s, _ := slotOfOwn(t, place{"own", "Record"})
	goesOn := func() bool {
		return r.enterNext(s, claim.Item{Action: "Ingest", Stage: "Receive"}, claim.Done{Next: "Store", StorageOption: "Standard"})
	}
	if first, second, third := goesOn(), goesOn(), goesOn(); first || !second || !third {
		t.Errorf("three slots go on: %v, %v, %v; the first is to give way", first, second, third)
	}
	r.looked(s.pool)
	if next := goesOn(); next {
		t.Error("the claim has left items, and no slot gives way to them")
	}
	r.looked(s.pool)
	s.pool.places.empty[place{"own", "Record"}] = true
	if next := goesOn(); !next {
		t.Error("the claim has left nothing, and a slot gives way")
	}
}

// slotOfOwn is a slot of the first of two pools. Items are known to wait at some places, and nowhere else.
func slotOfOwn(t *testing.T, waits ...place) (r *Runner, s *slot, stopClaiming func()) {
	t.Helper()
	own := Pool{Name: "own", Stages: []string{"Receive", "Store", "Record", "Restore Object"}, Slots: 4}
	small := Pool{Name: "small", Stages: []string{"Receive", "Store"}, Slots: 2, StorageOptions: []string{"Standard"}}
	r = &Runner{
		engine: &claim.Engine{}, steps: map[string]Step{}, running: map[string]int{"Receive": 1},
		options:  RunnerOptions{Memory: 1 << 20, StageSlots: map[string]int{"Store": 3}, Pools: []Pool{own, small}},
		breakers: &breakers{engine: noHolds{}, byName: map[string]*breaker{}},
	}
	for _, step := range []Step{{Action: "Ingest", Stage: "Receive"}, {Action: "Ingest", Stage: "Store"}, {Action: "Ingest", Stage: "Record"}, {Action: "Restore Object", Stage: "Requested"}} {
		r.steps[step.Name()] = step
		r.order = append(r.order, step.Name())
	}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	s = &slot{pool: newPoolRuns(r.options.Pools)[0], of: own, claiming: ctx}
	for _, p := range r.options.Pools {
		for _, step := range r.order {
			s.pool.places.empty[place{p.Name, step}] = !slices.Contains(waits, place{p.Name, step})
		}
	}
	return r, s, stop
}
