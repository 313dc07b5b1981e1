package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// cleanup ends a recorded ingest: copies that it replaced, what it has in
// staging under its own prefix, its progress, and last the tar, if that is still
// the one that was ingested. Each step may be done again; none needs what
// another has deleted.
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
	if err := w.hold.Check(ctx); err != nil {
		return err
	}
	if err := s.retired(ctx, w); err != nil {
		return err
	}
	if err := s.staging(ctx, w); err != nil {
		return err
	}
	if err := s.Progress.Clear(ctx, w.item.ID); err != nil {
		return fmt.Errorf("clear the progress: %w", err)
	}
	return s.tar(ctx, w)
}

// retired deletes the copies that the record named before this item changed it.
func (s *cleanup) retired(ctx context.Context, w *work) error {
	list, err := s.Registry.RetiredCopies(ctx, w.item.ID)
	if err != nil || len(list) == 0 {
		return err
	}
	keysIn := map[*storage.Bucket][]string{}
	for _, c := range list {
		b, err := s.holding(c.Target, c.Bucket)
		if err != nil {
			return err
		}
		keysIn[b] = append(keysIn[b], c.Key)
	}
	for b, keys := range keysIn {
		if err := b.Delete(ctx, keys...); err != nil {
			return fmt.Errorf("delete replaced copies in %s: %w", b.TargetName(), storageErr(err))
		}
	}
	return s.Registry.ForgetRetiredCopies(ctx, w.item.ID)
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
	receiving, err := s.Receiving(w.item.Bucket)
	if err != nil {
		return fmt.Errorf("open the receiving bucket: %w", err)
	}
	object, err := receiving.Head(ctx, w.item.Name)
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil {
		return storageErr(err)
	}
	if object.ETag != w.item.ETag {
		w.log.InfoContext(ctx, "a newer upload stays in the receiving bucket", "key", w.item.Name, "etag", object.ETag)
		return nil
	}
	return storageErr(receiving.Delete(ctx, w.item.Name))
}
