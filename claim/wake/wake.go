// Package wake notifies the pools of a process that there may be work, and other processes
// of where it is.
package wake

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/registry"
)

// Board notifies waiting pools that there is work which they take, and claims of where it is. A
// signal says "poll again", not what there is. It is safe for concurrent use.
type Board struct {
	pending chan struct{} // gets a value when other processes are to be notified
	turned  chan struct{} // gets a value when Waits may have another answer

	mu      sync.Mutex
	unsent  map[cursor.Partition]cursor.Position // the best place of each that others do not know of
	waiting map[*Waiter]bool
	aside   bool // see Waits
	cursors []*cursor.Cursors
}

// New returns a board that nobody waits at.
func New() *Board {
	return &Board{pending: make(chan struct{}, 1), turned: make(chan struct{}, 1), unsent: map[cursor.Partition]cursor.Position{}, waiting: map[*Waiter]bool{}}
}

// Pending gets a value when other processes are to be notified.
func (w *Board) Pending() <-chan struct{} { return w.pending }

// Turned gets a value when [Board.Waits] may have another answer.
func (w *Board) Turned() <-chan struct{} { return w.turned }

// Waits reports whether this process should be notified of new work: one of its pools has space,
// and nothing came lately for which only a full pool is. Of that another process should be.
func (w *Board) Waits() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.aside {
		return false
	}
	for one := range w.waiting {
		if !one.full {
			return true
		}
	}
	return false
}

// Subscribe adds the cursors of a filter to those that are lowered where work is put.
func (w *Board) Subscribe(c *cursor.Cursors) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cursors = append(w.cursors, c)
}

// Unsubscribe removes all cursors.
func (w *Board) Unsubscribe() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cursors = nil
}

// Put says where this process made items claimable. The places of one statement are put
// at once, so that others are notified of them at once too.
func (w *Board) Put(places []cursor.Place) {
	if len(places) == 0 {
		return
	}
	w.Lower(places...)
	partitions := make([]cursor.Partition, len(places))
	w.mu.Lock()
	for i, p := range places {
		partitions[i] = p.Partition
		if best, ok := w.unsent[p.Partition]; !ok || p.Position.Before(best) {
			w.unsent[p.Partition] = p.Position
		}
	}
	w.mu.Unlock()
	Signal(w.pending)
	w.ringFor(partitions)
}

// Lower makes all claims see items at places.
func (w *Board) Lower(places ...cursor.Place) {
	w.mu.Lock()
	cursors := w.cursors
	w.mu.Unlock()
	for _, c := range cursors {
		c.Lower(places...)
	}
}

// Reset makes the next claims of a stage start at the beginning; of all stages if it
// is "".
func (w *Board) Reset(stage registry.Stage) {
	w.mu.Lock()
	cursors := w.cursors
	w.mu.Unlock()
	for _, c := range cursors {
		c.Reset(stage)
	}
}

// Notice is the payload for other processes: the name of this one, and a line for each
// partition with the best place in which an item was put.
func (w *Board) Notice(worker string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	b.WriteString(worker)
	for p, at := range w.unsent {
		fmt.Fprintf(&b, "\n%s\t%d\t%d\t%d", p.Stage, p.Band, at.Priority, at.VirtualStart)
	}
	clear(w.unsent)
	return b.String()
}

// Receive takes a notice of another process or of a trigger. A line that names a
// stage alone stands for anywhere in it.
func (w *Board) Receive(worker, notice string) {
	from, lines, _ := strings.Cut(notice, "\n")
	if from == worker {
		return // its own message
	}
	var partitions []cursor.Partition
	for line := range strings.Lines(lines) {
		stage, where, exact := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		p := cursor.Place{Partition: cursor.Partition{Stage: registry.Stage(stage)}}
		if exact {
			n, err := fmt.Sscanf(where, "%d\t%d\t%d", &p.Partition.Band, &p.Position.Priority, &p.Position.VirtualStart)
			exact = err == nil && n == 3
		}
		if exact {
			w.Lower(p)
		} else {
			w.Reset(registry.Stage(stage))
			p.Partition.Band = AnyBand
		}
		partitions = append(partitions, p.Partition)
	}
	w.ringFor(partitions)
}

