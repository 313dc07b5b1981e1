package queue

import (
	"context"
	"errors"
	"time"
)

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
