package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/pipeline/many"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/registry/upkeep"
	"github.com/farol-preservation/farol/storage"
)

// cleanup ends a recorded ingest. It deletes the copies that the item replaced, what the
// item has in staging under its own prefix, its progress, and last the tar, if that is still
// the one that was ingested. Each deletion can be repeated, and none needs what another has
// deleted. Interim metadata is kept before it is deleted, and only once.
type cleanup struct {
	Registry  *registry.Registry
	Receiving func(bucket string) (*storage.Bucket, error)
	Staging   *storage.Bucket
	Targets   copies.Targets
	keep      *interim.Keeper // nil: interim metadata is not kept
}

func (s *cleanup) Run(ctx context.Context, w *work) error {
	object, err := s.Registry.Object(ctx, w.Item.ObjectIdentifier)
	if errors.Is(err, registry.ErrNotFound) || err == nil && object.ETag != w.Item.ETag {
		// The tar may be the only copy there is.
		return claim.Fatal("not-recorded", "The bag %s is not on record, so nothing was deleted.", w.Item.Name)
	}
	if err != nil {
		return err
	}
	w.ObjectID, w.Outcome = object.ID, "Ingest complete"
	attempts, err := s.Registry.Attempts(ctx, w.Item.ID)
	if err == nil {
		err = s.onRecord(ctx, w, attempts)
	}
	if err != nil {
		return err
	}
	if err := s.needed(ctx, w, object); err != nil {
		return err
	}
	if err := w.Hold.Check(ctx); err != nil {
		return err
	}
	if err := s.retired(ctx, w); err != nil {
		return err
	}
	if err := s.keepAtEnd(ctx, w, attempts); err != nil {
		return err
	}
	w.lists.Recent.Forget(w.Item.ID)
	if err := s.staging(ctx, w); err != nil {
		return err
	}
	if err := w.Progress.Clear(ctx, w.Item.ID); err != nil {
		return fmt.Errorf("clear the progress: %w", err)
	}
	if found := registry.RemarkOf(attempts); found != "" {
		w.Note += " " + found // the last word that the depositor reads
	}
	return s.tar(ctx, w)
}

// needed sends an item back if its tar has the good bytes of a file and a copy of
// that file was found bad after Reingest Check: the bytes are stored again before the tar is deleted.
func (s *cleanup) needed(ctx context.Context, w *work, object record.Object) error {
	bad, err := fixity.In(s.Registry).BadFiles(ctx, object.ID)
	if err != nil || len(bad) == 0 {
		return err
	}
	if in, err := s.tarIn(ctx, w); err != nil || in == nil {
		return err
	}
	again := ""
	_, _, err = w.lists.Inventory(ctx, func(i int, f *bag.File) {
		if i == 0 { // see [lists.Area.Inventory]
			again = ""
		}
		if sum, ok := bad[object.Identifier+"/"+f.Path]; ok && sum == f.Digests.Hex(bag.SHA256) {
			again = f.Path
		}
	})
	if err != nil || again == "" {
		return err
	}
	return claim.SendBack(registry.ReingestCheck, fmt.Sprintf("A copy of %s was found to be bad. The bag has its bytes, which are stored again.", again))
}

// retired deletes the copies that the record named before this item changed it. Those that a
// store keeps under Object Lock stay on the list, by which the janitor removes them later.
func (s *cleanup) retired(ctx context.Context, w *work) error {
	list, err := upkeep.In(s.Registry).RetiredCopies(ctx, w.Item.ID)
	if err != nil || len(list) == 0 {
		return err
	}
	keysIn := map[upkeep.RetiredCopy][]string{}
	for _, c := range list {
		if _, err := s.Targets.Holding(c.Target, c.Bucket); err != nil {
			return err
		}
		place := upkeep.RetiredCopy{Target: c.Target, Bucket: c.Bucket}
		keysIn[place] = append(keysIn[place], c.Key)
	}
	const batch = 1000
	left := 0
	var kept *storage.Kept
	for place, keys := range keysIn {
		for some := range slices.Chunk(keys, batch) {
			locks, err := s.Targets[place.Target].Locks(ctx, some...)
			if err != nil {
				return fmt.Errorf("read the locks of replaced copies in %s: %w", place.Target, cause.Storage(err))
			}
			for _, k := range locks {
				kept, left = kept.And(k), left+1
			}
			some = slices.DeleteFunc(some, func(key string) bool { return locks[key] != nil })
			if err := s.Targets[place.Target].Delete(ctx, some...); err != nil {
				return fmt.Errorf("delete replaced copies in %s: %w", place.Target, cause.Storage(err))
			}
			if err := upkeep.In(s.Registry).RecordRetired(ctx, w.Item.ID, place.Target, some); err != nil {
				return err
			}
		}
	}
	if left > 0 {
		w.Note += fmt.Sprintf(" Replaced copies that are %s: %d. The janitor removes them later.", kept, left)
		return nil
	}
	return upkeep.In(s.Registry).ForgetRetiredCopies(ctx, w.Item.ID)
}

