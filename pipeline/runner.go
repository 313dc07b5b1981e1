package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/progress"
)

// Pool is a number of slots for items of some stages and sizes.
type Pool struct {
	Name    string
	Stages  []string
	MinSize int64 // bytes
	MaxSize int64 // bytes, exclusive; 0: no bound
	Slots   int   // items at once
}

// RunnerOptions is what a process takes on.
type RunnerOptions struct {
	Pools      []Pool
	StageSlots map[string]int // items of a stage at once in this process; a stage that is not there is bounded by its pool alone
	ClaimMost  map[string]int // items of a stage in one claim; likewise
	Grace      time.Duration  // how long running stages may go on once the process is told to stop
	Observe    func(Outcome)  // told of each stage that ended; may be nil
	Log        *slog.Logger
}

// Outcome is how a stage ended, for metrics.
type Outcome struct {
	Stage string
	Code  string // "" if it was done
	Took  time.Duration
	Bytes int64 // of the item
}

// Runner works the queue: pools claim what they have free slots for, and no
// more, so that nothing lies in a process that cannot work on it.
type Runner struct {
	engine   *claim.Engine
	steps    map[string]Step
	next     map[string]string
	order    []string
	progress *progress.Store
	options  RunnerOptions

	mu      sync.Mutex
	running map[string]int // by stage
	freed   []chan struct{}
}

// errStopping is the cause of a stage's end when its process is told to stop.
var errStopping = errors.New("the worker was told to stop")

// NewRunner returns a runner for the stages of a pipeline. Pools that name a
// stage which the pipeline lacks are refused.
func NewRunner(engine *claim.Engine, d Deps, steps []Step, o RunnerOptions) (*Runner, error) {
	r := &Runner{
		engine: engine, steps: map[string]Step{}, next: map[string]string{},
		progress: d.Progress, options: o, running: map[string]int{},
	}
	for i, s := range steps {
		r.steps[s.Stage] = s
		r.order = append(r.order, s.Stage)
		if i+1 < len(steps) {
			r.next[s.Stage] = steps[i+1].Stage
		}
	}
	for _, p := range o.Pools {
		if p.Slots < 1 {
			return nil, fmt.Errorf("pool %s has no slots", p.Name)
		}
		if p.MaxSize != 0 && p.MaxSize <= p.MinSize {
			return nil, fmt.Errorf("pool %s takes no size: from %d to below %d bytes", p.Name, p.MinSize, p.MaxSize)
		}
		for _, s := range p.Stages {
			if _, ok := r.steps[s]; !ok {
				return nil, fmt.Errorf("pool %s: there is no stage %q; the stages are %q", p.Name, s, r.order)
			}
		}
	}
	if r.options.Log == nil {
		r.options.Log = slog.Default()
	}
	return r, nil
}

// Run works until ctx is done. It then claims nothing more, lets running stages
// go on for the grace period, and gives back what is left.
func (r *Runner) Run(ctx context.Context) error {
	// The leases are kept alive until the last stage has ended, not until we are
	// told to stop.
	engineCtx, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	var engine sync.WaitGroup
	engine.Go(func() {
		if err := r.engine.Run(engineCtx); err != nil {
			r.options.Log.ErrorContext(engineCtx, "queue upkeep ended", "err", err)
		}
	})
	work, stopWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopWork(nil)

	var pools, items sync.WaitGroup
	for range r.options.Pools {
		r.freed = append(r.freed, make(chan struct{}, 1))
	}
	for i, p := range r.options.Pools {
		pools.Go(func() { r.pool(ctx, work, p, r.freed[i], &items) })
	}
	pools.Wait()
	r.drain(stopWork, &items)
	stopEngine()
	engine.Wait()
	return nil
}

func (r *Runner) drain(stop context.CancelCauseFunc, items *sync.WaitGroup) {
	ended := make(chan struct{})
	go func() {
		items.Wait()
		close(ended)
	}()
	grace := time.NewTimer(r.options.Grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		stop(errStopping)
		<-ended
	}
}

// pool claims for its free slots and starts what it got, until ctx is done.
func (r *Runner) pool(ctx, work context.Context, p Pool, freed chan struct{}, items *sync.WaitGroup) {
	look, stop := r.engine.Wakes(ctx)
	defer stop()
	slots := make(chan struct{}, p.Slots)
	for ctx.Err() == nil {
		free := p.Slots - len(slots)
		wants := r.reserve(p, free)
		var got []claim.Item
		if len(wants) > 0 {
			got = r.claim(ctx, p, wants, free)
		}
		for _, item := range got {
			slots <- struct{}{}
			items.Go(func() {
				defer r.free(item.Stage)
				defer func() { <-slots }()
				r.one(work, item)
			})
		}
		if len(got) > 0 && len(got) == free {
			continue // there may be more for another slot that was freed meanwhile
		}
		select {
		case <-ctx.Done():
		case <-look:
		case <-freed:
		}
	}
}

