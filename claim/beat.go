package claim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

var errTimeout = errors.New("the stage took longer than its processing timeout")

// beatForEver renews all leases of this process every heartbeat, until ctx is
// done.
func (e *Engine) beatForEver(ctx context.Context) {
	for {
		known := e.known.Load()
		interval := known.heartbeat()
		call, cancel := context.WithTimeout(ctx, known.shortestLease()/6) // one that hangs must leave time for another
		err := e.heartbeat(call)
		cancel()
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "leases not renewed, will try again", "err", err)
			interval /= 4 // a lease of three heartbeats has room for some tries
		}
		next := time.NewTimer(interval)
		select {
		case <-ctx.Done():
			return
		case <-e.hurry:
		case <-next.C:
		}
	}
}

// heartbeat renews every lease of this process and ends the work on those that
// are lost.
func (e *Engine) heartbeat(ctx context.Context) error {
	known := e.known.Load()
	var holds []*Hold
	e.mu.Lock()
	if !e.options.Unrenewed {
		for _, h := range e.held {
			holds = append(holds, h)
		}
	}
	e.mu.Unlock()
	slices.SortFunc(holds, func(a, b *Hold) int { return cmp.Compare(a.Item.ID, b.Item.ID) }) // locks go in this order everywhere
	held := make([]heldLease, len(holds))
	for i, h := range holds {
		held[i] = heldLease{h.Item.ID, h.Item.Token, known.of(h.Item.Action, h.Item.Stage).Lease, h.file(), codeLost}
		if h.spent() < 1 { // its lease cannot have lapsed in earnest
			held[i].lost = codeClockSet
		}
	}
	self := e.self
	self.givenUp = e.stillGivenUp()
	self.oomKills, self.beat = e.kernel.oomKills(self.cgroup), known.heartbeat().Seconds()
	start := time.Now()
	got, err := e.store.renew(ctx, self, held)
	e.heardOf(self.givenUp, err)
	if err != nil {
		return err
	}
	if by := e.watch.heard(got.ago, start); by != 0 {
		e.clockWasSet(ctx, by)
	}
	for i, h := range holds {
		if e.renewed(h, start, held[i].lease, got.kept[h.Item.ID]) {
			e.log.WarnContext(ctx, "claim lost", "item", h.Item.ID, "stage", h.Item.Step(), "token", h.Item.Token)
			h.drop(ErrLost)
		}
	}
	if got.draining {
		e.drain.Do(func() { close(e.draining) })
	}
	return nil
}

// stillGivenUp lists the claims that this process gave up. Each is told of for
// some time, since it may be reaped later.
func (e *Engine) stillGivenUp() []givenUp {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.givenUp = slices.DeleteFunc(e.givenUp, func(g givenUp) bool { return !g.told.IsZero() && time.Since(g.told) > 3*g.lease })
	return slices.Clone(e.givenUp)
}

// heardOf notes whether a heartbeat got through, and which claims it told of.
func (e *Engine) heardOf(told []givenUp, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cutOff = err != nil
	for i := range e.givenUp {
		g := &e.givenUp[i]
		of := func(t givenUp) bool { return t.item == g.item && t.token == g.token }
		if err == nil && g.told.IsZero() && slices.ContainsFunc(told, of) {
			g.told = time.Now()
		}
	}
}

// lookUpForEver reads settings anew when they have changed, and whether this
// worker was asked to stop.
func (e *Engine) lookUpForEver(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.changed:
		}
		call, cancel := context.WithTimeout(ctx, statementTime)
		err := e.readSettings(call)
		cancel()
		select { // whether to stop, a heartbeat tells
		case e.hurry <- struct{}{}:
		default:
		}
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "changed settings will be read later", "err", err)
		}
		e.wake.ring() // a stage may have been resumed
	}
}

// renewed notes what a heartbeat came to for one item, and tells whether that is
// lost. What was settled while the heartbeat was under way, or is just being, is
// not: should it be, the settling will tell.
func (e *Engine) renewed(h *Hold, asked time.Time, lease time.Duration, kept bool) (lost bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held[h.Item.ID] != h {
		return false
	}
	if kept && asked.After(h.asked) {
		h.leased(asked, lease)
	}
	return !kept && h.settling.Load() == 0
}
