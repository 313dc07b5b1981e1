package pipeline

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/testenv"
)

// pools runs gates as stages until the test ends.
func (a *archive) pools(steps []Step, o RunnerOptions, change ...func(*claim.Options)) {
	a.t.Helper()
	eo := claim.DefaultOptions()
	eo.Heartbeat, eo.Lease, eo.Poll, eo.Log = 200*time.Millisecond, 20*time.Second, 50*time.Millisecond, a.deps.Log
	for _, c := range change {
		c(&eo)
	}
	engine, err := claim.New(context.Background(), a.db, eo)
	if err != nil {
		a.t.Fatal(err)
	}
	o.Log = a.deps.Log
	r, err := NewRunner(engine, a.deps, steps, o)
	if err != nil {
		a.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var worker sync.WaitGroup
	worker.Go(func() {
		if err := r.Run(ctx); err != nil {
			a.t.Error(err)
		}
	})
	a.t.Cleanup(func() { stop(); worker.Wait(); engine.Close() })
}

// sized deposits bags and has them be of a size.
func (a *archive) sized(n int, size int64) {
	a.t.Helper()
	for range n {
		name := fmt.Sprintf("bag%d", value[int](a, `SELECT count(*) FROM work_items`))
		id := a.deposit(name+".tar", a.bag(bagtest.Spec{Name: name}))
		a.exec(fmt.Sprintf(`UPDATE work_items SET size = %d WHERE id = %d`, size, id))
	}
}

func (a *archive) startedBelow(size int64) int {
	return value[int](a, `SELECT count(*) FROM work_items WHERE status = 'Started' AND size < $1`, size)
}

// A pool without work of its own helps the pool of the sizes next to it, and
// keeps a slot: what comes for itself is begun at once.
func TestPoolsHelpEachOtherAndKeepASlot(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	a := newArchive(t)
	g := &gate{open: make(chan struct{})}
	stages := []string{"Receive"}
	a.sized(20, 1)
	a.pools([]Step{{"Ingest", "Receive", "done", 0, g}, {"Ingest", "Validate", "", 0, g}}, RunnerOptions{Pools: []Pool{
		{Name: "small", Stages: stages, MaxSize: gib, Slots: 4},
		{Name: "large", Stages: stages, MinSize: gib, Slots: 3},
	}})
	testenv.Eventually(t, "six small bags in work: four slots, and two that are lent", func() bool { return g.in.Load() == 6 })
	a.sized(1, 5*gib)
	testenv.Eventually(t, "the large bag in the slot that was kept", func() bool { return g.in.Load() == 7 })
	if small := a.startedBelow(gib); small != 6 {
		t.Errorf("%d small bags are in work beside the large one, want 6", small)
	}
}

// Large bags hold a slot for long, so small ones lend few; and who stands alone
// lends none.
func TestHowManySlotsAreLent(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	small := Pool{Name: "small", MaxSize: gib, Slots: 8}
	large := Pool{Name: "large", MinSize: gib, MaxSize: 64 * gib, Slots: 2}
	huge := Pool{Name: "huge", MinSize: 64 * gib, Slots: 1}
	alone := Pool{Name: "alone", MinSize: gib, Slots: 5, Alone: true}
	for _, tc := range []struct {
		p, n Pool
		want int
	}{
		{small, large, 2}, {large, small, 1}, {large, huge, 0}, {huge, large, 0}, {small, huge, 0}, {huge, small, 0}, {alone, small, 0}, {small, small, 0},
	} {
		if got := tc.p.helps(tc.n); got != tc.want {
			t.Errorf("%s lends %d slots to %s, want %d", tc.p.Name, got, tc.n.Name, tc.want)
		}
	}
}

// One provider's outage stops only the items that go there.
func TestPoolTakesOnlyItsProvidersItems(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	g := &gate{open: make(chan struct{})}
	a.sized(3, 1)
	a.exec(`UPDATE work_items SET claim_token = claim_token + 1, stage = 'Store',
		storage_option = CASE id % 3 WHEN 0 THEN 'Standard' WHEN 1 THEN 'Wasabi-VA' END`)
	a.pools([]Step{{"Ingest", "Receive", "done", 0, g}, {"Ingest", "Store", "done", 0, g}}, RunnerOptions{Pools: []Pool{
		{Name: "aws", Stages: []string{"Store"}, StorageOptions: []string{"Standard", "Glacier-OH"}, Slots: 5},
	}})
	testenv.Eventually(t, "the items of AWS, and that of which nothing is known", func() bool { return g.in.Load() == 2 })
	if n := value[int](a, `SELECT count(*) FROM work_items WHERE status = 'Pending' AND storage_option = 'Wasabi-VA'`); n != 1 {
		t.Errorf("%d items of Wasabi wait, want 1", n)
	}
}

// A worker that is asked to drain claims nothing more, ends what it has, and
// stops. Its next heartbeat may be hours away: it hears of it.
func TestDrain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	g := &gate{open: make(chan struct{})}
	a.sized(3, 1)
	eo := claim.DefaultOptions()
	eo.Log, eo.Heartbeat, eo.Lease = a.deps.Log, time.Hour, 4*time.Hour
	engine, err := claim.New(context.Background(), a.db, eo)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	r, err := NewRunner(engine, a.deps, []Step{{"Ingest", "Receive", "done", 0, g}, {"Ingest", "Validate", "", 0, g}}, RunnerOptions{
		Pools: []Pool{{Name: "one", Stages: []string{"Receive"}, Slots: 2}}, Grace: time.Minute, Log: a.deps.Log,
	})
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.Run(context.Background()) }()
	testenv.Eventually(t, "two bags in work", func() bool { return g.in.Load() == 2 })
	testenv.Eventually(t, "the worker to be known", func() bool {
		return value[int](a, `SELECT count(*) FROM worker_processes WHERE worker = $1 AND ended_at IS NULL`, engine.Worker()) == 1
	})
	a.exec(`UPDATE worker_processes SET draining = true`)
	testenv.Eventually(t, "the request to arrive", func() bool {
		a.exec(`NOTIFY farol_settings`) // again and again: at first it may not listen yet
		select {
		case <-engine.Draining():
			return true
		default:
			return false
		}
	})
	g.open <- struct{}{}
	g.open <- struct{}{}
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testenv.Patience):
		t.Fatal("it goes on")
	}
	if n := value[int](a, `SELECT count(*) FROM work_items WHERE stage = 'Validate' AND status = 'Pending'`); n != 2 {
		t.Errorf("%d bags were ended, want 2", n)
	}
	if got := value[string](a, `SELECT ending FROM worker_processes`); got != "stopped" {
		t.Errorf("it ended as %q, want stopped", got)
	}
}

