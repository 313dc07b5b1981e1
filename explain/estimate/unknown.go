package estimate

import (
	"fmt"
	"math"
	"slices"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Reasons for which times are not known. They name nothing of other items.
const (
	noWorker = "no live worker takes its stage"
	tooFar   = "it is too far from being claimed"
)

// obstacle is why nothing can be said of an item; "" if something can.
func (m *Model) obstacle(s registry.Standing) string {
	switch {
	case s.Status == registry.Failed || s.Status == registry.Suspended:
		return "it waits for a person"
	case s.Status != registry.Pending && s.Status != registry.Started:
		return "it has ended"
	case s.Action == registry.GlacierRestore:
		return "it waits for the storage provider"
	case s.Status == registry.Started:
		return ""
	case s.Due == nil:
		return "it waits until another item of its object has ended"
	case s.Snoozed:
		return "its stage has postponed it, and may do so again"
	case s.Held:
		return "a service that it needs fails"
	case s.Paused:
		return "its stage is paused"
	case !m.taken(s, s.Stage):
		return noWorker
	case s.Due.After(s.At):
		return ""
	}
	if _, known := m.ahead(s); !known {
		return tooFar
	}
	return ""
}

// blocked is why an item will not come to its end, although it will come through its stage.
func (m *Model) blocked(k *kind, s registry.Standing) string {
	for _, stage := range k.order[k.at(s.Stage)+1:] {
		if reason := m.stopped(s.Action, stage); reason != "" {
			return reason
		}
		if !m.taken(s, stage) {
			return fmt.Sprintf("no live worker takes %s", stage)
		}
	}
	return ""
}

// stopped is why nothing begins at a stage.
func (m *Model) stopped(action registry.Action, stage registry.Stage) string {
	if m.stage[action][stage].Paused {
		return fmt.Sprintf("%s is paused", stage)
	}
	return ""
}

// lacks is why nothing is known of items that are alike.
func (k *kind) lacks(stage registry.Stage) string {
	few := fmt.Sprintf("fewer than %d items like it have succeeded in the last 7 days", fewest)
	if k == nil || k.at(stage) < 0 {
		return few
	}
	n := 0
	for _, b := range k.bags {
		if !slices.ContainsFunc(b.took[k.at(stage):], math.IsNaN) {
			n++
		}
	}
	if n < fewest {
		return few
	}
	return ""
}

// served reports whether a live worker takes items of a kind at a stage.
func (m *Model) served(k *kind, stage registry.Stage) bool {
	return m.stage[k.action][stage].Worker == "http" || len(m.takers(k, k.at(stage))) > 0
}

// taken reports whether a live worker takes an item at a stage, as far as is known: programs
// that ask over HTTP do not say what they would take.
func (m *Model) taken(s registry.Standing, stage registry.Stage) bool {
	return m.stage[s.Action][stage].Worker == "http" || slices.ContainsFunc(m.pools, func(p record.Pool) bool {
		option := s.StorageOption == nil || has(p.StorageOptions, *s.StorageOption)
		return takes(p, s.Action, stage, s.Size) && option && has(p.Institutions, s.Institution)
	})
}

func takes(p record.Pool, action registry.Action, stage registry.Stage, size int64) bool {
	return has(p.Actions, action) && has(p.Stages, stage) && size >= p.MinSize && (p.MaxSize == 0 || size < p.MaxSize)
}

// has reports whether a list has something; an empty one has everything.
func has[T comparable](list []T, one T) bool { return len(list) == 0 || slices.Contains(list, one) }
