package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
)

const (
	window      = 30 * time.Second // what a breaker remembers
	tripAfter   = 3                // faults in it, if they are at least half of what was seen
	trialTime   = 10 * time.Second // after which an item on trial has shown that the service works, unless it failed
	idleTrial   = 2 * time.Second  // the same while there is no item to try
	probeTime   = 6 * time.Second  // for a probe
	longestWait = 10 * time.Second // between two probes
)

// A breaker is a circuit breaker: how this process sees one service. While it is
// failing, nothing that needs the service is claimed. When a probe finds that the
// service answers, one item at a time is claimed, and when one was done, or has
// been in work for a while, all are again. It is guarded by the lock of [breakers].
type breaker struct {
	service   string
	ofProcess bool
	scopes    []claim.Scope
	probe     probe  // nil: only time can tell
	place     string // the bucket that this process uses as the service
	elsewhere string // what most others take for it, if that is something else

	state    claim.ServiceState
	seen     []seen               // within the window, the oldest first
	reset    time.Time            // when it became ok again: what was seen before does not trip it
	lastOK   map[string]time.Time // when work at a step that needs it ended well
	cause    *fault.Error         // why it is not ok
	pause    time.Duration
	next     time.Time // when to probe, or when trying has lasted long enough
	probing  bool
	trial    int64     // the item on trial; 0: none
	released time.Time // by a person, as far as was acted on
	unsaid   bool      // the change is not in the database yet
	unheard  bool      // nor have the pools been woken for it

	refusals map[string]time.Time // when a refusal of ours was told, by what was said
	refusal  *fault.Error         // that is to be told

	since time.Time // when it ceased to be ok; zero if it is
	alarm bool      // the log has said that a person is needed
}

// seen is how one piece of work that needs a service ended.
type seen struct {
	at   time.Time
	ok   bool
	item int64
	step string // of the item: each asks other things of the service
}

// agree compares the bucket that this process uses as the service with that of most others. If
// they differ, the process stops using the service.
func (b *breaker) agree(now time.Time, others string) {
	switch differs := others != "" && b.place != "" && others != b.place; {
	case differs && b.elsewhere != others:
		b.elsewhere = others
		b.cause = &fault.Error{
			Service: b.service, Kind: fault.Missing, Said: "its bucket differs from other workers'",
			Err: fmt.Errorf("this worker is configured with %s for %s, and most workers with %s", b.place, b.service, others),
		}
		b.trip(now)
	case !differs && b.elsewhere != "":
		b.elsewhere = ""
		b.try(now)
	}
}

// fault notes that the service failed a piece of work, and tells whether the breaker has
// tripped.
func (b *breaker) fault(now time.Time, item claim.Item, f *fault.Error) bool {
	b.note(now, item, false)
	b.refused(now, f)
	b.unsaid = b.unsaid || b.state != claim.ServiceOK && b.cause.Code() != f.Code()
	if b.state != claim.ServiceOK {
		b.cause = f
	}
	switch b.state {
	case claim.ServiceOK:
		failed, all := 0, 0
		for _, s := range b.seen {
			if s.at.Before(b.reset) {
				continue
			}
			if all++; !s.ok {
				failed++
			}
		}
		if failed < tripAfter || 2*failed < all {
			return false
		}
		b.cause, b.pause = f, 0
		b.trip(now)
	case claim.ServiceTrying:
		b.trip(now)
	case claim.ServiceFailing: // it has tripped already
	}
	return true
}

// refused has people told of a request of ours that the service refuses, once a day for each.
func (b *breaker) refused(now time.Time, f *fault.Error) {
	const often, mostRefusals = 24 * time.Hour, 100
	if f.Kind != fault.Refused || now.Sub(b.refusals[f.Said]) < often {
		return
	}
	if b.refusals == nil || len(b.refusals) >= mostRefusals {
		b.refusals = map[string]time.Time{}
	}
	b.refusals[f.Said] = now
	b.refusal, b.unsaid = f, true
}

// trip has the work held back, from now on or for longer.
func (b *breaker) trip(now time.Time) {
	b.become(claim.ServiceFailing)
	b.pause = min(max(2*b.pause, time.Second), longestWait)
	b.next = now.Add(b.pause)
}

// ok notes that work which needs the service ended well.
func (b *breaker) ok(now time.Time, item claim.Item) {
	b.note(now, item, true)
	if b.lastOK == nil {
		b.lastOK = map[string]time.Time{}
	}
	b.lastOK[item.Step()] = now
	if b.state == claim.ServiceTrying && b.trial == item.ID {
		b.works(now)
	}
}

