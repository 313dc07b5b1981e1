package claim

import (
	"context"
	"errors"
	"fmt"
	"time"
)

var errTimeout = errors.New("the stage took longer than its processing timeout")

// beatForEver renews all leases of this process every heartbeat, until ctx is
// done.
func (e *Engine) beatForEver(ctx context.Context) {
	for {
		interval := e.known.Load().heartbeat()
		call, cancel := context.WithTimeout(ctx, interval)
		err := e.heartbeat(call)
		cancel()
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "leases not renewed, will try again", "err", err)
			e.stopIfDeaf(ctx)
			interval /= 4 // a lease of three heartbeats has room for some tries
		}
		if !pause(ctx, interval) {
			return
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
	held := make([]heldLease, len(holds))
	for i, h := range holds {
		held[i] = heldLease{h.Item.ID, h.Item.Token, known.of(h.Item.Action, h.Item.Stage).Lease, h.file()}
	}
	self := e.self
	self.oomKills, self.beat = e.kernel.oomKills(self.cgroup), known.heartbeat().Seconds()
	start := time.Now()
	kept, draining, err := e.store.renew(ctx, self, held)
	if err != nil {
		return err
	}
	for _, h := range holds {
		if !kept[h.Item.ID] && h.ctx.Err() == nil && e.holds(h) {
			e.log.WarnContext(ctx, "claim lost", "item", h.Item.ID, "stage", h.Item.Stage, "token", h.Item.Token)
			h.drop(ErrLost)
		}
	}
	e.mu.Lock()
	e.beat = start
	e.mu.Unlock()
	if draining {
		e.drain.Do(func() { close(e.draining) })
	}
	return nil
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
		err := errors.Join(e.readSettings(call), e.heartbeat(call))
		cancel()
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "changed settings will be read later", "err", err)
		}
		e.wake.ring() // a stage may have been resumed
	}
}

// holds tells whether h is still in hand: it may have been settled while the
// heartbeat was under way, or is just being, and is then not lost. Should it be,
// the settling will tell.
func (e *Engine) holds(h *Hold) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.held[h.Item.ID] == h && h.settling.Load() == 0
}

// stopIfDeaf ends all work whose lease could not be renewed for two thirds of
// its time: soon it is someone else's.
func (e *Engine) stopIfDeaf(ctx context.Context) {
	var holds []*Hold
	e.mu.Lock()
	silence := time.Since(e.beat)
	for _, h := range e.held {
		if silence > h.Item.lease*2/3 && !e.options.Unrenewed {
			holds = append(holds, h)
		}
	}
	e.mu.Unlock()
	for _, h := range holds {
		e.log.WarnContext(ctx, "stopping work whose lease cannot be renewed", "item", h.Item.ID, "stage", h.Item.Stage)
		h.drop(fmt.Errorf("no heartbeat for %v: %w", silence.Round(time.Millisecond), ErrLost))
	}
}
