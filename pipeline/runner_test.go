package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/testenv"
)

// gate is a stage that counts who is in it, and lets them go one by one.
type gate struct {
	in, most atomic.Int64
	open     chan struct{}
}

func (g *gate) Run(ctx context.Context, _ *work) error {
	n := g.in.Add(1)
	defer g.in.Add(-1)
	for most := g.most.Load(); n > most && !g.most.CompareAndSwap(most, n); most = g.most.Load() {
	}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// The slots of a stage hold in the whole process, whichever pools share it; all
// of them are used, and none is lost on the way.
func TestStageSlotsHoldAcrossPools(t *testing.T) {
	t.Parallel()
	const bags, slots = 7, 2
	a := newArchive(t)
	for i := range bags {
		a.deposit(fmt.Sprintf("bag%d.tar", i), a.bag(bagtest.Spec{Name: fmt.Sprintf("bag%d", i)}))
	}
	g := &gate{open: make(chan struct{})}
	o := claim.DefaultOptions()
	o.Heartbeat, o.Lease, o.Poll, o.Log = 200*time.Millisecond, 20*time.Second, 50*time.Millisecond, a.deps.Log
	engine, err := claim.New(t.Context(), a.db, o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRunner(engine, a.deps, []Step{{"Ingest", "Receive", "done", 0, g}, {"Ingest", "Validate", "", 0, g}}, RunnerOptions{
		Pools: []Pool{
			{Name: "one", Stages: []string{"Receive"}, Slots: 5}, {Name: "two", Stages: []string{"Receive"}, Slots: 5},
		},
		StageSlots: map[string]int{"Receive": slots},
		Log:        a.deps.Log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var worker sync.WaitGroup
	worker.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	for done := range bags {
		testenv.Eventually(t, "the slots to be used", func() bool { return g.in.Load() == int64(min(slots, bags-done)) })
		if n := value[int](a, `SELECT count(*) FROM work_items WHERE status = 'Started'`); n > slots {
			t.Errorf("%d items are claimed for %d slots", n, slots)
		}
		g.open <- struct{}{}
	}
	testenv.Eventually(t, "all items to be at the next stage", func() bool {
		return value[int](a, `SELECT count(*) FROM work_items WHERE stage = 'Validate' AND status = 'Pending'`) == bags
	})
	stop()
	worker.Wait()
	if most := g.most.Load(); most != slots {
		t.Errorf("%d items were in the stage at once, want %d", most, slots)
	}
}

// With claims of one item each, all slots are used all the same, at once and not
// at the next look.
func TestClaimsOfOneFillAllSlots(t *testing.T) {
	t.Parallel()
	const slots = 4
	a := newArchive(t)
	for i := range slots {
		a.deposit(fmt.Sprintf("bag%d.tar", i), a.bag(bagtest.Spec{Name: fmt.Sprintf("bag%d", i)}))
	}
	g := &gate{open: make(chan struct{})}
	o := claim.DefaultOptions()
	o.Poll, o.Log, o.Observer = time.Hour, a.deps.Log, oneByOne{t}
	engine, err := claim.New(t.Context(), a.db, o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRunner(engine, a.deps, []Step{{"Ingest", "Receive", "done", 0, g}}, RunnerOptions{
		Pools: []Pool{{Name: "one", Stages: []string{"Receive"}, Slots: slots}}, ClaimMost: map[string]int{"Receive": 1}, Log: a.deps.Log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var worker sync.WaitGroup
	worker.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	testenv.Eventually(t, "the slots to be used", func() bool { return g.in.Load() == slots })
	close(g.open)
	stop()
	worker.Wait()
}

// oneByOne is told of claims, each of which may take one item.
type oneByOne struct{ t *testing.T }

func (oneByOne) Settled(time.Duration, int) {}
func (oneByOne) Ended(claim.End)            {}
func (oneByOne) Lost(string)                {}

func (o oneByOne) Claimed(_ time.Duration, items int) {
	if items > 1 {
		o.t.Errorf("a claim took %d items", items)
	}
}

// What a pool asks for is bounded by its free slots, the stage's and the most of
// one claim, late stages first.
func TestReserve(t *testing.T) {
	t.Parallel()
	r := &Runner{
		order: []string{"Receive", "Validate", "Store"}, running: map[string]int{},
		steps:   map[string]Step{"Receive": {Action: "Ingest", Stage: "Receive"}, "Validate": {Action: "Ingest", Stage: "Validate"}, "Store": {Action: "Ingest", Stage: "Store"}},
		options: RunnerOptions{StageSlots: map[string]int{"Receive": 3}, ClaimMost: map[string]int{"Validate": 2}},
	}
	pool := Pool{Stages: []string{"Receive", "Store", "Validate"}}
	for i, want := range []string{
		"[{Store 4} {Validate 2} {Receive 3}]",
		"[{Store 4} {Validate 2} {Receive 0}]", // the places of Receive are taken
	} {
		if got := fmt.Sprint(r.reserve(pool, "Ingest", 4)); got != want {
			t.Errorf("reserve %d = %s, want %s", i+1, got, want)
		}
	}
}

// Progress that Redis would not keep costs time after a crash, and no work that
// is done; the loss of the claim ends it.
func TestSaverEndsWithAllResults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ save, want error }{
		"kept":      {nil, nil},
		"not kept":  {errors.New("Redis is away"), nil},
		"lost":      {claim.ErrLost, claim.ErrLost},
		"lost, why": {fmt.Errorf("progress: %w", claim.ErrLost), claim.ErrLost},
	} {
		var mu sync.Mutex
		saved := map[int]string{}
		s := newSaver(func(batch map[int]string) error {
			mu.Lock()
			defer mu.Unlock()
			for i, result := range batch {
				saved[i] = result
			}
			return tc.save
		})
		for i := range 100 {
			s.add(i, fmt.Sprint(i))
		}
		all, err := s.close()
		if !errors.Is(err, tc.want) || len(all) != 100 || len(saved) != 100 || all[42] != "42" {
			t.Errorf("%s: %d results, %d saved, %v; want %v", name, len(all), len(saved), err, tc.want)
		}
	}
}
