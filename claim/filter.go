package claim

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/farol-preservation/farol/claim/lane"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/registry"
)

// Want is how many items of a stage may be claimed.
type Want struct {
	Stage registry.Stage
	Most  int
}

// Filter says which items a pool takes. An empty field matches everything.
type Filter struct {
	Action         registry.Action // "" is Ingest
	Stages         []Want          // in order of preference
	MinSize        int64           // bytes
	MaxSize        int64           // bytes, exclusive; 0: no bound
	MinAge         time.Duration   // since the item was made
	Institutions   []string        // identifiers
	Memory         int64           // bytes for lists of files; items that need more are skipped; 0: no bound
	StorageOptions []string        // items of another option are skipped; items without a known option are not
	Without        []Scope         // skipped
}

func (f Filter) action() registry.Action {
	if f.Action == "" {
		return registry.Ingest
	}
	return f.Action
}

// key is the same for filters that take the same items, however many of them and
// in whatever order. It is asked for with each claim.
func (f Filter) key() string {
	stages := lane.Column(f.Stages, func(w *Want) string { return string(w.Stage) })
	slices.Sort(stages)
	b := make([]byte, 0, 256)
	for _, n := range []int64{f.MinSize, f.MaxSize, int64(f.MinAge), f.Memory} {
		b = binary.AppendVarint(b, n)
	}
	lists := [][]string{{string(f.action())}, f.Institutions, f.StorageOptions, stages}
	for _, scope := range f.Without {
		lists = append(lists, scope.Steps, scope.StorageOptions, scope.Institutions)
	}
	for _, list := range lists {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, s := range list {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	return string(b)
}

// Scope is the work that needs a service. An empty field matches everything.
type Scope struct {
	Steps          []string `json:"steps"`                     // see [stages.StepOf]
	StorageOptions []string `json:"storage_options,omitempty"` // of the item
	Institutions   []string `json:"institutions,omitempty"`    // identifiers
}

// Within narrows a filter to what is in a scope as well, and reports whether anything
// is left.
func (f Filter) Within(s Scope) (Filter, bool) {
	f.Stages = slices.DeleteFunc(slices.Clone(f.Stages), func(w Want) bool { return !slices.Contains(s.Steps, stages.StepOf(f.action(), w.Stage)) })
	var some, more bool
	f.StorageOptions, some = both(f.StorageOptions, s.StorageOptions)
	f.Institutions, more = both(f.Institutions, s.Institutions)
	return f, some && more && len(f.Stages) > 0
}

// both is what two lists have in common; an empty list has everything.
func both(a, b []string) (common []string, some bool) {
	switch {
	case len(a) == 0:
		return b, true
	case len(b) == 0:
		return a, true
	}
	common = slices.DeleteFunc(slices.Clone(a), func(s string) bool { return !slices.Contains(b, s) })
	return common, len(common) > 0
}

// StillTakes reports whether the filter takes an item that it has taken once, and that has gone
// on since: to another stage, and perhaps with a storage option and a need of memory, in bytes,
// that are known now. The other properties of an item do not change.
func (f Filter) StillTakes(i Item, need int64) bool {
	switch {
	case f.Memory > 0 && need > f.Memory:
		return false
	case len(f.StorageOptions) > 0 && i.StorageOption != "" && !slices.Contains(f.StorageOptions, i.StorageOption):
		return false
	}
	return !slices.ContainsFunc(f.Without, func(s Scope) bool { return s.Covers(i) })
}

// Covers reports whether an item is in the scope. One whose storage option is not known is in no
// scope that names some.
func (s Scope) Covers(i Item) bool {
	among := func(list []string, one string) bool { return len(list) == 0 || slices.Contains(list, one) }
	return slices.Contains(s.Steps, i.Step()) && among(s.StorageOptions, i.StorageOption) && among(s.Institutions, i.Institution)
}

// scanned is the filter as statements take it: stages that are skipped as a whole are not
// scanned, and of the rest of Without only what matters is kept.
func (f Filter) scanned() Filter {
	if len(f.Without) == 0 {
		return f
	}
	touched := func(s Scope) func(w Want) bool {
		return func(w Want) bool { return slices.Contains(s.Steps, stages.StepOf(f.action(), w.Stage)) }
	}
	f.Stages = slices.Clone(f.Stages)
	for _, s := range f.Without {
		if len(s.StorageOptions) == 0 && len(s.Institutions) == 0 {
			f.Stages = slices.DeleteFunc(f.Stages, touched(s))
		}
	}
	f.Without = slices.DeleteFunc(slices.Clone(f.Without), func(s Scope) bool { return !slices.ContainsFunc(f.Stages, touched(s)) })
	return f
}
