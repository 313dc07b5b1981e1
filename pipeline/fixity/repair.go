package fixity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/retry"
	"github.com/farol-preservation/farol/storage"
)

// Repairer replaces bad copies by verified good ones. It takes nobody's word: that
// the copy is bad is seen once more, its bytes are kept in quarantine, the good ones
// are compared with their digest on their way, and read back. Where more copies of a
// provider fail than bit rot explains, it stops by itself.
//
// Only one process repairs or checks a copy at a time. A repair that dies leaves a copy that
// is still bad, or one that is good and noted as being replaced: the next repair does the
// rest.
type Repairer struct {
	Registry   *registry.Registry
	Targets    copies.Targets
	Log        *slog.Logger
	Worker     string          // names this process to others
	Quarantine *storage.Bucket // for bad bytes; made if it is missing
	Limits     fixity.RepairLimits
	Lease      time.Duration // how long a copy is ours unless that is renewed; 30 s
	Again      time.Duration // before a second look at what seems bad; 2 s

	// Retrieve is the provider's tier (Expedited, Standard or Bulk) by which copies
	// that are archived are made readable; "": they are not, and it costs nothing.
	Retrieve string

	parts int64         // size of parts, and what goes in parts; 0 is what package storage has
	every time.Duration // between two scans of Run; repairEvery
}

// What a repair comes to.
const (
	RepairDone  = "repaired"
	RepairGood  = "good again"   // someone or something had made it good
	RepairLeft  = "left"         // and why
	RepairWould = "would repair" // of a plan
)

// A Repair is what became of a bad copy.
type Repair struct {
	record.FixityBadCopy

	Result string `json:"result"`
	From   string `json:"from"`   // URL of the good copy
	Reason string `json:"reason"` // why it was left
}

var (
	errStopped  = errors.New("repair has stopped at this provider")
	errNoSource = errors.New("there is no good copy")
	errCold     = errors.New("it is archived")
)

// Plan tells what Repair would do, and changes nothing.
func (r *Repairer) Plan(ctx context.Context, b record.FixityBadCopy) Repair {
	out := Repair{FixityBadCopy: b, Result: RepairWould}
	stops, err := fixity.In(r.Registry).RepairStops(ctx)
	for _, stop := range stops {
		if stop.Provider == b.Provider {
			err = fmt.Errorf("%w: %s", errStopped, stop.Reason)
		}
	}
	var w fixity.Repair
	if err == nil {
		w, err = fixity.In(r.Registry).Repair(ctx, b.Failure)
	}
	if err == nil {
		sources := r.sources(w)
		if err = errNoSource; len(sources) > 0 {
			out.From, err = sources[0].URL, nil
		}
	}
	if err != nil {
		out.Result, out.Reason = RepairLeft, err.Error()
	}
	return out
}

// Repair replaces a bad copy by a good one, or says why not.
func (r *Repairer) Repair(ctx context.Context, b record.FixityBadCopy) Repair {
	out := Repair{FixityBadCopy: b, Result: RepairLeft}
	err := r.checkLimit(ctx, b.Provider)
	var w fixity.Repair
	if err == nil {
		w, err = fixity.In(r.Registry).HoldRepair(ctx, r.Worker, b.Failure, r.lease())
	}
	switch {
	case errors.Is(err, registry.ErrNotFound):
		out.Result = RepairGood
		return out
	case err != nil:
		out.Reason = err.Error()
		return out
	}
	err = r.holding(ctx, w, func(ctx context.Context) (err error) {
		out.Result, err = r.repair(ctx, w, &out)
		return err
	})
	if err != nil {
		out.Result, out.Reason = RepairLeft, err.Error()
	}
	return out
}

func (r *Repairer) lease() time.Duration { return cmp.Or(r.Lease, 30*time.Second) }

