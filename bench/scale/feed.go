package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/retry"
)

// feed makes items of uploads, as the bucket reader does, so many a second.
type feed struct {
	farol, watch *pgxpool.Pool
	bags         mix
	rate         float64 // bags a second
	most         int     // bags that wait for a worker: no more are put then
}

const (
	feedEvery = 50 * time.Millisecond
	page      = 500 // items that are made at once
)

// run feeds until ctx is done.
func (f *feed) run(ctx context.Context) error {
	owed, last, n := 0.0, time.Now(), 0
	for retry.Pause(ctx, feedEvery) {
		now := time.Now()
		owed = min(owed+f.rate*now.Sub(last).Seconds(), max(f.rate, 1)) // what the workers cannot take is not made up for later
		last = now
		waiting, err := f.waiting(ctx)
		if err != nil {
			return ignoreEnd(ctx, err)
		}
		put := min(int(owed), page, f.most-waiting)
		if put <= 0 {
			continue
		}
		if err := f.put(ctx, n, put); err != nil {
			return ignoreEnd(ctx, err)
		}
		owed -= float64(put)
		n += put
	}
	return nil
}

func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// waiting counts the bags that wait for a worker, up to the most that may.
func (f *feed) waiting(ctx context.Context) (n int, err error) {
	err = f.watch.QueryRow(ctx, `
		SELECT count(*) FROM (SELECT FROM work_items WHERE status = 'Pending' AND retry AND stage = 'Receive' LIMIT $1) waiting`, f.most).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the bags that wait: %w", err)
	}
	return n, nil
}

func (f *feed) put(ctx context.Context, first, n int) error {
	sizes := make([]int64, n)
	for i := range sizes {
		sizes[i] = f.bags.draw()
	}
	_, err := f.farol.Exec(ctx, `
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT i.id, 'Ingest', 'Receive', 'bag-' || $1 + n || '.tar', i.receiving_bucket, repeat('e', 32), size, now()
		FROM unnest($2::bigint[]) WITH ORDINALITY AS bag (size, n)
		JOIN institutions i ON i.receiving_bucket = 'r' || 1 + ($1 + n) % $3`, int64(first), sizes, int64(institutions))
	if err != nil {
		return fmt.Errorf("make %d items: %w", n, err)
	}
	return nil
}

// newFeed offers what a share of the slots of so many workers could do.
func newFeed(ctx context.Context, s *servers, c config, pools []pipeline.Pool, bags mix, workers int) (*feed, error) {
	rate, slots := offer(pools, bags, c.durations)
	if rate == 0 {
		return nil, fmt.Errorf("no pool takes %s bags", bags.name)
	}
	db, err := dial.Connect(ctx, s.Stack.DatabaseURL, "scale-feed", func(p *pgxpool.Config) { p.MaxConns = 1 })
	if c.apart {
		rate /= float64(len(pools))
	}
	return &feed{farol: db, watch: s.DB, bags: bags, rate: c.load * rate * float64(workers), most: 4 * slots * workers}, err
}

// offer is how many bags a second one worker could do if its stages were never without work, and
// how many slots it has for their first. The pool whose bags take longest is what limits it.
func offer(pools []pipeline.Pool, bags mix, d durations) (rate float64, slots int) {
	for _, p := range pools {
		busy := bags.time(d, p.MinSize, p.MaxSize, p.Stages).Seconds()
		if busy == 0 {
			continue
		}
		if slices.Contains(p.Stages, string(registry.Receive)) {
			slots += p.Slots
		}
		if r := float64(p.Slots) / busy; rate == 0 || r < rate {
			rate = r
		}
	}
	return rate, slots
}

// crew are the workers of a run, each a process of its own.
type crew []*rig.Child

// startCrew starts workers one after the other, as a deployment does: each connects ten times, and
// a database that is asked for hundreds of connections at once answers none in time.
func startCrew(n int, of func(i int) orders) (c crew, err error) {
	for i := range n {
		worker, err := rig.StartChild(of(i), "scale", workerCommand)
		if worker != nil {
			c = append(c, worker)
		}
		if err == nil {
			_, err = ask(worker)
		}
		if err != nil {
			return c, fmt.Errorf("start a worker: %w", err)
		}
	}
	return c, nil
}

// counts adds up what the workers have done so far.
func (c crew) counts() (sum counts, err error) {
	for _, worker := range c {
		one, err := ask(worker)
		if err != nil {
			return sum, err
		}
		sum.add(one)
	}
	return sum, nil
}

// ask is what a worker has done so far, once it is ready. It answers at once, or has ended.
func ask(worker *rig.Child) (c counts, err error) {
	if err := worker.Tell(""); err != nil {
		return c, err
	}
	line, err := worker.Hear()
	if err == nil {
		err = json.Unmarshal([]byte(line), &c)
	}
	return c, err
}

// stopTime is how long a worker may take to give back its items.
const stopTime = 30 * time.Second

// stop stops all workers and waits for them.
func (c crew) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	errs := make([]error, len(c))
	var all sync.WaitGroup
	for i, worker := range c {
		all.Go(func() { errs[i] = worker.Stop(ctx) })
	}
	all.Wait()
	return errors.Join(errs...)
}
