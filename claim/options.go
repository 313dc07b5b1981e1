package claim

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/claim/stages"
)

// Options is how a process uses the queue. A zero field is taken from stage_settings, which
// administrators may change at run time.
type Options struct {
	stages.Overrides

	Poll     time.Duration // between two polls of the queue, with jitter
	Archive  time.Duration // age at which ended items leave the queue's table; 0: they stay
	Log      *slog.Logger
	Observer Observer // may be nil

	// Direct is how to reach the database itself where the pool leads to a pooler,
	// whose sessions cannot LISTEN. Without it work is found by polling.
	Direct *pgx.ConnConfig
}

// DefaultOptions are those of a worker that nobody configured.
func DefaultOptions() Options {
	return Options{Poll: 2 * time.Second, Archive: 30 * 24 * time.Hour}
}

// Validate refuses what contradicts itself, whatever the database says: a lease
// that a single late heartbeat would lose.
func (o Options) Validate() error {
	switch {
	case o.Poll <= 0:
		return errors.New("poll must be longer than 0")
	case o.Lease < 0 || o.Heartbeat < 0:
		return errors.New("lease and heartbeat must be longer than 0")
	case o.Lease > 0 && o.Heartbeat > 0 && o.Lease < 3*o.Heartbeat:
		return fmt.Errorf("the lease (%v) is shorter than three heartbeats (3 × %v): one late heartbeat would lose live work", o.Lease, o.Heartbeat)
	}
	return nil
}
