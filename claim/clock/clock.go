// Package clock notices that the database's clock was set, and corrects stored times.
//
// That clock is the only one. When it is set, stored times are wrong: set back
// by an hour, items that are due wait for an hour and leases of dead workers last as long;
// set forward, the leases of live workers have lapsed. This process has a clock that is
// never set, and compares what the two say of the time since its last heartbeat.
package clock

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/farol-preservation/farol/claim/lane"
	"github.com/farol-preservation/farol/claim/wake"
)

// Store is where times are stored: [Times].
type Store interface {
	// Clamp moves times back that lie further ahead than they can have been set, and
	// returns of how many items; of all waiting items only if whole.
	Clamp(ctx context.Context, whole bool) (int, error)
	// Time is the database's.
	Time(ctx context.Context) (time.Time, error)
}

// Clock is how one process knows the database's clock. It is safe for concurrent use.
type Clock struct {
	store   Store
	log     *slog.Logger
	beat    func() time.Duration                    // how often live workers send a heartbeat
	jitter  func(below time.Duration) time.Duration // so that processes do not all do the same at once
	moved   func()                                  // is called when stored times were moved
	setBack chan struct{}                           // gets a value when the database's clock was set back

	mu    sync.Mutex
	last  time.Time // when the last heartbeat was sent that got through, by this process's monotonic clock
	rests time.Time // no lease is ended before
	tried bool      // since then one was sent, and nobody knows whether it got through
	seen  time.Time // the database's time, of a process that sends no heartbeats; see Look
}

// New returns a clock that knows of no heartbeat.
func New(s Store, log *slog.Logger, beat func() time.Duration, jitter func(time.Duration) time.Duration, moved func()) *Clock {
	return &Clock{store: s, log: log, beat: beat, jitter: jitter, moved: moved, setBack: make(chan struct{}, 1)}
}

// Slack is by how much the two clocks may differ: a smaller difference is waited out.
const Slack = 5 * time.Second

// LastSent returns when the last heartbeat was sent that got through.
func (c *Clock) LastSent() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Heartbeat notes a heartbeat that got through. It returns by how much the database's clock
// was set since the one before, which was ago by that clock; nil: it knows of none.
func (c *Clock) Heartbeat(ago *time.Duration, sent time.Time) time.Duration {
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
	return setBy(*ago, least, time.Since(before))
}

// Lost notes a heartbeat that was not answered.
func (c *Clock) Lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tried = true
}

// setBy returns by how much a clock was set that says that a time has passed, which is
// known to be between least and most; 0 if it may be right.
func setBy(says, least, most time.Duration) time.Duration {
	switch {
	case says < least-Slack:
		return says - least
	case says > most+Slack:
		return says - most
	}
	return 0
}

// WasSet makes the queue continue after the database's clock was set. Set forward, no lease
// is ended before every worker has had the time to renew its own.
func (c *Clock) WasSet(ctx context.Context, by time.Duration) {
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
func (c *Clock) rest() time.Duration { return c.beat() * 5 / 4 }

// silence is how long a process has no heartbeat that gets through while the database can be
// reached, at most. No lease lapses in so short a time.
func (c *Clock) silence() time.Duration { return c.beat() * 3 / 2 }

// MayReap reports whether leases may be ended at a time: not while this process cannot reach the
// database, nor in the rest after it could not, or after the clock was set forward. Then live
// workers have leases that have lapsed. It also returns the end of the last rest.
func (c *Clock) MayReap(now time.Time) (rested time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rests, !now.Before(c.rests) && (c.last.IsZero() || now.Sub(c.last) <= c.silence())
}

// Look is the heartbeat of a process that sends none. The first begins a rest.
func (c *Clock) Look(ctx context.Context) error {
	sent := time.Now()
	at, err := c.store.Time(ctx)
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
	if by := c.Heartbeat(ago, sent); by != 0 {
		c.WasSet(ctx, by)
	}
	return nil
}

const (
	clampMost  = 10_000 // items one statement corrects
	clampEvery = time.Minute
)

// ClampForEver corrects stored times that lie too far ahead: the cheap ones every
// minute, all at the start and when the clock was set back, and once more after
// that, for what committed late.
func (c *Clock) ClampForEver(ctx context.Context) {
	for whole := 1; ; {
		call, cancel := context.WithTimeout(ctx, clampEvery)
		n, err := c.store.Clamp(call, whole > 0)
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
			c.moved()
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

// Times are those in a database.
type Times struct{ Lane lane.Lane }

// Time is the database's.
func (t Times) Time(ctx context.Context) (at time.Time, err error) {
	if err := t.Lane.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&at); err != nil {
		return time.Time{}, fmt.Errorf("ask the database for its time: %w", err)
	}
	return at, nil
}

// Clamp is that of [Store].
func (t Times) Clamp(ctx context.Context, whole bool) (n int, err error) {
	if err := t.Lane.QueryRow(ctx, `SELECT clamp_times()`).Scan(&n); err != nil {
		return 0, fmt.Errorf("clamp times: %w", err)
	}
	for page := clampMost; whole && page == clampMost; n += page {
		if err := t.Lane.QueryRow(ctx, `SELECT clamp_waiting($1)`, clampMost).Scan(&page); err != nil {
			return n, fmt.Errorf("clamp times of waiting items: %w", err)
		}
	}
	return n, nil
}
