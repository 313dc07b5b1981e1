package upkeep

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// round is one pass over all stores.
type round struct {
	*Janitor
	act    bool // or else it only reports
	now    time.Time
	report *Report
	log    *slog.Logger
}

// A fate is what is to be done with an item's data.
type fate struct {
	item    int64
	state   upkeep.ItemState
	why     string
	removes bool
	due     time.Time // of what waits
	live    bool
}

// fateOf decides by the state of the item. If there is no item, the age of the data decides,
// which the caller knows: see aged.
func (r *round) fateOf(id int64, states map[int64]upkeep.ItemState) fate {
	s, known := states[id]
	f := fate{item: id, state: s}
	switch {
	case !known:
		f.why = whyUnknown
	case s.Live:
		f.live = true
	case s.Status == "Success", s.Status == "Cancelled":
		f.why, f.removes = whyEnded, true
	case s.Rested >= r.Retention:
		f.why, f.removes = whyExpired, true
	default:
		f.why, f.due = whyKept, r.now.Add(r.Retention-s.Rested)
	}
	return f
}

// aged decides about data without an item, by the newest of it: another system may own it, or
// a restored database may still insert its item.
func (r *round) aged(f fate, newest time.Time) fate {
	if f.why == whyUnknown && !newest.IsZero() {
		f.due = newest.Add(r.Retention)
		f.removes = !r.now.Before(f.due)
	}
	return f
}

// described is what the report says of an item's data: t without the result.
func (f fate) described(t thing) thing {
	t.why, t.name = f.why, strconv.FormatInt(f.item, 10)
	if t.what != "keys" {
		t.name += "/"
	}
	t.person = f.why == whyUnknown
	t.janitor = Waits
	if f.removes {
		t.janitor = Removes
	} else {
		t.due = f.due
	}
	return t
}

// still tells whether a fate still holds: the item was not requeued, or inserted, since. Data
// that is removed a moment too late is made again by the stages.
func (r *round) still(ctx context.Context, f fate) (bool, error) {
	if f.why == whyUnknown {
		states, err := upkeep.In(r.Registry).ItemStates(ctx, []int64{f.item})
		return err == nil && len(states) == 0, err
	}
	return upkeep.In(r.Registry).StillEnded(ctx, f.state)
}

// removed puts a removal on record and into the log.
func (r *round) removed(ctx context.Context, item int64, t thing) error {
	t.janitor, t.person, t.due = Removed, false, time.Time{}
	r.report.add(t)
	r.log.InfoContext(ctx, "removed", "item", item, "store", t.store, "what", t.what, "why", t.why, "name", t.name, "count", t.count, "bytes", t.bytes)
	return upkeep.In(r.Registry).NoteRemovals(ctx, removal(item, t))
}

func removal(item int64, t thing) upkeep.Removal {
	return upkeep.Removal{Item: item, Store: t.store, What: t.what, Why: t.why, Name: t.name, Count: t.count, Bytes: t.bytes}
}

// itemOf reads an item's ID from the beginning of a key in staging; 0 if there is
// none.
func itemOf(key string) int64 {
	number, _, ok := strings.Cut(key, "/")
	id, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || id < 1 || strconv.FormatInt(id, 10) != number {
		return 0
	}
	return id
}

// upload says of a thing that it is a multipart upload.
func (t thing) upload(u storage.OpenUpload) thing {
	t.what, t.count, t.since = "uploads", 1, u.Begun
	return t
}

// ownerless aborts a multipart upload without an owner, once it is old enough.
func (r *round) ownerless(ctx context.Context, b *storage.Bucket, u storage.OpenUpload, t thing, age time.Duration) error {
	t = t.upload(u)
	t.why, t.janitor = whyUnowned, Removes
	switch due := u.Begun.Add(age); {
	case r.now.Before(due):
		t.why, t.janitor, t.due = whyYoung, Waits, due
	case r.act:
		if err := b.Abort(ctx, u); err != nil {
			return err
		}
		return r.removed(ctx, 0, t)
	}
	r.report.add(t)
	return nil
}

// keepFirst keeps the interim metadata of an item that the janitor is about to delete. If the
// item succeeded, Cleanup has kept it, and this is only a part of it.
func (r *round) keepFirst(ctx context.Context, f fate) error {
	if r.Keep == nil {
		return nil
	}
	k := interim.Keeping{Item: record.WorkItem{ID: f.item}, Pass: fmt.Sprintf("ended@%d", f.state.Token), Check: func(context.Context) error { return nil }}
	if f.why != whyUnknown {
		var err error
		if k.Item, err = r.Registry.WorkItem(ctx, f.item); err != nil {
			return err
		}
		if k.Attempts, err = r.Registry.Attempts(ctx, f.item); err != nil {
			return err
		}
	}
	return r.Keep.Keep(ctx, k)
}