// While all stages are paused, workers end what they have and then are idle, and
// what comes waits. A worker that looks only once an hour goes on within a second
// of the resume.
func TestPausedQueueKeepsAcceptingAndGoesOnAtOnce(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	g := &gate{open: make(chan struct{})}
	depth := func(column string) int {
		return value[int](a, `SELECT coalesce(sum(`+column+`), 0)::int FROM queue_depth`)
	}
	a.sized(5, 1)
	a.pools([]Step{{"Ingest", "Receive", "done", 0, g}, {"Ingest", "Validate", "", 0, g}}, RunnerOptions{Pools: []Pool{
		{Name: "all", Stages: []string{"Receive", "Validate"}, Slots: 2},
	}}, func(o *claim.Options) { o.Poll = time.Hour })
	testenv.Eventually(t, "two bags in work", func() bool { return g.in.Load() == 2 })
	if in := depth("in_flight"); in != 5 || depth("running") != 2 {
		t.Errorf("%d items are in flight, want all five: an autoscaler must not stop the worker that has two", in)
	}

	a.exec(`SELECT pause_all('Upgrade')`)
	a.sized(4, 1)
	g.open <- struct{}{}
	g.open <- struct{}{}
	testenv.Eventually(t, "nothing to run", func() bool { return depth("running") == 0 })
	if in, due := g.in.Load(), value[int](a, `SELECT sum(due)::int FROM queue_depth WHERE paused`); in != 0 || due != 9 {
		t.Errorf("%d bags are in work and %d are due at paused stages; want none, and all nine", in, due)
	}
	if why := value[string](a, `SELECT string_agg(DISTINCT reason, ' ') FROM work_items, why_not(id) WHERE reason <> 'behind others'`); why != "paused" {
		t.Errorf("items wait because of %q", why)
	}

	a.exec(`SELECT resume_all()`)
	testenv.Eventually(t, "two bags in work again", func() bool { return g.in.Load() == 2 })
}
