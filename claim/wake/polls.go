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
	vain  int  // polls in a row after which no claim got what was due, up to mostVain
}

// mostVain bounds how rare polls become that lead to claims in vain: each is as long again.
const mostVain = 2

// Wait is how long it is until the next poll, at most a while from now.
func (p *Polls) Wait(while time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next.IsZero() {
		p.next = time.Now().Add(while << p.vain)
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
	p.next = time.Now().Add(while << p.vain)
	return true
}

// Found notes whether anything was due at a poll, and whether a pool of this process was woken.
func (p *Polls) Found(due, rung bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.quiet = !due
	if rung {
		p.vain = min(p.vain+1, mostVain)
	}
}

// Took notes that a claim got items.
func (p *Polls) Took() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.vain = 0
}

// IsQuiet reports whether nothing was due at the last poll.
func (p *Polls) IsQuiet() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.quiet
}