// works has all work claimed again. What the service failed lately is not forgotten: one that
// comes and goes fails no item alone.
func (b *breaker) works(now time.Time) {
	b.become(claim.ServiceOK)
	b.cause, b.reset = nil, now
}

// become changes the state, which the database and the pools have to learn.
func (b *breaker) become(s claim.ServiceState) {
	b.state, b.trial, b.unsaid, b.unheard = s, 0, true, true
}

func (b *breaker) note(now time.Time, item claim.Item, ok bool) {
	const most = 100
	for len(b.seen) > 0 && (len(b.seen) >= most || now.Sub(b.seen[0].at) > window) {
		b.seen = b.seen[1:]
	}
	b.seen = append(b.seen, seen{now, ok, item.ID, item.Step()})
}

// failsOthers reports whether, of what the breaker remembers, the service failed more than one
// in ten other pieces of work: of all, or of those at the step of an item.
func (b *breaker) failsOthers(item claim.Item) bool {
	var failed, all, failedHere, here int
	for _, s := range b.seen {
		if s.item == item.ID {
			continue
		}
		all++
		if s.step == item.Step() {
			here++
		}
		if s.ok {
			continue
		}
		failed++
		if s.step == item.Step() {
			failedHere++
		}
	}
	return 10*failed > all || 10*failedHere > here
}

// alone is what is known of a service that hardly fails any other item at the step of this one.
// That it serves other steps says as little as a probe: a store may serve all but listings.
func (b *breaker) alone(now time.Time, item claim.Item, onTrial bool) (a claim.Alone) {
	a.Probed = onTrial
	for step, at := range b.lastOK {
		if step == item.Step() {
			a.Served = max(now.Sub(at), 1)
		}
		a.Probed = a.Probed || now.Sub(at) < window
	}
	return a
}

// probed takes the answer of a probe.
func (b *breaker) probed(now time.Time, err error) {
	b.probing = false
	if b.state != claim.ServiceFailing || b.elsewhere != "" {
		return
	}
	if err == nil {
		b.try(now)
		return
	}
	if f := fault.In(err); f != nil {
		b.cause = f
	} else {
		b.cause = &fault.Error{Service: b.service, Kind: fault.Unavailable, Err: err}
	}
	b.trip(now)
}

// try lets one item at a time through.
func (b *breaker) try(now time.Time) {
	b.become(claim.ServiceTrying)
	b.next = now.Add(idleTrial)
}

// tried is called when trying has lasted long enough.
func (b *breaker) tried(now time.Time) {
	if b.state == claim.ServiceTrying && !now.Before(b.next) {
		b.works(now)
	}
}

// report is how the breaker stands, for the database.
func (b *breaker) report(now time.Time) claim.ServiceReport {
	r := claim.ServiceReport{Service: b.service, State: b.state, OfProcess: b.ofProcess, Scopes: b.scopes, Place: b.place, Refusal: b.refusal}
	if b.cause != nil {
		r.Code, r.Said, r.Detail = b.cause.Code(), b.cause.Said, b.cause.Error()
	}
	if b.state == claim.ServiceFailing && b.probe != nil {
		r.NextProbe = max(b.next.Sub(now), time.Millisecond)
	}
	return r
}

// alarmAfter is how long a service may fail before a person is called.
const alarmAfter = 5 * time.Minute

// log says what has become of the service, once for each change.
func (b *breaker) log(ctx context.Context, log *slog.Logger, now time.Time) {
	ok := b.state == claim.ServiceOK
	switch {
	case !ok && b.since.IsZero():
		b.since = now
		log.WarnContext(ctx, "service is failing; this worker claims no items that need it", "service", b.service, "code", b.cause.Code(), "said", b.cause.Said, "err", b.cause)
	case !ok && !b.alarm && now.Sub(b.since) > alarmAfter && b.probe != nil:
		b.alarm = true
		log.ErrorContext(ctx, "service is still failing; items that need it wait", "service", b.service, "code", b.cause.Code(), "since", b.since, "err", b.cause)
	case ok && !b.since.IsZero():
		log.InfoContext(ctx, "service works again", "service", b.service, "failed_for", now.Sub(b.since).Round(time.Second))
		b.since, b.alarm = time.Time{}, false
	}
}
