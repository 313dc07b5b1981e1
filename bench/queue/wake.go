package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// wake asks how long an item waits that comes to an idle queue.
func (b *bench) wake(ctx context.Context) {
	var cells []*result
	for _, c := range b.systems {
		if c.steady {
			continue
		}
		l := load{Workers: 8, Drain: true}
		if c.batches {
			l.Batch = 1
		}
		cells = append(cells, &result{Workload: "wake", System: c.name, Durable: c.durable, Load: l, entry: c})
	}
	b.rounds(ctx, cells, b.config.reps, b.wakeOnce)
}

// strangers are the first samples, which are not counted: connections are made
// and statements are prepared with them.
const strangers = 10

func (b *bench) wakeOnce(ctx context.Context, c *result) (f figures, err error) {
	if err := b.fill(ctx, c, 0, 1); err != nil {
		return f, err
	}
	t := newTally(0)
	t.taken = make(chan time.Time, 1)
	w := b.work(ctx, c, t)
	defer func() { err = errors.Join(err, w.halt()) }()
	began := time.Now()
	var waits []time.Duration
	for i := range strangers + b.config.samples {
		wait, err := b.wakeSample(ctx, c, t, w, int64(i+1))
		if err != nil {
			return f, err
		}
		if i >= strangers {
			waits = append(waits, wait)
		}
	}
	f = figures{Hops: t.hops.Load(), Seconds: time.Since(began).Seconds()}
	f.P50, f.P99 = quantiles(waits)
	return f, nil
}

// wakeSample puts an item and waits until it has left, so that the next one
// finds nobody at work.
func (b *bench) wakeSample(ctx context.Context, c *result, t *tally, w *work, nth int64) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	start := time.Now()
	if err := c.entry.put(ctx, 1); err != nil {
		return 0, err
	}
	var wait time.Duration
	select {
	case at := <-t.taken:
		wait = at.Sub(start)
	case <-w.ended:
		return 0, errors.Join(errors.New("it ended before an item was claimed"), w.err)
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for the claim of an item: %w", ctx.Err())
	}
	if err := t.await(ctx, nth*int64(c.entry.hopsPerItem())); err != nil {
		return 0, err
	}
	// By no beat that a poll could fall in with.
	pause(ctx, 5*time.Millisecond+rand.N(20*time.Millisecond))
	return wait, nil
}
