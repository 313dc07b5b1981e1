package claim_test

import (
	"testing"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/claim/wake"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// line is some processes with the same two pools, that learn of work by notices alone.
type line struct {
	*queue
	small, large []*wake.Waiter
}

func newLine(t *testing.T, processes int) *line {
	t.Helper()
	l := &line{queue: newQueue(t)}
	for range processes {
		e := l.engine(func(o *claim.Options) { o.Poll = time.Hour })
		e.Describe([]byte(`[{"name": "small"}, {"name": "large"}]`))
		receive := []claim.Want{{Stage: "Receive", Most: 1}}
		small, stopSmall := e.Wakes(t.Context(), claim.Filter{Stages: receive, MaxSize: 64 * mib})
		t.Cleanup(stopSmall)
		large, stopLarge := e.Wakes(t.Context(), claim.Filter{Stages: receive, MinSize: 64 * mib})
		t.Cleanup(stopLarge)
		l.small, l.large = append(l.small, small), append(l.large, large)
		running(t, e)
	}
	return l
}

// hear puts small items until one of the pools is woken, and returns which are.
func (l *line) hear(of []*wake.Waiter) (woken map[int]bool) {
	l.t.Helper()
	woken = map[int]bool{}
	testenv.Eventually(l.t, "a pool to hear of new work", func() bool {
		l.put("Receive", 1)
		for i, w := range of {
			select {
			case <-w.C:
				woken[i] = true
			default:
			}
		}
		return len(woken) > 0
	})
	return woken
}

// only waits until one process alone hears of new work, of many items in a row, and returns which. All are
// woken when they begin to listen.
func (l *line) only(of []*wake.Waiter) (one int) {
	l.t.Helper()
	testenv.Eventually(l.t, "one process alone to hear of new work", func() bool {
		one = -1
		for range 20 {
			heard := l.hear(of)
			for i := range heard {
				if len(heard) > 1 || one >= 0 && one != i {
					return false
				}
				one = i
			}
		}
		return true
	})
	return one
}

// Of processes with the same pools one hears of new work: if all did, all but one would claim in
// vain. When it has no space, or its session ends, another hears.
func TestOneOfALineHearsOfNewWork(t *testing.T) {
	t.Parallel()
	l := newLine(t, 4)
	first := l.only(l.small)
	l.small[first].Full(true)
	l.large[first].Full(true)
	second := l.only(l.small)
	if second == first {
		t.Error("the process without space heard of new work")
	}
	const holders = `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
	l.exec(`SELECT pg_terminate_backend(pid) FROM (` + holders + `) h`)
	l.only(l.small)
	if n := value[int](l.queue, `SELECT count(*) FROM (`+holders+`) h`); n != 1 {
		t.Errorf("%d processes are the first in line, want 1", n)
	}
}

// A process that hears of what only its full pool takes leaves it to the next in line, which finds
// it although the notice is gone.
func TestWorkForAFullPoolIsLeftToOthers(t *testing.T) {
	t.Parallel()
	l := newLine(t, 2)
	first := l.only(l.small)
	l.exec(`BEGIN; SET LOCAL session_replication_role = replica; TRUNCATE work_items CASCADE; COMMIT`)
	l.small[first].Full(true) // but not its large one
	other := 1 - first
	for len(l.small[other].C) > 0 {
		<-l.small[other].C
	}
	l.put("Receive", 1)
	select {
	case <-l.small[other].C:
	case <-time.After(testenv.Patience):
		t.Fatal("the process that has space was not woken")
	}
}
