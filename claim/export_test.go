package claim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/process"
)

// OfRequests is the statement for requests that is made of one for ingests.
func OfRequests(ingests string) string { return ofRequests(ingests) }

// PeekOf is the statement that lists what one that claims would claim.
func PeekOf(claims string) string { return peekOf(claims) }

// RecordServed records how far the virtual start times have come, as Run does every second.
func (e *Engine) RecordServed(ctx context.Context) error { return e.claims.recordServed(ctx) }

// FindOverdue finds the priorities that have waited too long, as Run does
// every few seconds.
func (e *Engine) FindOverdue(ctx context.Context) error { return e.claims.findOverdue(ctx) }

// Reset makes all claims of the engine start at the beginning, as they do when
// its listener has connected again.
func (e *Engine) Reset() { e.wake.Reset("") }

// DropAll abandons all that the engine holds.
func (e *Engine) DropAll() {
	e.leases.mu.Lock()
	holds := make([]*Hold, 0, len(e.leases.held))
	for _, h := range e.leases.held {
		holds = append(holds, h)
	}
	e.leases.mu.Unlock()
	for _, h := range holds {
		h.Abandon()
	}
}

// Tidy deletes what is over, as Run does every minute.
func (e *Engine) Tidy(ctx context.Context) error { return e.upkeep.tidy(ctx) }

// Stand has the process think that it was stopped for the time of the lease.
func (h *Hold) Stand() {
	h.leases.mu.Lock()
	defer h.leases.mu.Unlock()
	h.asked = h.asked.Add(-h.lease)
}

// Beat is one heartbeat.
func (e *Engine) Beat(ctx context.Context) error { return e.leases.heartbeat(ctx) }

// NewUnder is New on a kernel that reports processes and control groups below
// two directories.
func NewUnder(ctx context.Context, db *pgxpool.Pool, o Options, proc, cgroup string) (*Engine, error) {
	return newOn(ctx, db, process.Kernel{Proc: proc, CGroup: cgroup}, o)
}

// Rescan rescans the partitions of a filter before their cursors, as claims have it done
// for which that would be too slow.
func (e *Engine) Rescan(ctx context.Context, f Filter) {
	c := e.claims.claimer(f)
	c.rescan(ctx, c.cursors.Used())
}

// RescansAreExpensive makes full scans of the partitions of a filter too expensive for its
// claims.
func (e *Engine) RescansAreExpensive(f Filter) {
	c := e.claims.claimer(f)
	c.cursors.Rescanned(c.cursors.Used(), map[cursor.Partition]cursor.Position{}, time.Time{}, time.Minute)
}

// Cursors reports where the claims of a filter would start.
func (e *Engine) Cursors(f Filter) string {
	scans := e.claims.claimer(f).cursors.Used()
	list := make([]string, len(scans))
	for i, s := range scans {
		list[i] = fmt.Sprintf("%v: %+v", s.Partition, s.From)
	}
	slices.Sort(list)
	return strings.Join(list, "; ")
}

// HeartbeatEvery is the time between two renewals of this process's leases.
func (e *Engine) HeartbeatEvery() time.Duration { return e.settings.Load().Heartbeat() }
