package pipeline

import (
	"maps"
	"slices"
	"sync"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/claim/wake"
	"github.com/farol-preservation/farol/registry"
)

// A place is a step of items that a pool takes for itself, or for a neighbour.
type place struct{ pool, step string }

// places are where a claim of a pool found nothing, and nothing has been put since as far as is
// known. It is safe for concurrent use.
type places struct {
	mu    sync.Mutex
	empty map[place]bool
}

// worth leaves out the stages at which nothing lies as far as is known. It saves a statement
// for each action, and a transaction for each capped stage.
func (p *places) worth(of Pool, action registry.Action, wants []claim.Want) (ask []claim.Want, some bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ask = slices.Clone(wants)
	for i, w := range ask {
		if p.empty[place{of.Name, stages.StepOf(action, w.Stage)}] {
			ask[i].Most = 0
		}
		some = some || ask[i].Most > 0
	}
	return ask, some
}

// found notes where a claim for n items found less than it asked for. No claim needs to look there
// again before something is put there, a cap has space, a service is back, or a poll finds that
// something has become due: all of these wake the pool. A claim that got all its items has been
// through the stages before the last that it got one of, and through those with a cap, which it
// asks first.
func (p *places) found(of Pool, action registry.Action, asked []claim.Want, n int, got []claim.Item, capped func(registry.Stage) bool) {
	taken := map[registry.Stage]int{}
	for _, item := range got {
		taken[item.Stage]++
	}
	last := -1
	for i, w := range asked {
		if taken[w.Stage] > 0 && !capped(w.Stage) {
			last = i
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, w := range asked {
		through := len(got) < n || i < last || last >= 0 && capped(w.Stage)
		if through && taken[w.Stage] < w.Most {
			p.empty[place{of.Name, stages.StepOf(action, w.Stage)}] = true
		}
	}
}

// hear forgets that there was nothing where there may be something now.
func (p *places) hear(news []cursor.Partition, liesAt func(place, cursor.Partition) bool) {
	if len(news) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.empty, func(at place, _ bool) bool {
		return slices.ContainsFunc(news, func(part cursor.Partition) bool { return liesAt(at, part) })
	})
}

// isOf reports whether a partition is one of a stage and some size bands. Only its stage may be
// known, or nothing.
func isOf(p cursor.Partition, stage registry.Stage, bands []int16) bool {
	return (p.Stage == "" || p.Stage == stage) && (p.Band == wake.AnyBand || slices.Contains(bands, p.Band))
}

// emptyAt reports whether no item waits at any of the steps of a pool, as far as is known.
func (p *places) emptyAt(of Pool, steps []string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !slices.ContainsFunc(steps, func(step string) bool {
		return slices.Contains(of.Stages, step) && !p.empty[place{of.Name, step}]
	})
}
