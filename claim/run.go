package claim

import (
	"context"
	"sync"
	"time"
)

// How often a process does what no single item needs.
const (
	settingsEvery = 5 * time.Second
	servedEvery   = time.Second
	tidyEvery     = time.Minute
	archiveEvery  = 10 * time.Minute
	archiveMost   = 1000
)

// Run keeps the process's leases alive, ends those of workers that died, listens
// for new work, and clears away what is over, until ctx is done. It returns only
// then. Trouble with the database is logged and waited out.
func (e *Engine) Run(ctx context.Context) error {
	recorder, err := newRecorder(e.self.worker)
	if err != nil {
		e.log.WarnContext(ctx, "should this worker die, the file in hand will not be known", "err", err)
	}
	e.mu.Lock()
	e.recorder = recorder
	for slot := range recorderSlots {
		e.slots = append(e.slots, slot)
	}
	e.mu.Unlock()

	var group sync.WaitGroup
	if e.deaf {
		e.log.WarnContext(ctx, "not listening: the database is reached through a pooler only; work is found by polling", "poll", e.options.Poll)
	} else {
		group.Go(func() { e.listen(ctx) })
	}
	group.Go(func() { e.announce(ctx) })
	group.Go(func() { e.beatForEver(ctx) })
	group.Go(func() { e.lookUpForEver(ctx) })
	upkeep := func(every time.Duration, what string, do func(context.Context) error) {
		group.Go(func() { e.every(ctx, every, what, do) })
	}
	upkeep(e.known.Load().shortestLease()/6, "reaper", func(ctx context.Context) error {
		_, err := e.Reap(ctx)
		return err
	})
	upkeep(settingsEvery, "settings", e.readSettings)
	upkeep(settingsEvery, "overdue priorities", e.lookForOverdue)
	upkeep(servedEvery, "turns", e.tellServed)
	upkeep(tidyEvery, "tidying", e.store.tidy)
	group.Go(func() { e.clampForEver(ctx) })
	if e.options.Archive > 0 {
		upkeep(archiveEvery, "archive", func(ctx context.Context) error {
			_, err := e.Archive(ctx, e.options.Archive)
			return err
		})
	}
	group.Wait()
	e.signOff(ctx)
	return nil
}

// signOff says that the process ends as it should. Nothing is lost if it cannot.
func (e *Engine) signOff(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := e.store.leave(ctx, e.self.worker); err != nil {
		e.log.WarnContext(ctx, "not signed off, this worker will be found gone", "err", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.recorder.close()
	e.recorder, e.slots = nil, nil
}

// Archive moves items that ended longer ago than after to the archive, together
// with their attempts, and returns how many. It stops at an hour's worth.
func (e *Engine) Archive(ctx context.Context, after time.Duration) (n int, err error) {
	for range 100 {
		moved, err := e.store.archive(ctx, after, archiveMost)
		n += moved
		if err != nil || moved < archiveMost {
			return n, err
		}
	}
	return n, nil
}

// every calls do at once and then about once in d, each call with a deadline.
func (e *Engine) every(ctx context.Context, d time.Duration, what string, do func(context.Context) error) {
	for first := true; first || pause(ctx, d*9/10+e.jitter(d/10+1)); first = false {
		call, cancel := context.WithTimeout(ctx, max(d, statementTime))
		err := do(call)
		cancel()
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "queue upkeep will be tried again", "what", what, "err", err)
		}
	}
}

// pause waits for d and tells whether ctx lasted as long.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
