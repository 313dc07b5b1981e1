package pipeline

import (
	"context"
	"fmt"
	"slices"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
)

// repeats is the item that brought the same upload before, if that is what the object
// is now: nothing of it was deleted since, and no copy of it is known to be bad. Then
// there is nothing to ingest, and the item comes to its end at once. 0 is none.
func (w *work) repeats(ctx context.Context, d Deps) (earlier int64, err error) {
	return d.Registry.Repeats(ctx, w.item.ID)
}

// atTheEnd has an item whose upload is on record already go to the last stage, which
// removes the tar as after any ingest.
func (w *work) atTheEnd(earlier int64) {
	w.next = lastStage
	w.note = repeatedNote(earlier)
}

func repeatedNote(earlier int64) string {
	return fmt.Sprintf("This bag is already on record, as item %d brought it: nothing of it has changed since.", earlier)
}

const lastStage = "Cleanup"

// onRecord sees that the object is on record as this item brought it, or as an earlier
// item did that brought the same. Else the tar may be the only copy that there is.
func (s *cleanup) onRecord(ctx context.Context, w *work, attempts []registry.Attempt) error {
	if slices.ContainsFunc(attempts, func(a registry.Attempt) bool { return a.Stage == "Record" && a.Outcome != nil && *a.Outcome == "done" }) {
		return nil
	}
	earlier, err := w.repeats(ctx, s.Deps)
	switch {
	case err != nil:
		return err
	case earlier == 0:
		return claim.SendBack("Receive", "What is on record is no longer what this bag brings. It is ingested.")
	}
	w.note, w.outcome = repeatedNote(earlier), "Already on record"
	return nil
}
