package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

var copyKey = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(\.[0-9a-f]{16})?$`)

// isCopyKey tells whether Store makes such keys.
func isCopyKey(key string) bool { return copyKey.MatchString(key) }

func (r *round) targetNames() []string { return slices.Sorted(maps.Keys(r.Targets)) }

// noteCopies keeps which copies an item may have made in preservation, before what
// tells of them is deleted from staging; or reports them, if that is all we do.
func (r *round) noteCopies(ctx context.Context, f fate) error {
	s := f.state
	if f.why == whyUnknown || s.Action != "Ingest" || !s.Stored || s.Noted || s.Status == "Success" {
		return nil
	}
	c, err := r.copiesOf(ctx, s)
	switch {
	case err != nil || len(c.UUIDs) == 0 || len(c.Targets) == 0:
		return err
	case r.act:
		return r.Registry.NoteUnrecorded(ctx, s.ID, c.Targets, c.UUIDs)
	}
	return r.unrecordedOf(ctx, s, c)
}

// copiesOf reads from staging which copies an item may have made. Only keys that are
// the item's own are among them: a file that was on record before the item came has
// its key from there, and another item may store the same content under it.
func (r *round) copiesOf(ctx context.Context, s registry.ItemState) (c registry.UnrecordedCopies, err error) {
	body, err := r.Staging.Get(ctx, fmt.Sprintf("%d/%s", s.ID, inventoryName), storage.Range{Length: -1})
	if errors.Is(err, storage.ErrNotFound) {
		return c, nil // the doctor finds what there is, and nobody knows whose it was
	}
	if err != nil {
		return c, err
	}
	defer body.Close() //nolint:errcheck // it was read to its end, or the error says more
	c, err = ownCopies(body, s)
	if errors.Is(err, bag.ErrInventory) {
		r.log.WarnContext(ctx, "the inventory is damaged, and copies of the item may stay", "item", s.ID, "err", err)
		return registry.UnrecordedCopies{}, nil
	}
	if err != nil {
		return c, fmt.Errorf("read the inventory of item %d: %w", s.ID, err)
	}
	return c, nil
}

// ownCopies reads from an inventory the uuids that Receive made for the item's
// files, and nobody else makes.
func ownCopies(inventory io.Reader, s registry.ItemState) (c registry.UnrecordedCopies, err error) {
	inv, err := bag.OpenInventory(inventory)
	if err != nil {
		return c, err
	}
	defer inv.Close()
	item := claim.Item{ID: s.ID, ObjectIdentifier: s.ObjectIdentifier, ETag: s.ETag}
	i := 0
	for f, err := range inv.Files() {
		if err != nil {
			return c, err
		}
		if stored(f, known{}) && f.UUID == fileUUID(item, i, f.Path) {
			c.UUIDs = append(c.UUIDs, f.UUID)
		}
		i++
	}
	option := s.StorageOption
	if option == "" {
		option = inv.Bag.StorageOption()
	}
	c.Targets = storage.TargetsOf(option)
	return c, nil
}

// unrecorded deletes copies that items made which then ended for good without
// recording them. Nobody can requeue such an item; a worker that had not heard of
// its end has had OrphanAge to stop.
func (r *round) unrecorded(ctx context.Context) error {
	return r.eachItem(ctx, r.Registry.UnrecordedItems, func(s registry.ItemState) error {
		noted, err := r.Registry.Unrecorded(ctx, s.ID)
		if err != nil {
			return err
		}
		return r.unrecordedOf(ctx, s, noted)
	})
}

func (r *round) unrecordedOf(ctx context.Context, s registry.ItemState, c registry.UnrecordedCopies) error {
	if s.Live || s.Status != "Success" && s.Status != "Cancelled" {
		return nil
	}
	t := thing{what: "copies", why: whyCancelled, janitor: Removes}
	if s.Rested < r.OrphanAge {
		t.janitor, t.due = Waits, r.now.Add(r.OrphanAge-s.Rested)
	}
	for uuids := range slices.Chunk(c.UUIDs, 1000) {
		if err := r.unrecordedAmong(ctx, s, t, c.Targets, uuids); err != nil {
			return err
		}
	}
	if !r.act || t.janitor != Removes {
		return nil
	}
	return r.Registry.ForgetUnrecorded(ctx, s.ID)
}

// unrecordedAmong deletes, or reports, those of some copies that are there and on
// no record.
func (r *round) unrecordedAmong(ctx context.Context, s registry.ItemState, t thing, targets, uuids []string) error {
	off, err := r.Registry.OffRecord(ctx, targets, uuids)
	if err != nil || len(off) == 0 {
		return err
	}
	for _, name := range targets {
		target, ok := r.Targets[name]
		if !ok {
			return fmt.Errorf("the storage target %s is not configured in this process", name)
		}
		there, err := heads(ctx, target, off)
		if err != nil {
			return err
		}
		if err := r.removeCopies(ctx, s, t, name, there); err != nil {
			return err
		}
	}
	return nil
}

// removeCopies deletes copies if t says so, and puts them into the report.
func (r *round) removeCopies(ctx context.Context, s registry.ItemState, t thing, name string, copies []storage.Object) error {
	var keys []string
	var list []registry.Removal
	removes := r.act && t.janitor == Removes
	for _, o := range copies {
		keys = append(keys, o.Key)
		one := t
		one.store, one.name, one.count, one.bytes, one.since = name, o.Key, 1, o.Size, o.LastModified
		list = append(list, removal(s.ID, one))
	}
	if removes && len(keys) > 0 {
		if err := r.Targets[name].Delete(ctx, keys...); err != nil {
			return err
		}
		t.janitor = Removed
		r.log.InfoContext(ctx, "removed", "item", s.ID, "store", name, "what", t.what, "why", t.why, "count", len(keys))
		if err := r.Registry.NoteRemovals(ctx, list...); err != nil {
			return err
		}
	}
	for _, o := range copies {
		one := t
		one.store, one.name, one.count, one.bytes, one.since = name, o.Key, 1, o.Size, o.LastModified
		r.report.add(one)
	}
	return nil
}

// heads describes those of some keys that are there.
func heads(ctx context.Context, target *storage.Bucket, keys []string) (there []storage.Object, err error) {
	const atOnce = 8
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for _, key := range keys {
		group.Go(func() error {
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
	}
	return there, group.Wait()
}

// retired deletes copies which an item replaced, if it ended before its Cleanup did.
func (r *round) retired(ctx context.Context) error {
	return r.eachItem(ctx, r.Registry.RetiredItems, func(s registry.ItemState) error {
		f := r.fateOf(s.ID, map[int64]registry.ItemState{s.ID: s})
		if f.live {
			return nil
		}
		list, err := r.Registry.RetiredCopies(ctx, s.ID)
		if err != nil {
			return err
		}
		t := thing{what: "copies", why: whyRetired, janitor: Waits, due: f.due}
		if f.removes {
			t.janitor = Removes
		}
		const most = 250 // while whoever would requeue the item waits
		for some := range slices.Chunk(list, most) {
			if err := r.retiredAmong(ctx, s, t, some); err != nil {
				return err
			}
		}
		if !r.act || !f.removes {
			return nil
		}
		return r.settleRetired(ctx, s)
	})
}

// retiredAmong deletes, or reports, some replaced copies. No item of the object is
// in work meanwhile: one that brings the old content back would store it under the
// same key.
func (r *round) retiredAmong(ctx context.Context, s registry.ItemState, t thing, list []registry.RetiredCopy) error {
	keys := map[string][]string{}
	for _, c := range list {
		keys[c.Target] = append(keys[c.Target], c.Key)
	}
	do := func(ctx context.Context) error {
		for name, keys := range keys {
			target, ok := r.Targets[name]
			if !ok {
				return fmt.Errorf("the storage target %s is not configured in this process", name)
			}
			named, _, err := r.Registry.NamedKeys(ctx, name, keys)
			if err != nil {
				return err
			}
			keys = slices.DeleteFunc(keys, func(key string) bool { return named[key] })
			there, err := heads(ctx, target, keys)
			if err != nil {
				return err
			}
			if err := r.removeCopies(ctx, s, t, name, there); err != nil {
				return err
			}
			if r.act && t.janitor == Removes {
				if err := r.Registry.ForgetRetired(ctx, s.ID, name, keys); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if !r.act || t.janitor != Removes {
		return do(ctx)
	}
	_, err := r.Registry.WhileAlone(ctx, s, do)
	return err
}

// settleRetired forgets the replaced copies of an item if only such are left as a
// record names again.
func (r *round) settleRetired(ctx context.Context, s registry.ItemState) error {
	_, err := r.Registry.WhileAlone(ctx, s, func(ctx context.Context) error {
		left, err := r.Registry.RetiredCopies(ctx, s.ID)
		if err != nil || len(left) > 0 {
			return err
		}
		return r.Registry.ForgetRetiredCopies(ctx, s.ID)
	})
	return err
}

// eachItem walks items that have left copies.
func (r *round) eachItem(ctx context.Context, list func(context.Context, int64, int) ([]int64, error), do func(registry.ItemState) error) error {
	var wrong few
	for after := int64(0); ; {
		ids, err := list(ctx, after, atOnce)
		if err != nil {
			return err
		}
		states, err := r.Registry.ItemStates(ctx, ids)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if s, ok := states[id]; ok && wrong.tooMany(do(s)) {
				return wrong.with(nil)
			}
		}
		if len(ids) < atOnce {
			return wrong.with(nil)
		}
		after = ids[len(ids)-1]
	}
}
