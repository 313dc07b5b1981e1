package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// clean is how many windows go by before the snapshot is taken; the last of them
// is what the others are compared with.
const clean = 2

// window is a part of a run with a pinned snapshot.
type window struct {
	Pinned  bool    `json:"pinned"`
	Offered float64 `json:"offered_per_second"` // hops
	Done    float64 `json:"done_per_second"`    // hops
	Backlog int64   `json:"backlog"`            // hops offered and not done at its end
	P50     float64 `json:"claim_p50_ms"`
	P99     float64 `json:"claim_p99_ms"`
}

// pinned offers hops at a pace while a transaction holds a snapshot, as a dump or
// a report does: vacuum can then remove no version of a row that is newer. It is
// measured once, whatever the number of repetitions, since it takes so long.
func (b *bench) pinned(ctx context.Context) {
	var cells []*result
	for _, c := range b.systems {
		if !c.pinned {
			continue
		}
		l := load{Workers: cmp.Or(c.widest, 64), Drain: true}
		if c.batches {
			l = load{Workers: 8, Batch: 100, Drain: true}
		}
		cells = append(cells, &result{Workload: "pinned", System: c.name, Durable: c.durable, Load: l, entry: c})
	}
	b.rounds(ctx, cells, 1, b.pinnedOnce)
}

func (b *bench) pinnedOnce(ctx context.Context, c *result) (f figures, err error) {
	if err := b.fill(ctx, c, 0, 1); err != nil {
		return f, err
	}
	t := newTally(0)
	w := b.work(ctx, c, t)
	defer func() { err = errors.Join(err, w.halt()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var offered atomic.Int64
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		cancel(b.feed(ctx, c, &offered))
	}()
	defer func() {
		cancel(nil)
		<-fed
	}()
	release := func() error { return nil }
	defer func() { err = errors.Join(err, release()) }()
	began := time.Now()
	for i := range clean + max(1, int(b.config.pin/b.config.window)) {
		if i == clean {
			if release, err = b.servers.pin(ctx); err != nil {
				return f, err
			}
		}
		seen, err := b.observe(ctx, t, w, &offered)
		if err != nil {
			return f, err
		}
		seen.Pinned = i >= clean
		f.Windows = append(f.Windows, seen)
	}
	f.Hops, f.Seconds = t.hops.Load(), time.Since(began).Seconds()
	return f, nil
}

// feed puts items at a pace until ctx ends, and catches up after a delay.
func (b *bench) feed(ctx context.Context, c *result, offered *atomic.Int64) error {
	const most = 500 // items a statement
	hops := c.entry.hopsPerItem()
	perSecond := float64(b.config.rate) / float64(hops)
	began, put := time.Now(), 0
	for pause(ctx, 10*time.Millisecond) {
		due := min(int(time.Since(began).Seconds()*perSecond)-put, most)
		if due <= 0 {
			continue
		}
		if err := c.entry.put(ctx, due); err != nil {
			return fmt.Errorf("offer items: %w", err)
		}
		put += due
		offered.Add(int64(due * hops))
	}
	return nil
}

// observe lets a window go by.
func (b *bench) observe(ctx context.Context, t *tally, w *work, offered *atomic.Int64) (seen window, err error) {
	t.latencies()
	began, done, put := time.Now(), t.hops.Load(), offered.Load()
	select {
	case <-w.ended:
		return seen, errors.Join(errors.New("it ended while items were offered"), w.err)
	case <-time.After(b.config.window):
	case <-ctx.Done():
		return seen, context.Cause(ctx)
	}
	took := time.Since(began).Seconds()
	seen.Offered = float64(offered.Load()-put) / took
	seen.Done = float64(t.hops.Load()-done) / took
	seen.Backlog = max(0, offered.Load()-t.hops.Load())
	seen.P50, seen.P99 = quantiles(t.latencies())
	return seen, nil
}

// pin takes a snapshot and holds it until it is released.
func (s *servers) pin(ctx context.Context) (release func() error, err error) {
	conn, err := pgx.Connect(ctx, s.Stack.AdminURL)
	if err != nil {
		return nil, fmt.Errorf("connect to pin a snapshot: %w", err)
	}
	release = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return conn.Close(ctx)
	}
	if _, err := conn.Exec(ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class`); err != nil {
		return nil, errors.Join(fmt.Errorf("pin a snapshot: %w", err), release())
	}
	return release, nil
}
