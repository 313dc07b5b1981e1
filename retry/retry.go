// Package retry waits between attempts, in one way for all of Farol: exponential
// backoff with jitter, from 100 ms to 10 s.
package retry

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Backoff computes how long to wait after each of several failures in a row. It is
// not safe for concurrent use.
type Backoff struct{ next *backoff.ExponentialBackOff }

// NewBackoff returns a backoff that begins at 100 ms.
func NewBackoff() *Backoff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval, b.Multiplier, b.RandomizationFactor = 80*time.Millisecond, 8*time.Second, 2, 0.25
	b.Reset()
	return &Backoff{b}
}

// Next returns the time to wait after one more failure.
func (b *Backoff) Next() time.Duration { return b.next.NextBackOff() }

// Reset begins again at the shortest time: an attempt has succeeded.
func (b *Backoff) Reset() { b.next.Reset() }

// errEnded is the failure of a session that ended without an error.
var errEnded = errors.New("it ended")

// Forever runs a session again and again until ctx is done, and waits after each end
// as [Backoff] says. The session calls succeeded once it works, which resets the
// backoff. failed is called before each wait with the session's error; it is not
// called once ctx is done.
func Forever(ctx context.Context, session func(ctx context.Context, succeeded func()) error, failed func(err error, wait time.Duration)) {
	b := NewBackoff()
	_, _ = backoff.Retry(ctx, func() (struct{}, error) {
		err := session(ctx, b.Reset)
		if err == nil {
			err = errEnded
		}
		return struct{}{}, err
	}, backoff.WithBackOff(b.next), backoff.WithMaxElapsedTime(0), backoff.WithNotify(failed))
}

// Pause waits for d. It reports false at once when ctx is done before that.
func Pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
