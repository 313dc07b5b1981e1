package pipelinetest

import (
	"bytes"
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
	"github.com/farol-preservation/farol/storage"
)

// Worker starts a worker of its own with some dependencies, until the test ends.
func (a *Archive) Worker(d pipeline.Deps) *pipeline.Runner {
	a.T.Helper()
	o := claim.DefaultOptions()
	// A worker that is silent for three heartbeats has no vote; a slow machine needs a second.
	o.Heartbeat, o.Lease, o.Poll, o.Log = 2*time.Second, 20*time.Second, 100*time.Millisecond, d.Log
	engine, err := claim.New(context.Background(), a.DB, o)
	if err != nil {
		a.T.Fatal(err)
	}
	steps := a.Steps(d)
	var stages []string
	for _, s := range steps {
		stages = append(stages, s.Name())
	}
	r, err := pipeline.NewRunner(engine, d, steps, pipeline.RunnerOptions{Pools: []pipeline.Pool{{Name: "all", Stages: stages, Slots: 4}}, Log: d.Log})
	if err != nil {
		a.T.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var worker sync.WaitGroup
	worker.Go(func() {
		if err := r.Run(ctx); err != nil {
			a.T.Error(err)
		}
	})
	a.T.Cleanup(func() { stop(); worker.Wait(); engine.Close() })
	return r
}

// Bags deposits small bags.
func (a *Archive) Bags(n int) {
	a.T.Helper()
	var keys []string
	for i := range n {
		name := fmt.Sprintf("bag%d", i)
		keys = append(keys, name+".tar")
		tar := a.Bag(bagtest.Spec{Name: name, Files: []bagtest.File{{Path: "data/a.txt", Size: int64(1000 + i)}}})
		if _, err := a.Receiving.Put(context.Background(), name+".tar", bytes.NewReader(tar), storage.Upload{Size: int64(len(tar))}); err != nil {
			a.T.Fatal(err)
		}
	}
	if got := a.taken(keys...); len(got) != n {
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

// With is the test's dependencies with every bucket changed.
func (a *Archive) With(change func(t *storage.Target)) pipeline.Deps {
	a.T.Helper()
	open := func(name string) *storage.Bucket {
		t := storage.Target{
			Name: name, Bucket: name, Endpoint: a.S3.Endpoint, Region: a.S3.Region, CAFile: a.S3.CAFile, PathStyle: true,
			AccessKeyID: a.S3.AccessKeyID, SecretAccessKey: storage.Secret(a.S3.SecretAccessKey),
		}
		change(&t)
		b, err := a.Client.Bucket(t)
		if err != nil {
			a.T.Fatal(err)
		}
		return b
	}
	d := a.Deps
	d.Staging = open(a.Deps.Staging.Name())
	d.Targets = map[string]*storage.Bucket{}
	for name, b := range a.Deps.Targets {
		d.Targets[name] = open(b.Name())
	}
	d.Receiving = func(bucket string) (*storage.Bucket, error) { return open(bucket), nil }
	return d
}

// Faults are the details that were kept of an item's failure.
func (a *Archive) Faults(id int64) progress.Faults {
	a.T.Helper()
	f, _, err := a.Deps.Progress.Faults(context.Background(), id)
	if err != nil {
		a.T.Fatal(err)
	}
	return f
}

// Engine returns a queue without upkeep, for tests that go step by step.
func (a *Archive) Engine() *claim.Engine {
	a.T.Helper()
	o := claim.DefaultOptions()
	o.Lease, o.Heartbeat, o.Log = 10*time.Minute, time.Minute, a.Deps.Log
	e, err := claim.New(context.Background(), a.DB, o)
	if err != nil {
		a.T.Fatal(err)
	}
	return e
}

// One takes the only item that is due through a stage.
func (a *Archive) One(e *claim.Engine, stage registry.Stage) {
	a.T.Helper()
	items, err := e.Claim(context.Background(), claim.Filter{Stages: []claim.Want{{Stage: stage, Most: 1}}}, 1)
	if err != nil || len(items) != 1 {
		a.T.Fatalf("Claim(%s) = %d items, %v", stage, len(items), err)
	}
	r, err := pipeline.NewRunner(e, a.Deps, a.Steps(a.Deps), pipeline.RunnerOptions{Log: a.Deps.Log})
	if err != nil {
		a.T.Fatal(err)
	}
	r.Process(context.Background(), items[0])
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
	items, err := e.Claim(context.Background(), claim.Filter{Stages: []claim.Want{{Stage: stage, Most: 1}}}, 1)
	if err != nil || len(items) != 1 {
		a.T.Fatalf("Claim(%s) = %d items, %v", stage, len(items), err)
	}
	return &pipeline.Work{
		Item: items[0], Hold: e.Hold(context.Background(), items[0]), Log: a.Deps.Log,
		Progress: a.Deps.Progress,
	}
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
