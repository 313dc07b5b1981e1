// Package cursor remembers how far each partition of the queue has been scanned.
//
// A claim starts at the cursor and not among the dead index entries of items that were
// claimed before: while a long transaction holds back vacuum, these pile up at the
// beginning of the index.
package cursor

import (
	"slices"
	"sync"
	"time"

	"github.com/farol-preservation/farol/registry"
)

// Partition is one stage in one size band: the index of claimable items consists of
// partitions, and a claim scans one after the other.
type Partition struct {
	Stage registry.Stage
	Band  int16
}

// Position is a place in the order of a partition.
type Position struct {
	Priority     int16
	VirtualStart int64
}

// Beginning is before every item.
func Beginning() Position { return Position{Priority: -1 << 15, VirtualStart: -1 << 63} }

// End is behind every item: nothing lies there.
func End() Position { return Position{Priority: 1<<15 - 1, VirtualStart: 1<<63 - 1} }

// Before compares two positions.
func (p Position) Before(o Position) bool {
	return p.Priority < o.Priority || p.Priority == o.Priority && p.VirtualStart < o.VirtualStart
}

// Place is where an item is claimed.
type Place struct {
	Partition Partition
	Position  Position
}

// Scan is one partition as one statement scans it.
type Scan struct {
	Partition

	Most   int // items
	From   Position
	Full   bool // it starts at the beginning although the cursor is further on
	Late   bool // it starts at a priority that has waited too long, and passes over what is before
	Capped bool // how many items run at once in all processes is bounded

	began int // when, in the order of what happened to the cursors
}

// Cursors are those of the claims of one filter. They are safe for concurrent use.
//
// An item may come to lie before a cursor. It is found in three ways: this process lowers
// the cursor to what it moves there itself; other processes send notifications of
// where they moved something; and a full scan from the beginning goes along with a claim about
// every second. It finds what committed late, what was locked and released, and what has
// become due. Where a full scan is expensive no claim waits for it: a statement in the
// background scans what is before the cursor, less often, and fewer partitions at once.
type Cursors struct {
	mu         sync.Mutex
	partitions map[Partition]*cursor
	claims     rescans // that go along with claims
	background rescans
	running    bool // a background rescan
	now        int  // counts what happens, so that claims may run side by side
}

// rescans are those of a kind.
type rescans struct {
	last time.Time     // when it began
	wait time.Duration // until the next, from then on
}

// allows reports whether one more would stay within its part of the time.
func (r rescans) allows(now time.Time) bool { return now.Sub(r.last) >= r.wait }

// after is what follows from one more. One that took long may have waited for a database that
// did not answer, which says nothing of the next: the wait grows by steps, as long as it was.
func (r rescans) after(began time.Time, took time.Duration) rescans {
	return rescans{began, min(rescanFactor*took, max(2*r.wait, rescanEvery))}
}

type cursor struct {
	from      Position
	lowered   int           // when it was last
	rescanned time.Time     // when the last full scan of the partition began
	takes     time.Duration // its share of that statement's time
	overdue   []int16       // priorities that have waited too long
	claims    int           // counted, so that overdue priorities get every second one
}

const (
	rescanEvery      = time.Second
	rescanFactor     = 20                   // full scans take at most a twentieth of the time, after the first few
	expensive        = time.Millisecond     // of a partition that no claim scans in full any more
	rescanTime       = 4 * time.Millisecond // of one claim
	backgroundRescan = time.Second          // of one statement, unless a single partition takes longer
)

// New returns cursors at the beginning of every partition.
func New() *Cursors { return &Cursors{partitions: map[Partition]*cursor{}} }

func (c *Cursors) of(p Partition) *cursor {
	if c.partitions[p] == nil {
		c.partitions[p] = &cursor{from: Beginning()}
	}
	return c.partitions[p]
}

