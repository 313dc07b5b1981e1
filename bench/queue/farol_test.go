package queue

import (
	"slices"
	"testing"

	"github.com/farol-preservation/farol/bench/rig"
)

// The worker that begins at a stage prefers it, and still sees all of the others.
func TestWantsGoRoundAllStages(t *testing.T) {
	t.Parallel()
	for round := range 2 * stages {
		var names []string
		for _, w := range wants(round, 10) {
			names = append(names, string(w.Stage))
		}
		if names[0] != string(rig.Stages()[round%stages]) {
			t.Errorf("round %d begins with %s", round, names[0])
		}
		slices.Sort(names)
		if n := len(slices.Compact(names)); n != stages {
			t.Errorf("round %d has %d stages", round, n)
		}
	}
}
