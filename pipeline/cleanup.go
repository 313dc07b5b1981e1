package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// cleanup ends a recorded ingest: copies that it replaced, what it has in
// staging under its own prefix, its progress, and last the tar, if that is still
// the one that was ingested. Each step may be done again; none needs what
// another has deleted, but for keeping the interim metadata, which comes before that
// is deleted and is not done twice.
type cleanup struct{ Deps }

func (s *cleanup) Run(ctx context.Context, w *work) error {
	object, err := s.Registry.Object(ctx, w.item.ObjectIdentifier)
	if errors.Is(err, registry.ErrNotFound) || err == nil && object.ETag != w.item.ETag {
		// The tar may be the only copy there is.
		return claim.Fatal("not-recorded", "The bag %s is not on record, so nothing of it was deleted.", w.item.Name)
	}
	if err != nil {
		return err
	}
	w.objectID = object.ID
	attempts, err := s.Registry.Attempts(ctx, w.item.ID)
	if err == nil {
		err = s.onRecord(ctx, w, attempts)
	}
	if err != nil {
		return err
	}
	if err := s.needed(ctx, w, object); err != nil {
		return err
	}
	if err := w.hold.Check(ctx); err != nil {
		return err
	}
	if err := s.retired(ctx, w); err != nil {
		return err
	}
	if err := s.keepAtEnd(ctx, w, attempts); err != nil {
		return err
	}
	if err := s.staging(ctx, w); err != nil {
		return err
	}
	if err := s.Progress.Clear(ctx, w.item.ID); err != nil {
		return fmt.Errorf("clear the progress: %w", err)
	}
	if found := remarkOf(attempts); found != "" {
		w.note += " " + found // the last word that the depositor reads
	}
	return s.tar(ctx, w)
}

// needed sends an item back whose tar has the good bytes of a file whose copy was
// found bad since the bag was compared with the record: before they go, they are used.
func (s *cleanup) needed(ctx context.Context, w *work, object registry.Object) error {
	bad, err := fixity.In(s.Registry).BadFiles(ctx, object.ID)
	if err != nil || len(bad) == 0 {
		return err
	}
	if there, err := s.tarThere(ctx, w); err != nil || !there {
		return err
	}
	again := ""
	_, _, err = w.inventory(ctx, s.Deps, func(i int, f *bag.File) {
		if i == 0 { // see there
			again = ""
		}
		if sum, ok := bad[object.Identifier+"/"+f.Path]; ok && sum == f.Digests.Hex(bag.SHA256) {
			again = f.Path
		}
	})
	if err != nil || again == "" {
		return err
	}
	return claim.SendBack("Reingest Check", fmt.Sprintf("A copy of %s was found to be bad. The bag has its bytes, which are stored again.", again))
}

// retired deletes the copies that the record named before this item changed it.
func (s *cleanup) retired(ctx context.Context, w *work) error {
	list, err := upkeep.In(s.Registry).RetiredCopies(ctx, w.item.ID)
	if err != nil || len(list) == 0 {
		return err
	}
	keysIn := map[upkeep.RetiredCopy][]string{}
	for _, c := range list {
		if _, err := s.holding(c.Target, c.Bucket); err != nil {
			return err
		}
		place := upkeep.RetiredCopy{Target: c.Target, Bucket: c.Bucket}
		keysIn[place] = append(keysIn[place], c.Key)
	}
	const batch = 1000
	for place, keys := range keysIn {
		for some := range slices.Chunk(keys, batch) {
			if err := s.Targets[place.Target].Delete(ctx, some...); err != nil {
				return fmt.Errorf("delete replaced copies in %s: %w", place.Target, storageErr(err))
			}
			if err := upkeep.In(s.Registry).RecordRetired(ctx, w.item.ID, place.Target, some); err != nil {
				return err
			}
		}
	}
	return upkeep.In(s.Registry).ForgetRetiredCopies(ctx, w.item.ID)
}

func (s *cleanup) staging(ctx context.Context, w *work) error {
	prefix := w.staged("") // with its slash: item 12 is not item 123
	if _, err := s.Staging.AbortUploads(ctx, prefix, time.Now().Add(24*time.Hour)); err != nil {
		return fmt.Errorf("abort uploads to staging: %w", storageErr(err))
	}
	const batch, atOnce = 250, 4
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	remove := func(keys []string) {
		group.Go(func() error { return s.Staging.Delete(groupCtx, keys...) })
	}
	var keys []string
	for object, err := range s.Staging.List(groupCtx, prefix, "") {
		if err != nil {
			return fmt.Errorf("list the staging area: %w", storageErr(errors.Join(err, group.Wait())))
		}
		if keys = append(keys, object.Key); len(keys) == batch {
			remove(keys)
			keys = nil
		}
	}
	remove(keys)
	if err := group.Wait(); err != nil {
		return fmt.Errorf("clear the staging area: %w", storageErr(err))
	}
	return nil
}

// tar deletes the bag from the receiving bucket. A newer upload under the same
// key is left for an item of its own.
func (s *cleanup) tar(ctx context.Context, w *work) error {
	there, err := s.tarThere(ctx, w)
	if err != nil || !there {
		return err
	}
	receiving, err := s.Receiving(w.item.Bucket)
	if err != nil {
		return fmt.Errorf("open the receiving bucket: %w", err)
	}
	return storageErr(receiving.Delete(ctx, w.item.Name))
}

// tarThere tells whether the bag is still in the receiving bucket.
func (s *cleanup) tarThere(ctx context.Context, w *work) (bool, error) {
	receiving, err := s.Receiving(w.item.Bucket)
	if err != nil {
		return false, fmt.Errorf("open the receiving bucket: %w", err)
	}
	object, err := receiving.Head(ctx, w.item.Name)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return false, nil
	case err != nil:
		return false, storageErr(err)
	case object.ETag != w.item.ETag:
		w.log.InfoContext(ctx, "a newer upload stays in the receiving bucket", "key", w.item.Name, "etag", object.ETag)
		return false, nil
	}
	return true, nil
}
