// Package fixity compares stored copies with their digests on record, and replaces bad
// copies by good ones.
package fixity

import (
	"cmp"
	"context"
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

// fixityCheck is a copy that was judged.
type fixityCheck struct {
	copy fixity.Copy
	is   copies.Looked
	took time.Duration
}

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
