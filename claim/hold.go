package claim

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farol-preservation/farol/claim/clock"
	"github.com/farol-preservation/farol/claim/process"
	"github.com/farol-preservation/farol/registry"
)

// leases are the items that this process holds.
type leases struct {
	*settler

	store    leaseStore
	clock    *clock.Clock
	draining chan struct{} // closed when the process is asked to stop
	asking   chan struct{} // full while a heartbeat of Check runs; there is one at a time
	drain    sync.Once
	stopping atomic.Bool // see [Engine.Stopping]

	mu          sync.Mutex
	held        map[int64]*Hold // by item
	givenUp     []givenUp       // that are not in the ledger yet
	unreachable bool            // the last heartbeat did not get through
	crash       *process.CrashLog
	slots       []int // of the crash log, that are free
}

func newLeases(s *settler, store leaseStore, c *clock.Clock) *leases {
	return &leases{settler: s, store: store, clock: c, draining: make(chan struct{}), asking: make(chan struct{}, 1), held: map[int64]*Hold{}}
}

// leaseStore is where leases are renewed.
type leaseStore interface {
	// renew extends the leases whose token is still the item's, and records the heartbeat
	// of the process, which sends one every so often.
	renew(ctx context.Context, w worker, every time.Duration, held []heldLease, gone []givenUp) (renewed, error)
	// uncount takes back what attempts have cost whose leases lapsed because the process could
	// not reach the database.
	uncount(ctx context.Context, items, tokens []int64) error
	// leave says that the process ends in an orderly way.
	leave(ctx context.Context, worker string) error
}

var errTimeout = errors.New("the stage took longer than its processing timeout")

// heldLease is an item in progress, as a heartbeat renews it.
type heldLease struct {
	item, token int64
	lease       time.Duration
	file        string
	lost        string // code for the ledger, if it is found to be lost
}

// renewed is the result of a heartbeat.
type renewed struct {
	kept     map[int64]bool // items that are still the process's, and whether it extended the lease: else they are locked
	draining bool           // the process is asked to stop
	ago      *time.Duration // since the heartbeat before, by the database's clock; nil: there was none
}

// givenUp is a claim that a process stopped working on, since it could not renew
// its lease. It reports why, as soon as it can.
type givenUp struct {
	hold     *Hold
	file     string
	code     string
	lease    time.Duration
	reported time.Time // for the first time; zero: not yet
	returned bool      // it was given back, or another process has ended it
}

// Why a lease was not renewed, of a worker that lives.
const (
	codeLost        = "lease-lost"  // it was stopped for too long
	codeUnreachable = "unreachable" // the database was, for it
	codeClaimLost   = "claim-lost"  // it did not receive the answer to its claim
	codeClockSet    = "clock-set"   // the database's clock was set forward, and the claim ended before its time
)

// begin starts to note current files in the crash log of this process; nil: it has none.
func (l *leases) begin(crash *process.CrashLog) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crash = crash
	for slot := range process.Slots {
		l.slots = append(l.slots, slot)
	}
}

