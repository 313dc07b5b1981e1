package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/claim/wake"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/retry"
)

// RunnerOptions is what a process takes on.
type RunnerOptions struct {
	Memory     int64 // bytes for lists of files that this process has, see [Deps]; items that need more are left to others; 0: no bound
	Pools      []Pool
	StageSlots map[string]int // by [Step.Name], items at once in this process; a step that is not there is bounded by its pool alone
	ClaimMost  map[string]int // items of a step in one claim; likewise
	Grace      time.Duration  // how long running stages may go on once the process is asked to stop
	Observe    func(Outcome)  // called for each stage that ended; may be nil
	Tracer     trace.Tracer   // of attempts; nil: none is traced
	Log        *slog.Logger
}

// Outcome is how a stage ended, for metrics.
type Outcome struct {
	Stage string
	Code  string // "" if it was done
	Took  time.Duration
	Bytes int64  // of the item
	Trace string // ID of the trace that has the attempt; "": none
}

// Runner processes the queue. Pools claim only as many items as they have free slots, so that
// no item lies in a process that cannot work on it.
type Runner struct {
	engine   *claim.Engine
	steps    map[string]Step // by name
	order    []string        // of names
	progress *progress.Store
	reset    resetAttempts
	memory   *memoryBudget
	keeps    bool // interim metadata is kept before it is deleted
	options  RunnerOptions
	breakers *breakers

	pools []*poolRun

	mu      sync.Mutex
	running map[string]int // by step
}

// errStopping is the cause of a stage's end when its process is asked to stop.
var errStopping = errors.New("the worker was asked to stop")

// NewRunner returns a runner for the stages of a pipeline. Pools that name a
// stage which the pipeline lacks are refused.
func NewRunner(engine *claim.Engine, d Deps, steps []Step, o RunnerOptions) (*Runner, error) {
	r := &Runner{
		engine: engine, steps: map[string]Step{},
		progress: d.Progress, reset: d.Registry.ResetAttempts, memory: newMemoryBudget(d.MaxFiles, d.Memory),
		keeps: d.Kept != nil, options: o, running: map[string]int{},
	}
	for _, s := range steps {
		r.steps[s.Name()] = s
		r.order = append(r.order, s.Name())
	}
	for i, p := range o.Pools {
		if err := p.check(r.order); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(o.Pools[:i], func(other Pool) bool { return other.Name == p.Name }) {
			return nil, fmt.Errorf("two pools have the name %s", p.Name)
		}
	}
	r.pools = newPoolRuns(o.Pools)
	if r.options.Log == nil {
		r.options.Log = slog.Default()
	}
	r.breakers = newBreakers(d, r.taken(), engine, r.options.Log)
	return r, nil
}

// Run works until ctx is done or the worker is asked to drain. It then claims
// nothing more, lets running stages go on for the grace period, and gives back
// what is left.
func (r *Runner) Run(ctx context.Context) error {
	pools, err := json.Marshal(r.describe())
	if err != nil {
		return fmt.Errorf("describe the pools: %w", err)
	}
	r.engine.Describe(pools)
	// The leases are kept alive until the last stage has ended, not until we are
	// asked to stop.
	engineCtx, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	var engine sync.WaitGroup
	engine.Go(func() {
		if err := r.engine.Run(engineCtx); err != nil {
			r.options.Log.ErrorContext(engineCtx, "queue upkeep ended; the worker stops", "err", err)
		}
	})
	r.breakers.report(ctx) // before anything is claimed
	engine.Go(func() { r.breakers.run(engineCtx) })
	work, stopWork := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopWork(nil)

	ctx, stopClaiming := context.WithCancel(ctx)
	defer stopClaiming()
	engine.Go(func() {
		select {
		case <-r.engine.Draining():
			r.options.Log.InfoContext(ctx, "draining; claims no more items", "grace", r.options.Grace)
			stopClaiming()
		case <-ctx.Done():
		}
		r.engine.Stopping()
	})
	var claims, items sync.WaitGroup
	for _, p := range r.pools {
		claims.Go(func() { r.pool(ctx, work, p, &items) })
	}
	claims.Wait()
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

// pool claims items for its free slots and starts them, until ctx is done. Its own items come
// first; while there are none, it helps its neighbours.
func (r *Runner) pool(ctx, work context.Context, p *poolRun, items *sync.WaitGroup) {
	look, stop := r.engine.Wakes(ctx, p.Filters(r.taken(), 1)...)
	defer stop()
	if len(p.helped) > 0 {
		var filters []claim.Filter
		for _, n := range p.helped {
			filters = append(filters, n.Filters(r.taken(), 1)...)
		}
		look.Helps(r.engine.Takes(filters...))
	}
	for ctx.Err() == nil {
		r.tryServices(ctx, work, p, items)
		p.places.hear(look.News(), r.liesAt)
		free := r.freeSlots(p)
		got := r.claim(ctx, p, p.Pool, free)
		if free > 0 {
			r.looked(p)
		}
		r.start(ctx, work, p, p.Pool, got, items)
		if free > 0 && (len(got) == free || r.cut(got)) {
			continue // there may be more items: a slot was freed since, or a claim takes only so many
		}
		if len(got) == 0 && r.help(ctx, work, p, items) {
			continue
		}
		look.Full(r.freeSlots(p) == 0)
		select {
		case <-ctx.Done():
		case <-look.C:
		case <-p.freed:
		}
	}
}

// liesAt reports whether what lies in a partition may lie at a place.
func (r *Runner) liesAt(at place, p cursor.Partition) bool {
	pool := r.options.Pools[slices.IndexFunc(r.options.Pools, func(pool Pool) bool { return pool.Name == at.pool })]
	return isOf(p, r.steps[at.step].Stage, r.engine.Settings().BandsWithin(pool.MinSize, pool.MaxSize))
}

// tryServices takes one item that needs a service which has just answered a probe.
func (r *Runner) tryServices(ctx, work context.Context, p *poolRun, items *sync.WaitGroup) {
	if r.freeSlots(p) == 0 {
		return
	}
	got := r.breakers.tryOne(func(within claim.Scope) (got []claim.Item) {
		for _, action := range r.actions(p.Pool) {
			if len(got) == 0 {
				got = r.claimOf(ctx, p, p.Pool, action, 1, &within)
			}
		}
		return got
	})
	r.start(ctx, work, p, p.Pool, got, items)
}

// taken are the steps that the pools take.
func (r *Runner) taken() (steps []Step) {
	for _, name := range r.order {
		if slices.ContainsFunc(r.options.Pools, func(p Pool) bool { return slices.Contains(p.Stages, name) }) {
			steps = append(steps, r.steps[name])
		}
	}
	return steps
}

// help takes items of neighbours for the slots that may be lent, and reports whether there
// were any.
func (r *Runner) help(ctx, work context.Context, p *poolRun, items *sync.WaitGroup) bool {
	for _, n := range p.helped {
		r.mu.Lock()
		most := min(p.Slots-p.inUse-1, p.helps(n)-p.lent[n.Name])
		r.mu.Unlock()
		got := r.claim(ctx, p, n, most)
		r.start(ctx, work, p, n, got, items)
		if len(got) > 0 {
			return true
		}
	}
	return false
}

func (r *Runner) freeSlots(p *poolRun) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return p.Slots - p.inUse
}