// holding calls do while the copy is ours, and gives it back if do did not end that.
func (r *Repairer) holding(ctx context.Context, w fixity.Repair, do func(context.Context) error) error {
	held, stop := context.WithCancelCause(ctx)
	var keeper sync.WaitGroup
	keeper.Go(func() { r.keep(held, w.Hold, stop) })
	err := do(held)
	if err != nil && errors.Is(context.Cause(held), errTakenAway) {
		err = errTakenAway
	}
	stop(nil)
	keeper.Wait()
	if err == nil {
		return nil
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
	defer cancel()
	if released := fixity.In(r.Registry).Release(end, w.Hold); released != nil {
		r.Log.WarnContext(ctx, "cannot release a bad copy; its lease will expire", "failure", w.Failure, "err", released)
	}
	return err
}

// keep renews the lease until ctx is done. A repair that could not renew it for two thirds
// of it stops: another worker may have the copy soon, and a copy must have one writer.
func (r *Repairer) keep(ctx context.Context, h fixity.Hold, stop context.CancelCauseFunc) {
	renewed := time.Now()
	for retry.Pause(ctx, r.lease()/4) {
		asked := time.Now()
		ask, cancel := context.WithTimeout(ctx, r.lease()/4)
		kept, err := fixity.In(r.Registry).Keep(ask, r.lease(), h)
		cancel()
		switch {
		case err == nil && len(kept) == 0, err != nil && time.Since(renewed) > r.lease()*2/3:
			stop(errTakenAway)
			return
		case err == nil:
			renewed = asked
		}
	}
}

// repair does it step by step. What is here already, because someone died in the
// middle, is not done again.
func (r *Repairer) repair(ctx context.Context, w fixity.Repair, out *Repair) (string, error) {
	b := r.Targets[w.Target]
	if b == nil || b.Name() != w.Bucket {
		return "", fmt.Errorf("%w: %s", cause.ErrElsewhere, w.Bucket)
	}
	f, err := repairedFile(w)
	if err != nil {
		return "", err
	}
	l, err := copies.Look(ctx, b, w.Key, w.SHA256, r.again())
	switch {
	case errors.Is(err, storage.ErrArchived):
		return "", r.unseen(ctx, b, w.Key)
	case err != nil:
		return "", fmt.Errorf("check the copy again: %w", err)
	case l.Found == w.SHA256 && w.RepairedFrom != "": // we died before this was on record
		out.From, out.QuarantinedAs = w.RepairedFrom, w.QuarantinedAs
		return RepairDone, r.recordRepair(ctx, b, w)
	case l.Found == w.SHA256:
		return RepairGood, r.recordGood(ctx, w, l)
	}
	sources := r.sources(w)
	if len(sources) == 0 {
		return "", errNoSource
	}
	if l.Found != "" {
		if out.QuarantinedAs, err = r.quarantine(ctx, b, w, l.Found); err != nil {
			return "", fmt.Errorf("put the bad bytes into quarantine: %w", err)
		}
	}
	var reasons []error
	for _, source := range sources {
		err := r.replace(ctx, b, w, f, source, out.QuarantinedAs)
		if err == nil {
			out.From = source.URL
			return RepairDone, r.recordRepair(ctx, b, w)
		}
		if reasons = append(reasons, fmt.Errorf("from %s: %w", source.Target, err)); !errors.Is(err, errBadSource) {
			break
		}
	}
	return "", errors.Join(reasons...)
}

// unseen says that a copy is archived, so that nobody sees whether it is bad.
func (r *Repairer) unseen(ctx context.Context, b *storage.Bucket, key string) error {
	object, err := b.Head(ctx, key)
	if err != nil {
		return err
	}
	return fmt.Errorf("it is unknown whether the copy is bad: %w", r.archived(ctx, b, object))
}

// recordGood ends the failure of a copy that is good.
func (r *Repairer) recordGood(ctx context.Context, w fixity.Repair, l copies.Looked) error {
	ends, err := fixity.In(r.Registry).Record(ctx, fixity.Result{
		Hold: w.Hold, Key: w.Key, Algorithm: "sha256", Expected: w.SHA256, Found: l.Found, Bytes: l.Bytes, Wavered: l.Wavered,
	})
	if err == nil && ends[0] != fixity.Recorded {
		err = fmt.Errorf("the copy is good, but that could not be recorded: %s", ends[0])
	}
	return err
}

// recordRepair puts on record that a copy is good again. Where it is on record no
// more, what was written has to go: who deletes the file may have looked already.
func (r *Repairer) recordRepair(ctx context.Context, b *storage.Bucket, w fixity.Repair) error {
	object, err := b.Head(ctx, w.Key)
	if err != nil {
		return fmt.Errorf("check the new copy: %w", err)
	}
	err = fixity.In(r.Registry).RecordRepair(ctx, fixity.Repaired{
		Repair: w, ETag: object.ETag, StoredAt: object.LastModified,
	})
	if !errors.Is(err, registry.ErrLost) {
		return err
	}
	return errors.Join(err, r.takeBack(context.WithoutCancel(ctx), b, w, object.ETag))
}

// takeBack removes a copy that no record names.
func (r *Repairer) takeBack(ctx context.Context, b *storage.Bucket, w fixity.Repair, etag string) error {
	ctx, cancel := context.WithTimeout(ctx, lastWord)
	defer cancel()
	named, err := fixity.In(r.Registry).CopiesByKey(ctx, w.Target, []string{w.Key})
	if err != nil || len(named) > 0 {
		return err
	}
	return b.DeleteMatching(ctx, w.Key, etag)
}

// Pauses of [Repairer.Run].
const (
	repairEvery     = time.Minute // between two scans for bad copies
	repairAgain     = time.Hour   // before a copy that could not be repaired is tried again; then twice that, and so on
	repairAgainMost = 24 * time.Hour
)

// Run repairs by itself, until ctx is done, what has been known to be bad for some
// time: as long as it takes to see whether it is an incident.
func (r *Repairer) Run(ctx context.Context, known time.Duration) error {
	type wait struct {
		until time.Time
		next  time.Duration
	}
	waits := map[int64]wait{}
	every := cmp.Or(r.every, min(repairEvery, max(known/4, time.Second)))
	for retry.Pause(ctx, every/2+rand.N(every)) {
		for after := int64(0); ; {
			list, err := fixity.In(r.Registry).BadCopies(ctx, "", known, after, 100)
			if err != nil && ctx.Err() == nil {
				r.Log.WarnContext(ctx, "cannot list bad copies; retrying", "err", err)
			}
			if len(list) == 0 {
				break
			}
			for _, b := range list {
				after = b.Failure
				if w := waits[b.Failure]; ctx.Err() != nil || time.Now().Before(w.until) {
					continue
				}
				if r.logResult(ctx, r.Repair(ctx, b)) {
					delete(waits, b.Failure)
					continue
				}
				next := min(max(2*waits[b.Failure].next, repairAgain), repairAgainMost)
				waits[b.Failure] = wait{time.Now().Add(next), next}
			}
		}
	}
	return nil
}

// logResult logs the result of a repair, and reports whether the copy is good.
func (r *Repairer) logResult(ctx context.Context, d Repair) bool {
	log := r.Log.With("file", d.File, "target", d.Target)
	switch d.Result {
	case RepairDone:
		log.InfoContext(ctx, "bad copy repaired", "from", d.From, "bad_bytes", d.QuarantinedAs)
	case RepairGood:
		log.InfoContext(ctx, "bad copy was good again; no repair needed")
	default:
		log.ErrorContext(ctx, "cannot repair a bad copy", "reason", d.Reason)
		return false
	}
	return true
}
