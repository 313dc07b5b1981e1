package api

import (
	"context"
	"sync"
	"sync/atomic"
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

// recent is such a value that takes long, or asks another program: who asks gets it as it was
// last, and does not wait for a newer one, but for the first. The zero value is ready for use.
type recent[T any] struct {
	kept[T]

	last atomic.Pointer[T]
	at   atomic.Pointer[time.Time]
	busy atomic.Bool
}

// get returns the value as it was last, with its age, and has it computed again if it is
// older than least.
func (k *recent[T]) get(ctx context.Context, least time.Duration, compute func(context.Context) (T, error)) (T, time.Duration, error) {
	read := func(ctx context.Context) (T, time.Duration, error) {
		v, age, err := k.kept.get(ctx, least, compute)
		if at := time.Now().Add(-age); err == nil {
			k.last.Store(&v)
			k.at.Store(&at)
		}
		return v, age, err
	}
	at := k.at.Load()
	if at == nil {
		return read(ctx)
	}
	age := time.Since(*at)
	if age >= least && k.busy.CompareAndSwap(false, true) {
		go func() {
			defer k.busy.Store(false)
			_, _, _ = read(context.WithoutCancel(ctx))
		}()
	}
	return *k.last.Load(), age, nil
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
