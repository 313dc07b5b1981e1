package claim

import (
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
// has become due.
type hints struct {
	mu    sync.Mutex
	cells map[cell]*hint
}

type hint struct {
	from    position
	lowered bool      // since the claim that is under way began
	swept   time.Time // when a claim last went from the beginning
	takes   time.Duration
	overdue []int16 // priorities that have waited too long
	turns   int     // counts claims, so that overdue priorities get every second
}

const (
	sweepEvery  = time.Second
	sweepFactor = 20 // and seldom enough to take a twentieth of the time
)

func newHints() *hints { return &hints{cells: map[cell]*hint{}} }

func (h *hints) of(c cell) *hint {
	if h.cells[c] == nil {
		h.cells[c] = &hint{from: start()}
	}
	return h.cells[c]
}

// begin says where a claim starts in a cell.
func (h *hints) begin(c cell, now time.Time) position {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.of(c)
	t.lowered = false
	t.turns++
	if n := len(t.overdue); n > 0 && t.turns%2 == 1 {
		t.lowered = true // where this claim ends says nothing of those before
		return position{priority: t.overdue[t.turns/2%n], turn: start().turn}
	}
	if now.Sub(t.swept) >= max(sweepEvery, sweepFactor*t.takes) {
		t.swept = now
		return start()
	}
	return t.from
}

// end notes that a claim which started at from took items up to last, and how
// long it was under way.
func (h *hints) end(c cell, from, last position, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.of(c)
	if from == start() {
		t.takes = took
	}
	if !t.lowered {
		t.from = last
	}
}

// lower makes the next claim of a cell see what was put at p.
func (h *hints) lower(c cell, p position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.cells[c]
	if t == nil {
		return // nothing has been claimed there yet
	}
	t.lowered = true
	if p.before(t.from) {
		t.from = p
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

// seen lists the cells that were claimed from.
func (h *hints) seen() []cell {
	h.mu.Lock()
	defer h.mu.Unlock()
	cells := make([]cell, 0, len(h.cells))
	for c := range h.cells {
		cells = append(cells, c)
	}
	return cells
}
