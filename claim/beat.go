package claim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim/lane"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/retry"
)

// beatForEver renews all leases of this process every heartbeat, until ctx is
// done.
func (l *leases) beatForEver(ctx context.Context) {
	for locked := false; ; {
		known := l.settings.Load()
		interval := known.Heartbeat()
		call, cancel := context.WithTimeout(ctx, known.ShortestLease()/6) // if it hangs there must be time for another
		err := l.heartbeat(call)
		cancel()
		before := locked
		locked = errors.Is(err, ErrLocked)
		if err != nil && ctx.Err() == nil {
			interval /= 4          // a lease of three heartbeats allows some tries
			if !locked || before { // a lock that is released at once is usual
				l.log.WarnContext(ctx, "heartbeat failed; retrying", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-l.beatNow:
		case <-time.After(interval):
		}
	}
}

// ErrLocked is the result of a heartbeat that did not renew every lease.
var ErrLocked = errors.New("another transaction has locked an item that this worker holds")

// heartbeat renews every lease of this process and ends the work on those that
// are lost.
func (l *leases) heartbeat(ctx context.Context) error {
	known := l.settings.Load()
	var holds []*Hold
	l.mu.Lock()
	for _, h := range l.held {
		holds = append(holds, h)
	}
	l.mu.Unlock()
	slices.SortFunc(holds, func(a, b *Hold) int { return cmp.Compare(a.Item.ID, b.Item.ID) }) // locks go in this order everywhere
	held := make([]heldLease, len(holds))
	for i, h := range holds {
		held[i] = heldLease{h.Item.ID, h.Item.Token, known.Of(h.Item.Action, h.Item.Stage).Lease, h.currentFile(), codeLost}
		if h.spent() < 1 { // its lease cannot have lapsed in real time
			held[i].lost = codeClockSet
		}
	}
	self, gone := l.self, l.stillGivenUp()
	self.draining = l.stopping.Load()
	self.OOMKills = l.kernel.OOMKills(self.Group)
	start := time.Now()
	got, err := l.store.renew(ctx, self, known.Heartbeat(), held, gone)
	l.reported(gone, err, err != nil && !stoodStill(ctx, known.ShortestLease()/6))
	if err != nil {
		l.clock.Lost()
		return err
	}
	if by := l.clock.Heartbeat(got.ago, start); by != 0 {
		l.clock.WasSet(ctx, by)
	}
	for i, h := range holds {
		renewed, ours := got.kept[h.Item.ID]
		lost, locked := l.keeps(h, start, held[i].lease, renewed, ours)
		if locked {
			err = ErrLocked
		}
		if lost {
			l.log.WarnContext(ctx, "claim lost; stopping the work", "item", h.Item.ID, "stage", h.Item.Step(), "token", h.Item.Token)
			h.drop(ErrLost)
		}
	}
	if got.draining {
		l.drain.Do(func() { close(l.draining) })
	}
	return err
}

// returnGivenUp gives back the items whose work this process stopped because it could not reach
// the database, now that it can: that says nothing of the items, and their attempts do not
// count. Of those that a reaper has ended, the heartbeats tell the ledger.
func (l *leases) returnGivenUp(ctx context.Context) {
	list := slices.DeleteFunc(l.stillGivenUp(), func(g givenUp) bool {
		return g.returned || g.code != codeUnreachable || g.hold.settling.Load() > 0 // whose own end is better
	})
	if len(list) == 0 {
		return
	}
	ended := l.settle(ctx, lane.Column(list, func(g *givenUp) Ending {
		away := fmt.Errorf("no heartbeat reached the database for %v; the worker stopped the work before its lease expired", (g.lease * 2 / 3).Round(time.Second))
		f := &fault.Error{Service: fault.Database, Kind: fault.Unavailable, Said: "no heartbeat got through", Err: away}
		return Ending{Item: g.hold.Item, Result: Held(f, heldDelay, away), File: g.file}
	}))
	var items, tokens []int64
	for i, end := range ended {
		if errors.Is(end.err, ErrLost) {
			items, tokens = append(items, list[i].hold.Item.ID), append(tokens, list[i].hold.Item.Token)
		}
	}
	if len(items) > 0 {
		if err := l.store.uncount(ctx, items, tokens); err != nil {
			l.log.WarnContext(ctx, "cannot take back attempts that do not count; retrying", "err", err)
			return
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.givenUp {
		at := slices.IndexFunc(list, func(g givenUp) bool { return g.hold == l.givenUp[i].hold })
		l.givenUp[i].returned = l.givenUp[i].returned || at >= 0 && (ended[at].err == nil || errors.Is(ended[at].err, ErrLost))
	}
}

func (p *postgres) uncount(ctx context.Context, items, tokens []int64) error {
	if _, err := p.upkeep.Exec(ctx, `SELECT uncount_attempts($1, $2)`, items, tokens); err != nil {
		return fmt.Errorf("take back attempts that do not count: %w", err)
	}
	return nil
}

// stillGivenUp lists the claims that this process gave up. Each is reported for some time,
// since it may be reaped later.
func (l *leases) stillGivenUp() []givenUp {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.givenUp = slices.DeleteFunc(l.givenUp, func(g givenUp) bool {
		return !g.reported.IsZero() && time.Since(g.reported) > 3*g.lease && (g.returned || g.code != codeUnreachable)
	})
	return slices.Clone(l.givenUp)
}

// stoodStill reports whether a call whose time is up ended so late that this process, and not the
// database, was what did not answer: it was stopped, or its machine slept.
func stoodStill(call context.Context, late time.Duration) bool {
	end, timed := call.Deadline()
	return timed && time.Since(end) > late
}

// reported notes whether a heartbeat got through, and which claims it reported.
func (l *leases) reported(list []givenUp, err error, unreachable bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unreachable = unreachable
	for i := range l.givenUp {
		g := &l.givenUp[i]
		of := func(r givenUp) bool { return r.hold == g.hold }
		if err == nil && g.reported.IsZero() && slices.ContainsFunc(list, of) {
			g.reported = time.Now()
		}
	}
}

// keeps notes the result of a heartbeat for one item, and reports whether the item is lost, or
// locked. An item that was settled while the heartbeat ran, or is being settled, is neither:
// if it is lost, settling will find out.
func (l *leases) keeps(h *Hold, asked time.Time, lease time.Duration, renewed, ours bool) (lost, locked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[h.Item.ID] != h {
		return false, false
	}
	if renewed && asked.After(h.asked) {
		h.leased(asked, lease)
	}
	settling := h.settling.Load() > 0
	return !ours && !settling, ours && !renewed && !settling
}

// Check asks whether the item is still this worker's, before a step that cannot be undone. It
// asks the registry only when the lease was not renewed for half of its time, as after the
// process was stopped for a while.
func (h *Hold) Check(ctx context.Context) error {
	if h.ctx.Err() != nil {
		return context.Cause(h.ctx) //nolint:contextcheck // the lease's, which outlives the call's
	}
	l := h.leases
	if h.spent() < 1./2 {
		return nil
	}
	select {
	case l.asking <- struct{}{}:
		defer func() { <-l.asking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if h.spent() < 1./2 && h.ctx.Err() == nil {
		return nil // another goroutine has asked in the meantime
	}
	call, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	for {
		err := l.heartbeat(call)
		switch {
		case h.ctx.Err() != nil:
			return context.Cause(h.ctx) //nolint:contextcheck // the lease's, which outlives the call's
		case err == nil || h.spent() < 1./2:
			return nil
		case !errors.Is(err, ErrLocked) || !retry.Pause(call, lockedPause):
			return fmt.Errorf("check the claim on item %d: %w", h.Item.ID, err)
		}
	}
}

// lockedPause is how long Check waits for the transaction that has locked the item.
const lockedPause = 50 * time.Millisecond

func (p *postgres) renew(ctx context.Context, w worker, every time.Duration, held []heldLease, gone []givenUp) (renewed, error) {
	args := []any{
		lane.Column(held, func(h *heldLease) int64 { return h.item }), lane.Column(held, func(h *heldLease) int64 { return h.token }),
		lane.Column(held, func(h *heldLease) time.Duration { return h.lease }), lane.Column(held, func(h *heldLease) string { return h.file }),
		w.worker, w.node, w.pid, w.Host, w.Ticks, w.Group, w.OOMKills, w.pools, every.Seconds(),
		lane.Column(gone, func(g *givenUp) int64 { return g.hold.Item.ID }), lane.Column(gone, func(g *givenUp) int64 { return g.hold.Item.Token }),
		lane.Column(gone, func(g *givenUp) string { return g.file }), lane.Column(gone, func(g *givenUp) string { return g.code }),
		lane.Column(held, func(h *heldLease) string { return h.lost }), w.draining,
	}
	got := renewed{kept: map[int64]bool{}}
	err := registry.Again(func() error {
		clear(got.kept)
		rows, _ := p.beat.Query(ctx, renewSQL, args...)
		var id *int64
		var renewed *bool
		_, err := pgx.ForEachRow(rows, []any{&id, &renewed, &got.draining, &got.ago}, func() error {
			if id != nil {
				got.kept[*id] = got.kept[*id] || *renewed
			}
			return nil
		})
		return err
	})
	if err != nil {
		return renewed{}, fmt.Errorf("renew %d leases: %w", len(held), err)
	}
	return got, nil
}

func (p *postgres) leave(ctx context.Context, worker string) error {
	_, err := p.beat.Exec(ctx, `UPDATE worker_processes SET ended_at = now(), ending = 'stopped' WHERE worker = $1 AND ended_at IS NULL`, worker)
	if err != nil {
		return fmt.Errorf("deregister the worker: %w", err)
	}
	return nil
}
