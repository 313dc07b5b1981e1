package fixity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/storage"
)

func (r *fixityRun) logOf(c fixity.Copy) *slog.Logger {
	return r.Log.With("file", c.Identifier, "target", c.Target, "key", c.Key)
}

func (r *fixityRun) observe(c fixityCheck, result string) {
	if r.Observe != nil {
		r.Observe(Outcome{Target: c.copy.Target, Result: result, Bytes: c.is.Bytes, Took: c.took})
	}
}

// one reads a copy and hands on what it is, unless that is unknown.
func (r *fixityRun) one(ctx context.Context, c fixity.Copy) {
	ctx, ours := r.begin(ctx, c)
	if !ours {
		return
	}
	began := time.Now()
	is, err := r.check(ctx, c)
	check := fixityCheck{c, is, time.Since(began)}
	r.end(check.took)
	switch {
	case err == nil:
		r.done <- check
	case ctx.Err() != nil: // it was taken away, or we were asked to stop
		r.observe(check, "dropped")
		if errors.Is(context.Cause(ctx), errTakenAway) {
			r.drop(c)
			r.logOf(c).WarnContext(ctx, "lost the lease of a fixity check; another worker will check the copy")
		}
	default:
		result := r.retry(ctx, c, err)
		r.drop(c)
		r.observe(check, result)
	}
}

// errNoDigest says that there is nothing to compare a copy with.
var errNoDigest = errors.New("no SHA-256 of the file is on record")

func (r *fixityRun) check(ctx context.Context, c fixity.Copy) (copies.Looked, error) {
	b := r.Targets[c.Target]
	switch {
	case b == nil || b.Name() != c.Bucket:
		return copies.Looked{}, fmt.Errorf("%w: %s", cause.ErrElsewhere, c.Bucket)
	case c.SHA256 == "":
		return copies.Looked{}, errNoDigest
	}
	return copies.Look(ctx, b, c.Key, c.SHA256, r.Again)
}

// retry puts a copy off of which nothing could be learnt.
func (r *fixityRun) retry(ctx context.Context, c fixity.Copy, err error) (result string) {
	if c.Requested && errors.Is(err, storage.ErrArchived) {
		return r.there(ctx, c)
	}
	t := fixity.Trouble{Hold: holdOf(c), Error: err.Error(), Most: r.Attempts, Outage: true}
	result = "retried"
	switch {
	case errors.Is(err, storage.ErrArchived): // its policy is wrong, and that of its neighbours too
		t.Wait, t.Pause = 24*time.Hour, 24*time.Hour
		result = "archived"
	case errors.Is(err, errNoDigest):
		t.Wait, t.Outage = 24*time.Hour, false
	case errors.Is(err, copies.ErrWavers):
		t.Outage, t.Wavered = false, true
	}
	attempts, failed := fixity.In(r.Registry).Retry(ctx, t)
	log := r.logOf(c)
	switch {
	case failed != nil:
		log.WarnContext(ctx, "fixity check failed and cannot be postponed; its lease will expire", "err", errors.Join(err, failed))
	case result != "archived":
		log.WarnContext(ctx, "fixity check failed; will retry later", "attempts", attempts, "err", err)
	case r.firstArchived(c.Target):
		log.WarnContext(ctx, "copies are archived and unreadable without a restoration; change the target with `farol fixity policy`", "err", err)
	}
	return result
}

// there ends the check of an archived copy that a person asked for. It is not missing,
// and a check tomorrow would say no more.
func (r *fixityRun) there(ctx context.Context, c fixity.Copy) (result string) {
	if err := fixity.In(r.Registry).Drop(ctx, holdOf(c)); err != nil {
		r.logOf(c).WarnContext(ctx, "cannot end a fixity check; its lease will expire", "err", err)
	}
	r.logOf(c).InfoContext(ctx, "copy exists and is archived; it is unreadable without a restoration")
	return "archived"
}

// firstArchived tells whether nothing was said of a target yet.
func (r *fixityRun) firstArchived(target string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.warned[target]
	r.warned[target] = true
	return first
}

const (
	mostRecorded = 100                    // checks in one transaction
	busyPause    = 500 * time.Millisecond // before those are recorded again whose files someone is at
)

// record puts what was judged on record until there is no more to come. What has come
// while the last transaction ran goes into the next; nobody waits for a timer.
func (r *fixityRun) record(ctx context.Context) {
	var busy []fixityCheck
	tick := time.NewTicker(busyPause)
	defer tick.Stop()
	for {
		select {
		case c, more := <-r.done:
			if !more {
				r.write(ctx, busy)
				return
			}
			fresh := []fixityCheck{c}
			for len(fresh) < mostRecorded && len(r.done) > 0 {
				fresh = append(fresh, <-r.done)
			}
			busy = append(busy, r.write(ctx, fresh)...)
		case <-tick.C:
			busy = r.write(ctx, busy)
		}
	}
}

// write puts checks on record, and returns those that have to be written again. What
// was learnt is worth a moment, also of a process that was asked to stop.
func (r *fixityRun) write(ctx context.Context, checks []fixityCheck) (again []fixityCheck) {
	if len(checks) == 0 {
		return nil
	}
	results := make([]fixity.Result, len(checks))
	for i, c := range checks {
		results[i] = fixity.Result{
			Hold: holdOf(c.copy), Key: c.copy.Key, Algorithm: "sha256",
			Expected: c.copy.SHA256, Found: c.is.Found, Bytes: c.is.Bytes, Wavered: c.is.Wavered,
		}
	}
	write, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
	defer cancel()
	ends, err := fixity.In(r.Registry).Record(write, results...)
	if err != nil {
		r.Log.WarnContext(ctx, "cannot record fixity results; retrying", "copies", len(checks), "err", err)
		return checks
	}
	for i, c := range checks {
		if ends[i] == fixity.Busy {
			again = append(again, c)
			continue
		}
		r.drop(c.copy)
		r.observe(c, r.logEnd(ctx, c, ends[i]))
	}
	return again
}

// logEnd logs how a check ended, here and nowhere else.
func (r *fixityRun) logEnd(ctx context.Context, c fixityCheck, end fixity.End) string {
	log := r.logOf(c.copy)
	switch {
	case end != fixity.Recorded:
		log.InfoContext(ctx, "fixity check dropped: the copy was replaced or deleted during the check")
		return "dropped"
	case c.is.Found == "":
		log.ErrorContext(ctx, "copy is missing", "expected", c.copy.SHA256)
		return "missing"
	case c.is.Found != c.copy.SHA256:
		log.ErrorContext(ctx, "checksum mismatch", "expected", c.copy.SHA256, "found", c.is.Found)
		return "altered"
	case c.is.Wavered:
		log.WarnContext(ctx, "checksum matches, but an earlier read did not match", "bytes", c.is.Bytes)
	default:
		log.InfoContext(ctx, "checksum matches", "bytes", c.is.Bytes, "took", c.took)
	}
	return "matched"
}
