package ingest

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// reingest compares the bag with what the registry holds of its object: a file
// keeps its uuid for life, one whose content is on record already is not stored
// again unless one of its copies is bad, and an object stays in the storage option that
// it is in. The answer is the plan that the stages after it follow.
type reingest struct {
	Registry *registry.Registry
	Targets  copies.Targets
	Files    int // that are looked at, at once
}

func (s *reingest) Run(ctx context.Context, w *work) error {
	b, inventoryID, err := w.lists.Inventory(ctx, nil)
	if err != nil {
		return err
	}
	p := lists.Plan{StorageOption: b.StorageOption()}
	if err := w.afterRequests(ctx, s.Registry); err != nil {
		return err
	}
	object, err := s.Registry.Object(ctx, w.Item.ObjectIdentifier)
	switch {
	case errors.Is(err, registry.ErrNotFound):
	case err != nil:
		return err
	default:
		if err := s.compare(ctx, w, b, object, &p); err != nil {
			return err
		}
	}
	if _, _, err := s.Targets.Of(p.StorageOption); err != nil {
		return err
	}
	if err := s.takeFound(ctx, w, b, &p); err != nil {
		return err
	}
	w.StorageOption = p.StorageOption
	return lists.Write(ctx, w.lists, lists.PlanName, inventoryID, p, len(p.Known), lists.ByIndex(p.Known))
}

// takeFound has files take over copies of their content that were found without a record. A file
// that is on record keeps its uuid, with which its keys begin.
func (s *reingest) takeFound(ctx context.Context, w *work, b *bag.Bag, p *lists.Plan) error {
	found, err := upkeep.In(s.Registry).Found(ctx, w.Item.ObjectIdentifier)
	if err != nil || len(found) == 0 {
		return err
	}
	if p.Known == nil {
		p.Known = map[int]lists.Known{}
	}
	for i, f := range b.Files {
		c, ok := found[f.Path]
		if !ok || !f.Preservable() || f.Missing || c.SHA256 != hex.EncodeToString(f.Digests.SHA256[:]) {
			continue
		}
		id, err := uuid.Parse(c.Key[:min(36, len(c.Key))])
		k, known := p.Known[i]
		if err != nil || known && (k.Unchanged || k.UUID != id) {
			continue
		}
		p.Known[i] = lists.Known{Index: i, UUID: id, Key: c.Key, Deleted: !known || k.Deleted, Found: true}
	}
	return nil
}

// compare streams the object's files from the registry in one query.
func (s *reingest) compare(ctx context.Context, w *work, b *bag.Bag, object record.Object, p *lists.Plan) error {
	if object.InstitutionID != w.Item.InstitutionID {
		return fmt.Errorf("object %q belongs to institution %d", object.Identifier, object.InstitutionID)
	}
	if object.Deleting {
		return claim.Suspend("deletion-unfinished", fmt.Sprintf(
			"A deletion of the object %s has begun and is unfinished, so its files are not reliable. "+
				"Requeue the item of the deletion, or cancel it, and then requeue this one.", object.Identifier))
	}
	// Copies of one object never lie in two storage options. Only an object that
	// was deleted whole, files and all, could move; its record keeps its option.
	p.ObjectID, p.StorageOption, p.Deletions = object.ID, object.StorageOption, object.Deletions
	p.Known = map[int]lists.Known{}
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
		id, err := uuid.Parse(k.UUID)
		if err != nil {
			return fmt.Errorf("uuid of %s: %w", k.Identifier, err)
		}
		one := lists.Known{Index: i, UUID: id, Unchanged: k.State == "A" && sameContent(b.Files[i], k), Deleted: k.State == "D"}
		if one.Unchanged && (k.Bad || !hasAll(k.Targets, p.StorageOption)) {
			one = one.Again(b.Files[i], w.Item.ID, k.Keys)
		}
		p.Known[i] = one
	}
	return s.lookAt(ctx, w, b, object, byPath, p)
}

// hasAll tells whether there is a copy in each target of a storage option.
func hasAll(targets []string, option string) bool {
	for _, name := range storage.TargetsOf(option) {
		if !slices.Contains(targets, name) {
			return false
		}
	}
	return true
}

// lookAt asks the providers for the copies of all files that would not be stored again. A
// file with a missing or altered copy is stored again.
func (s *reingest) lookAt(ctx context.Context, w *work, b *bag.Bag, object record.Object, byPath map[string]int, p *lists.Plan) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(max(s.Files, 1))
	var mu sync.Mutex
	for f, err := range s.Registry.StoredFiles(ctx, object.ID, 0) {
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		i, ok := byPath[f.Identifier[len(object.Identifier)+1:]]
		mu.Lock()
		k := p.Known[i]
		mu.Unlock()
		if groupCtx.Err() != nil {
			break
		}
		if !ok || !k.Unchanged {
			continue
		}
		group.Go(func() error {
			return w.Hold.Do(func(context.Context) error {
				bad, err := s.anyBad(groupCtx, f)
				if err != nil || !bad {
					return err
				}
				w.Log.WarnContext(groupCtx, "copy is bad; storing the file again from the bag", "file", f.Identifier)
				keys := make([]string, len(f.Copies))
				for i, c := range f.Copies {
					keys[i] = c.Key
				}
				mu.Lock()
				defer mu.Unlock()
				p.Known[i] = k.Again(b.Files[i], w.Item.ID, keys)
				return nil
			})
		})
	}
	return group.Wait()
}

// anyBad tells whether a copy of a file is missing or altered, and has it on record. An
// archived copy that is described otherwise than before cannot be read: it counts as bad, and
// nothing is put on record of it.
func (s *reingest) anyBad(ctx context.Context, f registry.StoredFile) (bad bool, err error) {
	for _, c := range f.Copies {
		target, err := s.Targets.Holding(c.Target, c.Bucket)
		if err != nil {
			return false, err
		}
		o, seen := target.Head(ctx, c.Key)
		switch {
		case seen == nil:
			seen = copies.AsStored(o, f, c)
		case !errors.Is(seen, storage.ErrNotFound):
			return false, cause.Storage(seen)
		}
		if seen == nil {
			continue
		}
		proven, err := s.Targets.Prove(ctx, s.Registry, c, f.SHA256, seen)
		switch {
		case errors.Is(err, storage.ErrArchived):
			bad = true
		case err != nil:
			return false, cause.Storage(err)
		}
		bad = bad || proven
	}
	return bad, nil
}

func sameContent(f *bag.File, k registry.KnownFile) bool {
	if k.SHA256 != "" {
		return k.SHA256 == hex.EncodeToString(f.Digests.SHA256[:])
	}
	return k.MD5 != "" && k.MD5 == hex.EncodeToString(f.Digests.MD5[:])
}
