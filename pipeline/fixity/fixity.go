// Package fixity compares stored copies with their digests on record, and replaces bad
// copies by good ones.
package fixity

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/retry"
)

// Checker reads copies that are due and compares them with their digests on record.
// There are no items for it: the database says which copy is the most overdue, and
// gives each to one process at a time, for a lease that it renews. Any number of
// processes may do so; one that dies leaves its copies to the others.
//
// It judges only what it has seen twice. A provider that does not answer says nothing
// of a copy, which is then tried again later; and of one whose record changed
// in the meantime, what was read says nothing either.
type Checker struct {
	Registry *registry.Registry
	Targets  copies.Targets
	Log      *slog.Logger

	Worker   string        // names this process to others
	Slots    int           // copies that are read at once; 0: it checks nothing
	Batch    int           // small copies that are claimed beyond that, so that they need not be waited for; at most
	Attempts int           // tries, after which a copy is tried once a day
	Days     int           // between two checks of a copy, where its target's policy leaves it open
	Lease    time.Duration // how long a copy is ours unless that is renewed; 30 s
	Poll     time.Duration // between two polls for due copies; 3 s
	Again    time.Duration // before a second look at what seems bad; 2 s
	Observe  func(Outcome) // called for each check that ended; may be nil
}

// Outcome is how a check ended, for metrics.
type Outcome struct {
	Target string
	Result string // matched, altered, missing, retried, archived or dropped
	Bytes  int64  // that were read
	Took   time.Duration
}

// fixityRun is one call of Run. Copies go from the claimer to one of the readers, and
// from there to the recorder, which writes what has come together in one transaction.
type fixityRun struct {
	*Checker

	todo  chan fixity.Copy
	done  chan fixityCheck
	freed chan struct{} // a reader has ended a check

	mu     sync.Mutex
	held   map[fixity.Hold]*heldCopy // from the claim to the record
	read   int                       // of these, copies that are being read
	queued int                       // of these, copies that wait for a reader
	mean   time.Duration             // that the last checks took
	warned map[string]bool           // targets that a log line has called archived
}

// heldCopy is a copy that this process has claimed.
type heldCopy struct {
	since time.Time
	stop  context.CancelCauseFunc // ends its reading; nil before that
}

// fixityCheck is a copy that was judged.
type fixityCheck struct {
	copy fixity.Copy
	is   copies.Looked
	took time.Duration
}

// errTakenAway is the end of a check whose lease another process has.
var errTakenAway = errors.New("another process has taken over the check")

// Run checks copies until ctx is done. Copies in progress it then gives back at
// once: the next process begins it again.
func (f *Checker) Run(ctx context.Context) error {
	if f.Slots <= 0 {
		return nil
	}
	f.Lease, f.Poll, f.Again = cmp.Or(f.Lease, 30*time.Second), cmp.Or(f.Poll, 3*time.Second), cmp.Or(f.Again, 2*time.Second)
	r := &fixityRun{
		Checker: f, todo: make(chan fixity.Copy, 2*(f.Slots+f.Batch)), done: make(chan fixityCheck, f.Slots+f.Batch), freed: make(chan struct{}, 1),
		held: map[fixity.Hold]*heldCopy{}, warned: map[string]bool{}, mean: time.Hour,
	}
	beating, stopBeating := context.WithCancel(context.WithoutCancel(ctx))
	var readers, others sync.WaitGroup
	others.Go(func() { r.keep(beating) })
	for range f.Slots {
		readers.Go(func() {
			for c := range r.todo {
				r.one(ctx, c)
			}
		})
	}
	others.Go(func() { r.record(ctx) })
	for ctx.Err() == nil {
		r.claim(ctx)
	}
	close(r.todo)
	readers.Wait()
	close(r.done)
	stopBeating()
	others.Wait()
	r.giveBack(ctx)
	return nil
}

// vacancies is how many copies to claim now: as many as there are readers free, and, while
// checks take little time, those that will be ended before the next claim is.
func (r *fixityRun) vacancies() int {
	const ahead = 200 * time.Millisecond
	r.mu.Lock()
	defer r.mu.Unlock()
	spare := min(int(ahead*time.Duration(r.Slots)/max(r.mean, time.Microsecond)), r.Batch)
	if 2*r.queued > spare { // a claim is worth some copies
		return 0
	}
	return max(r.Slots+spare-r.read-r.queued, 0)
}

// claim claims what there is space for, and waits until there may be more. A claim that
// was sent is completed although ctx is done: its copies are on record as ours,
// and would wait for their lease if nobody gave them back.
func (r *fixityRun) claim(ctx context.Context) {
	most := r.vacancies()
	if most == 0 {
		select {
		case <-ctx.Done():
		case <-r.freed:
		}
		return
	}
	var targets []string
	for name := range r.Targets {
		targets = append(targets, name)
	}
	sent, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
	defer cancel()
	list, err := fixity.In(r.Registry).Claim(sent, fixity.Claim{Worker: r.Worker, Targets: targets, Most: most, Days: r.Days, Lease: r.Lease})
	if err != nil {
		r.Log.WarnContext(ctx, "claim of copies to check failed; retrying", "err", err)
	}
	r.mu.Lock()
	for _, c := range list {
		r.held[holdOf(c)] = &heldCopy{since: time.Now()}
		r.queued++
	}
	r.mu.Unlock()
	for _, c := range list {
		r.todo <- c
	}
	if len(list) < most {
		retry.Pause(ctx, r.Poll/2+rand.N(r.Poll))
	}
}

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
	select {
	case r.freed <- struct{}{}:
	default:
	}
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
