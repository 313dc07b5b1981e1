package claim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/claim/wake"
	"github.com/farol-preservation/farol/retry"
)

// noticeStore is how processes learn of each other's work.
type noticeStore interface {
	// announce sends a notice to all processes.
	announce(ctx context.Context, payload string) error
	// listen receives notices until ctx is done or the connection breaks.
	listen(ctx context.Context, e ears) error
	// due lists where a claim may find items now: of each partition the place of the first, or
	// [cursor.End] where it is not known.
	due(ctx context.Context) ([]cursor.Place, error)
}

// ears are how a process receives notices.
type ears struct {
	// line is what some processes have in common; one at a time is notified of new work. "": this
	// one always is. Each notice that all of them received would have all of them claim.
	line   string
	waits  func() bool     // new work is for this process, see [wake.Board.Waits]
	turned <-chan struct{} // gets a value when waits may have another answer

	begun func()                        // is called when it is notified of new work from now on
	heard func(channel, payload string) // is called with each notice
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
	places, err := n.store.due(call)
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
		err := n.store.announce(call, n.wake.Notice(n.self.worker))
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
	e := ears{waits: n.wake.Waits, turned: n.wake.Turned(), heard: func(channel, payload string) {
		if channel == workChannel {
			n.wake.Receive(n.self.worker, payload)
		} else {
			wake.Signal(n.changed)
		}
	}}
	// What was sent before this process listened was not received.
	e.begun = func() {
		n.wake.Reset("")
		n.wake.Ring()
	}
	if n.self.inLine() {
		e.line, e.begun = string(n.self.pools), func() { n.look(ctx) }
	}
	for ctx.Err() == nil {
		err := n.store.listen(ctx, e)
		if err != nil && ctx.Err() == nil {
			n.log.WarnContext(ctx, "LISTEN failed; connecting again, and polling for work until then", "err", err)
		}
		retry.Pause(ctx, time.Second)
	}
}

// mostPolled bounds what a poll reads of a partition: with as many items waiting, pools claim.
const mostPolled = 100

func (p *postgres) due(ctx context.Context) (list []cursor.Place, err error) {
	rows, _ := p.upkeep.Query(ctx, dueSQL, mostPolled)
	var at cursor.Partition
	var priority *int16
	var start *int64
	_, err = pgx.ForEachRow(rows, []any{&at.Stage, &at.Band, &priority, &start}, func() error {
		place := cursor.Place{Partition: at, Position: cursor.End()}
		if priority != nil {
			place.Position = cursor.Position{Priority: *priority, VirtualStart: *start}
		}
		list = append(list, place)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look what is due: %w", err)
	}
	return list, nil
}

// Channels on which processes notify each other.
const (
	workChannel     = "farol_work"     // of work: the sender, then a line for each place in which items were put
	settingsChannel = "farol_settings" // of changed settings, and of workers that are asked to stop
)

// announce waits for no disk: a notice does not outlive a crash anyway.
func (p *postgres) announce(ctx context.Context, payload string) error {
	if _, err := p.upkeep.Exec(ctx, `SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)`, workChannel, payload); err != nil {
		return fmt.Errorf("notify other workers: %w", err)
	}
	return nil
}
