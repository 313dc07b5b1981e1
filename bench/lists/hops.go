package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
)

const (
	hopWorkers = 8
	hopBatch   = 10
)

// order are the stages of an ingest. Here an item that has been through all begins again.
func order() []registry.Stage {
	return []registry.Stage{
		"Receive", "Validate", "Reingest Check", "Copy To Staging", "Format Identification", "Store", "Storage Validation", "Record", "Cleanup",
	}
}

// hops measures what the lists cost the queue.
func (m *measurement) hops(ctx context.Context) error {
	db, err := registry.Connect(ctx, m.stack.DatabaseURL, "lists-hops")
	if err != nil {
		return err
	}
	defer db.Close()
	engine, err := claim.New(ctx, db, claim.DefaultOptions())
	if err != nil {
		return err
	}
	defer engine.Close()
	if _, err := hopping(ctx, engine, m.config.round()); err != nil { // until the caches are warm
		return err
	}
	requests := 0
	list, err := m.pairs(func(_ int, with bool) (rate float64, err error) {
		if _, err := m.db.Exec(ctx, `CHECKPOINT`); err != nil { // all pay alike for the whole pages that follow one
			return 0, fmt.Errorf("write a checkpoint: %w", err)
		}
		background, stop := context.WithCancel(ctx)
		defer stop()
		var group errgroup.Group
		if with {
			group.Go(func() error {
				n, err := m.background(background)
				requests += n
				return err
			})
		}
		rate, err = hopping(ctx, engine, m.config.round())
		stop()
		return rate, errors.Join(err, group.Wait())
	})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(m.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "Transitions a second, %d workers that claim %d items, without and with %d lists a second (%d were read)\n", hopWorkers, hopBatch, m.config.rate, requests)
	fmt.Fprint(w, "\twithout\twith\tfall, median\tleast\tmost\t\n")
	printPairs(w, "transitions", list)
	fmt.Fprintln(w)
	return flushed(w)
}

// hopping has workers take items from stage to stage for a while, and returns how many
// transitions there were in a second.
func hopping(ctx context.Context, engine *claim.Engine, d time.Duration) (float64, error) {
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
			}
			return context.Cause(ctx)
		})
	}
	err := group.Wait()
	return float64(n.Load()) / time.Since(began).Seconds(), err
}

// hop claims items, first at one stage and then at the next ones, and ends them.
func hop(ctx context.Context, engine *claim.Engine, round int) (int, error) {
	stages := order()
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
