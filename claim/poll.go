package claim

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// polls is when a process asks next whether anything is due, on behalf of all its pools.
type polls struct {
	mu    sync.Mutex
	next  time.Time
	quiet bool // nothing was due the last time
}

// wait is how long it is until the next poll, at most a while from now.
func (p *polls) wait(while time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.IsZero() {
		p.next = time.Now().Add(while)
	}
	return time.Until(p.next)
}

// mine tells whether to poll now, and when the next poll is if so: of those who wait for
// the same one, the first does it.
func (p *polls) mine(while time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(p.next) {
		return false
	}
	p.next = time.Now().Add(while)
	return true
}

func (p *polls) found(due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quiet = !due
}

func (p *polls) isQuiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.quiet
}

// poll wakes all pools at about every poll interval if anything may be due, until ctx is
// done. Of those who wait in a process one asks for all, with one statement: a pool
// claims with a statement for each action, and most find nothing.
func (e *Engine) poll(ctx context.Context) {
	while := func() time.Duration { return e.options.Poll/2 + e.jitter(e.options.Poll) }
	for {
		if !pause(ctx, e.polls.wait(while())) {
			return
		}
		if !e.polls.mine(while()) {
			continue
		}
		due := e.mayBeDue(ctx)
		if e.polls.found(due); due {
			e.wake.ring()
		}
	}
}

// mayBeDue tells whether a claim may find anything. A worker that cannot find out claims, and
// says what is wrong.
func (e *Engine) mayBeDue(ctx context.Context) bool {
	call, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	due, err := e.store.mayBeDue(call)
	return due || err != nil
}

// mostPolled bounds what a poll reads: with as many items waiting, pools claim.
const mostPolled = 1000

func (p *postgres) mayBeDue(ctx context.Context) (due bool, err error) {
	if err := p.upkeep.QueryRow(ctx, dueSQL, mostPolled).Scan(&due); err != nil {
		return false, fmt.Errorf("ask whether anything is due: %w", err)
	}
	return due, nil
}
