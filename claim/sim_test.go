package claim

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/line"
	"github.com/farol-preservation/farol/claim/process"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/registry"
)

var simSeeds = flag.Int("sim.seeds", testenv.Soak(400), "how many seeds of the simulation are run")

// The worker's side against a database that is slow, fails, loses its answers,
// stalls and comes back, with other processes and people interfering. A failure
// names its seed, and the same seed fails again.
func TestWorkerSideKeepsItsPromises(t *testing.T) {
	t.Parallel()
	events := 0
	for seed := range *simSeeds {
		s := simulate(t, seed)
		events += len(s.trace)
		for _, v := range s.violations {
			t.Errorf("seed %d: %s", seed, v)
		}
		if t.Failed() {
			t.Fatalf("what happened in seed %d:\n%s", seed, strings.Join(s.trace, "\n"))
		}
	}
	testenv.Soaked(t, events, "events of the simulated worker's side")
}

// A simulation that fails can be looked into only if it can be repeated.
func TestSameSeedSameStory(t *testing.T) {
	t.Parallel()
	for seed := 0; seed < 100*testenv.Soak(60); seed += 100 {
		first, second := simulate(t, seed), simulate(t, seed)
		if len(first.trace) < 100 {
			t.Errorf("seed %d: only %d things happened", seed, len(first.trace))
		}
		for i := range first.trace {
			if i >= len(second.trace) || first.trace[i] != second.trace[i] {
				t.Errorf("seed %d: event %d was once\n%q\nof\n%s\nand\n%s", seed, i, first.trace[i],
					strings.Join(first.trace[max(0, i-8):min(i+8, len(first.trace))], "\n"), strings.Join(second.trace[max(0, i-8):min(i+8, len(second.trace))], "\n"))
				break
			}
		}
	}
}

// sim is one run: a store, some processes with their pools, and a person.
type sim struct {
	seed    int
	epoch   time.Time
	trouble int // how often calls fail, in percent of the usual
	ends    time.Duration
	outages []outage
	later   sync.WaitGroup // what the store does without anyone waiting

	watch      sync.Mutex
	trace      []string
	violations []string
	given      map[[2]int64]bool // claims that the store has answered with
	taken      map[[2]int64]int  // how many callers got them
	carried    atomic.Int64      // items that went on to their next stage with their worker
}

type outage struct {
	engine   int
	from, to time.Duration
	beatOnly bool
	hangs    bool
}

const (
	simChaos   = 4 * time.Minute
	simQuiet   = 4 * time.Minute
	simItems   = 40
	simEngines = 3
	simPools   = 3
	simSlots   = 4 // of a pool
)

func simStages() []registry.Stage { return []registry.Stage{"A", "B", "C"} }

func (s *sim) slots() int { return simPools * simSlots }

// roll is a number that depends on the seed and on what it is for.
func (s *sim) roll(what ...int64) uint64 {
	x := uint64(s.seed)*0x9E3779B97F4A7C15 + 0x1234567
	for _, w := range what {
		x ^= uint64(w) + 0x9E3779B97F4A7C15
		x ^= x >> 30
		x *= 0xBF58476D1CE4E5B9
		x ^= x >> 27
		x *= 0x94D049BB133111EB
		x ^= x >> 31
	}
	return x
}

func (s *sim) now() time.Duration { return time.Since(s.epoch) }

// calm is before the trouble begins, so that processes can start, and after it.
func (s *sim) calm() bool { return s.now() < 5*time.Second || s.now() > s.ends }

func (s *sim) outage(engine, kind int) *outage {
	for i, o := range s.outages {
		if o.engine == engine && o.from <= s.now() && s.now() < o.to && kind != callListen && (!o.beatOnly || kind == callRenew) {
			return &s.outages[i]
		}
	}
	return nil
}

// sleep waits for d or a little longer. No two actors ever wake at the same time,
// so that nothing depends on which of them Go lets run first.
func (s *sim) sleep(ctx context.Context, d time.Duration, actor int) error {
	now := s.now()
	at := (now + d).Truncate(1024) + time.Duration(actor)
	if at < now+d || at == now { // a timer that is due at once makes Go 1.26 crash, in a bubble under the race detector
		at += 1024
	}
	timer := time.NewTimer(at - now)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lasts is for how long a listener's connection does.
func (s *sim) lasts(engine int) time.Duration {
	if s.calm() {
		return simChaos + simQuiet
	}
	return time.Duration(s.roll(7, int64(engine), int64(s.now())) % uint64(time.Minute))
}

func (s *sim) say(format string, args ...any) {
	s.watch.Lock()
	defer s.watch.Unlock()
	s.trace = append(s.trace, fmt.Sprintf("%12.6f ", s.now().Seconds())+fmt.Sprintf(format, args...))
}

func (s *sim) violation(format string, args ...any) {
	s.watch.Lock()
	defer s.watch.Unlock()
	s.violations = append(s.violations, fmt.Sprintf("after %v: ", s.now())+fmt.Sprintf(format, args...))
}

func (s *sim) granted(items []Item) {
	s.watch.Lock()
	defer s.watch.Unlock()
	for _, i := range items {
		s.given[[2]int64{i.ID, i.Token}] = true
	}
}

func simulate(t *testing.T, seed int) (s *sim) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s = &sim{seed: seed, epoch: time.Now(), ends: simChaos, given: map[[2]int64]bool{}, taken: map[[2]int64]int{}}
		s.trouble = []int{20, 100, 300}[s.roll(1)%3]
		for n := range s.roll(2) % 6 {
			from := time.Duration(s.roll(3, int64(n)) % uint64(simChaos))
			s.outages = append(s.outages, outage{
				engine: int(s.roll(4, int64(n)) % simEngines), from: from, to: from + time.Duration(s.roll(5, int64(n))%uint64(50*time.Second)),
				beatOnly: s.roll(6, int64(n))%2 == 0, hangs: s.roll(8, int64(n))%2 == 0,
			})
		}
		store := newSimStore(s)
		ctx, stop := context.WithCancel(context.Background())
		var world sync.WaitGroup
		for e := range simEngines {
			world.Go(func() { store.process(ctx, t, e) })
		}
		world.Go(func() { store.person(ctx) })
		for store.unfinished() > 0 && s.now() < simChaos+simQuiet {
			s.sleep(ctx, time.Second, 1001) //nolint:errcheck // nobody has ended ctx yet
		}
		if n := store.unfinished(); n > 0 {
			s.violation("%d items have not come to their end", n)
		}
		stop()
		world.Wait()
		s.later.Wait()
		store.audit()
	})
	slices.Sort(s.trace)
	slices.Sort(s.violations)
	return s
}

