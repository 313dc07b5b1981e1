package queue

import (
	"cmp"
	"context"
	"errors"
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
