package upkeep

import (
	"context"
	"log/slog"
	"time"

	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// Janitor removes the leftovers of items that do not reach Cleanup: items that were cancelled,
// items that failed and were not requeued within the retention, and late writes of dead
// workers. It never touches items in work, however old their data is.
//
// It starts from the contents of the stores and not from a list of tasks, so a round that dies
// leaves nothing that the next round does not find. If a person may still requeue the item, it
// removes only data that the stages can make again. Data that they cannot make again (copies
// in preservation, the bag) is removed only if nobody can need it, or while the item is locked.
type Janitor struct {
	Registry  *registry.Registry
	Progress  *progress.Store
	Receiving func(bucket string) (*storage.Bucket, error) // also opens the buckets to which is restored
	Staging   *storage.Bucket
	Targets   copies.Targets
	Keep      *interim.Keeper // nil: interim metadata is deleted and not kept
	Log       *slog.Logger

	Retention time.Duration // how long the data of a failed item stays
	OrphanAge time.Duration // younger data may belong to a running stage
	Holder    string        // names this process to others
}

// Job is the janitor's rounds.
func (j *Janitor) Job(every time.Duration, reported func(*Report)) Job {
	return Job{upkeep.JanitorJob, every, func(ctx context.Context) (string, error) {
		report := j.look(ctx, true)
		reported(report)
		return report.removed(), report.trouble()
	}}
}

// Round makes one round at once, unless another process does so now: then it
// returns ErrBusy. What could not be removed is in the report, and the next round
// comes to it.
func (j *Janitor) Round(ctx context.Context) (report *Report, err error) {
	s := Scheduler{Registry: j.Registry, Holder: j.Holder, Log: j.Log}
	run, err := s.Now(ctx, j.Job(0, func(r *Report) { report = r }))
	if err != nil {
		return nil, err
	}
	if run.Outcome == Failed {
		return report, nil
	}
	return report, run.Err
}

// Look tells what a round would do, and changes nothing.
func (j *Janitor) Look(ctx context.Context) *Report { return j.look(ctx, false) }

// look goes from store to store. A store that cannot be reached does not stop the others.
func (j *Janitor) look(ctx context.Context, act bool) *Report {
	r := &round{Janitor: j, act: act, now: time.Now(), report: &Report{Findings: []Finding{}, Unchecked: []Unchecked{}}, log: j.Log}
	for _, step := range []struct {
		store string
		run   func(context.Context) error
	}{
		{"staging", r.staging},
		{"staging", r.stagingUploads},
		{"registry", r.lists},
		{"redis", r.redis},
		{"preservation", r.unrecorded},
		{"preservation", r.retired},
		{"receiving", r.receiving},
		{"restoration", r.restorations},
	} {
		if ctx.Err() != nil {
			break
		}
		if err := step.run(ctx); err != nil {
			r.trouble(ctx, step.store, err)
		}
	}
	r.targetUploads(ctx)
	if err := ctx.Err(); err != nil {
		r.trouble(ctx, "all", context.Cause(ctx))
	}
	r.report.Sort()
	return r.report
}

func (r *round) trouble(ctx context.Context, store string, err error) {
	r.report.failed(store, err)
	if r.act && ctx.Err() == nil {
		r.log.WarnContext(ctx, "cleanup failed; the janitor will retry in its next round", "store", store, "err", err)
	}
}

// redis removes the progress of items.
func (r *round) redis(ctx context.Context) error {
	for page, err := range r.Progress.Keys(ctx) {
		if err != nil {
			return err
		}
		byItem := map[int64][]string{}
		var ids []int64
		for _, key := range page {
			if byItem[key.Item] == nil {
				ids = append(ids, key.Item)
			}
			byItem[key.Item] = append(byItem[key.Item], key.Name)
		}
		states, err := upkeep.In(r.Registry).ItemStates(ctx, ids)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := r.progressOf(ctx, r.fateOf(id, states), byItem[id]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *round) progressOf(ctx context.Context, f fate, keys []string) error {
	if f.live {
		return nil
	}
	bytes, idle, err := r.Progress.Weigh(ctx, keys)
	if err != nil {
		return err
	}
	t := thing{store: "redis", what: "keys", count: int64(len(keys)), bytes: bytes}
	if f.item == 0 {
		t.why, t.name, t.janitor, t.person = whyForeign, keys[0], Leaves, true
		r.report.add(t)
		return nil
	}
	var newest time.Time
	if idle > 0 {
		newest = r.now.Add(-idle)
		t.since = newest
	}
	f = r.aged(f, newest)
	t = f.described(t)
	if !r.act || !f.removes {
		r.report.add(t)
		return nil
	}
	if err := r.keepFirst(ctx, f); err != nil {
		return err
	}
	if ok, err := r.still(ctx, f); err != nil || !ok {
		return err
	}
	if err := r.Progress.Remove(ctx, keys); err != nil {
		return err
	}
	return r.removed(ctx, f.item, t)
}

// targetUploads aborts multipart uploads in preservation buckets that no item will
// finish. An upload does not name its item, but Store continues only uploads of the same pass:
// an upload that is older than all running passes has no owner.
func (r *round) targetUploads(ctx context.Context) {
	const clocks = time.Hour // by which the provider's may be off
	since, err := upkeep.In(r.Registry).StoringSince(ctx)
	if err != nil {
		r.trouble(ctx, "preservation", err)
		return
	}
	age := r.OrphanAge
	if since > 0 {
		age = max(age, since+clocks)
	}
	for _, name := range r.targetNames() {
		if ctx.Err() != nil {
			return
		}
		if err := r.uploadsTo(ctx, name, r.Targets[name], age); err != nil {
			r.trouble(ctx, name, err)
		}
	}
}

func (r *round) uploadsTo(ctx context.Context, name string, target *storage.Bucket, age time.Duration) error {
	for u, err := range target.OpenUploads(ctx) {
		if err != nil {
			return err
		}
		t := thing{store: name, name: u.Key}
		if !isCopyKey(u.Key) {
			t.why, t.janitor, t.person = whyForeign, Leaves, true
			r.report.add(t.upload(u))
			continue
		}
		if err := r.ownerless(ctx, target, u, t, age); err != nil {
			return err
		}
	}
	return nil
}
