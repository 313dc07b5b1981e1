package claim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/claim/wake"
	"github.com/farol-preservation/farol/retry"
)

// noticeStore is how processes learn of each other's work.
type noticeStore interface {
	// announce sends a notice to all processes.
	announce(ctx context.Context, payload string) error
	// listen receives notices until ctx is done or the connection breaks. received is
	// called with "" once when listening begins.
	listen(ctx context.Context, received func(channel, payload string)) error
	// mayBeDue reports whether any claim may find an item now.
	mayBeDue(ctx context.Context) (bool, error)
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
	c, forget := n.wake.Wait(func(p cursor.Partition) bool { return anyTakes(n.settings.Load(), filters, p) })
	ctx, cancel := context.WithCancel(ctx)
	var polling sync.WaitGroup
	polling.Go(func() { n.poll(ctx) })
	return c, func() {
		forget()
		cancel()
		polling.Wait()
	}
}

// anyTakes reports whether one of the filters takes items of a partition, as far as its stage
// and size band tell. No filter takes all.
func anyTakes(known *stages.All, filters []Filter, p cursor.Partition) bool {
	return len(filters) == 0 || slices.ContainsFunc(filters, func(f Filter) bool {
		return (p.Stage == "" || slices.ContainsFunc(f.Stages, func(w Want) bool { return w.Stage == p.Stage })) &&
			(p.Band == wake.AnyBand || slices.Contains(known.BandsWithin(f.MinSize, f.MaxSize), p.Band))
	})
}

// poll wakes all pools at about every poll interval if anything may be due, until ctx is
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
		due := n.mayBeDue(ctx)
		if n.polls.Found(due); due {
			n.wake.Ring()
		}
	}
}

// mayBeDue reports whether a claim may find anything. If the answer is unknown, the worker
// claims, and logs what is wrong.
func (n *notices) mayBeDue(ctx context.Context) bool {
	call, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	due, err := n.store.mayBeDue(call)
	return due || err != nil
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
	for ctx.Err() == nil {
		err := n.store.listen(ctx, func(channel, payload string) {
			switch channel {
			case workChannel:
				n.wake.Receive(n.self.worker, payload)
			case settingsChannel:
				wake.Signal(n.changed)
			default: // what was sent before we listened was not received
				n.wake.Reset("")
				n.wake.Ring()
			}
		})
		if err != nil && ctx.Err() == nil {
			n.log.WarnContext(ctx, "LISTEN failed; connecting again, and polling for work until then", "err", err)
		}
		retry.Pause(ctx, time.Second)
	}
}

// mostPolled bounds what a poll reads: with as many items waiting, pools claim.
const mostPolled = 1000

func (p *postgres) mayBeDue(ctx context.Context) (due bool, err error) {
	if err := p.upkeep.QueryRow(ctx, dueSQL, mostPolled).Scan(&due); err != nil {
		return false, fmt.Errorf("check whether an item is due: %w", err)
	}
	return due, nil
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

// listenTime is how long a listener may receive nothing before it checks its connection:
// the node may be gone, or be a standby by now.
const listenTime = 10 * time.Second

// listen keeps one connection of its own and reads it always: one that is not
// read holds up the notices of everyone.
func (p *postgres) listen(ctx context.Context, received func(channel, payload string)) error {
	conn, err := pgx.ConnectConfig(ctx, p.direct)
	if err != nil {
		return fmt.Errorf("connect to listen: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing depends on how a listener ends
	if _, err := conn.Exec(ctx, "LISTEN "+workChannel+"; LISTEN "+settingsChannel); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	received("", "")
	for {
		n, err := p.next(ctx, conn)
		switch {
		case err != nil:
			return fmt.Errorf("wait for notices: %w", err)
		case n != nil:
			received(n.Channel, n.Payload)
		}
	}
}

// next waits for a notice. It returns nil if there was none for a while and the
// connection is good.
func (p *postgres) next(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	quiet, cancel := context.WithTimeout(ctx, listenTime)
	defer cancel()
	n, err := conn.WaitForNotification(quiet)
	if err == nil || ctx.Err() != nil || quiet.Err() == nil {
		return n, err
	}
	check, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	if p.direct.ValidateConnect != nil {
		return nil, p.direct.ValidateConnect(check, conn.PgConn())
	}
	return nil, conn.Ping(check)
}
