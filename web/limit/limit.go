// Package limit bounds how often each caller may ask.
package limit

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits is a bucket of tokens for each caller. It is safe for concurrent use.
type Limits struct {
	every rate.Limit
	burst int

	mu      sync.Mutex
	buckets map[string]*rate.Limiter
}

// mostBuckets bounds the memory that callers can take. At the bound all buckets are dropped.
const mostBuckets = 50_000

// New lets each caller ask a number of times within a duration, and burst times at once.
func New(n int, per time.Duration, burst int) *Limits {
	return &Limits{every: rate.Every(per / time.Duration(n)), burst: burst, buckets: map[string]*rate.Limiter{}}
}

// Take takes one token of a caller. wait is how long it takes until there is one; 0: it was
// taken. left is how many there are.
func (l *Limits) Take(caller string) (wait time.Duration, left int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[caller]
	if b == nil {
		if len(l.buckets) >= mostBuckets {
			clear(l.buckets)
		}
		b = rate.NewLimiter(l.every, l.burst)
		l.buckets[caller] = b
	}
	now := time.Now()
	r := b.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
	}
	return wait, max(int(b.TokensAt(now)), 0)
}

// Address names the caller of an address. Of IPv6, a network of 64 bits counts as one
// address, since one customer has all of it. Unknown addresses share a name.
func Address(ip netip.Addr) string {
	bits := 64
	if ip = ip.Unmap(); ip.Is4() {
		bits = 32
	}
	network, err := ip.Prefix(bits)
	if err != nil {
		return "unknown"
	}
	return network.String()
}
