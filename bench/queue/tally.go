package queue

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// tally is what a system at work tells of it. It is safe for concurrent use.
type tally struct {
	begun chan struct{} // closed at the first claim or hop
	done  chan struct{} // closed when all hops are done that were wanted
	want  int64         // hops; 0: without end
	seen  []atomic.Uint32
	moved chan struct{}  // a token after each hop, for await
	taken chan time.Time // if set: when each item was claimed at the first stage

	hops      atomic.Int64
	beginOnce sync.Once
	doneOnce  sync.Once

	mu      sync.Mutex
	beganAt time.Time
	doneAt  time.Time
	claims  []time.Duration
	fault   error
}

// newTally counts hops until want of them are done; 0 is without end.
func newTally(want int) *tally {
	return &tally{
		begun: make(chan struct{}), done: make(chan struct{}), moved: make(chan struct{}, 1), want: int64(want),
	}
}

// newDrainTally also checks that each of n items does every hop once.
func newDrainTally(n int) *tally {
	t := newTally(n * stages)
	t.seen = make([]atomic.Uint32, n)
	return t
}

// over tells whether a worker may go home.
func (t *tally) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

func (t *tally) begin(at time.Time) {
	t.beginOnce.Do(func() {
		t.mu.Lock()
		t.beganAt = at
		t.mu.Unlock()
		close(t.begun)
	})
}

// claimed records a claim that began then and has now returned with work.
func (t *tally) claimed(began time.Time) {
	t.begin(began)
	t.took(time.Since(began))
}

func (t *tally) took(d time.Duration) {
	t.mu.Lock()
	t.claims = append(t.claims, d)
	t.mu.Unlock()
}

// inHand says that a worker has got an item at a stage just now.
func (t *tally) inHand(stage int) {
	if t.taken == nil || stage != 0 {
		return
	}
	select {
	case t.taken <- time.Now():
	default: // nobody waits for it
	}
}

// hop counts a hop of an item out of a stage.
func (t *tally) hop(item, stage int) {
	if t.seen != nil {
		t.see(item, stage)
	}
	t.add(1)
}

func (t *tally) see(item, stage int) {
	switch {
	case item < 0 || item >= len(t.seen) || stage < 0 || stage >= stages:
		t.blame(fmt.Errorf("a hop of item %d out of stage %d, which there is not", item, stage))
	case t.seen[item].Or(1<<stage)&(1<<stage) != 0:
		t.blame(fmt.Errorf("item %d left stage %d twice", item, stage))
	}
}

// add counts n hops of which the system does not say whose they are.
func (t *tally) add(n int) {
	if n == 0 {
		return
	}
	now := time.Now()
	t.begin(now)
	if sum := t.hops.Add(int64(n)); t.want > 0 && sum >= t.want {
		t.doneOnce.Do(func() {
			t.mu.Lock()
			t.doneAt = now
			t.mu.Unlock()
			close(t.done)
		})
	}
	select {
	case t.moved <- struct{}{}:
	default:
	}
}

func (t *tally) blame(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fault == nil {
		t.fault = err
	}
}

// await returns when n hops are done. Only one may wait.
func (t *tally) await(ctx context.Context, n int64) error {
	for t.hops.Load() < n {
		select {
		case <-t.moved:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d hops, of which %d came: %w", n, t.hops.Load(), context.Cause(ctx))
		}
	}
	return nil
}

// drained tells what is wrong with a drain that has come to its end, if anything.
func (t *tally) drained() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fault != nil {
		return t.fault
	}
	for item := range t.seen {
		if mask := t.seen[item].Load(); mask != 1<<stages-1 {
			return fmt.Errorf("item %d did not leave all of the %d stages: %09b", item, stages, mask)
		}
	}
	if n := t.hops.Load(); n != t.want {
		return fmt.Errorf("%d hops instead of %d", n, t.want)
	}
	return nil
}

// span is how long a drain took, from the first claim to the last hop.
func (t *tally) span() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.doneAt.Sub(t.beganAt)
}

// end is when the last hop was done that was wanted; zero if it has not been.
func (t *tally) end() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.doneAt
}

// latencies returns the claims since it was last called, and forgets them.
func (t *tally) latencies() []time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.claims
	t.claims = nil
	return list
}

// quantiles are the median and the 99th percentile in milliseconds.
func quantiles(list []time.Duration) (p50, p99 float64) {
	if len(list) == 0 {
		return 0, 0
	}
	list = slices.Sorted(slices.Values(list))
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return ms(list[len(list)/2]), ms(list[len(list)*99/100])
}
