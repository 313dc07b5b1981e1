package pipeline_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/pipeline/pipelinetest"
)

// sized deposits bags and has them be of a size.
func (a *archive) sized(n int, size int64) {
	a.T.Helper()
	for range n {
		name := fmt.Sprintf("bag%d", pipelinetest.Value[int](a, `SELECT count(*) FROM work_items`))
		id := a.Deposit(name+".tar", a.Bag(bagtest.Spec{Name: name}))
		a.Exec(fmt.Sprintf(`UPDATE work_items SET size = %d WHERE id = %d`, size, id))
	}
}

func (a *archive) startedBelow(size int64) int {
	return pipelinetest.Value[int](a, `SELECT count(*) FROM work_items WHERE status = 'Started' AND size < $1`, size)
}

// A pool without work of its own helps the pool of the sizes next to it, and
// keeps a slot: what comes for itself is begun at once.
func TestPoolsHelpEachOtherAndKeepASlot(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	a := newArchive(t)
	g := &pipelinetest.Gate{Open: make(chan struct{})}
	stages := []string{"Receive"}
	a.sized(20, 1)
	a.Run(a.Deps, []pipeline.Step{{Action: "Ingest", Stage: "Receive", Note: "done", Run: g}, {Action: "Ingest", Stage: "Validate", Note: "", Run: g}}, pipeline.RunnerOptions{Pools: []pipeline.Pool{
		{Name: "small", Stages: stages, MaxSize: gib, Slots: 4},
		{Name: "large", Stages: stages, MinSize: gib, Slots: 3},
	}})
	testenv.Eventually(t, "six small bags in work: four slots, and two that are lent", func() bool { return g.In.Load() == 6 })
	a.sized(1, 5*gib)
	testenv.Eventually(t, "the large bag in the slot that was kept", func() bool { return g.In.Load() == 7 })
	if small := a.startedBelow(gib); small != 6 {
		t.Errorf("%d small bags are in work beside the large one, want 6", small)
	}
}

// One provider's outage stops only the items that go there.
func TestPoolTakesOnlyItsProvidersItems(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	g := &pipelinetest.Gate{Open: make(chan struct{})}
	a.sized(3, 1)
	a.Exec(`UPDATE work_items SET claim_token = claim_token + 1, stage = 'Store',
		storage_option = CASE id % 3 WHEN 0 THEN 'Standard' WHEN 1 THEN 'Wasabi-VA' END`)
	a.Run(a.Deps, []pipeline.Step{{Action: "Ingest", Stage: "Receive", Note: "done", Run: g}, {Action: "Ingest", Stage: "Store", Note: "done", Run: g}}, pipeline.RunnerOptions{Pools: []pipeline.Pool{
		{Name: "aws", Stages: []string{"Store"}, StorageOptions: []string{"Standard", "Glacier-OH"}, Slots: 5},
	}})
	testenv.Eventually(t, "the items of AWS, and that of which nothing is known", func() bool { return g.In.Load() == 2 })
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM work_items WHERE status = 'Pending' AND storage_option = 'Wasabi-VA'`); n != 1 {
		t.Errorf("%d items of Wasabi wait, want 1", n)
	}
}

// A worker that is asked to drain claims nothing more, ends what it has, and
// stops. Its next heartbeat may be hours away: it is notified.
func TestDrain(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	g := &pipelinetest.Gate{Open: make(chan struct{})}
	a.sized(3, 1)
	eo := claim.DefaultOptions()
	eo.Log, eo.Heartbeat, eo.Lease = a.Deps.Log, time.Hour, 4*time.Hour
	engine := must.Get(claim.New(context.Background(), a.DB, eo))(t)
	defer engine.Close()
	r := must.Get(pipeline.NewRunner(engine, a.Deps, []pipeline.Step{{Action: "Ingest", Stage: "Receive", Note: "done", Run: g}, {Action: "Ingest", Stage: "Validate", Note: "", Run: g}}, pipeline.RunnerOptions{
		Pools: []pipeline.Pool{{Name: "one", Stages: []string{"Receive"}, Slots: 2}}, Grace: time.Minute, Log: a.Deps.Log,
	}))(t)
	stopped := make(chan error, 1)
	go func() { stopped <- r.Run(context.Background()) }()
	testenv.Eventually(t, "two bags in work", func() bool { return g.In.Load() == 2 })
	testenv.Eventually(t, "the worker to be known", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM worker_processes WHERE worker = $1 AND ended_at IS NULL`, engine.Worker()) == 1
	})
	a.Exec(`UPDATE worker_processes SET draining = true`)
	testenv.Eventually(t, "the request to arrive", func() bool {
		a.Exec(`NOTIFY farol_settings`) // again and again: at first it may not listen yet
		select {
		case <-engine.Draining():
			return true
		default:
			return false
		}
	})
	g.Open <- struct{}{}
	g.Open <- struct{}{}
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testenv.Patience):
		t.Fatal("it goes on")
	}
	if n := pipelinetest.Value[int](a, `SELECT count(*) FROM work_items WHERE stage = 'Validate' AND status = 'Pending'`); n != 2 {
		t.Errorf("%d bags were ended, want 2", n)
	}
	if got := pipelinetest.Value[string](a, `SELECT ending FROM worker_processes`); got != "stopped" {
		t.Errorf("it ended as %q, want stopped", got)
	}
}

// While all stages are paused, workers end what they have and then are idle, and
// what comes waits. A worker that polls only once an hour continues when the stages are
// resumed.
func TestPausedQueueKeepsAcceptingAndGoesOnAtOnce(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	g := &pipelinetest.Gate{Open: make(chan struct{})}
	depth := func(column string) int {
		return pipelinetest.Value[int](a, `SELECT coalesce(sum(`+column+`), 0)::int FROM queue_depth`)
	}
	a.sized(5, 1)
	a.Run(a.Deps, []pipeline.Step{{Action: "Ingest", Stage: "Receive", Note: "done", Run: g}, {Action: "Ingest", Stage: "Validate", Note: "", Run: g}}, pipeline.RunnerOptions{Pools: []pipeline.Pool{
		{Name: "all", Stages: []string{"Receive", "Validate"}, Slots: 2},
	}}, func(o *claim.Options) { o.Poll = time.Hour })
	testenv.Eventually(t, "two bags in work", func() bool { return g.In.Load() == 2 })
	if in := depth("in_flight"); in != 5 || depth("running") != 2 {
		t.Errorf("%d items are in flight, want all five: an autoscaler must not stop the worker that has two", in)
	}

	a.Exec(`SELECT pause_all('Upgrade')`)
	a.sized(4, 1)
	g.Open <- struct{}{}
	g.Open <- struct{}{}
	testenv.Eventually(t, "nothing to run", func() bool { return depth("running") == 0 })
	if in, due := g.In.Load(), pipelinetest.Value[int](a, `SELECT sum(due)::int FROM queue_depth WHERE paused`); in != 0 || due != 9 {
		t.Errorf("%d bags are in work and %d are due at paused stages; want none, and all nine", in, due)
	}
	testenv.Eventually(t, "the worker to be known", func() bool {
		return pipelinetest.Value[int](a, `SELECT count(*) FROM worker_processes WHERE ended_at IS NULL`) == 1
	})
	if why := pipelinetest.Value[string](a, `SELECT string_agg(DISTINCT reason, ' ') FROM work_items, why_not(id) WHERE reason <> 'behind others'`); why != "paused" {
		t.Errorf("items wait because of %q", why)
	}

	a.Exec(`SELECT resume_all()`)
	testenv.Eventually(t, "two bags in work again", func() bool { return g.In.Load() == 2 })
}
