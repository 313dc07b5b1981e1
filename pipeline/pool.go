package pipeline

import (
	"fmt"
	"slices"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
)

// Pool is a number of slots for items of some steps and sizes.
type Pool struct {
	Name           string   `json:"name"`
	Stages         []string `json:"stages"`                    // see [Step.Name]
	MinSize        int64    `json:"min_size"`                  // bytes
	MaxSize        int64    `json:"max_size"`                  // bytes, exclusive; 0: no bound
	StorageOptions []string `json:"storage_options,omitempty"` // items of another option are left alone; empty: of any
	Institutions   []string `json:"institutions,omitempty"`    // identifiers; empty: any
	Slots          int      `json:"slots"`                     // items at once
	Alone          bool     `json:"alone,omitempty"`           // it never helps its neighbours

	MinAge time.Duration `json:"min_age,omitempty"` // since the item was made
}

// filter is what the pool claims by, whatever the steps.
func (p Pool) filter() claim.Filter {
	return claim.Filter{
		MinSize: p.MinSize, MaxSize: p.MaxSize, MinAge: p.MinAge, Institutions: p.Institutions, StorageOptions: p.StorageOptions,
	}
}

// Filters are what the pool claims by, one for each action of the steps that it
// takes, with up to most items of each stage, late stages first.
func (p Pool) Filters(steps []Step, most int) (filters []claim.Filter) {
	for _, s := range slices.Backward(steps) {
		if !slices.Contains(p.Stages, s.Name()) {
			continue
		}
		i := slices.IndexFunc(filters, func(f claim.Filter) bool { return f.Action == s.Action })
		if i < 0 {
			f := p.filter()
			f.Action = s.Action
			filters, i = append(filters, f), len(filters)
		}
		filters[i].Stages = append(filters[i].Stages, claim.Want{Stage: s.Stage, Most: most})
	}
	return filters
}

// poolView is a pool as worker_processes has it: an item is the pool's if it is at
// one of the stages, and of one of the actions.
type poolView struct {
	Pool

	Stages  []registry.Stage  `json:"stages"`
	Actions []registry.Action `json:"actions"`
	Memory  int64             `json:"memory,omitempty"` // bytes for lists of files; 0: no bound

	MaxAttempts map[string]int `json:"max_attempts,omitempty"` // by step, where this process overrides the settings: for who reaps
}

// describe says what the pools take, in the terms of work_items.
func (r *Runner) describe() (views []poolView) {
	for _, p := range r.options.Pools {
		v := poolView{Pool: p, Actions: r.actions(p), Memory: r.options.Memory, MaxAttempts: r.engine.MaxAttempts()}
		for _, name := range p.Stages {
			if s := r.steps[name].Stage; !slices.Contains(v.Stages, s) {
				v.Stages = append(v.Stages, s)
			}
		}
		views = append(views, v)
	}
	return views
}

// actions are those of a pool's steps.
func (r *Runner) actions(p Pool) (list []registry.Action) {
	for _, name := range p.Stages {
		if a := r.steps[name].Action; !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

// check refuses a pool that could never take anything.
func (p Pool) check(stages []string) error {
	switch {
	case p.Slots < 1:
		return fmt.Errorf("pool %s has no slots", p.Name)
	case p.MinSize < 0 || p.MaxSize != 0 && p.MaxSize <= p.MinSize:
		return fmt.Errorf("pool %s matches no size: min is %d and max is %d bytes", p.Name, p.MinSize, p.MaxSize)
	case len(p.Stages) == 0:
		return fmt.Errorf("pool %s has no stage", p.Name)
	}
	for _, s := range p.Stages {
		if !slices.Contains(stages, s) {
			return fmt.Errorf("pool %s: there is no stage %q; the stages are %q", p.Name, s, stages)
		}
	}
	return nil
}

// helps is how many of its slots a pool lends to a neighbour while it has nothing to do itself.
// A neighbour takes the sizes next to its own. One slot always stays free for its own items.
// Smaller items are soon done; larger ones may hold a slot for days, so they get a quarter.
func (p Pool) helps(neighbour Pool) int {
	switch {
	case p.Alone:
		return 0
	case neighbour.MaxSize != 0 && neighbour.MaxSize == p.MinSize:
		return p.Slots - 1
	case p.MaxSize != 0 && p.MaxSize == neighbour.MinSize:
		return min(p.Slots-1, p.Slots/4)
	default:
		return 0
	}
}

// poolRun is a pool at work.
type poolRun struct {
	Pool

	freed   chan struct{}  // gets a value when a slot of any pool is free again
	lent    map[string]int // slots with a neighbour's items, by the neighbour's name; guarded by Runner.mu
	inUse   int            // slots; guarded by Runner.mu
	gaveWay bool           // a slot has, and no claim has looked since; guarded by Runner.mu
	round   int            // which action comes first
	helped  []Pool         // the pools that it helps
	places  places         // where nothing lies, as far as is known
}

func newPoolRuns(pools []Pool) []*poolRun {
	runs := make([]*poolRun, len(pools))
	for i, p := range pools {
		runs[i] = &poolRun{Pool: p, freed: make(chan struct{}, 1), lent: map[string]int{}, places: places{empty: map[place]bool{}}}
		for _, n := range pools {
			if p.helps(n) > 0 {
				runs[i].helped = append(runs[i].helped, n)
			}
		}
	}
	return runs
}
