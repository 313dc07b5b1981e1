package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// mayHaveCopies tells whether an item may have made copies that are on no record.
func mayHaveCopies(s upkeep.ItemState) bool {
	return s.Action == "Ingest" && s.Stored && s.Status != "Success"
}

// noteCopies keeps which copies an item may have made in preservation, before what
// tells of them is deleted from staging; or reports them, if that is all we do.
func (r *round) noteCopies(ctx context.Context, f fate) error {
	if f.why == whyUnknown || !mayHaveCopies(f.state) {
		return nil
	}
	if r.act {
		return r.Deps.noteCopies(ctx, f.state)
	}
	c, err := r.copiesOf(ctx, f.state)
	if err != nil {
		return err
	}
	return r.unrecordedOf(ctx, f.state, c)
}

func (d Deps) noteCopies(ctx context.Context, s upkeep.ItemState) error {
	c, err := d.copiesOf(ctx, s)
	if err != nil || len(c.UUIDs) == 0 || len(c.Targets) == 0 {
		return err
	}
	return upkeep.In(d.Registry).NoteUnrecorded(ctx, s.ID, c)
}

// noteOthers is noteCopies for all items of an object but one.
func (d Deps) noteOthers(ctx context.Context, object string, but int64) error {
	ids, err := upkeep.In(d.Registry).ItemsOf(ctx, object)
	if err != nil {
		return err
	}
	states, err := upkeep.In(d.Registry).ItemStates(ctx, ids)
	if err != nil {
		return err
	}
	for id, s := range states {
		if id == but || !mayHaveCopies(s) {
			continue
		}
		if err := d.noteCopies(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// copiesOf reads from staging which copies an item may have made.
func (d Deps) copiesOf(ctx context.Context, s upkeep.ItemState) (c upkeep.UnrecordedCopies, err error) {
	w := &work{item: claim.Item{ID: s.ID, ObjectIdentifier: s.ObjectIdentifier, ETag: s.ETag}, log: d.Log}
	inventory, id, err := w.spool(ctx, d, inventoryName)
	switch {
	case claim.Code(err) == "sent-back":
		return c, nil // the doctor finds what there is, and nobody knows whose it was
	case err != nil:
		return c, fmt.Errorf("read the inventory of item %d: %w", s.ID, err)
	}
	defer inventory.Close() //nolint:errcheck // only read from, and not on disk any more
	onRecord, err := readList(ctx, w, d, planName, id, &plan{}, func(k known) int { return k.Index })
	if err != nil && claim.Code(err) != "sent-back" { // there being none, no file was taken for one on record
		return c, fmt.Errorf("read the plan of item %d: %w", s.ID, err)
	}
	c, err = copiesIn(fromStart(inventory), s, onRecord)
	if errors.Is(err, bag.ErrInventory) {
		d.Log.WarnContext(ctx, "the inventory is damaged, and copies of the item may stay", "item", s.ID, "err", err)
		return upkeep.UnrecordedCopies{}, nil
	}
	return c, err
}

// copiesIn takes the keys under which Store puts copies: the uuids that Receive made for
// the item's files, and nobody else makes, and what reingest makes of those on record.
func copiesIn(inventory io.Reader, s upkeep.ItemState, onRecord map[int]known) (c upkeep.UnrecordedCopies, err error) {
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
		if k := onRecord[i]; k.UUID != "" && stored(f, k) {
			of := newFile(i, f)
			of.reingest(k)
			c.Keys = append(c.Keys, of.key)
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
