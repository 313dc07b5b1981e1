package claim

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// The database's clock is the only one. When it is set, what is stored does not
// fit any more: set back by an hour, items that are due wait for an hour and leases
// of the dead last as long; set forward, the leases of the living have lapsed. This
// process has a clock that is never set, and compares what the two say of the time
// since its last heartbeat.

// clockSlack is by how much the two may differ: less than that is waited for.
const clockSlack = 5 * time.Second

// watch remembers the last heartbeat that got through.
type watch struct {
	mu   sync.Mutex
	last time.Time // when it was sent, by this process's monotonic clock
}

// lastSent returns when the last heartbeat was sent that got through.
func (w *watch) lastSent() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// heard notes a heartbeat that got through, and returns by how much the database's
// clock was set since the one before, which that says is so long ago; nil is that it
// knows of none.
func (w *watch) heard(ago *time.Duration, sent time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.last
	if sent.After(w.last) {
		w.last = sent
	}
	if ago == nil || before.IsZero() {
		return 0
	}
	return clockSet(*ago, sent.Sub(before), time.Since(before))
}

// clockSet returns by how much a clock was set that says that something is so long
// ago, between the known least and most; 0 if it can have been so long.
func clockSet(says, least, most time.Duration) time.Duration {
	switch {
	case says < least-clockSlack:
		return says - least
	case says > most+clockSlack:
		return says - most
	}
	return 0
}

// clockWasSet makes the queue go on after the database's clock was set. Set forward,
// nothing is reaped before every worker has had the time to renew its leases.
func (e *Engine) clockWasSet(ctx context.Context, by time.Duration) {
	by = by.Round(time.Second)
	switch {
	case by > 0:
		rest := e.known.Load().heartbeat() * 5 / 4
		e.log.WarnContext(ctx, "the database's clock was set forward; no lease is ended until all workers have renewed theirs", "by", by, "rest", rest)
		e.reaps.restFor(rest)
	case by < 0:
		e.log.WarnContext(ctx, "the database's clock was set back; stored times are moved back as far", "by", -by)
		select {
		case e.setBack <- struct{}{}:
		default:
		}
	}
}

// clampMost is how many items one statement moves.
const clampMost = 10_000

// clampForEver moves stored times that lie too far ahead: what is cheap every
// minute, all at the start and when the clock was set back, and once more after
// that, for what committed late.
func (e *Engine) clampForEver(ctx context.Context) {
	for whole := 1; ; {
		call, cancel := context.WithTimeout(ctx, tidyEvery)
		n, err := e.store.clamp(call, whole > 0)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			e.log.WarnContext(ctx, "queue upkeep will be tried again", "what", "times ahead of the clock", "err", err)
		case err == nil && whole > 0:
			whole--
		}
		if n > 0 {
			e.log.WarnContext(ctx, "stored times were ahead of the database's clock and were moved back", "items", n)
			e.wake.forget("")
			e.wake.ring()
		}
		next := time.NewTimer(tidyEvery*9/10 + e.jitter(tidyEvery/10))
		select {
		case <-ctx.Done():
			next.Stop()
			return
		case <-e.setBack:
			whole = 2
		case <-next.C:
		}
		next.Stop()
	}
}

func (p *postgres) clamp(ctx context.Context, whole bool) (n int, err error) {
	if err := p.upkeep.QueryRow(ctx, `SELECT clamp_times()`).Scan(&n); err != nil {
		return 0, fmt.Errorf("clamp times: %w", err)
	}
	for page := clampMost; whole && page == clampMost; n += page {
		if err := p.upkeep.QueryRow(ctx, `SELECT clamp_waiting($1)`, clampMost).Scan(&page); err != nil {
			return n, fmt.Errorf("clamp times of waiting items: %w", err)
		}
	}
	return n, nil
}
