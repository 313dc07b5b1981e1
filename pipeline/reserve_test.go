package pipeline

import (
	"fmt"
	"testing"
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