// signOff says that the process ends in an orderly way. Nothing is lost if it cannot.
func (l *leases) signOff(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := l.store.leave(ctx, l.self.worker); err != nil {
		l.log.WarnContext(ctx, "could not deregister the worker; it will be marked dead when its heartbeat expires", "err", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.crash.Close()
	l.crash, l.slots = nil, nil
}

// count is [Engine.Held].
func (l *leases) count() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[string]int{}
	for _, h := range l.held {
		n[h.Item.Step()]++
	}
	return n
}

// Hold is an item in progress. Its context ends with the cause [ErrLost] as soon as this
// process learns that the item is no longer its own.
type Hold struct {
	Item Item

	leases *leases
	ctx    context.Context //nolint:containedctx // the context is the lease: it lives as long as this value
	cancel context.CancelCauseFunc
	file   atomic.Pointer[string] // that is in progress
	slot   int                    // in the crash log; -1: none

	// By this process's monotonic clock; guarded by the mutex of leases.
	asked time.Time     // when the lease was asked for that the item is held by
	lease time.Duration // from then on, at least
	late  *time.Timer   // stops the work before the lease lapses

	settling atomic.Int32 // calls of Settle under way
	ended    End          // what was written
}

// hold is [Engine.Hold].
func (l *leases) hold(ctx context.Context, item Item) *Hold {
	h := &Hold{Item: item, leases: l, slot: -1}
	h.ctx, h.cancel = context.WithCancelCause(ctx)
	if item.Timeout > 0 {
		timed, stop := context.WithTimeoutCause(h.ctx, item.Timeout, errTimeout)
		cancel := h.cancel
		h.ctx, h.cancel = timed, func(cause error) { cancel(cause); stop() }
	}
	l.mu.Lock()
	earlier := l.held[item.ID]
	l.mu.Unlock()
	if earlier != nil { // the heartbeat would renew this claim and never that one
		earlier.drop(ErrLost)
	}
	defer h.stopLate() // the answer to the claim may have come late
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held[item.ID] = h
	h.late = time.AfterFunc(item.Lease, h.stopLate)
	h.leased(item.asked, item.Lease)
	if n := len(l.slots); n > 0 {
		h.slot, l.slots = l.slots[n-1], l.slots[:n-1]
		l.crash.Note(h.slot, item.ID, "")
	}
	return h
}

// Settle ends the claim with what the work came to. It returns ErrLost, and
// changes nothing, if the claim is lost; any other error means
// that it is not known whether the item was moved, and that the caller may call
// again: a second call after a first that did land returns ErrLost.
func (h *Hold) Settle(ctx context.Context, done Done, result error) error {
	return h.settle(ctx, Ending{Done: done, Result: result}).err
}

// Carry is Settle for a stage that is done, and begins the next one of an ingest for this
// process, in the same statement. It returns the item as if it had been claimed there; nil if
// that stage is paused, or has as many items as its cap allows. Then the item waits there. The
// caller makes sure that no item waits that comes first.
func (h *Hold) Carry(ctx context.Context, done Done) (next *Item, err error) {
	ended := h.settle(ctx, Ending{Done: done, carry: true})
	return ended.next, ended.err
}

func (h *Hold) settle(ctx context.Context, end Ending) settled {
	h.settling.Add(1)
	defer h.settling.Add(-1)
	end.Item, end.File = h.Item, h.currentFile()
	ended := h.leases.settle(ctx, []Ending{end})[0]
	switch {
	case ended.err == nil:
		h.ended = ended.end
		h.drop(nil)
	case errors.Is(ended.err, ErrLost):
		h.lostInTime()
		h.drop(ErrLost)
	}
	return ended
}

// Ended is how the claim ended, as it was written by the last call of Settle or Carry.
func (h *Hold) Ended() End { return h.ended }

// leased notes that a lease was granted that lasts for d from asked on, at least.
// The caller has locked the engine.
func (h *Hold) leased(asked time.Time, d time.Duration) {
	h.asked, h.lease = asked, d
	h.late.Reset(d*2/3 - time.Since(asked))
}

// stopLate ends the work when two thirds of its lease have passed since the last renewal:
// soon another worker may claim the item.
func (h *Hold) stopLate() {
	l := h.leases
	l.mu.Lock()
	silence := time.Since(h.asked)
	late := l.held[h.Item.ID] == h && silence >= h.lease*2/3
	if late {
		why := givenUp{hold: h, file: h.currentFile(), code: codeLost, lease: h.lease}
		if l.unreachable {
			why.code = codeUnreachable
		}
		l.givenUp = append(l.givenUp, why)
	}
	l.mu.Unlock()
	if late {
		l.log.WarnContext(h.ctx, "cannot renew the lease; stopping the work before another worker takes the item", "item", h.Item.ID, "stage", h.Item.Step())
		h.drop(fmt.Errorf("no heartbeat for %v: %w", silence.Round(time.Millisecond), ErrLost))
	}
}

// lostInTime has the next heartbeat report that the claim was lost although its lease
// cannot have lapsed: if it has, the database's clock was set.
func (h *Hold) lostInTime() {
	if h.spent() >= 1 {
		return
	}
	l := h.leases
	l.mu.Lock()
	defer l.mu.Unlock()
	l.givenUp = append(l.givenUp, givenUp{hold: h, file: h.currentFile(), code: codeClockSet, lease: h.lease})
}

// spent is how much of its lease has passed since that was asked for: 1 is all.
func (h *Hold) spent() float64 {
	h.leases.mu.Lock()
	defer h.leases.mu.Unlock()
	return float64(time.Since(h.asked)) / float64(h.lease)
}

// Context is done when the item is lost, or when the context given to
// [Engine.Hold] is.
func (h *Hold) Context() context.Context { return h.ctx }

// Lease is how long the claim lasts unless it is renewed.
func (h *Hold) Lease() time.Duration { return h.Item.Lease }

// CurrentFile names the file that is in progress. It is written to the ledger with the next
// heartbeat, and to the crash log, where another worker of this host finds it if this one
// dies before. So the file that killed a worker can be named.
func (h *Hold) CurrentFile(file string) {
	file = registry.StorableText(file) // the database takes no other, and a heartbeat is for all items
	h.file.Store(&file)
	if h.slot >= 0 {
		h.leases.crash.Note(h.slot, h.Item.ID, file)
	}
}

func (h *Hold) currentFile() string {
	if f := h.file.Load(); f != nil {
		return *f
	}
	return ""
}

// Do runs a stage's work and turns a panic in it into an error, so that one bad
// bag does not take the others in this process with it.
func (h *Hold) Do(work func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			h.leases.log.ErrorContext(h.ctx, "stage panicked", "item", h.Item.ID, "stage", h.Item.Step(), "panic", p, "stack", string(debug.Stack()))
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

// Abandon stops renewing the lease and does not notify the registry. The item goes to
// another worker when the lease lapses.
func (h *Hold) Abandon() { h.drop(nil) }

func (h *Hold) drop(cause error) {
	l := h.leases
	l.mu.Lock()
	h.late.Stop()
	held := l.held[h.Item.ID] == h
	if held {
		delete(l.held, h.Item.ID)
		if h.slot >= 0 && l.crash != nil {
			l.slots = append(l.slots, h.slot)
		}
	}
	l.mu.Unlock()
	h.cancel(cause)
	if held && errors.Is(cause, ErrLost) {
		l.options.Observer.Lost(h.Item.Step())
	}
}
