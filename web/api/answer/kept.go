package answer

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Kept is a value that is expensive to compute, for all requests of this process. It is
// computed once at a time, not more often than its callers say, and not for more than a
// twentieth of the time, however long it takes. The zero value is ready for use.
type Kept[T any] struct {
	mu     sync.Mutex // of last; nobody waits for it while a value is computed
	last   answer[T]
	flight singleflight.Group
}

// answer is what came of computing a value.
type answer[T any] struct {
	value T
	err   error
	at    time.Time
	took  time.Duration
}

const (
	// share is how much longer than it took a value is kept at least.
	share = 20
	// mostComputing is how long a value may be computed. A request that gives up before does
	// not end it: the next one takes the value.
	mostComputing = time.Minute
	// mostBehind is how long a value is given while a newer one is computed.
	mostBehind = time.Minute
)

// compute is how a value comes about.
type compute[T any] func(context.Context) (T, error)

// Get returns the value, which may be as old as least, and its age. A failure is kept for as
// long as it took, so that what fails after a long time is not tried by every request.
func (k *Kept[T]) Get(ctx context.Context, least time.Duration, c compute[T]) (T, time.Duration, error) {
	return k.within(ctx, least, 0, c)
}

// Glance is [Kept.Get] for what people look at again and again: it returns a value that has become too
// old by up to a minute, and has a newer one computed, for which nobody waits.
func (k *Kept[T]) Glance(ctx context.Context, least time.Duration, c compute[T]) (T, time.Duration, error) {
	return k.within(ctx, least, mostBehind, c)
}

func (k *Kept[T]) within(ctx context.Context, least, behind time.Duration, c compute[T]) (T, time.Duration, error) {
	a := k.answer()
	if a.tooOld(least) <= 0 {
		return a.value, time.Since(a.at), a.err
	}
	computed := k.flight.DoChan("", func() (any, error) {
		if k.answer().tooOld(least) > 0 { // or it was computed just now
			k.renew(ctx, c)
		}
		return nil, nil //nolint:nilnil // the answer is kept
	})
	if a.err == nil && a.tooOld(least) <= behind {
		return a.value, time.Since(a.at), nil
	}
	select {
	case <-computed:
		a = k.answer()
		return a.value, time.Since(a.at), a.err
	case <-ctx.Done():
		return a.value, 0, context.Cause(ctx)
	}
}

func (k *Kept[T]) answer() answer[T] {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.last
}

// tooOld is for how long it has been older than it may be; not positive: it is not.
func (a answer[T]) tooOld(least time.Duration) time.Duration {
	if a.at.IsZero() {
		return mostBehind + 1
	}
	rest := a.took
	if a.err == nil {
		rest *= share
	}
	return time.Since(a.at) - max(least, rest) + 1
}

// renew computes the value, whatever becomes of the request that needs it first. A mistake of
// ours that would end a request must not end the process, as it does where nobody waits.
func (k *Kept[T]) renew(ctx context.Context, c compute[T]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mostComputing)
	defer cancel()
	a, began := answer[T]{}, time.Now()
	defer func() {
		if p := recover(); p != nil {
			a = answer[T]{err: fmt.Errorf("compute a figure: %v\n%s", p, debug.Stack())}
		}
		a.at, a.took = time.Now(), time.Since(began)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.last = a
	}()
	a.value, a.err = c(ctx)
}

// KeptBy are such values by what they are about. Of these there are few.
type KeptBy[K comparable, T any] struct {
	mu sync.Mutex
	by map[K]*Kept[T]
}

// Of is the value about something.
func (k *KeptBy[K, T]) Of(about K) *Kept[T] {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.by == nil {
		k.by = map[K]*Kept[T]{}
	}
	if k.by[about] == nil {
		k.by[about] = &Kept[T]{}
	}
	return k.by[about]
}
