package claim

import (
	"context"
	"log/slog"
	"time"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/span"
)

// Observer receives what an engine does, for metrics. It is called by many
// goroutines at once and must not block.
type Observer interface {
	// Claimed and Settled report how long a call of Claim, or of Settle, took for how
	// many items, from when it was made to its answer.
	Claimed(took time.Duration, items int)
	Settled(took time.Duration, items int)
	// Ended reports an attempt that this process ended: its own, or one of a
	// worker that is gone.
	Ended(end End)
	// Lost reports that a lease which this process held at a stage is not its own any
	// more. Stages are as in [stages.StepOf].
	Lost(stage string)
}

// End is the end of an attempt.
type End struct {
	Stage   string          // see [stages.StepOf]
	Outcome string          // as the ledger has it
	Code    string          // stable, of the error; "" if the stage is done
	Status  registry.Status // of the item afterwards
	Attempt int             // which it was of those at the stage that count
	Of      *span.Attempt   // the attempt, if its worker is gone or another program; nil: who made it knows it
}

// Failed reports whether no further attempt will be made of the item.
func (e End) Failed() bool { return e.Status == registry.Failed || e.Status == registry.Suspended }

// GaveUp reports whether the item is parked because its attempts are used up.
func (e End) GaveUp() bool { return e.Status == registry.Suspended && e.Outcome != "fatal" }

// LogGivenUp says that an item is parked after its last attempt; log names the item, its stage
// and the code. Whose fault it is, the code says: `farol item explain` knows its meaning.
func (e End) LogGivenUp(ctx context.Context, log *slog.Logger) {
	log.ErrorContext(ctx, "giving up: the item is Suspended until a person requeues it", "attempts", e.Attempt)
}

// Counted reports whether the attempt failed, and counts.
func (e End) Counted() bool { return e.Outcome == "transient" || e.Outcome == "panic" }

// Retried reports whether the stage was done, but not at the first attempt.
func (e End) Retried() bool { return e.Outcome == "done" && e.Attempt > 1 }

// unobserved is the observer of an engine without one.
type unobserved struct{}

func (unobserved) Claimed(time.Duration, int) {}
func (unobserved) Settled(time.Duration, int) {}
func (unobserved) Ended(End)                  {}
func (unobserved) Lost(string)                {}
