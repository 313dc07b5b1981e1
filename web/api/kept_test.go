package api_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farol-preservation/farol/web/api"
)

// What is expensive is computed rarely, however many ask, and longer than it was asked for
// if it takes long; what fails is tried again sooner.
func TestExpensiveValuesAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k api.Kept
		computed, took, failure := 0, time.Second, error(nil)
		get := func() (int, time.Duration) {
			v, age, err := k.Get(t.Context(), 5*time.Second, func(context.Context) (int, error) {
				<-time.After(took)
				computed++
				return computed, failure
			})
			if !errors.Is(err, failure) {
				t.Errorf("%v, want %v", err, failure)
			}
			return v, age
		}
		wants := func(value int, age time.Duration) {
			t.Helper()
			if v, old := get(); v != value || old != age {
				t.Errorf("%d, %v old; want %d, %v", v, old, value, age)
			}
		}
		pass := func(d time.Duration) { <-time.After(d) }
		wants(1, 0)
		pass(5 * time.Second)
		wants(1, 5*time.Second) // it took a second: 20 seconds are due
		pass(15*time.Second - 1)
		wants(1, 20*time.Second-1)
		pass(1)
		took = time.Millisecond
		wants(2, 0)
		pass(4 * time.Second)
		wants(2, 4*time.Second)
		pass(time.Second)
		took, failure = 10*time.Second, errors.New("no answer")
		wants(3, 0)
		pass(9 * time.Second)
		wants(3, 9*time.Second)
		pass(time.Second)
		wants(4, 0)
	})
}

// A request that gives up does not end what others wait for.
func TestWhoGivesUpEndsNothing(t *testing.T) {
	t.Parallel()
	var k api.Kept
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v, _, err := k.Get(ctx, time.Minute, func(ctx context.Context) (int, error) { return 1, ctx.Err() })
	if v != 1 || err != nil {
		t.Errorf("%d, %v", v, err)
	}
}
