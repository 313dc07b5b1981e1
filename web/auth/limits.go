package auth

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// limits bound how often each address may try. Of IPv6, a network of 64 bits counts as one
// address, since one customer has all of it.
type limits struct {
	every rate.Limit
	burst int

	mu      sync.Mutex
	buckets map[netip.Prefix]*rate.Limiter
}

// mostBuckets bounds the memory that strangers can take. At the bound all buckets are dropped.
const mostBuckets = 50_000

func newLimits(n int, per time.Duration) *limits {
	return &limits{every: rate.Every(per / time.Duration(n)), burst: n, buckets: map[netip.Prefix]*rate.Limiter{}}
}

// take takes one attempt, or returns how long to wait for it.
func (l *limits) take(ip netip.Addr) time.Duration {
	bits := 64
	if ip = ip.Unmap(); ip.Is4() {
		bits = 32
	}
	key, err := ip.Prefix(bits)
	if err != nil {
		key = netip.Prefix{} // unknown addresses share one
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[key]
	if b == nil {
		if len(l.buckets) >= mostBuckets {
			clear(l.buckets)
		}
		b = rate.NewLimiter(l.every, l.burst)
		l.buckets[key] = b
	}
	now := time.Now()
	r := b.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > 0 {
		r.CancelAt(now)
	}
	return wait
}
