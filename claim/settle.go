package claim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/farol-preservation/farol/fault"
)

// Ending is what came of one claim.
type Ending struct {
	Item   Item
	Done   Done
	Result error  // nil: the stage's work is done
	File   string // in hand, for the ledger
}

// Settle ends the claim with what the work came to. It returns ErrLost, and
// changes nothing, if the item is no longer this worker's; any other error means
// that it is not known whether the item was moved, and that the caller may call
// again: a second call after a first that did land returns ErrLost.
func (h *Hold) Settle(ctx context.Context, done Done, result error) error {
	h.settling.Add(1)
	defer h.settling.Add(-1)
	err := h.engine.Settle(ctx, []Ending{{Item: h.Item, Done: done, Result: result, File: h.file()}})[0]
	switch {
	case err == nil:
		h.drop(nil)
	case errors.Is(err, ErrLost):
		h.lostInTime()
		h.drop(ErrLost)
	}
	return err
}

// Settle ends several claims at once, each as [Hold.Settle] does and with an
// error of its own: one that is stale is reported alone.
func (e *Engine) Settle(ctx context.Context, endings []Ending) []error {
	errs := make([]error, len(endings))
	moves, at := make([]move, 0, len(endings)), make([]int, 0, len(endings))
	known := e.known.Load()
	for i, end := range endings {
		result, err := e.endSendingBack(ctx, end.Item, end.Result)
		if err != nil {
			errs[i] = err
			continue
		}
		if end.Item.Attempt, err = e.countFailures(ctx, end.Item, result); err != nil {
			errs[i] = err
			continue
		}
		m := decide(end.Item, end.Done, result, func(stage string) StageSettings { return known.of(end.Item.Action, stage) })
		m.InHand, m.place = end.File, place{cell{m.Stage, end.Item.band}, end.Item.at}
		moves, at = append(moves, m), append(at, i)
	}
	begun := time.Now()
	answers := e.ends.askAll(ctx, moves)
	e.options.Observer.Settled(time.Since(begun), len(moves))
	for j, c := range answers {
		item, m := endings[at[j]].Item, moves[j]
		err := c.err
		if err == nil {
			err = c.answer
		}
		if err != nil {
			errs[at[j]] = fmt.Errorf("settle item %d at %s: %w", item.ID, item.Step(), err)
			continue
		}
		if m.gaveUp() {
			e.logGivenUp(ctx, item.ID, item.Step(), m.Attempt, m.Error)
		}
		e.options.Observer.Ended(End{Stage: item.Step(), Outcome: m.Ended, Status: m.Status, Attempt: item.Attempt})
	}
	return errs
}

// settleBatch sends a batch of moves and tells of each what came of it. What the
// database refuses of one of them would fail them all, so they are then sent one
// by one.
func (e *Engine) settleBatch(ctx context.Context, moves []move) ([]error, error) {
	landed, err := e.store.settle(ctx, moves)
	errs := make([]error, len(moves))
	switch {
	case err == nil:
		put := make([]place, 0, len(moves))
		for i, ok := range landed {
			switch m := moves[i]; {
			case !ok:
				errs[i] = ErrLost
			case m.Status == "Pending" && m.Delay == 0:
				put = append(put, m.place)
			}
		}
		e.wake.put(put)
		return errs, nil
	case len(moves) == 1 || !refused(err):
		return nil, err
	}
	for i := range moves {
		one, err := e.settleBatch(ctx, moves[i:i+1])
		if err != nil {
			errs[i] = err
		} else {
			errs[i] = one[0]
		}
	}
	return errs, nil
}

// endSendingBack suspends an item that was sent back too often.
func (e *Engine) endSendingBack(ctx context.Context, item Item, result error) (error, error) {
	var end *ending
	if !errors.As(result, &end) || end.kind != endSendBack {
		return result, nil
	}
	n, err := e.store.sentBack(ctx, item.ID)
	if err != nil {
		return nil, err
	}
	if n < mostSentBack {
		return result, nil
	}
	return &ending{kind: endSuspend, code: end.code, err: &tooOften{end.err, n}}, nil
}

// tooOften is why an item that was sent back too often is suspended.
type tooOften struct {
	error

	times int
}

func (e *tooOften) Error() string {
	return fmt.Sprintf("%s. This happened %d times before.", strings.TrimSuffix(e.error.Error(), "."), e.times)
}

func (e *tooOften) Unwrap() error { return e.error }

// countFailures returns the number of the attempt that ends with a result. If it is
// the last, the ledger is asked: a claim that was lost because the database's clock
// was set is no failure.
func (e *Engine) countFailures(ctx context.Context, item Item, result error) (int, error) {
	if result == nil || !IsTransient(result) || FaultIn(result) != nil || item.Attempt < item.MaxAttempts {
		return item.Attempt, nil //nolint:nilerr // the result is no failure to count
	}
	n, err := e.store.failures(ctx, item)
	if err != nil {
		return 0, err
	}
	return min(item.Attempt, n+1), nil
}

// gaveUp tells whether the item is parked because its attempts are used up.
func (m move) gaveUp() bool {
	return m.Status == "Suspended" && (m.Ended == "transient" || m.Ended == "panic")
}

// logGivenUp says that an item is parked after its last attempt. Failures of
// services spend none, so the owner is the content as far as is known.
func (e *Engine) logGivenUp(ctx context.Context, item int64, stage string, attempts int, cause string) {
	e.log.ErrorContext(ctx, "giving up: the item is Suspended until a person requeues it",
		"item", item, "stage", stage, "attempts", attempts, "owner", fault.Content, "cause", cause)
}

// mostSentBack is how often an item may be sent back before a person has to
// look at where its interim data goes. A person who requeues it gives it as many
// again.
const mostSentBack = 3
