package claim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// TellServed writes down how far the turns have come, as Run does every second.
func (e *Engine) TellServed(ctx context.Context) error { return e.tellServed(ctx) }

// LookForOverdue finds the priorities that have waited too long, as Run does
// every few seconds.
func (e *Engine) LookForOverdue(ctx context.Context) error { return e.lookForOverdue(ctx) }

// Forget makes all claims of the engine begin at the beginning, as they do when
// its listener has connected anew.
func (e *Engine) Forget() { e.wake.forget("") }

// DropAll abandons all that the engine holds.
func (e *Engine) DropAll() {
	e.mu.Lock()
	holds := make([]*Hold, 0, len(e.held))
	for _, h := range e.held {
		holds = append(holds, h)
	}
	e.mu.Unlock()
	for _, h := range holds {
		h.Abandon()
	}
}

// Tidy deletes what is over, as Run does every minute.
func (e *Engine) Tidy(ctx context.Context) error { return e.store.tidy(ctx) }

// Stand has the process think that it stood still for the time of the lease.
func (h *Hold) Stand() {
	h.engine.mu.Lock()
	defer h.engine.mu.Unlock()
	h.asked = h.asked.Add(-h.lease)
}

// Beat is one heartbeat.
func (e *Engine) Beat(ctx context.Context) error { return e.heartbeat(ctx) }

// NewUnder is New on a kernel that tells of processes and control groups below
// two directories.
func NewUnder(ctx context.Context, db *pgxpool.Pool, o Options, proc, cgroup string) (*Engine, error) {
	s, err := newPostgres(db, nil) //nolint:contextcheck // as in New
	if err != nil {
		return nil, err
	}
	return newEngine(ctx, s, kernel{proc: proc, cgroup: cgroup}, o)
}

// LookBehind looks behind the hints of a filter's cells, as claims have it done
// that would be too slow with it.
func (e *Engine) LookBehind(ctx context.Context, f Filter) {
	e.mu.Lock()
	c := e.claimers[f.key()]
	e.mu.Unlock()
	c.lookBehind(ctx, c.hints.seen())
}

// SweepsAreDear makes the claims of a filter take its cells for such that no
// claim sweeps.
func (e *Engine) SweepsAreDear(f Filter) {
	e.mu.Lock()
	c := e.claimers[f.key()]
	e.mu.Unlock()
	c.hints.mu.Lock()
	defer c.hints.mu.Unlock()
	for _, t := range c.hints.cells {
		t.takes = 2 * sweepDear
	}
}

// Hints tells where the claims of a filter would begin.
func (e *Engine) Hints(f Filter) string {
	e.mu.Lock()
	c := e.claimers[f.key()]
	e.mu.Unlock()
	if c == nil {
		return "none"
	}
	c.hints.mu.Lock()
	defer c.hints.mu.Unlock()
	list := make([]string, 0, len(c.hints.cells))
	for at, h := range c.hints.cells {
		list = append(list, fmt.Sprintf("%v: %+v", at, *h))
	}
	slices.Sort(list)
	return strings.Join(list, "; ")
}

// HeartbeatEvery is the time between two renewals of this process's leases.
func (e *Engine) HeartbeatEvery() time.Duration { return e.known.Load().heartbeat() }

// SessionSettings are those of the engine's connections.
const SessionSettings = plain
