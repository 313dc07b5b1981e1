package lists

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/google/uuid"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// MayHaveCopies tells whether an item may have made copies that are on no record.
func MayHaveCopies(s upkeep.ItemState) bool {
	return s.Action == "Ingest" && s.Stored && s.Status != "Success"
}

// Unrecorded finds out which copies items may have made that are on no record.
type Unrecorded struct {
	Registry *registry.Registry
	Staging  *storage.Bucket
	Log      *slog.Logger
}

// NoteCopies puts on record which copies an item may have made.
func (u *Unrecorded) NoteCopies(ctx context.Context, s upkeep.ItemState) error {
	c, err := u.CopiesOf(ctx, s)
	if err != nil || len(c.UUIDs) == 0 || len(c.Targets) == 0 {
		return err
	}
	return upkeep.In(u.Registry).NoteUnrecorded(ctx, s.ID, c)
}

// NoteOthers is [Unrecorded.NoteCopies] for all items of an object but one.
func (u *Unrecorded) NoteOthers(ctx context.Context, object string, but int64) error {
	ids, err := upkeep.In(u.Registry).ItemsOf(ctx, object)
	if err != nil {
		return err
	}
	states, err := upkeep.In(u.Registry).ItemStates(ctx, ids)
	if err != nil {
		return err
	}
	for id, s := range states {
		if id == but || !MayHaveCopies(s) {
			continue
		}
		if err := u.NoteCopies(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// CopiesOf reads from the lists which copies an item may have made.
func (u *Unrecorded) CopiesOf(ctx context.Context, s upkeep.ItemState) (c upkeep.UnrecordedCopies, err error) {
	a := &Area{Bucket: u.Staging, Registry: u.Registry, Item: s.ID, Log: u.Log}
	inventory, id, err := a.fetch(ctx, InventoryName)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return c, nil // the doctor finds what there is, and nobody knows whose it was
	case err != nil:
		return c, fmt.Errorf("read the inventory of item %d: %w", s.ID, err)
	}
	defer inventory.Close() //nolint:errcheck // only read from, and not on disk any more
	onRecord, err := Read(ctx, a, PlanName, id, &Plan{}, func(k Known) int { return k.Index })
	if err != nil && claim.Code(err) != "sent-back" { // there being none, no file was taken for one on record
		return c, fmt.Errorf("read the plan of item %d: %w", s.ID, err)
	}
	c, err = copiesIn(fromStart(inventory), s, onRecord)
	if errors.Is(err, bag.ErrInventory) {
		u.Log.WarnContext(ctx, "inventory is damaged; copies of the item may remain in preservation", "item", s.ID, "err", err)
		return upkeep.UnrecordedCopies{}, nil
	}
	return c, err
}

// copiesIn takes the keys under which Store puts copies: the uuids that Receive made for
// the item's files, and nobody else makes, and what reingest makes of those on record.
func copiesIn(inventory io.Reader, s upkeep.ItemState, onRecord map[int]Known) (c upkeep.UnrecordedCopies, err error) {
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
		if IsStored(f, Known{}) && f.UUID == FileUUID(item, i, f.Path) {
			c.UUIDs = append(c.UUIDs, f.UUID.String())
		}
		if k := onRecord[i]; k.UUID != uuid.Nil && IsStored(f, k) {
			of := NewFile(i, f)
			of.Reingest(k)
			c.Keys = append(c.Keys, of.Key())
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
