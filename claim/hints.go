package claim

import (
	"slices"
	"sync"
	"time"
)

// hints remember, for the claims of one filter, how far each cell has been
// emptied, so that a claim starts there and not among the dead entries of items
// that were claimed before: while some long transaction keeps vacuum away, these
// pile up at the head of the index.
//
// A hint is only a hint. What may have come to lie behind it is found in three
// ways: this process lowers it to what it puts into the cell itself; other
// processes tell with their notices where they put something; and a sweep from
// the very beginning goes along at least every sweepEvery while there are
// claims, which finds what committed late, what was locked and let go, and what
// has become due. Where a sweep is dear no claim waits for it: a statement beside
// the claims looks behind the hint, less often, and of fewer cells at once.
type hints struct {
	mu      sync.Mutex
	cells   map[cell]*hint
	claims  sweeps // that go along with claims
	looks   sweeps // beside them
	looking bool   // one is under way
}

// sweeps are those of a kind.
type sweeps struct {
	last time.Time // when it began
	took time.Duration
}

// may tells whether another one would take no more than its part of the time.
func (s sweeps) may(now time.Time) bool { return now.Sub(s.last) >= sweepFactor*s.took }

type hint struct {
	from    position
	lowered bool          // since the claim that is under way began
	swept   time.Time     // when the last sweep of the cell began
	takes   time.Duration // its share of that statement's time
	overdue []int16       // priorities that have waited too long
	turns   int           // counts claims, so that overdue priorities get every second
}

const (
	sweepEvery  = time.Second
	sweepFactor = 20                   // and seldom enough to take a twentieth of the time
	sweepDear   = time.Millisecond     // of a cell that no claim sweeps any more
	sweepTime   = 4 * time.Millisecond // of one claim
	lookTime    = time.Second          // of one look beside them, unless a single cell takes longer
)

func newHints() *hints { return &hints{cells: map[cell]*hint{}} }

func (h *hints) of(c cell) *hint {
	if h.cells[c] == nil {
		h.cells[c] = &hint{from: start()}
	}
	return h.cells[c]
}

// begin says where a claim starts in each of its cells, and of which cells
// somebody is to look behind the hint meanwhile, and then to call [hints.looked].
func (h *hints) begin(probes []probe, now time.Time) (aside []probe) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var due []*probe
	for i := range probes {
		p := &probes[i]
		t := h.of(p.cell)
		t.lowered = false
		t.turns++
		p.from = t.from
		if n := len(t.overdue); n > 0 && t.turns%2 == 1 {
			t.lowered = true // where this claim ends says nothing of those before
			p.from = position{priority: t.overdue[t.turns/2%n], turn: start().turn}
		} else if now.Sub(t.swept) >= sweepEvery {
			due = append(due, p)
		}
	}
	return h.sweep(due, now)
}

// sweep divides cells that are due for it into those that this claim sweeps, and
// those that a look beside it is for, the longest due first.
func (h *hints) sweep(due []*probe, now time.Time) (aside []probe) {
	sweep, look := h.claims.may(now), h.looks.may(now) && !h.looking
	slices.SortStableFunc(due, func(a, b *probe) int { return h.of(a.cell).swept.Compare(h.of(b.cell).swept) })
	var takes, takesAside time.Duration
	for _, p := range due {
		t := h.of(p.cell)
		switch {
		case sweep && t.takes <= sweepDear && takes+t.takes <= sweepTime:
			takes += t.takes
			t.swept, p.from, p.sweeps = now, start(), true
		case look && t.takes > sweepDear && (len(aside) == 0 || takesAside+t.takes <= lookTime):
			takesAside += t.takes
			t.swept = now
			aside = append(aside, probe{cell: p.cell, from: t.from})
		}
	}
	h.looking = h.looking || len(aside) > 0
	return aside
}

// looked notes what was found behind the hints of cells, and how long it took; nil
// if the look failed, which says nothing of what a sweep of them takes.
func (h *hints) looked(cells []probe, found map[cell]position, began time.Time, took time.Duration) {
	for c, at := range found {
		h.lower(place{c, at})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if found != nil {
		for _, p := range cells {
			h.of(p.cell).takes = took / time.Duration(len(cells))
		}
	}
	h.looks, h.looking = sweeps{began, took}, false
}

// end notes what came of a claim: the last items that it took, by cell, and how
// long it was under way.
func (h *hints) end(probes []probe, last map[cell]position, began time.Time, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	swept := 0
	for _, p := range probes {
		if p.sweeps {
			swept++
		}
	}
	for _, p := range probes {
		t := h.of(p.cell)
		if p.sweeps {
			t.takes = took / time.Duration(swept)
		}
		if l, ok := last[p.cell]; ok && !t.lowered {
			t.from = l
		}
	}
	if swept > 0 {
		h.claims = sweeps{began, took}
	}
}

// lower makes the next claims see what was put somewhere.
func (h *hints) lower(places ...place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range places {
		t := h.cells[p.cell]
		if t == nil {
			continue // nothing has been claimed there yet
		}
		t.lowered = true
		if p.at.before(t.from) {
			t.from = p.at
		}
	}
}

// forget makes the next claims of a stage begin at the beginning.
func (h *hints) forget(stage string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c, t := range h.cells {
		if c.stage == stage || stage == "" {
			t.from, t.lowered, t.swept = start(), true, time.Time{}
		}
	}
}

// setOverdue says which priorities of a cell have waited too long.
func (h *hints) setOverdue(c cell, priorities []int16) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.of(c).overdue = priorities
}

// seen lists the cells that were claimed from, and where a claim would start.
func (h *hints) seen() []probe {
	h.mu.Lock()
	defer h.mu.Unlock()
	probes := make([]probe, 0, len(h.cells))
	for c, t := range h.cells {
		probes = append(probes, probe{cell: c, from: t.from})
	}
	return probes
}