// Begin sets where a claim starts in each of its partitions. It returns the partitions
// that the caller is to rescan in the background; the caller then calls
// [Cursors.Rescanned].
func (c *Cursors) Begin(scans []Scan, now time.Time) (background []Scan) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var due []*Scan
	for i := range scans {
		s := &scans[i]
		t := c.of(s.Partition)
		t.claims++
		s.From, s.Full, s.Late, s.began = t.from, false, false, c.now
		if n := len(t.overdue); n > 0 && t.claims%2 == 1 {
			s.Late = true
			s.From = Position{Priority: t.overdue[t.claims/2%n], VirtualStart: Beginning().VirtualStart}
		} else if now.Sub(t.rescanned) >= rescanEvery {
			due = append(due, s)
		}
	}
	return c.rescan(due, now)
}

// rescan divides the partitions that are due for a full scan into those that this claim
// scans and those for the background, the longest due first.
func (c *Cursors) rescan(due []*Scan, now time.Time) (background []Scan) {
	along, aside := c.claims.allows(now), c.background.allows(now) && !c.running
	slices.SortStableFunc(due, func(a, b *Scan) int { return c.of(a.Partition).rescanned.Compare(c.of(b.Partition).rescanned) })
	var takes, takesAside time.Duration
	for _, s := range due {
		t := c.of(s.Partition)
		switch {
		case along && t.takes <= expensive && takes+t.takes <= rescanTime:
			takes += t.takes
			t.rescanned, s.From, s.Full = now, Beginning(), true
		case aside && t.takes > expensive && (len(background) == 0 || takesAside+t.takes <= backgroundRescan):
			takesAside += t.takes
			t.rescanned = now
			background = append(background, Scan{Partition: s.Partition, From: t.from})
		}
	}
	c.running = c.running || len(background) > 0
	return background
}

// Rescanned notes what a background rescan found before the cursors, and how long it took.
// found is nil if it failed, which says nothing of what a full scan takes.
func (c *Cursors) Rescanned(scans []Scan, found map[Partition]Position, began time.Time, took time.Duration) {
	for p, at := range found {
		c.Lower(Place{p, at})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if found != nil {
		for _, s := range scans {
			c.of(s.Partition).takes = took / time.Duration(len(scans))
		}
	}
	c.background, c.running = c.background.after(began, took), false
}

// End notes the result of a claim: the last items that it took, by partition, and how long
// it ran.
func (c *Cursors) End(scans []Scan, last map[Partition]Position, began time.Time, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := 0
	for _, s := range scans {
		if s.Full {
			full++
		}
	}
	for _, s := range scans {
		t := c.of(s.Partition)
		if s.Full {
			t.takes = took / time.Duration(full)
		}
		// Where a claim ends that passed over items says nothing of these.
		if l, ok := last[s.Partition]; ok && !s.Late && t.lowered <= s.began {
			t.from = l
		}
	}
	if full > 0 {
		c.claims = c.claims.after(began, took)
	}
}

// Lower makes the next claims see items that were moved to places.
func (c *Cursors) Lower(places ...Place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	for _, p := range places {
		t := c.partitions[p.Partition]
		if t == nil || p.Position == End() {
			continue // nothing has been claimed there yet, or nothing lies there
		}
		t.lowered = c.now
		if p.Position.Before(t.from) {
			t.from = p.Position
		}
	}
}

// Reset makes the next claims of a stage start at the beginning; of all stages if it is "".
func (c *Cursors) Reset(stage registry.Stage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	for p, t := range c.partitions {
		if p.Stage == stage || stage == "" {
			t.from, t.lowered, t.rescanned = Beginning(), c.now, time.Time{}
		}
	}
}

// SetOverdue sets which priorities of a partition have waited too long. They get every
// second claim.
func (c *Cursors) SetOverdue(p Partition, priorities []int16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of(p).overdue = priorities
}

// Used lists the partitions that were claimed from, and where a claim would start.
func (c *Cursors) Used() []Scan {
	c.mu.Lock()
	defer c.mu.Unlock()
	scans := make([]Scan, 0, len(c.partitions))
	for p, t := range c.partitions {
		scans = append(scans, Scan{Partition: p, From: t.from})
	}
	return scans
}
