package claim

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/line"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/claim/wake"
	"github.com/farol-preservation/farol/retry"
)

// noticeStore is how processes learn of each other's work: see [line.Notices].
type noticeStore interface {
	Announce(ctx context.Context, payload string) error
	Listen(ctx context.Context, e line.Ears) error
	Due(ctx context.Context) ([]cursor.Place, error)
}

// notices bring pools the news that there is work: from other processes by
// notifications, and from the queue itself by polling.
type notices struct {
	*core

	store   noticeStore
	polls   wake.Polls
	changed chan struct{} // gets a value when settings have changed
}

// wakes is [Engine.Wakes].
func (n *notices) wakes(ctx context.Context, filters []Filter) (*wake.Waiter, func()) {
	c, forget := n.wake.Wait(n.takes(filters))
	ctx, cancel := context.WithCancel(ctx)
	var polling sync.WaitGroup
	polling.Go(func() { n.poll(ctx) })
	return c, func() {
		forget()
		cancel()
		polling.Wait()
	}
}

// takes is [Engine.Takes]. No filter takes all.
func (n *notices) takes(filters []Filter) func(cursor.Partition) bool {
	return func(p cursor.Partition) bool { return anyTakes(n.settings.Load(), filters, p) }
}

// anyTakes reports whether one of the filters takes items of a partition, as far as its stage
// and size band tell. No filter takes all.
func anyTakes(known *stages.All, filters []Filter, p cursor.Partition) bool {
	return len(filters) == 0 || slices.ContainsFunc(filters, func(f Filter) bool {
		return (p.Stage == "" || slices.ContainsFunc(f.Stages, func(w Want) bool { return w.Stage == p.Stage })) &&
			(p.Band == wake.AnyBand || slices.Contains(known.BandsWithin(f.MinSize, f.MaxSize), p.Band))
	})
}

// poll wakes the pools for which something may be due, at about every poll interval, until ctx is
// done. Of those who wait in a process one asks for all, with one statement: a pool
// claims with a statement for each action, and most find nothing.
func (n *notices) poll(ctx context.Context) {
	while := func() time.Duration { return n.options.Poll/2 + n.jitter(n.options.Poll) }
	for {
		if !retry.Pause(ctx, n.polls.Wait(while())) {
			return
		}
		if !n.polls.Mine(while()) {
			continue
		}
		n.look(ctx)
	}
}

// look wakes the pools that take what is due. If that is not known, all claim, and log what is wrong.
func (n *notices) look(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	places, err := n.store.Due(call)
	if err != nil {
		n.polls.Found(true, false)
		n.wake.Ring()
		return
	}
	n.polls.Found(len(places) > 0, n.wake.Found(places))
}

// announceEvery bounds how often a process notifies others of new work.
const announceEvery = 10 * time.Millisecond

// announce notifies other processes, outside of any item's transaction and at most
// once in announceEvery, where there is new work.
func (n *notices) announce(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.wake.Pending():
		}
		call, cancel := context.WithTimeout(ctx, statementTime)
		err := n.store.Announce(call, n.wake.Notice(n.self.worker))
		cancel()
		if err != nil && ctx.Err() == nil {
			n.log.WarnContext(ctx, "NOTIFY failed; other workers will find the items at their next poll", "err", err)
		}
		if !retry.Pause(ctx, announceEvery) {
			return
		}
	}
}

// listen receives notices of work that other processes made, and of changed settings.
// When its connection breaks, it connects again; until then polling finds the work.
func (n *notices) listen(ctx context.Context) {
	e := line.Ears{Waits: n.wake.Waits, Turned: n.wake.Turned(), Heard: func(channel, payload string) {
		if channel == line.Work {
			n.wake.Receive(n.self.worker, payload)
		} else {
			wake.Signal(n.changed)
		}
	}}
	// What was sent before this process listened was not received.
	e.Begun = func() {
		n.wake.Reset("")
		n.wake.Ring()
	}
	if len(n.self.pools) > len("[]") { // others may have the same pools
		e.Line, e.Begun = string(n.self.pools), func() { n.look(ctx) }
	}
	for ctx.Err() == nil {
		err := n.store.Listen(ctx, e)
		if err != nil && ctx.Err() == nil {
			n.log.WarnContext(ctx, "LISTEN failed; connecting again, and polling for work until then", "err", err)
		}
		retry.Pause(ctx, time.Second)
	}
}
