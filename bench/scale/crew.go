package scale

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/farol-preservation/farol/bench/rig"
)

// crew are the workers of a run, each a process of its own.
type crew []*rig.Child

// startCrew starts workers one after the other, as a deployment does: each connects ten times, and
// a database that is asked for hundreds of connections at once answers none in time.
func startCrew(n int, o orders) (c crew, err error) {
	for range n {
		worker, err := rig.StartChild(o, "scale", workerCommand)
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
