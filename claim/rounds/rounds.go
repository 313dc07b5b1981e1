// Package rounds decides how far back a round of reaping looks for lapsed leases.
package rounds

import (
	"sync"
	"time"

	"github.com/farol-preservation/farol/claim/batch"
)

// Rounds are those of one process, by its monotonic clock. They are safe for concurrent use.
//
// Leases lapse in the order of time, so a round need only go back to where the one before
// began, and by the time of a statement for claims that committed late: the index entries of
// leases long over are dead, but remain while vacuum is held back. Items that were locked at
// that moment are found by full rounds; there are as many of them as cost little.
type Rounds struct {
	mu    sync.Mutex
	n     int
	last  time.Time // when the last complete one began
	full  time.Time // when the last full one began
	takes time.Duration
	rests time.Time // until when there was no round, for the last time
}

const (
	fullRound = 100 * 365 * 24 * time.Hour // how far back a full round goes
	fullOneIn = 16                         // one in so many is full
	fullCost  = 20                         // and takes at most this part of the time, after the first few
	fullLeast = 50 * time.Millisecond      // what one is thought to take at least, if it took longer
)

// Since says how far back a round goes that begins now. The first one after a rest is full.
func (r *Rounds) Since(now, rests time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !rests.Equal(r.rests) {
		r.n, r.rests = 0, rests
	}
	r.n++
	if r.n == 1 || r.n%fullOneIn == 0 && now.Sub(r.full) >= fullCost*r.takes {
		return fullRound
	}
	if r.last.IsZero() {
		return now.Sub(r.full) + batch.Timeout
	}
	return now.Sub(r.last) + batch.Timeout
}

// Ended notes how a round went that began at a time.
func (r *Rounds) Ended(begun time.Time, since time.Duration, complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if since == fullRound {
		// It may have waited for a database that did not answer: see cursor.rescans.
		r.full, r.takes = begun, min(time.Since(begun), max(2*r.takes, fullLeast))
	}
	if complete {
		r.last = begun
	}
}
