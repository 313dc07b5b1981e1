package retry_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farol-preservation/farol/retry"
)

// The time between attempts doubles up to 10 s, and varies by a quarter so that many
// clients of one server do not return together.
func TestBackoffGrowsWithinItsBounds(t *testing.T) {
	t.Parallel()
	b := retry.NewBackoff()
	for _, want := range []time.Duration{80, 160, 320, 640, 1280, 2560, 5120, 8000, 8000, 8000} {
		want *= time.Millisecond
		if got := b.Next(); got < want*3/4 || got > want*5/4 {
			t.Errorf("Next = %v, want %v and a quarter more or less", got, want)
		}
	}
	b.Reset()
	if got := b.Next(); got > 100*time.Millisecond {
		t.Errorf("Next after Reset = %v, want 100ms at most", got)
	}
}

func TestForeverRunsUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		lost := errors.New("lost")
		sessions := 0
		var waits []time.Duration
		retry.Forever(ctx, func(_ context.Context, succeeded func()) error {
			switch sessions++; sessions {
			case 5:
				succeeded()
			case 7:
				cancel()
			}
			return lost
		}, func(err error, wait time.Duration) {
			if !errors.Is(err, lost) {
				t.Errorf("failed(%v), want the session's error", err)
			}
			waits = append(waits, wait)
		})
		if len(waits) != 6 || waits[3] < 480*time.Millisecond || waits[4] > 100*time.Millisecond {
			t.Errorf("waits = %v; want six, and a short one after the session that succeeded", waits)
		}
	})
}

func TestPauseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !retry.Pause(t.Context(), time.Hour) || time.Since(began) != time.Hour {
			t.Errorf("Pause ended after %v, want an hour", time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if retry.Pause(ctx, time.Hour) || time.Since(began) != time.Hour+time.Second {
			t.Errorf("Pause ended %v after its begin, want when its context did", time.Since(began))
		}
	})
}
