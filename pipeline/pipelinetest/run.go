package pipelinetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
)

// Run runs a worker until the test ends, or the function that it returns is called.
func (a *Archive) Run(d pipeline.Deps, steps []pipeline.Step, o pipeline.RunnerOptions, change ...func(*claim.Options)) (r *pipeline.Runner, stop func()) {
	a.T.Helper()
	eo := claim.DefaultOptions()
	eo.Heartbeat, eo.Lease, eo.Poll, eo.Log = 200*time.Millisecond, 20*time.Second, 50*time.Millisecond, d.Log
	for _, c := range change {
		c(&eo)
	}
	engine, err := claim.New(context.Background(), a.DB, eo)
	a.must(err)
	o.Log = d.Log
	r, err = pipeline.NewRunner(engine, d, steps, o)
	a.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var worker sync.WaitGroup
	worker.Go(func() {
		if err := r.Run(ctx); err != nil {
			a.T.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		worker.Wait()
		engine.Close()
	})
	a.T.Cleanup(stop)
	return r, stop
}

// Worker starts a worker of its own with some dependencies, until the test ends.
func (a *Archive) Worker(d pipeline.Deps) *pipeline.Runner {
	a.T.Helper()
	steps := a.Steps(d)
	r, _ := a.Run(d, steps, pipeline.RunnerOptions{Pools: []pipeline.Pool{{Name: "all", Stages: namesOf(steps), Slots: 4}}}, func(o *claim.Options) {
		o.Heartbeat = 2 * time.Second // a worker that is silent for three heartbeats has no vote; a slow machine needs a second
	})
	return r
}

func namesOf(steps []pipeline.Step) (names []string) {
	for _, s := range steps {
		names = append(names, s.Name())
	}
	return names
}

// Start starts a worker with two pools; the function that it returns ends it.
func (a *Archive) Start() (stop func()) {
	a.T.Helper()
	steps := a.Steps(a.Deps)
	stages := namesOf(steps)
	_, stop = a.Run(a.Deps, steps, pipeline.RunnerOptions{
		Pools: []pipeline.Pool{{Name: "small", Stages: stages, MaxSize: 1 << 20, Slots: 4}, {Name: "large", Stages: stages, MinSize: 1 << 20, Slots: 1}},
	}, func(o *claim.Options) { o.Poll = 500 * time.Millisecond })
	return stop
}

// Work runs a worker until every item is at rest.
func (a *Archive) Work() {
	a.T.Helper()
	stop := a.Start()
	a.AtRest()
	stop()
}

// Bags deposits small bags.
func (a *Archive) Bags(n int) {
	a.T.Helper()
	var keys []string
	for i := range n {
		name := fmt.Sprintf("bag%d", i)
		keys = append(keys, name+".tar")
		tar := a.Bag(bagtest.Spec{Name: name, Files: []bagtest.File{{Path: "data/a.txt", Size: int64(1000 + i)}}})
		a.PutRaw(name+".tar", tar)
	}
	if got := a.Taken(keys...); len(got) != n {
		a.T.Fatalf("items %v were made; want %d", got, n)
	}
}

// Unharmed waits until all items are at rest, and fails the test unless all are
// Success and no attempt was spent on what was not theirs.
func (a *Archive) Unharmed(n int) {
	a.T.Helper()
	a.AtRest()
	if got := Value[int](a, `SELECT count(*) FROM work_items WHERE status = 'Success'`); got != n {
		a.T.Errorf("%d of %d items are Success: %s", got, n,
			Value[string](a, `SELECT coalesce(string_agg(DISTINCT status || ' at ' || stage || ': ' || note, E'\n'), '') FROM work_items WHERE status <> 'Success'`))
	}
	if spent := Value[string](a, `SELECT coalesce(string_agg(DISTINCT outcome || ' ' || error_code || ': ' || error, E'\n'), '') FROM work_item_attempts
		WHERE outcome NOT IN ('done', 'held', 'released')`); spent != "" {
		a.T.Errorf("attempts were spent: %s", spent)
	}
}

// Faults are the details that were kept of an item's failure.
func (a *Archive) Faults(id int64) progress.Faults {
	a.T.Helper()
	f, _, err := a.Deps.Progress.Faults(context.Background(), id)
	a.must(err)
	return f
}

// Engine returns a queue without upkeep, for tests that go step by step.
func (a *Archive) Engine() *claim.Engine {
	a.T.Helper()
	o := claim.DefaultOptions()
	o.Lease, o.Heartbeat, o.Log = 10*time.Minute, time.Minute, a.Deps.Log
	e, err := claim.New(context.Background(), a.DB, o)
	a.must(err)
	return e
}

// One takes the only item that is due through a stage of an ingest.
func (a *Archive) One(e *claim.Engine, stage registry.Stage) {
	a.T.Helper()
	a.process(e, a.claimed(e, claim.Filter{Stages: []claim.Want{{Stage: stage, Most: 1}}}))
}

// Request takes the only item of an action that is due through its stage.
func (a *Archive) Request(e *claim.Engine, action registry.Action) {
	a.T.Helper()
	a.process(e, a.claimed(e, claim.Filter{Action: action, Stages: []claim.Want{{Stage: "Requested", Most: 1}}}))
}

// claimed claims the only item that a filter finds.
func (a *Archive) claimed(e *claim.Engine, f claim.Filter) claim.Item {
	a.T.Helper()
	items, err := e.Claim(context.Background(), f, 1)
	if err != nil || len(items) != 1 {
		a.T.Fatalf("Claim(%+v) = %d items, %v", f, len(items), err)
	}
	return items[0]
}

func (a *Archive) process(e *claim.Engine, item claim.Item) {
	a.T.Helper()
	r, err := pipeline.NewRunner(e, a.Deps, a.Steps(a.Deps), pipeline.RunnerOptions{Log: a.Deps.Log})
	a.must(err)
	r.Process(context.Background(), item)
}

// UpTo takes it through the stages before another.
func (a *Archive) UpTo(e *claim.Engine, stage registry.Stage) {
	a.T.Helper()
	for _, s := range a.Steps(a.Deps) {
		if s.Stage == stage {
			return
		}
		a.One(e, s.Stage)
	}
	a.T.Fatalf("there is no stage %s", stage)
}

// Hold claims the only item that is due, for a test that runs its stage itself.
func (a *Archive) Hold(e *claim.Engine, stage registry.Stage) *pipeline.Work {
	a.T.Helper()
	item := a.claimed(e, claim.Filter{Stages: []claim.Want{{Stage: stage, Most: 1}}})
	return &pipeline.Work{Item: item, Hold: e.Hold(context.Background(), item), Log: a.Deps.Log, Progress: a.Deps.Progress}
}

// Gate is a stage that counts who is in it, and lets them go one by one.
type Gate struct {
	In, Most atomic.Int64
	Open     chan struct{}
}

// Run waits until the gate lets it go.
func (g *Gate) Run(ctx context.Context, _ *pipeline.Work) error {
	n := g.In.Add(1)
	defer g.In.Add(-1)
	for most := g.Most.Load(); n > most && !g.Most.CompareAndSwap(most, n); most = g.Most.Load() {
	}
	select {
	case <-g.Open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stage is what is done at a stage.
func (a *Archive) Stage(name registry.Stage) pipeline.Stage {
	a.T.Helper()
	for _, s := range a.Steps(a.Deps) {
		if s.Stage == name {
			return s.Run
		}
	}
	a.T.Fatalf("there is no stage %s", name)
	return nil
}