// AnyBand is the size band of a partition if only its stage is known. The stage "" is any
// stage.
const AnyBand = -1

// ringFor wakes the pools that wait for any of these partitions, and reports whether there are
// some: one that does not take what there is would claim in vain.
func (w *Board) ringFor(partitions []cursor.Partition) (rung bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range partitions {
		some, space := false, false
		for one := range w.waiting {
			if one.takes(p) {
				some, space = true, space || !one.full
				one.news[p] = true
				Signal(one.wakes)
			}
		}
		for one := range w.waiting {
			if one.helps != nil && one.helps(p) {
				one.news[p] = true
				if !space && !one.full { // else it would claim in vain
					Signal(one.wakes)
					space = true
				}
			}
		}
		rung = rung || space
		if some && !space && !w.aside {
			w.aside = true
			Signal(w.turned)
		}
	}
	return rung
}

// Found wakes the pools that take items which a poll has found, and reports whether there are
// some. The places are where the first of each partition lies.
func (w *Board) Found(places []cursor.Place) (rung bool) {
	w.Lower(places...)
	partitions := make([]cursor.Partition, len(places))
	for i, p := range places {
		partitions[i] = p.Partition
	}
	w.mu.Lock()
	w.aside = false // unless there is still what only a full pool takes
	w.mu.Unlock()
	defer Signal(w.turned)
	return w.ringFor(partitions)
}

// Ring wakes all pools that wait, whatever they take.
func (w *Board) Ring() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.waiting {
		one.news[cursor.Partition{Band: AnyBand}] = true
		Signal(one.wakes)
	}
}

// A Waiter is woken when there may be new work for it.
type Waiter struct {
	// C gets a value when there may be new work.
	C <-chan struct{}

	wakes chan struct{}
	takes func(cursor.Partition) bool
	helps func(cursor.Partition) bool // what it takes if no other has space; nil: nothing
	board *Board
	full  bool                      // it has no space
	news  map[cursor.Partition]bool // where that may be
}

// Helps says what the waiter takes for another, while that has no space. helps is called while the
// board is locked.
func (w *Waiter) Helps(helps func(cursor.Partition) bool) {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	w.helps = helps
}

// Full says whether the waiter has no space for new work. It has, before it is asked.
func (w *Waiter) Full(full bool) {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	if w.full == full {
		return
	}
	if w.full = full; !full {
		w.board.aside = false
	}
	for one := range w.board.waiting {
		if full && one.helps != nil && !one.full && len(one.news) > 0 { // there may be more than w could take
			Signal(one.wakes)
		}
	}
	Signal(w.board.turned)
}

// Wait returns one who is woken by work in a partition that takes accepts, until stop is
// called. takes is called while the board is locked.
func (w *Board) Wait(takes func(cursor.Partition) bool) (one *Waiter, stop func()) {
	c := make(chan struct{}, 1)
	one = &Waiter{C: c, wakes: c, takes: takes, board: w, news: map[cursor.Partition]bool{}}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting[one] = true
	Signal(w.turned)
	return one, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.waiting, one)
		Signal(w.turned)
	}
}

// News lists where there may be new work since it was asked last; the stage "" is any, and so is
// [AnyBand]. It is asked before a claim, so that what comes during the claim is listed the next time.
func (w *Waiter) News() []cursor.Partition {
	w.board.mu.Lock()
	defer w.board.mu.Unlock()
	list := slices.Collect(maps.Keys(w.news))
	clear(w.news)
	return list
}

// Signal sends to a channel unless it has a value already.
func Signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
