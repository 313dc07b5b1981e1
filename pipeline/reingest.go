package pipeline

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
)

// reingest compares the bag with what the registry holds of its object: a file
// keeps its uuid for life, one whose content is on record already is not stored
// again, and an object stays in the storage option that it is in. The answer is
// the plan that the stages after it follow.
type reingest struct{ Deps }

func (s *reingest) Run(ctx context.Context, w *work) error {
	b, inventoryID, err := w.bag(ctx, s.Deps)
	if err != nil {
		return err
	}
	p := plan{StorageOption: b.StorageOption()}
	if err := w.afterRequests(ctx, s.Deps); err != nil {
		return err
	}
	object, err := s.Registry.Object(ctx, w.item.ObjectIdentifier)
	switch {
	case errors.Is(err, registry.ErrNotFound):
	case err != nil:
		return err
	default:
		if err := s.compare(ctx, w, b, object, &p); err != nil {
			return err
		}
	}
	if _, _, err := s.targets(p.StorageOption); err != nil {
		return err
	}
	w.storageOption = p.StorageOption
	return writeList(ctx, w, s.Deps, planName, inventoryID, p, len(p.known), byIndex(p.known))
}

// compare streams the object's files from the registry in one query.
func (s *reingest) compare(ctx context.Context, w *work, b *bag.Bag, object registry.Object, p *plan) error {
	if object.InstitutionID != w.item.InstitutionID {
		return fmt.Errorf("object %q belongs to institution %d", object.Identifier, object.InstitutionID)
	}
	if object.Deleting {
		return claim.Suspend("deletion-unfinished", fmt.Sprintf(
			"A deletion of the object %s has begun and has not come to its end, so that its files cannot be relied on. "+
				"Requeue the item of the deletion, and then this one.", object.Identifier))
	}
	// Copies of one object never lie in two storage options. Only an object that
	// was deleted whole, files and all, could move; its record keeps its option.
	p.ObjectID, p.StorageOption, p.Deletions = object.ID, object.StorageOption, object.Deletions
	p.known = map[int]known{}
	byPath := make(map[string]int, len(b.Files))
	for i, f := range b.Files {
		if f.Preservable() && !f.Missing {
			byPath[f.Path] = i
		}
	}
	for k, err := range s.Registry.KnownFiles(ctx, object.ID) {
		if err != nil {
			return err
		}
		i, ok := byPath[k.Identifier[min(len(object.Identifier)+1, len(k.Identifier)):]]
		if !ok {
			continue // files that the new bag lacks stay as they are
		}
		p.known[i] = known{Index: i, UUID: k.UUID, Unchanged: k.State == "A" && sameContent(b.Files[i], k), Deleted: k.State == "D"}
	}
	return nil
}

// afterRequests has an ingest wait while its object is being restored or deleted.
// Once an ingest is live no request begins, so that it does not wait for ever.
func (w *work) afterRequests(ctx context.Context, d Deps) error {
	item, since, err := d.Registry.LiveRequests(ctx, w.item.ObjectIdentifier)
	if err != nil || item == 0 {
		return err
	}
	const soonest, latest = 5 * time.Second, 10 * time.Minute
	return claim.Snooze(min(max(since/10, soonest), latest), fmt.Sprintf("Item %d, which restores or deletes what is on record of the same object, goes first.", item))
}

func sameContent(f *bag.File, k registry.KnownFile) bool {
	if k.SHA256 != "" {
		return k.SHA256 == hex.EncodeToString(f.Digests.SHA256[:])
	}
	return k.MD5 != "" && k.MD5 == hex.EncodeToString(f.Digests.MD5[:])
}
