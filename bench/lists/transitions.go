package lists

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/retry"
)

const (
	hopWorkers = 8
	hopBatch   = 10
)

// transitions measures what the lists cost the queue: workers that do all that they can, and
// workers that do half of it, as where the machine is not the limit.
func (m *measurement) transitions(ctx context.Context) error {
	db, err := dial.Connect(ctx, m.Stack.DatabaseURL, "lists-hops")
	if err != nil {
		return err
	}
	defer db.Close()
	engine, err := claim.New(ctx, db, claim.DefaultOptions())
	if err != nil {
		return err
	}
	defer engine.Close()
	most, err := hopping(ctx, engine, m.config.round(), 0) // until the caches are warm
	if err != nil {
		return err
	}
	before, err := m.ended(ctx)
	if err != nil {
		return err
	}
	queue := &queued{measurement: m, engine: engine}
	full, err := queue.pairs(ctx, 0)
	if err != nil {
		return err
	}
	half, err := queue.pairs(ctx, float64(most)/m.config.round().Seconds()/2)
	if err != nil {
		return err
	}
	after, err := m.ended(ctx)
	if err != nil {
		return err
	}
	if after-before != queue.made {
		return fmt.Errorf("the ledger has %d transitions, and not %d", after-before, queue.made)
	}
	title := fmt.Sprintf("Transitions a second, %d workers that claim %d items, without and with %d lists a second (%d were read)", hopWorkers, hopBatch, m.config.rate, queue.requests)
	return printPairs(m.out, title, line{"as many as can be", full}, line{"half as many", half})
}

// queued is a queue in use, and what was done with it.
type queued struct {
	*measurement

	engine         *claim.Engine
	made, requests int
}

// pairs measures the queue without and with lists that are read. pace is how many transitions
// a second there are to be; 0: as many as can be.
func (q *queued) pairs(ctx context.Context, pace float64) ([]pair, error) {
	return q.measurement.pairs(ctx, func(with bool) (speed, error) {
		background, stop := context.WithCancel(ctx)
		defer stop()
		var group errgroup.Group
		if with {
			group.Go(func() error {
				n, err := q.background(background)
				q.requests += n
				return err
			})
		}
		v, err := q.speed(ctx, func() (int, error) {
			n, err := hopping(ctx, q.engine, q.config.round(), pace)
			q.made += n
			return n, err
		})
		stop()
		return v, errors.Join(err, group.Wait())
	})
}

// ended is how many attempts have ended, by the ledger.
func (m *measurement) ended(ctx context.Context) (n int, err error) {
	if err := m.DB.QueryRow(ctx, `SELECT count(*) FROM work_item_attempts WHERE outcome = 'done'`).Scan(&n); err != nil {
		return 0, fmt.Errorf("read the ledger: %w", err)
	}
	return n, nil
}

// hopping has workers take items from stage to stage for a while, and returns how many
// transitions there were. With a pace a worker that is ahead of it waits.
func hopping(ctx context.Context, engine *claim.Engine, d time.Duration, pace float64) (int, error) {
	began := time.Now()
	var n atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for i := range hopWorkers {
		group.Go(func() error {
			for round := i; time.Since(began) < d && ctx.Err() == nil; round++ {
				made, err := hop(ctx, engine, round)
				if err != nil {
					return err
				}
				if made == 0 {
					return errors.New("no item waits for a worker; name a larger -live")
				}
				n.Add(int64(made))
				if pace > 0 {
					due := began.Add(time.Duration(float64(n.Load()) / pace * float64(time.Second)))
					retry.Pause(ctx, time.Until(due))
				}
			}
			return context.Cause(ctx)
		})
	}
	err := group.Wait()
	return int(n.Load()), err
}

// hop claims items, first at one stage and then at the next ones, and ends them.
func hop(ctx context.Context, engine *claim.Engine, round int) (int, error) {
	stages := rig.Stages() // an item that has been through all begins again
	var wants []claim.Want
	for i := range stages {
		wants = append(wants, claim.Want{Stage: stages[(round+i)%len(stages)], Most: hopBatch})
	}
	items, err := engine.Claim(ctx, claim.Filter{Stages: wants}, hopBatch)
	if err != nil {
		return 0, err
	}
	ends := make([]claim.Ending, len(items))
	for i, item := range items {
		next := stages[(slices.Index(stages, item.Stage)+1)%len(stages)]
		ends[i] = claim.Ending{Item: item, Done: claim.Done{Next: next, Note: "Item is pending " + string(next)}}
	}
	return len(items), errors.Join(engine.Settle(ctx, ends)...)
}
