package fixity

import (
	"context"
	"errors"
	"time"

	"github.com/farol-preservation/farol/claim/wake"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/retry"
)

// heldCopy is a copy that this process has claimed.
type heldCopy struct {
	since time.Time
	stop  context.CancelCauseFunc // ends its reading; nil before that
}

// errTakenAway is the end of a check whose lease another process has.
var errTakenAway = errors.New("another process has taken over the check")

func holdOf(c fixity.Copy) fixity.Hold {
	return fixity.Hold{ID: c.ID, Token: c.Token}
}

// begin tells whether a copy is still ours, and returns what its reading runs in.
func (r *fixityRun) begin(ctx context.Context, c fixity.Copy) (context.Context, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.held[holdOf(c)]
	if h == nil || ctx.Err() != nil {
		return ctx, false
	}
	r.queued--
	r.read++
	ctx, h.stop = context.WithCancelCause(ctx)
	return ctx, true
}

// end says that a reader is free.
func (r *fixityRun) end(took time.Duration) {
	r.mu.Lock()
	r.read--
	r.mean = min((9*r.mean+took)/10, 10*max(took, time.Millisecond)) // one long check is soon forgotten
	r.mu.Unlock()
	wake.Signal(r.freed)
}

// drop forgets a copy whose claim has ended.
func (r *fixityRun) drop(c fixity.Copy) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.held, holdOf(c))
}

// keep renews the leases of all copies in progress. A check that was lost ends, and what
// had to wait for a reader for too long goes to others.
func (r *fixityRun) keep(ctx context.Context) {
	for retry.Pause(ctx, r.Lease/3) {
		var holds, stale []fixity.Hold
		r.mu.Lock()
		for hold, h := range r.held {
			if h.stop == nil && time.Since(h.since) > r.Lease/3 {
				stale = append(stale, hold)
				delete(r.held, hold)
				r.queued--
				continue
			}
			holds = append(holds, hold)
		}
		if len(stale) > 0 {
			r.mean = max(r.mean, r.Lease) // the readers have long ones
		}
		r.mu.Unlock()
		if err := r.renew(ctx, holds, stale); err != nil && ctx.Err() == nil {
			// What another process takes over in the meantime, it will not let us record.
			r.Log.WarnContext(ctx, "cannot renew leases of fixity checks; retrying", "err", err)
		}
	}
}

func (r *fixityRun) renew(ctx context.Context, holds, stale []fixity.Hold) error {
	if len(stale) > 0 {
		if err := fixity.In(r.Registry).Release(ctx, stale...); err != nil {
			return err
		}
	}
	if len(holds) == 0 {
		return nil
	}
	kept, err := fixity.In(r.Registry).Keep(ctx, r.Lease, holds...)
	if err != nil {
		return err
	}
	ours := map[fixity.Hold]bool{}
	for _, h := range kept {
		ours[h] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, hold := range holds {
		switch h := r.held[hold]; {
		case h == nil || ours[hold]:
		case h.stop != nil:
			h.stop(errTakenAway)
		default:
			delete(r.held, hold)
			r.queued--
		}
	}
	return nil
}

// lastWord is how long the end of a check may take to reach the database once the
// process was asked to stop.
const lastWord = 10 * time.Second

// giveBack releases the copies that are left.
func (r *fixityRun) giveBack(ctx context.Context) {
	var holds []fixity.Hold
	for hold := range r.held {
		holds = append(holds, hold)
	}
	if len(holds) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
	defer cancel()
	if err := fixity.In(r.Registry).Release(ctx, holds...); err != nil {
		r.Log.WarnContext(ctx, "cannot release copies; their leases will expire", "copies", len(holds), "err", err)
	}
}
