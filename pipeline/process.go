package pipeline

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/retry"
)

// Process takes a claimed item through the stage that it is at, and settles it.
func (r *Runner) Process(ctx context.Context, item claim.Item) { r.process(ctx, item, nil) }

// process takes an item through the stage that it is at, and settles it. It returns the item if
// it goes on at its next stage in the same slot. The outcome is logged here and nowhere else.
func (r *Runner) process(ctx context.Context, item claim.Item, s *slot) (next *claim.Item) {
	step := r.steps[item.Step()]
	ctx, t := r.trace(ctx, item)
	log := r.options.Log.With("item", item.ID, "stage", item.Step(), "attempt", item.Attempt, "bag", item.Name).With(t.ids()...)
	hold := r.engine.Hold(ctx, item)
	w := &Work{
		Item: item, Hold: hold, Log: log, Done: claim.Done{Note: step.Note},
		Progress: r.progress, reset: r.reset, memory: r.memory,
	}
	if s != nil {
		w.claiming = s.claiming
	}
	defer w.leave()
	start := time.Now()
	var answers fault.Answers
	result := hold.Verdict(hold.Do(func(ctx context.Context) error { return runTraced(fault.WithAnswers(ctx, &answers), step, w) }))
	result = r.judge(ctx, item, result, &answers)
	took := time.Since(start)
	w.Count.end(ctx, result == nil)
	if r.options.Observe != nil {
		r.options.Observe(Outcome{Stage: item.Step(), Code: claim.Code(result), Took: took, Bytes: item.Size, Trace: t.id()})
	}
	if errors.Is(result, claim.ErrLost) {
		hold.Abandon()
		log.WarnContext(ctx, "lost the item's lease; another worker will continue", "took", took)
		return nil
	}

	done := w.Done
	done.Next = cmp.Or(w.Next, r.engine.NextStage(item.Action, item.Stage))
	settled, cancel := context.WithTimeout(context.WithoutCancel(ctx), hold.Lease())
	defer cancel()
	r.keepFaults(settled, w, result) // before another attempt can begin
	next, err := r.settle(settled, hold, done, result, s)
	if err != nil {
		hold.Abandon()
		log.WarnContext(settled, "cannot record the outcome; another worker will repeat the stage when the lease expires", "result", result, "err", err)
		return nil
	}
	logOutcome(settled, log.With("took", took), hold.Ended(), result)
	t.ended(hold.Ended())
	if result == nil && (done.Next != "" || !step.Clears) {
		r.clear(settled, w, done.Next == "")
	}
	return next
}

// judge says what a result means for the item: see [breakers.judge].
func (r *Runner) judge(ctx context.Context, item claim.Item, result error, answers *fault.Answers) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
	defer cancel()
	return r.engine.Believe(ctx, item, r.breakers.judge(item, r.engine.Believe(ctx, item, result), answers))
}

// settle records the outcome, again and again while the database does not
// answer: as long as the lease lasts, nobody else can have the item. It returns the item if
// that begins its next stage in its slot.
func (r *Runner) settle(ctx context.Context, hold *claim.Hold, done claim.Done, result error, s *slot) (next *claim.Item, err error) {
	carry := result == nil && r.enterNext(s, hold.Item, done)
	if carry {
		defer func() {
			if next == nil {
				r.leaveStep(stages.StepOf(hold.Item.Action, done.Next))
			}
		}()
	}
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		if carry {
			next, err = hold.Carry(ctx, done)
		} else {
			err = hold.Settle(ctx, done, result)
		}
		if err == nil || errors.Is(err, claim.ErrLost) || !retry.Pause(ctx, wait) {
			return next, err
		}
		r.options.Log.WarnContext(ctx, "cannot record the outcome; retrying", "item", hold.Item.ID, "err", err)
	}
}

// logOutcome logs how an attempt ended, by what was written: that may be another end than the
// result asked for.
func logOutcome(ctx context.Context, log *slog.Logger, end claim.End, result error) {
	if result != nil {
		log = log.With("code", end.Code, "result", result)
	}
	switch {
	case end.Outcome == "done":
		log.InfoContext(ctx, "stage done")
	case end.GaveUp():
		end.LogGivenUp(ctx, log)
	case end.Failed():
		log.ErrorContext(ctx, "item needs a person")
	case end.Status == registry.Cancelled:
		log.InfoContext(ctx, "item cancelled")
	case end.Counted():
		log.WarnContext(ctx, "stage failed; will retry")
	case end.Outcome == "sent back":
		log.WarnContext(ctx, "results of an earlier stage are gone; the item goes back to it")
	default:
		log.WarnContext(ctx, "stage interrupted; it will continue, and the attempt does not count")
	}
}

// clear deletes what a finished stage, or a request at its end, has in Redis. If that fails, it
// is cleaned up later. Results that are needed later are in the list of the stage.
func (r *Runner) clear(ctx context.Context, w *Work, ended bool) {
	var err error
	switch {
	case ended && r.keeps:
		return // the janitor keeps it first
	case ended:
		err = r.progress.Clear(ctx, w.Item.ID)
	case w.First() && !w.wrote.Load():
		return
	default:
		err = r.progress.ClearStage(ctx, w.Claim(), w.Pass())
	}
	if err != nil && !errors.Is(err, progress.ErrLost) {
		w.Log.WarnContext(ctx, "cannot clear the progress of a finished stage; it remains in Redis until cleanup", "err", err)
	}
}
