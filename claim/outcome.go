package claim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/registry"
)

// A stage says what its work came to by the error that it returns. nil is done.
// An error that carries a [fault.Error] is not the item's: the item is given back
// as held, and the attempt does not count. An error that is none of these is
// transient: a retry that was not needed costs little, and a bag that was given
// up on wrongly costs a person.

// Fatal returns an error that a retry cannot fix. code is stable and
// meant for programs; the message is what the depositor reads.
func Fatal(code, format string, args ...any) error {
	return &ending{kind: endFatal, code: code, err: fmt.Errorf(format, args...)}
}

// Transient gives an error a code. Without it the code is "transient".
func Transient(code string, err error) error {
	return &ending{kind: endTransient, code: code, err: err}
}

// Snooze asks for the item again after d. It does not count as an attempt.
func Snooze(d time.Duration, why string) error {
	return &ending{kind: endSnooze, code: "snoozed", delay: d, err: errors.New(why)}
}

// SnoozeAs is Snooze with a code that says what the item waits for.
func SnoozeAs(code string, d time.Duration, why string) error {
	return &ending{kind: endSnooze, code: code, delay: d, err: errors.New(why)}
}

// SendBack moves the item to an earlier stage whose results are gone.
func SendBack(stage registry.Stage, why string) error {
	return &ending{kind: endSendBack, code: "sent-back", stage: stage, err: errors.New(why)}
}

// SendBackAs is SendBack with a code and an error of the caller's own. Both stay if
// the item is suspended because it was sent back too often.
func SendBackAs(code string, stage registry.Stage, err error) error {
	return &ending{kind: endSendBack, code: code, stage: stage, err: err}
}

// Cancel ends the item because it is no longer wanted.
func Cancel(code, why string) error {
	return &ending{kind: endCancel, code: code, err: errors.New(why)}
}

// Suspend parks the item until a person decides.
func Suspend(code, why string) error {
	return &ending{kind: endSuspend, code: code, err: errors.New(why)}
}

// Code returns the stable code of an error that a stage returned.
func Code(err error) string {
	e, ended := errors.AsType[*ending](err)
	switch f := FaultIn(err); {
	case err == nil:
		return ""
	case f != nil:
		return f.Code()
	case ended:
		return e.code
	case errors.Is(err, ErrLost):
		return "lost"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	default:
		return "transient"
	}
}

// IsTransient reports whether a retry may fix err.
func IsTransient(err error) bool {
	if e, ok := errors.AsType[*ending](err); ok {
		return e.kind == endTransient
	}
	return err != nil && !errors.Is(err, ErrLost)
}

// Release is the result of work that was stopped for no fault of its own: the
// item goes back at once and the attempt does not count.
func Release(why string) error {
	return &ending{kind: endRelease, code: "released", err: errors.New(why)}
}

// Held gives the item back because of a fault, for which result is what the stage
// returned. The item is due again after d, and the attempt does not count.
func Held(f *fault.Error, d time.Duration, result error) error {
	return &ending{kind: endHeld, code: f.Code(), service: f.Service, delay: d, err: result}
}

// heldDelay is how long a held item waits if nobody says otherwise.
const heldDelay = time.Second

// Doubt is an ending that one process alone must not decide, since the process
// itself may be wrong: it may read the wrong bucket, or with the wrong
// rights. The ending takes effect once another process has come to the same at
// the same stage, or this one again while no other is there to ask. Until then the
// item is held. service is what may have misled the process.
func Doubt(service string, result error) error {
	e, ok := errors.AsType[*ending](result)
	if !ok {
		return result
	}
	return &ending{kind: endDoubt, code: e.code, service: service, delay: heldDelay, err: result}
}

// Codes of attempts that were held because a service failed this item and no other.
const (
	codeServesOthers  = "serves-others"  // it served other items since the item was held before
	codeAnswersProbes = "answers-probes" // it answered a probe, or serves other stages; nothing was served at this one
)

