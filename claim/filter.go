package claim

import (
	"encoding/binary"
	"math"
	"slices"
	"time"
)

// Want is how many items of a stage may be claimed.
type Want struct {
	Stage string
	Most  int
}

// Filter says which items a pool takes. What is empty does not narrow.
type Filter struct {
	Action         string        // "" is Ingest
	Stages         []Want        // in the order of preference; calls that meet share that of the first
	MinSize        int64         // bytes
	MaxSize        int64         // bytes, exclusive; 0: no bound
	MinAge         time.Duration // since the item was made
	Institutions   []string      // identifiers
	Memory         int64         // bytes for lists of files; items that need more are left alone; 0: no bound
	StorageOptions []string      // items of another option are left alone, those of which none is known yet are not
	Without        []Scope       // what is left alone
}

func (f Filter) action() string {
	if f.Action == "" {
		return ingest
	}
	return f.Action
}

// An ingest goes from stage to stage. All other actions are requests, which have
// one stage to be worked on, and another when they are done.
const (
	ingest    = "Ingest"
	requested = "Requested"
	resolve   = "Resolve"
)

// StepOf names what is done with an item at a stage: of an ingest it is the stage,
// of a request, since all have the same, the action.
func StepOf(action, stage string) string {
	if action == ingest {
		return stage
	}
	return action
}

// Step is [StepOf] the item.
func (i Item) Step() string { return StepOf(i.Action, i.Stage) }

// mostSize is MaxSize for a statement.
func (f Filter) mostSize() int64 {
	if f.MaxSize == 0 {
		return math.MaxInt64
	}
	return f.MaxSize
}

// narrowing are the arguments of a statement for what more the filter looks at than
// action, stage and size.
func (f Filter) narrowing() []any {
	memory := f.Memory
	if memory == 0 {
		memory = math.MaxInt64
	}
	var without any
	if len(f.Without) > 0 {
		without = f.Without
	}
	return []any{memory, f.MinAge, append([]string{}, f.Institutions...), append([]string{}, f.StorageOptions...), without}
}

// key is the same for filters that take the same items, however many of them and
// in whatever order. It is asked for with each claim.
func (f Filter) key() string {
	stages := make([]string, len(f.Stages))
	for i, w := range f.Stages {
		stages[i] = w.Stage
	}
	slices.Sort(stages)
	b := make([]byte, 0, 256)
	for _, n := range []int64{f.MinSize, f.MaxSize, int64(f.MinAge), f.Memory} {
		b = binary.AppendVarint(b, n)
	}
	for _, list := range [][]string{{f.action()}, f.Institutions, f.StorageOptions, stages} {
		b = binary.AppendUvarint(b, uint64(len(list)))
		for _, s := range list {
			b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
		}
	}
	for _, scope := range f.Without {
		for _, list := range [][]string{scope.Steps, scope.StorageOptions, scope.Institutions} {
			b = binary.AppendUvarint(b, uint64(len(list)))
			for _, s := range list {
				b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
			}
		}
	}
	return string(b)
}

// cell is one stage in one size band: what the index of claimable items is made
// of, and what a claim walks in one go.
type cell struct {
	stage string
	band  int16
}

// position is a place in a cell, in the order in which items go.
type position struct {
	priority int16
	turn     int64
}

// start is before every item.
func start() position { return position{priority: -1 << 15, turn: -1 << 63} }

func (p position) before(o position) bool {
	return p.priority < o.priority || p.priority == o.priority && p.turn < o.turn
}

// probe is one cell as one statement walks it.
type probe struct {
	cell

	most   int
	from   position
	sweeps bool // it goes from the beginning though a hint says more
	capped bool // how many run at once in all processes is bounded
}
