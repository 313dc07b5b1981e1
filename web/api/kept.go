package api

import (
	"context"
	"sync"
	"time"
)

// kept is a value that is expensive to compute, for all requests of this process. It is
// computed by one request at a time, not more often than its caller says, and not for more
// than a twentieth of the time, however long it takes. The zero value is ready for use.
type kept[T any] struct {
	mu    sync.Mutex
	value T
	err   error
	asked time.Time     // when it was computed last
	took  time.Duration // for which it was
}

// share is how much longer than it took a value is kept at least.
const share = 20

// mostComputing is how long a value may be computed. A request that gives up before does
// not end it: the next one takes the value.
const mostComputing = time.Minute

// get returns the value, which may be as old as least, and its age. A failure is kept for as
// long as it took, so that what fails after a long time is not tried by every request.
func (k *kept[T]) get(ctx context.Context, least time.Duration, compute func(context.Context) (T, error)) (T, time.Duration, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	rest := k.took
	if k.err == nil {
		rest *= share
	}
	if age := time.Since(k.asked); !k.asked.IsZero() && age < max(least, rest) {
		return k.value, age, k.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mostComputing)
	defer cancel()
	began := time.Now()
	k.value, k.err = compute(ctx)
	k.asked = time.Now()
	k.took = k.asked.Sub(began)
	return k.value, 0, k.err
}

// keptBy are such values by what they are about. Of these there are few.
type keptBy[K comparable, T any] struct {
	mu sync.Mutex
	by map[K]*kept[T]
}

// of is the value about something.
func (k *keptBy[K, T]) of(about K) *kept[T] {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil {
		k.by = map[K]*kept[T]{}
	}
	if k.by[about] == nil {
		k.by[about] = &kept[T]{}
	}
	return k.by[about]
}