// reserve says what a pool may claim now: late stages first, since what is
// nearly done frees staging room and is waited for, within the slots that each
// stage has left in this process. The places are taken until claim gives back
// what it did not get, so that two pools never share one.
func (r *Runner) reserve(p Pool, free int) []claim.Want {
	if free <= 0 {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	takes := map[string]bool{}
	for _, s := range p.Stages {
		takes[s] = true
	}
	var wants []claim.Want
	for i := len(r.order) - 1; i >= 0; i-- {
		stage := r.order[i]
		most := free
		if slots, ok := r.options.StageSlots[stage]; ok {
			most = min(most, slots-r.running[stage])
		}
		if ceiling, ok := r.options.ClaimMost[stage]; ok {
			most = min(most, ceiling)
		}
		if takes[stage] && most > 0 {
			wants = append(wants, claim.Want{Stage: stage, Most: most})
			r.running[stage] += most
		}
	}
	return wants
}

func (r *Runner) claim(ctx context.Context, p Pool, wants []claim.Want, free int) []claim.Item {
	got, err := r.engine.Claim(ctx, claim.Filter{Stages: wants, MinSize: p.MinSize, MaxSize: p.MaxSize}, free)
	if err != nil && ctx.Err() == nil {
		r.options.Log.WarnContext(ctx, "no claim", "pool", p.Name, "err", err)
		pause(ctx, time.Second)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range wants {
		r.running[w.Stage] -= w.Most
	}
	for _, item := range got {
		r.running[item.Stage]++
	}
	return got
}

func (r *Runner) free(stage string) {
	r.mu.Lock()
	r.running[stage]--
	r.mu.Unlock()
	for _, c := range r.freed {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// one takes an item through one stage. What the stage came to is logged here
// and nowhere else.
func (r *Runner) one(ctx context.Context, item claim.Item) {
	step := r.steps[item.Stage]
	log := r.options.Log.With("item", item.ID, "stage", item.Stage, "attempt", item.Attempt, "bag", item.Name)
	hold := r.engine.Hold(ctx, item)
	w := &work{item: item, hold: hold, log: log}
	start := time.Now()
	result := hold.Verdict(hold.Do(func(ctx context.Context) error { return step.run.Run(ctx, w) }))
	took := time.Since(start)
	if r.options.Observe != nil {
		r.options.Observe(Outcome{Stage: item.Stage, Code: claim.Code(result), Took: took, Bytes: item.Size})
	}
	if errors.Is(result, claim.ErrLost) {
		hold.Abandon()
		log.WarnContext(ctx, "work dropped, the item is no longer ours", "took", took)
		return
	}

	done := claim.Done{Next: r.next[item.Stage], Note: step.note, Outcome: "Ingest complete", ObjectID: w.objectID}
	settled, cancel := context.WithTimeout(context.WithoutCancel(ctx), hold.Lease())
	defer cancel()
	if err := r.settle(settled, hold, done, result); err != nil {
		hold.Abandon()
		log.WarnContext(settled, "outcome not recorded", "result", result, "err", err)
		return
	}
	r.logOutcome(settled, log, result, took)
	if result != nil || done.Next == "" {
		return // the next attempt takes it up; or there is nothing left of the item
	}
	if err := r.progress.ClearStage(settled, w.claim(), w.passOf()); err != nil && !errors.Is(err, progress.ErrLost) {
		log.WarnContext(settled, "progress of a finished stage stays in Redis until cleanup", "err", err)
	}
}

// settle records the outcome, again and again while the database does not
// answer: as long as the lease lasts, nobody else can have the item.
func (r *Runner) settle(ctx context.Context, hold *claim.Hold, done claim.Done, result error) error {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := hold.Settle(ctx, done, result)
		if err == nil || errors.Is(err, claim.ErrLost) || !pause(ctx, wait) {
			return err
		}
		r.options.Log.WarnContext(ctx, "outcome will be recorded again", "item", hold.Item.ID, "err", err)
	}
}

func (r *Runner) logOutcome(ctx context.Context, log *slog.Logger, result error, took time.Duration) {
	switch code := claim.Code(result); {
	case result == nil:
		log.InfoContext(ctx, "stage done", "took", took)
	case claim.NeedsPerson(result):
		log.ErrorContext(ctx, "item needs a person", "code", code, "result", result, "took", took)
	default:
		log.WarnContext(ctx, "stage not done", "code", code, "result", result, "took", took)
	}
}
