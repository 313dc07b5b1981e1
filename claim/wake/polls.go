package wake

import (
	"sync"
	"time"
)

// Polls is when a process asks next whether anything is due, on behalf of all its pools.
// It is safe for concurrent use.
type Polls struct {
	mu    sync.Mutex
	next  time.Time
	quiet bool // nothing was due the last time
}

// Wait is how long it is until the next poll, at most a while from now.
func (p *Polls) Wait(while time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.IsZero() {
		p.next = time.Now().Add(while)
	}
	return time.Until(p.next)
}

// Mine reports whether to poll now, and sets when the next poll is if so: of those who wait
// for the same one, the first does it.
func (p *Polls) Mine(while time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(p.next) {
		return false
	}
	p.next = time.Now().Add(while)
	return true
}

// Found notes whether anything was due at a poll.
func (p *Polls) Found(due bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quiet = !due
}

// IsQuiet reports whether nothing was due at the last poll.
func (p *Polls) IsQuiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.quiet
}