// Alone is what is known of a service that fails an item and, as far as this process sees, hardly
// any other.
type Alone struct {
	Served time.Duration // how long ago it last served another item at the same stage; 0: not as far as is known
	Probed bool          // it answered a probe since it failed, or serves other stages
}

// HeldAlone is [Held] for an item that its service fails alone. [Engine.Believe] suspends it with
// result when the ledger has as many such attempts as the stage allows, or when they go back for
// an hour. What only a probe speaks for has to last for the hour.
func HeldAlone(f *fault.Error, a Alone, d time.Duration, result, suspended error) error {
	return &ending{kind: endDoubt, code: f.Code(), service: f.Service, delay: d, err: result, alone: &a, suspended: suspended}
}

// InDoubt reports whether a result is a [Doubt], and returns the service that may have
// misled the process; "" if there is no other process to ask.
func InDoubt(result error) (service string, ok bool) {
	if e, ok := errors.AsType[*ending](result); ok && e.kind == endDoubt {
		return e.service, true
	}
	return "", false
}

// FaultIn is [fault.In], and finds those of the database too, whose errors carry
// no fault: everything else that speaks to the outside marks its own. An ending
// that a stage decided on is no fault, whatever led to it.
func FaultIn(result error) *fault.Error {
	e, ended := errors.AsType[*ending](result)
	if result == nil || errors.Is(result, ErrLost) || ended && e.kind != endTransient {
		return nil
	}
	if f := fault.In(result); f != nil {
		return f
	}
	return databaseFault(result, e)
}

// NeedMemory is the result of work for which this worker has too little memory: the
// item goes back and waits for one that has so many bytes for lists of files. The
// attempt does not count.
func NeedMemory(bytes int64) error {
	err := fmt.Errorf("this worker has too little memory: the lists of the bag's files need %d MiB or more", (bytes+1<<20-1)>>20)
	return &ending{kind: endNeed, code: "memory-need", need: bytes, err: err}
}

type endKind int

const (
	endFatal endKind = iota
	endTransient
	endSnooze
	endSendBack
	endCancel
	endSuspend
	endRelease
	endNeed
	endPanic
	endHeld
	endDoubt
)

type ending struct {
	kind    endKind
	code    string
	service string
	stage   registry.Stage
	delay   time.Duration
	need    int64 // bytes of memory
	err     error

	alone     *Alone // of a [HeldAlone]; nil: it is none
	suspended error  // what it comes to
}

func (e *ending) Error() string { return e.err.Error() }
func (e *ending) Unwrap() error { return e.err }

// Done is what follows when a stage's work is done.
type Done struct {
	Next          registry.Stage // stage; "": the item has come to its end
	Note          string         // for the depositor
	Outcome       string         // set at the end only
	Remark        string         // for the ledger, which has errors of other attempts in its place
	ObjectID      int64          // intellectual object, set at the end only
	StorageOption string         // of the bag, set by the stage that learns it
	MemoryNeed    int64          // bytes for the lists of its files, set by the stage that learns it; 0: as it was
	List          List           // that an ingest's stage leaves for later ones
}

// List is what a stage leaves, which is written with the end of its claim.
type List struct {
	Name    string // "": nothing
	Content []byte // nil: it is in the staging bucket
}

// databaseFault is the fault of an error that the database gave, or the way to it.
// Of an error to which a stage has given a code, only the database's own word
// counts: what failed on the way may have been another service.
func databaseFault(err error, coded *ending) *fault.Error {
	f := &fault.Error{Service: fault.Database, Err: err}
	pg, answered := errors.AsType[*pgconn.PgError](err)
	_, unconnected := errors.AsType[*pgconn.ConnectError](err)
	ok := true
	switch {
	case answered:
		f.Said = pg.Code + " " + pg.Message
		f.Kind, ok = fault.Postgres(pg.Code)
	case coded != nil:
		ok = false
	case unconnected, pgconn.SafeToRetry(err), errors.Is(err, pgx.ErrTxClosed):
		f.Kind, f.Said = fault.Unavailable, "connection broken"
	default:
		f.Kind, f.Said, ok = fault.Network(err)
	}
	if !ok {
		return nil
	}
	return f
}
