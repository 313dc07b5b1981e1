package ingest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// store makes all copies that the storage option promises, from the staging bucket. If source
// and target are on one service, the service copies by itself. Otherwise, and always for small
// files, which share an object in staging, the bytes pass through the worker. The same file
// always goes under the same key with the same bytes, and never under one that is on record,
// so repeating it is harmless.
type store struct {
	Registry *registry.Registry
	Staging  *storage.Bucket
	Targets  copies.Targets
	Files    int // at once
}

func (s *store) Run(ctx context.Context, w *work) error {
	c, err := w.toCopy(ctx, s.Targets)
	if err != nil {
		return err
	}
	if w.had, err = s.Registry.StageDone(ctx, w.Item.ID, w.Item.Stage); err != nil {
		return err
	}
	if c.bad, err = w.Progress.Blobs(ctx, w.Item.ID, badCopies); err != nil {
		return w.ProgressErr(err)
	}
	sends := make(chan struct{}, s.Files)
	_, err = w.each(ctx, s.Files, lists.InStaging(c.files, s.Files), func(ctx context.Context, group []*lists.File, finished func(*lists.File, string)) error {
		if group[0].Pack.Shared() {
			return s.putGroup(ctx, w, c, group, sends, finished)
		}
		if err := s.copy(ctx, w, c, group[0]); err != nil {
			return err
		}
		finished(group[0], "")
		return nil
	})
	return err
}

// putGroup makes the copies of small files, which one request reads from their pack, or none
// if this process still has the tar. Copies are sent side by side, as many as sends has room
// for.
func (s *store) putGroup(
	ctx context.Context, w *work, c copyPlan, files []*lists.File, sends chan struct{}, finished func(*lists.File, string),
) error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	open, at := s.staged(w, files[0].Pack), lists.AtPack
	if kept := w.lists.Recent.Tar(w.Item.ID); kept != nil {
		open, at = lists.InMemory(kept), lists.AtTar
	}
	err := lists.ReadGroup(ctx, open, files, at, func(f *lists.File, content []byte) error {
		if sha256.Sum256(content) != f.SHA256 {
			w.lists.Recent.Forget(w.Item.ID) // another try reads it from staging
			if lost := s.check(ctx, w, f); lost != nil {
				return cause.InFile(f.Path, lost)
			}
			return claim.Transient("storage-digest", fmt.Errorf("%w: %s was read wrongly, and is whole in the staging area", storage.ErrDigest, f.Path))
		}
		missing := len(c.targets)
		for i := range c.targets {
			sends <- struct{}{}
			group.Go(func() {
				err := w.Hold.Do(func(context.Context) error { return s.put(ctx, w, c, i, f, content) })
				<-sends
				mu.Lock()
				defer mu.Unlock()
				switch missing--; {
				case err != nil:
					missing = -1 // so that it is not finished, whatever becomes of its other copies
					failed = append(failed, cause.InFile(f.Path, fmt.Errorf("%s: %w", f.Path, err)))
				case missing == 0:
					finished(f, "")
				}
			})
		}
		return ctx.Err()
	})
	group.Wait()
	return errors.Join(append(failed, err)...)
}

// put makes one copy of a small file.
func (s *store) put(ctx context.Context, w *work, c copyPlan, target int, f *lists.File, content []byte) error {
	up := w.upload(f, c.mimes[f.Index].MIME, copies.EncodesPath(c.names[target]))
	if !c.isBad(target, f) && w.there(ctx, c.targets[target], f.Key, f, up) {
		return nil
	}
	if _, err := c.targets[target].Put(ctx, f.Key, bytes.NewReader(content), up); err != nil {
		return fmt.Errorf("store in %s: %w", c.names[target], cause.Storage(err))
	}
	return s.replaced(ctx, w, c, target, f)
}

// copy makes the copies of a file that has an object of its own in staging.
func (s *store) copy(ctx context.Context, w *work, c copyPlan, f *lists.File) error {
	source := storage.Source{Bucket: s.Staging, Key: lists.Key(w.Item.ID, f.Key)}
	w.Count.Copies(f.Index, len(c.targets))
	for i, target := range c.targets {
		up := w.upload(f, c.mimes[f.Index].MIME, copies.EncodesPath(c.names[i]))
		if !c.isBad(i, f) && w.there(ctx, target, f.Key, f, up) {
			continue
		}
		var parts storage.Parts
		if storage.PartSize(f.Size) > 0 {
			var err error
			if parts, err = w.parts(ctx, f, target, f.Key); err != nil {
				return err
			}
		}
		_, err := target.Copy(ctx, source, f.Key, up, parts)
		if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrDigest) {
			if lost := s.check(ctx, w, f); lost != nil { // else the target is at fault
				return lost
			}
		}
		if err != nil {
			return fmt.Errorf("copy to %s: %w", c.names[i], cause.Storage(err))
		}
		if err := s.replaced(ctx, w, c, i, f); err != nil {
			return err
		}
	}
	return nil
}

// staged opens ranges of a pack. If two requests find it missing, or of another size, it is
// copied again.
func (s *store) staged(w *work, p *lists.Pack) lists.Opener {
	key := lists.Key(w.Item.ID, p.Key())
	return func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		missing := false
		for range 2 {
			r, err := s.Staging.Get(ctx, key, storage.Range{Offset: offset, Length: length})
			if err == nil {
				return r, nil
			}
			o, headErr := s.Staging.Head(ctx, key)
			if missing = errors.Is(headErr, storage.ErrNotFound); !missing && (headErr != nil || o.Size == p.Size()) {
				return nil, cause.Storage(err)
			}
		}
		lost := unstaged(p.Files[0])
		if missing { // or this process looks into the wrong bucket
			lost = claim.Doubt(s.Staging.Service(), lost)
		}
		return nil, lost
	}
}

// check reads a file in staging to its end, twice, and tells whether it is still whole.
func (s *store) check(ctx context.Context, w *work, f *lists.File) error {
	open := s.staged(w, f.Pack)
	sum, err := copies.Agreed(ctx, s.Staging, f.Path, func() (io.ReadCloser, error) { return open(ctx, f.At, f.Size) })
	if err != nil {
		return err
	}
	if sum != f.SHA256 {
		return unstaged(f)
	}
	return nil
}

// unstaged sends the item back to Copy To Staging, which copies lost or changed bytes from
// the tar again.
func unstaged(f *lists.File) error {
	return claim.SendBack(registry.CopyToStaging, fmt.Sprintf("The file %s is no longer whole in the staging area. It is copied again.", f.Path))
}

// replaced deletes the note that a copy is bad. If that fails, the copy is made once more
// after a crash.
func (s *store) replaced(ctx context.Context, w *work, c copyPlan, target int, f *lists.File) error {
	if !c.isBad(target, f) {
		return nil
	}
	w.Log.InfoContext(ctx, "bad copy replaced", "path", f.Path, "target", c.names[target], "key", f.Key)
	err := w.Progress.Put(ctx, w.Claim(), badCopies, noteOf(c.names[target], f), "")
	if errors.Is(err, progress.ErrLost) {
		return w.ProgressErr(err)
	}
	return nil
}
