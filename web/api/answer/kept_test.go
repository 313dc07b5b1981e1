package answer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farol-preservation/farol/web/api/answer"
)

// What is expensive is computed rarely, however many ask, and longer than it was asked for
// if it takes long; what fails is tried again sooner.
func TestExpensiveValuesAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k answer.Kept[int]
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

// A request that gives up does not wait, and does not end what others wait for.
func TestWhoGivesUpEndsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k answer.Kept[int]
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		computed := 0
		compute := func(ctx context.Context) (int, error) {
			<-time.After(3 * time.Second)
			computed++
			return computed, ctx.Err()
		}
		began := time.Now()
		_, _, err := k.Get(impatient, time.Minute, compute)
		if waited := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || waited != time.Second {
			t.Errorf("%v after %v, want that it gives up after a second", err, waited)
		}
		v, _, err := k.Get(t.Context(), time.Minute, compute)
		if waited := time.Since(began); v != 1 || err != nil || waited != 3*time.Second {
			t.Errorf("%d, %v after %v, want what was begun 3 seconds ago", v, err, waited)
		}
	})
}

// A mistake in computing a value is an error of those who wait for it, and is tried again.
func TestAPanicEndsNoProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k answer.Kept[int]
		none := []int{}
		if _, _, err := k.Glance(t.Context(), time.Second, func(context.Context) (int, error) { return none[len(none)], nil }); err == nil || !strings.Contains(err.Error(), "kept_test.go") {
			t.Errorf("%v, want where it happened", err)
		}
		<-time.After(time.Second)
		if v, _, err := k.Glance(t.Context(), time.Second, func(context.Context) (int, error) { return 1, nil }); v != 1 || err != nil {
			t.Errorf("%d, %v", v, err)
		}
	})
}

// What people look at is shown as it was while it is computed again, unless it is very old, or
// could not be computed.
func TestAGlanceDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var k answer.Kept[int]
		value, failure := 0, error(nil)
		for _, step := range []struct {
			pass    time.Duration // before it
			fails   error
			value   int
			waits   time.Duration
			wantErr bool
		}{
			{value: 1, waits: time.Second},
			{pass: 20 * time.Second, value: 1},
			{pass: 2 * time.Second, value: 2},
			{pass: 78 * time.Second, value: 2},
			{pass: 82 * time.Second, value: 4, waits: time.Second},
			{pass: 20 * time.Second, value: 4, fails: errors.New("no answer")},
			{pass: 1500 * time.Millisecond, wantErr: true},
			{pass: time.Second, value: 6, waits: time.Second},
		} {
			<-time.After(step.pass)
			failure = step.fails
			began := time.Now()
			got, _, err := k.Glance(t.Context(), time.Second, func(context.Context) (int, error) {
				failed := failure
				<-time.After(time.Second)
				value++
				return value, failed
			})
			if waited := time.Since(began); waited != step.waits || (err != nil) != step.wantErr || err == nil && got != step.value {
				t.Errorf("%+v: %d, %v after %v", step, got, err, waited)
			}
		}
		<-time.After(time.Minute) // what is computed at the end
	})
}