func newSimStore(s *sim) *simStore {
	store := &simStore{
		sim: s, listeners: map[int]chan [2]string{}, asked: map[[2]int]int{}, draining: map[string]bool{}, landed: map[[2]int64]string{},
	}
	for _, stage := range simStages() {
		store.stages = append(store.stages, stages.Settings{
			Action: "Ingest", Stage: stage, Topic: "t", MaxAttempts: 1000, BackoffFirst: time.Second, BackoffMost: 2 * time.Second,
			Overdue: time.Hour, Heartbeat: 10 * time.Second, Lease: 30 * time.Second,
			UnrenewedTimeout: 20 * time.Second, UnrenewedLease: time.Minute,
		})
	}
	for id := range int64(simItems) {
		store.items = append(store.items, &simItem{
			id: id, stage: "A", status: "Pending", band: int16(s.roll(9, id) % 2),
			at:    cursor.Position{Priority: int16(s.roll(10, id)%3) - 1, VirtualStart: int64(s.roll(11, id) % 100)},
			runAt: time.Duration(s.roll(12, id) % uint64(time.Minute)),
		})
	}
	return store
}

func (s *simStore) unfinished() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.items {
		if i.status != "Success" {
			n++
		}
	}
	return n
}

// person requeues items and changes settings.
func (s *simStore) person(ctx context.Context) {
	for n := int64(0); !s.calm() || s.now() < time.Minute; n++ {
		if s.sleep(ctx, time.Duration(s.roll(20, n)%uint64(8*time.Second)), 1000) != nil {
			return
		}
		s.mu.Lock()
		i := s.items[s.roll(21, n)%simItems]
		switch {
		case s.roll(22, n)%10 == 0:
			spans := [][2]time.Duration{{3, 9}, {10, 30}, {10, 30}, {20, 60}}[s.roll(23, n)%4]
			for k := range s.stages {
				s.stages[k].Heartbeat, s.stages[k].Lease = spans[0]*time.Second, spans[1]*time.Second
			}
			if s.roll(24, n)%2 == 0 { // a notice may be missed
				s.tell(line.Settings, "")
			}
			s.say("settings: leases of %v", s.stages[0].Lease)
		case i.status == "Started" || i.status == "Pending":
			s.leave(i, "Pending", s.now())
			i.attempt, i.entered = 0, i.token
			if s.roll(25, n)%2 == 0 {
				s.tell(line.Work, "\n"+string(i.stage))
			}
			s.say("item %d is requeued", i.id)
		}
		s.mu.Unlock()
	}
}

// audit looks at what cannot be seen before the end.
func (s *simStore) audit() {
	for c := range s.given {
		switch n := s.taken[c]; {
		case n > 1:
			s.violation("item %d, token %d went to %d callers", c[0], c[1], n)
		case n == 0 && s.landed[c] == "" && s.items[c[0]].token == c[1]:
			s.violation("item %d, token %d went to nobody and was not given back", c[0], c[1])
		}
	}
	if s.carried.Load() == 0 {
		s.violation("no item was carried on")
	}
	if len(s.given) < simItems {
		s.violation("only %d claims were answered", len(s.given))
	}
}

// process is an engine and its pools.
func (s *simStore) process(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	o := DefaultOptions()
	o.Log = slog.New(slog.DiscardHandler)
	e, err := newEngine(ctx, on(asStore{&simConn{s, n}}), process.Kernel{Proc: "none", CGroup: "none"}, o)
	if err != nil {
		s.violation("engine %d: %v", n, err)
		return
	}
	defer e.Close()
	e.jitter = func(d time.Duration) time.Duration {
		return time.Duration(s.roll(31, int64(n), int64(s.now())) % uint64(d))
	}
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := e.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	for p := range simPools {
		pool := &simPool{simStore: s, engine: e, process: n, id: p, free: make(chan int, simSlots)}
		for slot := range simSlots {
			pool.free <- slot
		}
		parts.Go(func() { pool.run(ctx) })
	}
	parts.Wait()
}
