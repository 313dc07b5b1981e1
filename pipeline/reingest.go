package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
	"github.com/farol-preservation/farol/storage"
)

// reingest compares the bag with what the registry holds of its object: a file
// keeps its uuid for life, one whose content is on record already is not stored
// again unless one of its copies is bad, and an object stays in the storage option that
// it is in. The answer is the plan that the stages after it follow.
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
		one := known{Index: i, UUID: k.UUID, Unchanged: k.State == "A" && sameContent(b.Files[i], k), Deleted: k.State == "D"}
		if one.Unchanged && (k.Bad || !hasAll(k.Targets, p.StorageOption)) {
			one = one.again(b.Files[i], w.item.ID, k.Keys)
		}
		p.known[i] = one
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

// again has a file stored again whose content is on record, under a key of its own
// beside those that are: which of its copies are bad makes no difference.
func (k known) again(f *bag.File, item int64, taken []string) known {
	k.Unchanged = false
	for n := 0; k.Key == "" || slices.Contains(taken, k.Key); n++ {
		sum := sha256.Sum256(fmt.Appendf(nil, "%x %d %d", f.Digests.SHA256, item, n))
		k.Key = k.UUID + "." + hex.EncodeToString(sum[:8])
	}
	return k
}

// lookAt asks the providers for the copies of all files that would not be stored again.
// A file with a copy that is missing, or is not what was stored, is.
func (s *reingest) lookAt(ctx context.Context, w *work, b *bag.Bag, object registry.Object, byPath map[string]int, p *plan) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(max(s.Files, 1))
	var mu sync.Mutex
	for f, err := range s.Registry.StoredFiles(ctx, object.ID, 0) {
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		i, ok := byPath[f.Identifier[len(object.Identifier)+1:]]
		mu.Lock()
		k := p.known[i]
		mu.Unlock()
		if groupCtx.Err() != nil {
			break
		}
		if !ok || !k.Unchanged {
			continue
		}
		group.Go(func() error {
			return w.hold.Do(func(context.Context) error {
				bad, err := s.anyBad(groupCtx, f)
				if err != nil || !bad {
					return err
				}
				w.log.WarnContext(groupCtx, "a copy of a file is bad; the file is stored again from the bag", "file", f.Identifier)
				keys := make([]string, len(f.Copies))
				for i, c := range f.Copies {
					keys[i] = c.Key
				}
				mu.Lock()
				defer mu.Unlock()
				p.known[i] = k.again(b.Files[i], w.item.ID, keys)
				return nil
			})
		})
	}
	return group.Wait()
}

// anyBad tells whether a copy of a file is missing or altered, and has it on record. Of
// one that is archived and described otherwise than it was, nobody can see more: it
// counts as bad, and is on record as nothing yet.
func (s *reingest) anyBad(ctx context.Context, f registry.StoredFile) (bad bool, err error) {
	for _, c := range f.Copies {
		target, err := s.holding(c.Target, c.Bucket)
		if err != nil {
			return false, err
		}
		o, seen := target.Head(ctx, c.Key)
		switch {
		case seen == nil:
			seen = asStored(o, f, c)
		case !errors.Is(seen, storage.ErrNotFound):
			return false, storageErr(seen)
		}
		if seen == nil {
			continue
		}
		proven, err := s.prove(ctx, c, f.SHA256, seen)
		switch {
		case errors.Is(err, storage.ErrArchived):
			bad = true
		case err != nil:
			return false, storageErr(err)
		}
		bad = bad || proven
	}
	return bad, nil
}

// afterRequests has an ingest wait while its object is being restored or deleted.
// Once an ingest is live no request begins, so that it does not wait for ever.
func (w *work) afterRequests(ctx context.Context, d Deps) error {
	item, since, err := requests.In(d.Registry).LiveRequests(ctx, w.item.ObjectIdentifier)
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
