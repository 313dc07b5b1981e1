package queue

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A system that loses an item, or does a hop twice, must not get a figure.
func TestDrainFailsUnlessEachItemDoesEachHopOnce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		hop  func(t *tally, item, stage int)
		ok   bool
	}{
		{"each once", func(t *tally, item, stage int) { t.hop(item, stage) }, true},
		{"one twice, another not", func(t *tally, item, stage int) {
			if item == 1 && stage == 4 {
				item = 0
			}
			t.hop(item, stage)
		}, false},
		{"one twice besides all others", func(t *tally, item, stage int) {
			t.hop(item, stage)
			if item == 1 && stage == 8 {
				t.hop(item, stage)
			}
		}, false},
		{"one of a stranger", func(t *tally, item, stage int) {
			if item == 1 && stage == 4 {
				item = 7
			}
			t.hop(item, stage)
		}, false},
	} {
		drain := newDrainTally(2)
		for stage := range stages {
			for item := range 2 {
				test.hop(drain, item, stage)
			}
		}
		if !drain.over() {
			t.Errorf("%s: it is not over", test.name)
		}
		if err := drain.drained(); (err == nil) != test.ok {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestDrainThatIsNotAtItsEndIsAnError(t *testing.T) {
	t.Parallel()
	drain := newDrainTally(1)
	for stage := range stages - 1 {
		drain.hop(0, stage)
	}
	if err := drain.drained(); drain.over() || err == nil {
		t.Errorf("over: %v; %v", drain.over(), err)
	}
}

// Without a deadline, a system that loses an item would stop the whole run.
func TestAwaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	steady := newTally(0)
	steady.add(1)
	if err := steady.await(ctx, 1); err != nil {
		t.Errorf("one of one: %v", err)
	}
	if err := steady.await(ctx, 2); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one of two: %v", err)
	}
}

func TestQuantilesAreOfAllClaimsSinceTheLastLook(t *testing.T) {
	t.Parallel()
	steady := newTally(0)
	for i := range 100 {
		steady.took(time.Duration(100-i) * time.Millisecond)
	}
	if p50, p99 := quantiles(steady.latencies()); p50 != 51 || p99 != 100 {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
	if left := steady.latencies(); len(left) != 0 {
		t.Errorf("%d claims are reported twice", len(left))
	}
}
