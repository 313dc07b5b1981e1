package claim

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/farol-preservation/farol/claim/wake"
)

// The database's clock is the only one. When it is set, stored times are wrong: set back
// by an hour, items that are due wait for an hour and leases of dead workers last as long;
// set forward, the leases of live workers have lapsed. This process has a clock that is
// never set, and compares what the two say of the time since its last heartbeat.

// clockStore corrects stored times.
type clockStore interface {
	// clamp moves times back that lie further ahead than they can have been set, and
	// returns of how many items; of all waiting items only if whole.
	clamp(ctx context.Context, whole bool) (int, error)
	// clockTime is the database's time.
	clockTime(ctx context.Context) (time.Time, error)
}

// clock notices that the database's clock was set.
type clock struct {
	*core

	store   clockStore
	setBack chan struct{} // gets a value when the database's clock was set back

	mu    sync.Mutex
	last  time.Time // when the last heartbeat was sent that got through, by this process's monotonic clock
	rests time.Time // no lease is ended before
	tried bool      // since then one was sent, and nobody knows whether it got through
	seen  time.Time // the database's time, of a process that sends no heartbeats; see look
}

// clockSlack is by how much the two may differ: a smaller difference is waited out.
const clockSlack = 5 * time.Second

// lastSent returns when the last heartbeat was sent that got through.
func (c *clock) lastSent() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// heartbeat notes a heartbeat that got through. It returns by how much the database's clock
// was set since the one before, which was ago by that clock; nil: it knows of none.
func (c *clock) heartbeat(ago *time.Duration, sent time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, least := c.last, sent.Sub(c.last)
	if c.tried { // the database may have that one as the last
		least = 0
	}
	c.tried = false
	if sent.After(c.last) {
		c.last = sent
	}
	if !before.IsZero() && sent.Sub(before) > c.silence() { // the others may have been as silent
		c.rests = time.Now().Add(c.rest())
	}
	if ago == nil || before.IsZero() {
		return 0
	}
	return clockSet(*ago, least, time.Since(before))
}

// lost notes a heartbeat that was not answered.
func (c *clock) lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried = true
}

// clockSet returns by how much a clock was set that says that a time has passed, which is
// known to be between least and most; 0 if it may be right.
func clockSet(says, least, most time.Duration) time.Duration {
	switch {
	case says < least-clockSlack:
		return says - least
	case says > most+clockSlack:
		return says - most
	}
	return 0
}

// wasSet makes the queue continue after the database's clock was set. Set forward, no lease
// is ended before every worker has had the time to renew its own.
func (c *clock) wasSet(ctx context.Context, by time.Duration) {
	by = by.Round(time.Second)
	switch {
	case by > 0:
		rest := c.rest()
		c.log.WarnContext(ctx, "the database's clock was set forward; no lease is ended until all workers have renewed theirs", "by", by, "rest", rest)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.rests = time.Now().Add(rest)
	case by < 0:
		c.log.WarnContext(ctx, "the database's clock was set back; stored times are moved back by the same amount", "by", -by)
		wake.Signal(c.setBack)
	}
}

// rest is within what time every worker that lives renews its leases, or gives up its items.
func (c *clock) rest() time.Duration { return c.settings.Load().Heartbeat() * 5 / 4 }

// silence is how long a process has no heartbeat that gets through while the database can be
// reached, at most. No lease lapses in so short a time.
func (c *clock) silence() time.Duration { return c.settings.Load().Heartbeat() * 3 / 2 }

// mayReap reports whether leases may be ended at a time: not while this process cannot reach the
// database, nor in the rest after it could not, or after the clock was set forward. Then live
// workers have leases that have lapsed. It also returns the end of the last rest.
func (c *clock) mayReap(now time.Time) (rested time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rests, !now.Before(c.rests) && (c.last.IsZero() || now.Sub(c.last) <= c.silence())
}

// look is the heartbeat of a process that sends none. The first begins a rest.
func (c *clock) look(ctx context.Context) error {
	sent := time.Now()
	at, err := c.store.clockTime(ctx)
	if err != nil {
		return err
	}
	var ago *time.Duration
	c.mu.Lock()
	if c.seen.IsZero() {
		c.rests = sent.Add(c.rest())
	} else {
		passed := at.Sub(c.seen)
		ago = &passed
	}
	c.seen = at
	c.mu.Unlock()
	if by := c.heartbeat(ago, sent); by != 0 {
		c.wasSet(ctx, by)
	}
	return nil
}

const (
	clampMost  = 10_000 // items one statement corrects
	clampEvery = time.Minute
)

// clampForEver corrects stored times that lie too far ahead: the cheap ones every
// minute, all at the start and when the clock was set back, and once more after
// that, for what committed late.
func (c *clock) clampForEver(ctx context.Context) {
	for whole := 1; ; {
		call, cancel := context.WithTimeout(ctx, clampEvery)
		n, err := c.store.clamp(call, whole > 0)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil:
			c.log.WarnContext(ctx, "queue upkeep failed; retrying later", "what", "times ahead of the clock", "err", err)
		case err == nil && whole > 0:
			whole--
		}
		if n > 0 {
			c.log.WarnContext(ctx, "stored times were ahead of the database's clock and were moved back", "items", n)
			c.mu.Lock()
			c.rests = time.Now() // leases may have lapsed long ago now: the next round of reaping is a full one
			c.mu.Unlock()
			c.wake.Reset("")
			c.wake.Ring()
		}
		select {
		case <-ctx.Done():
			return
		case <-c.setBack:
			whole = 2
		case <-time.After(clampEvery*9/10 + c.jitter(clampEvery/10)):
		}
	}
}

func (p *postgres) clockTime(ctx context.Context) (at time.Time, err error) {
	if err := p.upkeep.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&at); err != nil {
		return time.Time{}, fmt.Errorf("ask the database for its time: %w", err)
	}
	return at, nil
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