// start processes items that are a pool's own, or that it took for a neighbour.
func (r *Runner) start(ctx, work context.Context, p *poolRun, of Pool, got []claim.Item, items *sync.WaitGroup) {
	r.mu.Lock()
	p.inUse += len(got)
	p.lent[of.Name] += len(got)
	r.mu.Unlock()
	for _, item := range got {
		items.Go(func() { r.occupy(work, slot{pool: p, of: of, claiming: ctx}, item) })
	}
}

// reserve says how many items of each stage of an action may be claimed now for a pool's slots:
// late stages first, since they free space in staging and people wait for them, within the
// slots that each step has left in this process. The slots are reserved until claim returns
// those that it did not need, so that two pools never share one.
func (r *Runner) reserve(p Pool, action registry.Action, free int) []claim.Want {
	r.mu.Lock()
	defer r.mu.Unlock()
	var wants []claim.Want
	for _, name := range slices.Backward(r.order) {
		step := r.steps[name]
		if step.Action != action || !slices.Contains(p.Stages, name) {
			continue
		}
		most := free
		if slots, ok := r.options.StageSlots[name]; ok {
			most = min(most, slots-r.running[name])
		}
		if ceiling, ok := r.options.ClaimMost[name]; ok {
			most = min(most, ceiling)
		}
		most = max(most, 0)
		wants = append(wants, claim.Want{Stage: step.Stage, Most: most})
		r.running[name] += most
	}
	return wants
}

// claim takes up to n items for slots of p, of those that the pool of takes. If that takes
// several actions, they come first in rotation.
func (r *Runner) claim(ctx context.Context, p *poolRun, of Pool, n int) []claim.Item {
	actions := r.actions(of)
	p.round++
	var got []claim.Item
	for i := range actions {
		if n > len(got) {
			got = append(got, r.claimOf(ctx, p, of, actions[(p.round+i)%len(actions)], n-len(got), nil)...)
		}
	}
	return got
}

// claimOf takes items of one action; within narrows them to those on which a service
// is tried, nil does not.
func (r *Runner) claimOf(ctx context.Context, p *poolRun, of Pool, action registry.Action, n int, within *claim.Scope) []claim.Item {
	wants := r.reserve(of, action, n)
	f := of.filter()
	f.Action, f.Stages, f.Memory, f.Without = action, wants, r.options.Memory, r.breakers.without(within != nil)
	some := false
	if within != nil {
		f, some = f.Within(*within)
	} else {
		f.Stages, some = p.places.worth(of, action, wants)
	}
	var got []claim.Item
	var err error
	if some {
		got, err = r.engine.Claim(ctx, f, n)
	}
	if within == nil && err == nil {
		p.places.found(of, action, f.Stages, n, got, func(s registry.Stage) bool { return r.engine.Capped(action, s) })
	}
	r.mu.Lock()
	for _, w := range wants {
		r.running[stages.StepOf(action, w.Stage)] -= w.Most
	}
	for _, item := range got {
		r.running[item.Step()]++
	}
	r.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		r.options.Log.WarnContext(ctx, "claim failed; retrying in 1s", "pool", p.Name, "err", err)
		retry.Pause(ctx, time.Second)
	}
	return got
}

// cut tells whether a claim may have left items although there were slots for them, because of
// the ceiling of a stage.
func (r *Runner) cut(got []claim.Item) bool {
	n := map[string]int{}
	for _, item := range got {
		n[item.Step()]++
	}
	for stage, most := range n {
		if ceiling, ok := r.options.ClaimMost[stage]; ok && most >= ceiling {
			return true
		}
	}
	return false
}

func (r *Runner) free(p *poolRun, of, step string) {
	r.mu.Lock()
	r.running[step]--
	p.inUse--
	p.lent[of]--
	r.mu.Unlock()
	r.signalPools()
}

// signalPools has all pools look whether they have space for more.
func (r *Runner) signalPools() {
	for _, other := range r.pools {
		wake.Signal(other.freed)
	}
}
