package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	// peersMost is the largest backlog that peers are measured at, unless theirs
	// takes too long to load.
	peersMost = 1_000_000
	// keptFrom is the backlog from which on it is loaded once for all cells of a
	// system in a round: a steady run leaves it as large as it was.
	keptFrom = 200_000
)

// steady keeps a backlog at its size: where an item leaves, a new one comes. The
// jobs of a system that burns them are loaded beforehand, as many as it may burn.
func (b *bench) steady(ctx context.Context) {
	for _, backlog := range b.config.backlogs {
		var cells []*result
		for _, c := range b.systems {
			if most := cmp.Or(c.most, peersMost); backlog > most {
				b.skip("%s is skipped at a backlog of %d: it is measured up to %d", c.name, backlog, most)
				continue
			}
			for _, l := range b.loads(c) {
				cells = append(cells, &result{Workload: "steady", System: c.name, Durable: c.durable, Backlog: backlog, Load: l, entry: c})
			}
		}
		b.rounds(ctx, cells, b.config.reps, b.steadyCell)
	}
}

func (b *bench) steadyCell(ctx context.Context, c *result) (f figures, err error) {
	if b.filled != c.entry.system {
		if err := b.fill(ctx, c, b.jobs(c), stages); err != nil {
			return f, err
		}
	}
	f, err = b.steadyOnce(ctx, c)
	b.filled = nil
	if err == nil && c.Backlog >= keptFrom && c.entry.burns == 0 {
		b.filled = c.entry.system
	}
	return f, err
}

// loads are the workers, and the items a claim where a client can choose.
func (b *bench) loads(c contender) (list []load) {
	for _, w := range b.config.workers {
		if !c.batches {
			list = append(list, load{Workers: w})
			continue
		}
		for _, k := range b.config.batches {
			list = append(list, load{Workers: w, Batch: k})
		}
	}
	if c.widest > 0 {
		list = append(list, load{Workers: c.widest})
	}
	return list
}

func (b *bench) jobs(c *result) int {
	return max(c.Backlog, int(float64(c.entry.burns)*(warmUp(b.config.dur)+b.config.dur).Seconds()))
}

func warmUp(dur time.Duration) time.Duration { return dur / 5 }

// steadyOnce measures a part of a run, after the system has come to its pace.
func (b *bench) steadyOnce(ctx context.Context, c *result) (f figures, err error) {
	t := newTally(0)
	if c.entry.burns > 0 {
		t = newTally(b.jobs(c))
	}
	w := b.work(ctx, c, t)
	defer func() { err = errors.Join(err, w.halt()) }()
	if err := w.until(ctx, t.begun, t, time.Minute, "the first hop"); err != nil {
		return f, err
	}
	pause(ctx, warmUp(b.config.dur))
	t.latencies()
	began, hops := time.Now(), t.hops.Load()
	before, err := b.servers.written(ctx)
	if err != nil {
		return f, err
	}
	deadline := make(chan struct{})
	timer := time.AfterFunc(b.config.dur, func() { close(deadline) })
	defer timer.Stop()
	if err := w.until(ctx, deadline, t, b.config.dur+time.Minute, "the time is over"); err != nil {
		return f, err
	}
	hops, took := t.hops.Load()-hops, time.Since(began)
	if dry := t.end(); !dry.IsZero() {
		took = dry.Sub(began)
	}
	after, err := b.servers.written(ctx)
	if err != nil {
		return f, err
	}
	if hops <= 0 || took <= 0 {
		return f, errors.New("not one hop was done while it was measured")
	}
	f = c.figures(hops, took, before, after)
	f.P50, f.P99 = quantiles(t.latencies())
	return f, nil
}

// drainLimit is how long a drain may take. The slowest peer does some hundred
// hops a second.
const drainLimit = 5 * time.Minute

// drain lets items go from the first stage to their end. It fails if one of them
// does not do exactly its nine hops.
func (b *bench) drain(ctx context.Context) {
	var cells []*result
	for _, c := range b.systems {
		if c.burns > 0 || c.steady {
			continue // nothing follows upon its jobs, or nothing new is to be seen
		}
		loads := []load{{Workers: 64, Drain: true}, {Workers: c.widest, Drain: true}}
		if c.batches {
			loads = []load{{Workers: 64, Batch: 1, Drain: true}, {Workers: 8, Batch: 100, Drain: true}}
		}
		for _, l := range loads {
			if l.Workers == 0 {
				continue
			}
			cells = append(cells, &result{Workload: "drain", System: c.name, Durable: c.durable, Backlog: b.config.items, Load: l, entry: c})
		}
	}
	b.rounds(ctx, cells, b.config.reps, b.drainOnce)
}

func (b *bench) drainOnce(ctx context.Context, c *result) (f figures, err error) {
	n := b.config.items
	if err := b.fill(ctx, c, n, 1); err != nil {
		return f, err
	}
	before, err := b.servers.written(ctx)
	if err != nil {
		return f, err
	}
	t := newDrainTally(n)
	w := b.work(ctx, c, t)
	err = w.until(ctx, nil, t, drainLimit, "the last hop")
	if err := errors.Join(err, w.halt()); err != nil {
		return f, errors.Join(err, t.drained())
	}
	after, err := b.servers.written(ctx)
	if err != nil {
		return f, err
	}
	f = c.figures(t.hops.Load(), t.span(), before, after)
	f.P50, f.P99 = quantiles(t.latencies())
	if v, ok := c.entry.system.(verifier); ok {
		err = v.verify(ctx, n)
	}
	return f, errors.Join(err, t.drained())
}

// figures are those of a time in which hops were done and so much was written.
func (r *result) figures(hops int64, took time.Duration, before, after written) figures {
	f := figures{Hops: hops, Seconds: took.Seconds()}
	if r.entry.postgres {
		f.Commits, f.WAL = after.commits-before.commits, after.wal-before.wal
	}
	return f
}

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
