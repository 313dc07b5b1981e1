package nsqcompat

import (
	"context"
	"time"
)

const (
	// idleAfter is how long nothing has to happen until the mirror polls less often.
	idleAfter = 5 * time.Second
	// idlePoll is about how often it then polls, unless it is notified.
	idlePoll = 3 * time.Second
	// hurryFor is for how long it polls more often for someone who waits for the
	// figures.
	hurryFor = 5 * time.Second
)

// pace says how often the leader polls. Only notify is safe for concurrent use.
type pace struct {
	poll       time.Duration
	work       chan struct{} // gets a value when there may be something to publish
	hurryUntil time.Time
	lastActive time.Time
}

func newPace(poll time.Duration) *pace { return &pace{poll: poll, work: make(chan struct{}, 1)} }

// notify says that there may be something to publish.
func (p *pace) notify() {
	select {
	case p.work <- struct{}{}:
	default: // it is notified already
	}
}

// hurry has figures compared more often for a while.
func (p *pace) hurry() { p.hurryUntil = time.Now().Add(hurryFor) }

func (p *pace) hurried() bool { return time.Now().Before(p.hurryUntil) }

// active notes that something happened, so that more is to be expected.
func (p *pace) active() { p.lastActive = time.Now() }

// interval is how long to wait for the next poll: less while something happens.
func (p *pace) interval() time.Duration {
	if time.Since(p.lastActive) < idleAfter || p.hurried() {
		return p.poll
	}
	return max(idlePoll, p.poll)
}

// wait waits until there may be something to publish, or for d.
func (p *pace) wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-p.work:
		p.active()
	}
}
