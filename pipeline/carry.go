package pipeline

import (
	"cmp"
	"context"
	"slices"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
)

// slot is a pool's place for one item: its own, or one that it took for a neighbour. The item
// keeps it from stage to stage, as long as no item waits that comes first.
type slot struct {
	pool     *poolRun
	of       Pool
	claiming context.Context //nolint:containedctx // done when the process takes on nothing more
}

// occupy takes an item through one stage after another in a slot, and gives the slot back.
func (r *Runner) occupy(work context.Context, s slot, item claim.Item) {
	for {
		next := r.process(work, item, &s)
		if next == nil {
			r.free(s.pool, s.of.Name, item.Step())
			return
		}
		r.leaveStep(item.Step())
		item = *next
	}
}

// leaveStep gives back what an item had of the bound of a step. A pool may wait for it.
func (r *Runner) leaveStep(step string) {
	r.mu.Lock()
	r.running[step]--
	r.mu.Unlock()
	if _, bounded := r.options.StageSlots[step]; bounded {
		r.signalPools()
	}
}

// enterNext reports whether an item whose stage is done may go on to the next one in its slot,
// and reserves what it needs of that step's bound. It may if a claim for this slot would take it
// before all others: its pool takes the stage, and no item is known to wait there, at a later
// stage, or for another action of the pool. If the slot is lent, no item waits for the pool
// itself either. Where some may wait, one slot gives way, and the others when its claim has found that
// there are more: if all did, each of their items would be one that another process gives way to.
func (r *Runner) enterNext(s *slot, item claim.Item, done claim.Done) (ok bool) {
	if s == nil || s.claiming.Err() != nil || done.Next == "" || item.Action != registry.Ingest {
		return false
	}
	item.Stage, item.StorageOption = done.Next, cmp.Or(done.StorageOption, item.StorageOption)
	step := item.Step()
	f := s.of.filter()
	f.Memory, f.Without = r.options.Memory, r.breakers.without(false)
	if !slices.Contains(s.of.Stages, step) || !f.StillTakes(item, done.MemoryNeed) {
		return false
	}
	waits := !s.pool.places.emptyAt(s.of, r.notBefore(step)) || s.of.Name != s.pool.Name && !s.pool.places.emptyAt(s.pool.Pool, r.order)
	r.mu.Lock()
	defer r.mu.Unlock()
	if waits && !s.pool.gaveWay {
		s.pool.gaveWay = true
		return false
	}
	if slots, bounded := r.options.StageSlots[step]; bounded && r.running[step] >= slots {
		return false
	}
	r.running[step]++
	return true
}

// looked notes that a claim has looked for what a slot gave way to.
func (r *Runner) looked(p *poolRun) {
	r.mu.Lock()
	p.gaveWay = false
	r.mu.Unlock()
}

// notBefore lists the steps whose items a claim takes before those of an ingest's earlier
// stages: the same stage, those behind it, and all other actions, which come in turn.
func (r *Runner) notBefore(step string) (steps []string) {
	for i, name := range r.order {
		if r.steps[name].Action != registry.Ingest || i >= slices.Index(r.order, step) {
			steps = append(steps, name)
		}
	}
	return steps
}
