package upkeep

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"

	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/pipeline/many"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

var copyKey = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.[0-9a-f]{16})?$`)

// isCopyKey tells whether Store makes such keys.
func isCopyKey(key string) bool { return copyKey.MatchString(key) }

// made finds out which copies items have made.
func (r *round) made() *lists.Unrecorded {
	return &lists.Unrecorded{Registry: r.Registry, Staging: r.Staging, Log: r.Log}
}

func (r *round) targetNames() []string { return slices.Sorted(maps.Keys(r.Targets)) }

// unrecorded deletes copies that items made which then ended for good without
// recording them. Nobody can requeue such an item; a worker that was not notified of
// its end has had OrphanAge to stop.
func (r *round) unrecorded(ctx context.Context) error {
	if r.act {
		if err := upkeep.In(r.Registry).ForgetFound(ctx, r.targetNames()); err != nil {
			return err
		}
	}
	return r.eachItem(ctx, upkeep.In(r.Registry).UnrecordedItems, func(s upkeep.ItemState) error {
		noted, err := upkeep.In(r.Registry).Unrecorded(ctx, s.ID)
		if err != nil {
			return err
		}
		return r.unrecordedOf(ctx, s, noted)
	})
}

func (r *round) unrecordedOf(ctx context.Context, s upkeep.ItemState, c upkeep.UnrecordedCopies) error {
	if s.Live || s.Status != "Success" && s.Status != "Cancelled" {
		return nil
	}
	t := thing{what: "copies", why: whyCancelled, janitor: Removes}
	if s.Rested < r.OrphanAge {
		t.janitor, t.due = Waits, r.now.Add(r.OrphanAge-s.Rested)
	}
	all := true
	for uuids := range slices.Chunk(c.UUIDs, 1000) {
		gone, err := r.unrecordedAmong(ctx, s, t, c.Targets, uuids)
		if err != nil {
			return err
		}
		all = all && gone
	}
	for keys := range slices.Chunk(c.Keys, mostHeld) {
		byTarget := map[string][]string{}
		for _, name := range c.Targets {
			byTarget[name] = keys
		}
		gone, err := r.unnamed(ctx, s, t, byTarget, nil)
		if err != nil {
			return err
		}
		all = all && gone
	}
	if !r.act || t.janitor != Removes || !all {
		return nil
	}
	return upkeep.In(r.Registry).ForgetUnrecorded(ctx, s.ID)
}

// unrecordedAmong deletes, or reports, those of some copies that are there and on
// no record; gone is false if a store keeps one.
func (r *round) unrecordedAmong(ctx context.Context, s upkeep.ItemState, t thing, targets, uuids []string) (gone bool, err error) {
	off, err := upkeep.In(r.Registry).OffRecord(ctx, targets, uuids)
	if err != nil || len(off) == 0 {
		return err == nil, err
	}
	byTarget := map[string][]string{}
	for _, name := range targets {
		byTarget[name] = off
	}
	locks, err := r.locksOf(ctx, t, byTarget)
	if err != nil {
		return false, err
	}
	gone = true
	for _, name := range targets {
		all, err := r.removeCopies(ctx, s, t, name, off, locks[name])
		if err != nil {
			return false, err
		}
		gone = gone && all
	}
	return gone, nil
}

// A lockedKeys has those of a target's keys that its store keeps under Object Lock.
type lockedKeys map[string]*storage.Kept

// locksOf asks for the locks of keys that are about to be removed, by target.
func (r *round) locksOf(ctx context.Context, t thing, byTarget map[string][]string) (locks map[string]lockedKeys, err error) {
	locks = map[string]lockedKeys{}
	for name, keys := range byTarget {
		target, ok := r.Targets[name]
		if !ok || t.janitor != Removes {
			continue
		}
		if locks[name], err = target.Locks(ctx, keys...); err != nil {
			return nil, err
		}
	}
	return locks, nil
}

// removeCopies deletes those of some copies that are there if t says so, and puts them into the
// report. Those that their store keeps wait; then all is false.
func (r *round) removeCopies(ctx context.Context, s upkeep.ItemState, t thing, name string, among []string, locks lockedKeys) (all bool, err error) {
	target, ok := r.Targets[name]
	if !ok {
		return false, fmt.Errorf("the storage target %s is not configured in this process", name)
	}
	copies, err := heads(ctx, target, among)
	if err != nil {
		return false, err
	}
	var keys []string
	var list []upkeep.Removal
	var things []thing
	removes := r.act && t.janitor == Removes
	for _, o := range copies {
		one := t
		one.store, one.name, one.count, one.bytes, one.since = name, o.Key, 1, o.Size, o.LastModified
		if k := locks[o.Key]; k != nil {
			one.why, one.janitor, one.due = whyLocked, Waits, k.Until
			r.report.add(one)
			continue
		}
		keys, list, things = append(keys, o.Key), append(list, removal(s.ID, one)), append(things, one)
	}
	if removes && len(keys) > 0 {
		if err := target.Delete(ctx, keys...); err != nil {
			return false, err
		}
		r.log.InfoContext(ctx, "removed", "item", s.ID, "store", name, "what", t.what, "why", t.why, "count", len(keys))
		if err := upkeep.In(r.Registry).NoteRemovals(ctx, list...); err != nil {
			return false, err
		}
	}
	for _, one := range things {
		if removes {
			one.janitor = Removed
		}
		r.report.add(one)
	}
	return len(things) == len(copies), nil
}

// heads describes those of some keys that are there.
func heads(ctx context.Context, target *storage.Bucket, keys []string) (there []storage.Object, err error) {
	const atOnce = 8
	var mu sync.Mutex
	err = many.AtOnce(ctx, atOnce, keys, func(ctx context.Context, key string) error {
		o, err := target.Head(ctx, key)
		if errors.Is(err, storage.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		there = append(there, o)
		return nil
	})
	return there, err
}

// retired deletes copies which an item replaced, if it ended before its Cleanup did.
func (r *round) retired(ctx context.Context) error {
	return r.eachItem(ctx, upkeep.In(r.Registry).RetiredItems, func(s upkeep.ItemState) error {
		f := r.fateOf(s.ID, map[int64]upkeep.ItemState{s.ID: s})
		if f.live {
			return nil
		}
		list, err := upkeep.In(r.Registry).RetiredCopies(ctx, s.ID)
		if err != nil {
			return err
		}
		t := thing{what: "copies", why: whyRetired, janitor: Waits, due: f.due}
		if f.removes {
			t.janitor = Removes
		}
		for some := range slices.Chunk(list, mostHeld) {
			byTarget := map[string][]string{}
			for _, c := range some {
				if _, err := r.Targets.Holding(c.Target, c.Bucket); err != nil {
					return err
				}
				byTarget[c.Target] = append(byTarget[c.Target], c.Key)
			}
			_, err := r.unnamed(ctx, s, t, byTarget, func(ctx context.Context, target string, keys []string) error {
				return upkeep.In(r.Registry).RecordRetired(ctx, s.ID, target, keys)
			})
			if err != nil {
				return err
			}
		}
		if !r.act || !f.removes {
			return nil
		}
		return r.settleRetired(ctx, s)
	})
}

// mostHeld is how many keys are deleted under one lock, for which a requeue of the item waits.
const mostHeld = 250

// unnamed deletes, or reports, those of some copies that no record names, and calls
// forget with the keys of each target, without those that its store keeps: then gone is false. No
// item of the object is in work in the meantime, or nothing is done and gone is false: one that
// brings the same content back would store it under the same key.
func (r *round) unnamed(ctx context.Context, s upkeep.ItemState, t thing, byTarget map[string][]string,
	forget func(ctx context.Context, target string, keys []string) error,
) (gone bool, err error) {
	locks, err := r.locksOf(ctx, t, byTarget)
	if err != nil {
		return false, err
	}
	kept := false
	removes := r.act && t.janitor == Removes
	do := func(ctx context.Context) error {
		for name, keys := range byTarget {
			uses, err := upkeep.In(r.Registry).KeyUses(ctx, name, keys)
			if err != nil {
				return err
			}
			keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return uses[key].Recorded || uses[key].Found })
			all, err := r.removeCopies(ctx, s, t, name, keys, locks[name])
			if err != nil {
				return err
			}
			kept = kept || !all
			keys = slices.DeleteFunc(keys, func(key string) bool { return locks[name][key] != nil })
			if removes && forget != nil {
				if err := forget(ctx, name, keys); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if !removes {
		return true, do(ctx)
	}
	alone, err := upkeep.In(r.Registry).WhileAlone(ctx, s, do)
	return alone && !kept, err
}

// settleRetired forgets the replaced copies of an item if only such are left as a
// record names again.
func (r *round) settleRetired(ctx context.Context, s upkeep.ItemState) error {
	_, err := upkeep.In(r.Registry).WhileAlone(ctx, s, func(ctx context.Context) error {
		left, err := upkeep.In(r.Registry).RetiredCopies(ctx, s.ID)
		if err != nil || len(left) > 0 {
			return err
		}
		return upkeep.In(r.Registry).ForgetRetiredCopies(ctx, s.ID)
	})
	return err
}

// eachItem walks items that have left copies.
func (r *round) eachItem(ctx context.Context, list func(context.Context, int64, int) ([]int64, error), do func(upkeep.ItemState) error) error {
	var wrong cause.Few
	for after := int64(0); ; {
		ids, err := list(ctx, after, atOnce)
		if err != nil {
			return err
		}
		states, err := upkeep.In(r.Registry).ItemStates(ctx, ids)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if s, ok := states[id]; ok && wrong.TooMany(do(s)) {
				return wrong.With(nil)
			}
		}
		if len(ids) < atOnce {
			return wrong.With(nil)
		}
		after = ids[len(ids)-1]
	}
}

// noteCopies keeps which copies an item may have made in preservation, before what
// tells of them is deleted from staging; or reports them, if that is all we do.
func (r *round) noteCopies(ctx context.Context, f fate) error {
	if f.why == whyUnknown || !lists.MayHaveCopies(f.state) {
		return nil
	}
	if r.act {
		return r.made().NoteCopies(ctx, f.state)
	}
	c, err := r.made().CopiesOf(ctx, f.state)
	if err != nil {
		return err
	}
	return r.unrecordedOf(ctx, f.state, c)
}
