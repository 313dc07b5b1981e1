package claim

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farol-preservation/farol/claim/process"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// scripted is a store without troubles of its own, but for the calls that a test
// takes over.
type scripted struct {
	asStore

	onRenew func(ctx context.Context, n int) error // n counts the calls
	onClaim func(ctx context.Context)
	renews  int
}

func (s *scripted) renew(ctx context.Context, w worker, every time.Duration, held []heldLease, gone []givenUp) (renewed, error) {
	s.mu.Lock()
	s.renews++
	n := s.renews
	s.mu.Unlock()
	if s.onRenew != nil {
		if err := s.onRenew(ctx, n); err != nil {
			return renewed{}, err
		}
	}
	return s.asStore.renew(ctx, w, every, held, gone)
}

func (s *scripted) claim(ctx context.Context, takes []take) ([][]Item, error) {
	got, err := s.asStore.claim(ctx, takes)
	if s.onClaim != nil {
		s.onClaim(ctx)
	}
	return got, err
}

// engineOn returns an engine with the default options on a store that is not the
// database, and without a kernel that knows what workers die of.
func engineOn(t *testing.T, s store) *Engine {
	t.Helper()
	o := DefaultOptions()
	o.Log = slog.New(slog.DiscardHandler)
	return must.Get(newEngine(t.Context(), on(s), process.Kernel{Proc: "none", CGroup: "none"}, o))(t)
}

// onScript runs a test under a virtual clock, with an engine that runs on a
// scripted store and one claimed item. Leases last 30 s, heartbeats come each 10.
func onScript(t *testing.T, script *scripted, test func(t *testing.T, e *Engine, h *Hold)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSimStore(&sim{epoch: time.Now(), given: map[[2]int64]bool{}, taken: map[[2]int64]int{}})
		s.items = s.items[:1]
		s.items[0].runAt = 0
		script.asStore = asStore{&simConn{simStore: s}}
		e := engineOn(t, script)
		ctx, stop := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() {
			if err := e.Run(ctx); err != nil {
				t.Errorf("Run: %v", err)
			}
		})
		defer running.Wait()
		defer stop()
		<-time.After(time.Second)
		items, err := e.Claim(ctx, Filter{Stages: []Want{{"A", 1}}}, 1)
		if err != nil || len(items) != 1 {
			t.Fatalf("Claim = %v, %v", items, err)
		}
		test(t, e, e.Hold(ctx, items[0]))
		s.later.Wait()
	})
}

// after waits by the virtual clock, and returns early if the hold ends.
func after(d time.Duration, h *Hold) {
	select {
	case <-time.After(d):
	case <-h.Context().Done():
	}
}

func hang(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// A connection that hangs is no reason to stop work: there is time to renew by
// another.
func TestOneHeartbeatThatHangsCostsNoWork(t *testing.T) {
	t.Parallel()
	onScript(t, &scripted{onRenew: func(ctx context.Context, n int) error {
		if n%2 == 0 {
			return hang(ctx)
		}
		return nil
	}}, func(t *testing.T, _ *Engine, h *Hold) {
		t.Helper()
		after(5*time.Minute, h)
		if h.Context().Err() != nil {
			t.Errorf("the work was stopped: %v", context.Cause(h.Context()))
		}
	})
}

// However the heartbeats fail, work ends before its lease does.
func TestWorkEndsBeforeItsLease(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(ctx context.Context, n int) error{
		"at once": func(context.Context, int) error { return errSim },
		"hanging": func(ctx context.Context, _ int) error { return hang(ctx) },
		"at once, and hanging in the end": func(ctx context.Context, n int) error {
			if n < 5 {
				return errSim
			}
			return hang(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onScript(t, &scripted{onRenew: func(ctx context.Context, n int) error {
				if n == 1 {
					return nil
				}
				return fails(ctx, n)
			}}, func(t *testing.T, _ *Engine, h *Hold) {
				t.Helper()
				begun := time.Now()
				after(time.Minute, h)
				if took := time.Since(begun); took >= 30*time.Second || took < 15*time.Second {
					t.Errorf("the work ended after %v, with a lease of 30s", took)
				}
				if cause := context.Cause(h.Context()); !errors.Is(cause, ErrLost) {
					t.Errorf("it ended with %v, want ErrLost", cause)
				}
			})
		})
	}
}

// The lease of a claim runs from when it was made, not from when its answer came,
// and no heartbeat in between has renewed it.
func TestLateAnswerToAClaimLeavesLessTime(t *testing.T) {
	t.Parallel()
	onScript(t, &scripted{
		onClaim: func(ctx context.Context) { hang(ctx) }, //nolint:errcheck // as long as it may
		onRenew: func(ctx context.Context, n int) error {
			if n > 2 {
				return errSim
			}
			return nil
		},
	}, func(t *testing.T, e *Engine, h *Hold) {
		t.Helper()
		begun := time.Now()
		after(time.Minute, h)
		if took := time.Since(begun); took > 20*time.Second-statementTime {
			t.Errorf("the work ended after %v, when two thirds of its lease had passed for long", took)
		}
	})
}

// A check whether an item is still claimed ends in time, and does not succeed without an
// answer from the database.
func TestCheckDoesNotHang(t *testing.T) {
	t.Parallel()
	onScript(t, &scripted{onRenew: func(ctx context.Context, n int) error {
		if n == 1 {
			return nil
		}
		return hang(ctx)
	}}, func(t *testing.T, _ *Engine, h *Hold) {
		t.Helper()
		after(16*time.Second, h)
		begun := time.Now()
		if err := h.Check(context.Background()); err == nil {
			t.Error("the check succeeded, and the database did not answer")
		}
		if took := time.Since(begun); took > statementTime {
			t.Errorf("that took %v", took)
		}
	})
}

// Leases that an administrator makes shorter are renewed sooner at once.
func TestShorterLeasesAreRenewedInTime(t *testing.T) {
	t.Parallel()
	script := &scripted{}
	onScript(t, script, func(t *testing.T, e *Engine, h *Hold) {
		t.Helper()
		after(12*time.Second, h)
		script.mu.Lock()
		for i := range script.stages {
			script.stages[i].Heartbeat, script.stages[i].Lease = time.Second, 3*time.Second
		}
		before := script.renews
		script.mu.Unlock()
		after(settingsEvery+2*time.Second, h) // no notification was sent
		script.mu.Lock()
		defer script.mu.Unlock()
		if script.renews == before {
			t.Error("no heartbeat has come since")
		}
		if h.Context().Err() != nil {
			t.Errorf("the work was stopped: %v", context.Cause(h.Context()))
		}
	})
}
