package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
)

// Work is one item in the hands of one stage.
type Work struct {
	Item          claim.Item
	Hold          *claim.Hold
	Log           *slog.Logger
	ObjectID      int64          // set by the last stage
	StorageOption string         // set by the stage that learns it
	Note, Outcome string         // of a stage that is done; requests set them
	Next          registry.Stage // stage that follows; "": as the order of stages has it
	Remark        string         // on a stage that is done, for the ledger
	MemoryNeed    int64          // of the lists of its files, see [MemoryNeed]; 0: not known here, or little
	Progress      *progress.Store
	reset         resetAttempts // nil: every attempt counts
	memory        *memoryBudget // of the process; nil: there is no bound
	leaveMemory   func()        // gives back what the bag has of it; nil if it needs none
	Count         Counting
}

// done is what follows when the stage's work is done; next is the stage that the order
// of stages has.
func (w *Work) done(next registry.Stage) claim.Done {
	return claim.Done{
		Next: cmp.Or(w.Next, next), Note: w.Note, Outcome: w.Outcome, Remark: w.Remark,
		ObjectID: w.ObjectID, StorageOption: w.StorageOption, MemoryNeed: w.MemoryNeed,
	}
}

// Claim is the claim for Redis, where a newer one ends an older.
func (w *Work) Claim() progress.Claim { return progress.Claim{Item: w.Item.ID, Token: w.Item.Token} }

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
