package pipeline

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/claim"
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
// pool was woken for it, and does not ask where it has found nothing.
func TestPoolAsksWhereSomethingMayLie(t *testing.T) {
	t.Parallel()
	stages := []registry.Stage{"Receive", "Store", "Record"}
	rapid.Check(t, func(t *rapid.T) {
		pool := Pool{Name: "all"}
		p := newPoolRuns([]Pool{pool})[0]
		lies := map[registry.Stage]int{}
		known := map[registry.Stage]bool{} // to be empty
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if stage := rapid.SampledFrom(append(stages, "")).Draw(t, "put"); stage != "" {
				lies[stage] += rapid.IntRange(0, 3).Draw(t, "items")
				p.hear([]registry.Stage{stage}, func(step string) registry.Stage { return registry.Stage(step) })
				delete(known, stage)
			}
			if rapid.IntRange(0, 9).Draw(t, "poll") == 0 {
				p.hear([]registry.Stage{""}, func(step string) registry.Stage { return registry.Stage(step) })
				clear(known)
			}
			n := rapid.IntRange(1, 5).Draw(t, "slots")
			var wants []claim.Want
			for _, s := range stages {
				wants = append(wants, claim.Want{Stage: s, Most: rapid.IntRange(0, n).Draw(t, "most")})
			}
			asked, some := p.worth(pool, registry.Ingest, wants)
			var got []claim.Item
			for i, w := range asked {
				if w.Most < wants[i].Most && lies[w.Stage] > 0 {
					t.Fatalf("%d items lie at %s, and %d are asked for where there are slots for %d", lies[w.Stage], w.Stage, w.Most, wants[i].Most)
				}
				if w.Most > 0 && (known[w.Stage] || !some) {
					t.Fatalf("it asks at %s, where it has found nothing; any %v", w.Stage, some)
				}
				for range min(w.Most, lies[w.Stage], n-len(got)) {
					got = append(got, claim.Item{Action: registry.Ingest, Stage: w.Stage})
					lies[w.Stage]--
				}
			}
			p.found(pool, registry.Ingest, asked, n, got)
			if len(got) == 0 {
				for _, w := range asked {
					known[w.Stage] = known[w.Stage] || w.Most > 0
				}
			}
		}
	})
}
