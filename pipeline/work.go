package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/progress"
)

// Work is one item in the hands of one stage.
type Work struct {
	// Done is what the stage sets of what follows when it is done: Next only if that is not as
	// the order of stages has it, and MemoryNeed as [MemoryNeed] has it.
	claim.Done

	Item        claim.Item
	Hold        *claim.Hold
	Log         *slog.Logger
	Progress    *progress.Store
	Count       Counting
	reset       resetAttempts   // nil: every attempt counts
	claiming    context.Context //nolint:containedctx // done when the process takes on nothing more
	memory      *memoryBudget   // of the process; nil: there is no bound
	leaveMemory func()          // gives back what the bag has of it; nil if it needs none
	wrote       atomic.Bool     // something may be in Redis by this claim
}

// Claim is the claim for what is about to be written to Redis, where a newer one ends an older.
func (w *Work) Claim() progress.Claim {
	w.wrote.Store(true)
	return progress.Claim{Item: w.Item.ID, Token: w.Item.Token}
}

// First reports whether this claim is the first of its pass. Then nothing is in Redis under that, and
// nobody who could still write there.
func (w *Work) First() bool { return w.Item.Token == w.Item.Entered+1 }

// Finished makes this claim the newest in Redis, and returns what earlier claims of the pass have
// finished of the stage.
func (w *Work) Finished(ctx context.Context) (map[int]string, error) {
	if w.First() {
		return nil, nil
	}
	results, err := w.Progress.Begin(ctx, w.Claim(), w.Pass())
	return results, w.ProgressErr(err)
}

// Pass names the stage for Redis: an item that is requeued or sent back to a stage begins it
// again, while a retry continues where the last attempt stopped.
func (w *Work) Pass() string { return fmt.Sprintf("%s@%d", w.Item.Stage, w.Item.Entered) }

// ProgressErr gives errors of Redis their meaning. If a newer claim writes there, this one is
// lost.
func (w *Work) ProgressErr(err error) error {
	switch {
	case err == nil, cause.Known(err):
		return err
	case errors.Is(err, progress.ErrLost):
		return fmt.Errorf("progress of item %d: %w", w.Item.ID, claim.ErrLost)
	}
	return claim.Transient("progress-unavailable", err)
}
