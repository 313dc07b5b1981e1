package claim

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
)

// Hold is an item in hand. Its context ends with the cause [ErrLost] as soon as
// this process learns that the item is no longer its own.
type Hold struct {
	Item Item

	engine *Engine
	ctx    context.Context //nolint:containedctx // the context is the lease: it lives as long as this value
	cancel context.CancelCauseFunc
	inHand atomic.Pointer[string]
	slot   int // in the flight recorder; -1: none

	// By this process's monotonic clock; guarded by the engine's mutex.
	asked time.Time     // when the lease was asked for that the item is held by
	lease time.Duration // from then on, at least
	deaf  *time.Timer

	settling atomic.Int32 // calls of Settle under way
}

// Hold starts renewing the item's lease with every heartbeat of the process. The
// caller works under [Hold.Context] and ends with [Hold.Settle].
func (e *Engine) Hold(ctx context.Context, item Item) *Hold {
	h := &Hold{Item: item, engine: e, slot: -1}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	if item.Timeout > 0 {
		timed, stop := context.WithTimeoutCause(h.ctx, item.Timeout, errTimeout)
		cancel := h.cancel
		h.ctx, h.cancel = timed, func(cause error) { cancel(cause); stop() }
	}
	e.mu.Lock()
	earlier := e.held[item.ID]
	e.mu.Unlock()
	if earlier != nil { // the heartbeat would renew this claim and never tell of that one
		earlier.drop(ErrLost)
	}
	defer h.stopDeaf() // the answer to the claim may have come late
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held[item.ID] = h
	h.deaf = time.AfterFunc(item.lease, h.stopDeaf)
	h.leased(item.asked, item.lease)
	if n := len(e.slots); n > 0 {
		h.slot, e.slots = e.slots[n-1], e.slots[:n-1]
		e.recorder.note(h.slot, item.ID, "")
	}
	return h
}

// leased notes that a lease was granted that lasts for d from asked on, at least.
// The caller has locked the engine.
func (h *Hold) leased(asked time.Time, d time.Duration) {
	h.asked, h.lease = asked, d
	h.deaf.Reset(d*2/3 - time.Since(asked))
}

// stopDeaf ends the work when two thirds of its lease have passed since it was
// renewed: soon the item is someone else's.
func (h *Hold) stopDeaf() {
	e := h.engine
	e.mu.Lock()
	silence := time.Since(h.asked)
	deaf := e.held[h.Item.ID] == h && silence >= h.lease*2/3
	if deaf {
		why := givenUp{item: h.Item.ID, token: h.Item.Token, inHand: h.file(), code: codeLost, lease: h.lease}
		if e.cutOff {
			why.code = codeUnreachable
		}
		e.givenUp = append(e.givenUp, why)
	}
	e.mu.Unlock()
	if deaf {
		e.log.WarnContext(h.ctx, "stopping work whose lease cannot be renewed", "item", h.Item.ID, "stage", h.Item.Step())
		h.drop(fmt.Errorf("no heartbeat for %v: %w", silence.Round(time.Millisecond), ErrLost))
	}
}

// lostInTime has the next heartbeat tell that the claim was lost although its lease
// cannot have lapsed: should it have, the database's clock was set.
func (h *Hold) lostInTime() {
	if h.spent() >= 1 {
		return
	}
	e := h.engine
	e.mu.Lock()
	defer e.mu.Unlock()
	e.givenUp = append(e.givenUp, givenUp{item: h.Item.ID, token: h.Item.Token, inHand: h.file(), code: codeClockSet, lease: h.lease})
}

// spent is how much of its lease has passed since that was asked for: 1 is all.
func (h *Hold) spent() float64 {
	h.engine.mu.Lock()
	defer h.engine.mu.Unlock()
	return float64(time.Since(h.asked)) / float64(h.lease)
}

// Context is done when the item is lost, or when the context given to
// [Engine.Hold] is.
func (h *Hold) Context() context.Context { return h.ctx }

// Lease is how long the claim lasts unless it is renewed.
func (h *Hold) Lease() time.Duration { return h.Item.lease }

// InHand names the file being worked on. It is written to the ledger with the
// next heartbeat, and kept where another worker of this host finds it should
// this one die before that, so that what killed a worker can be named.
func (h *Hold) InHand(file string) {
	file = readable(file) // the database takes no other, and a heartbeat is for all items
	h.inHand.Store(&file)
	if h.slot >= 0 {
		h.engine.recorder.note(h.slot, h.Item.ID, file)
	}
}

func (h *Hold) file() string {
	if f := h.inHand.Load(); f != nil {
		return *f
	}
	return ""
}

// Check asks whether the item is still in hand, before something is done that
// could not be taken back. It asks the registry only when the item was not
// renewed for half of its lease, as after the process was stopped for a while.
func (h *Hold) Check(ctx context.Context) error {
	if h.ctx.Err() != nil {
		return context.Cause(h.ctx) //nolint:contextcheck // the lease's, which outlives the call's
	}
	e := h.engine
	if e.options.Unrenewed {
		if h.spent() >= 2./3 {
			return fmt.Errorf("item %d took longer than its lease allows: %w", h.Item.ID, ErrLost)
		}
		return nil
	}
	if h.spent() < 1./2 {
		return nil
	}
	select {
	case e.asking <- struct{}{}:
		defer func() { <-e.asking }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if h.spent() < 1./2 && h.ctx.Err() == nil {
		return nil // someone else has asked meanwhile
	}
	call, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	if err := e.heartbeat(call); err != nil {
		return fmt.Errorf("check the claim on item %d: %w", h.Item.ID, err)
	}
	if h.ctx.Err() != nil {
		return context.Cause(h.ctx) //nolint:contextcheck // the lease's, which outlives the call's
	}
	return nil
}

// Do runs a stage's work and turns a panic in it into an error, so that one bad
// bag does not take the others in this process with it.
func (h *Hold) Do(work func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			h.engine.log.ErrorContext(h.ctx, "stage panicked", "item", h.Item.ID, "stage", h.Item.Step(), "panic", p, "stack", string(debug.Stack()))
			err = &ending{kind: endPanic, code: "panic", err: fmt.Errorf("panic: %v", p)}
		}
	}()
	return work(h.ctx)
}

// Verdict is what a stage's result means, if its context ended first: the item
// was lost, the stage took longer than it may, or the caller's context ended and
// the item goes back as if it had not been claimed.
func (h *Hold) Verdict(result error) error {
	if result == nil || h.ctx.Err() == nil {
		return result
	}
	switch cause := context.Cause(h.ctx); {
	case errors.Is(cause, ErrLost):
		return cause
	case errors.Is(cause, errTimeout):
		return Transient("timeout", fmt.Errorf("the stage did not end within %v", h.Item.Timeout))
	default:
		return Release(cause.Error())
	}
}

// Abandon stops renewing the lease without a word to the registry. The item
// goes to another worker when the lease lapses.
func (h *Hold) Abandon() { h.drop(nil) }

func (h *Hold) drop(cause error) {
	e := h.engine
	e.mu.Lock()
	h.deaf.Stop()
	held := e.held[h.Item.ID] == h
	if held {
		delete(e.held, h.Item.ID)
		if h.slot >= 0 && e.recorder != nil {
			e.slots = append(e.slots, h.slot)
		}
	}
	e.mu.Unlock()
	h.cancel(cause)
	if held && errors.Is(cause, ErrLost) {
		e.options.Observer.Lost(h.Item.Step())
	}
}