// staging deletes what the item has in the staging bucket: nothing if all its lists were small, which go
// with the end of the item. What an earlier version of Farol has left of such an item, the janitor finds.
func (s *cleanup) staging(ctx context.Context, w *work) error {
	prefix := lists.Key(w.Item.ID, "")     // with its slash: item 12 is not item 123
	if storage.PartSize(w.Item.Size) > 0 { // else nothing of it was large enough for parts
		if _, err := s.Staging.AbortUploads(ctx, prefix, time.Now().Add(24*time.Hour)); err != nil {
			return fmt.Errorf("abort uploads to staging: %w", cause.Storage(err))
		}
	}
	here, err := upkeep.In(s.Registry).Lists(ctx, w.Item.ID)
	if err != nil || !here.Staged && here.Count == int64(len(w.lists.Makers)) {
		return err
	}
	const batch, atOnce = 250, 4
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for page, err := range many.Pages(batch, s.Staging.List(groupCtx, prefix, "")) {
		if err != nil {
			return fmt.Errorf("list the staging area: %w", cause.Storage(errors.Join(err, group.Wait())))
		}
		keys := make([]string, len(page))
		for i, object := range page {
			keys[i] = object.Key
		}
		group.Go(func() error { return s.Staging.Delete(groupCtx, keys...) })
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("clear the staging area: %w", cause.Storage(err))
	}
	return nil
}

// tar deletes the bag from the receiving bucket. A newer upload under the same
// key is left for an item of its own.
func (s *cleanup) tar(ctx context.Context, w *work) error {
	receiving, err := s.tarIn(ctx, w)
	if err != nil || receiving == nil {
		return err
	}
	return cause.Storage(receiving.Delete(ctx, w.Item.Name))
}

// tarIn is the receiving bucket if the bag is still in it; else nil.
func (s *cleanup) tarIn(ctx context.Context, w *work) (*storage.Bucket, error) {
	receiving, err := s.Receiving(w.Item.Bucket)
	if err != nil {
		return nil, fmt.Errorf("open the receiving bucket: %w", err)
	}
	object, err := receiving.Head(ctx, w.Item.Name)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return nil, nil //nolint:nilnil // it is said above
	case err != nil:
		return nil, cause.Storage(err)
	case object.ETag != w.Item.ETag:
		w.Log.InfoContext(ctx, "receiving bucket has a newer upload; leaving it there", "key", w.Item.Name, "etag", object.ETag)
		return nil, nil //nolint:nilnil // likewise
	}
	return receiving, nil
}

// keepAtEnd keeps the interim metadata of an item that Cleanup is about to delete.
func (s *cleanup) keepAtEnd(ctx context.Context, w *work, attempts []record.Attempt) error {
	if s.keep == nil {
		return nil
	}
	item, err := s.Registry.WorkItem(ctx, w.Item.ID)
	if err != nil {
		return err
	}
	keep := *s.keep
	keep.Recent = w.lists.Recent
	return keep.Keep(ctx, interim.Keeping{Item: item, Attempts: attempts, Pass: w.Pass(), Check: w.Hold.Check})
}

// onRecord checks that the object is on record as this item brought it, or an earlier item
// with the same upload. Otherwise the tar may be the only copy.
func (s *cleanup) onRecord(ctx context.Context, w *work, attempts []record.Attempt) error {
	if slices.ContainsFunc(attempts, func(a record.Attempt) bool {
		return a.Stage == registry.Record && a.Outcome != nil && *a.Outcome == "done"
	}) {
		return nil
	}
	earlier, err := s.Registry.Repeats(ctx, w.Item.ID)
	switch {
	case err != nil:
		return err
	case earlier == 0:
		return claim.SendBack(registry.Receive, "The registry no longer matches this bag. The bag is ingested.")
	}
	w.Note, w.Outcome = repeatedNote(earlier), "Already on record"
	return nil
}
