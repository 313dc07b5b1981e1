package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// store makes all copies that the storage option promises, from the tar in the receiving bucket.
// If source and target are on one service, the service copies by itself, and says what it has.
// Otherwise, and always for small files, the bytes pass through the worker. The same file always
// goes under the same key with the same bytes, and never under one that is on record, so
// repeating it is harmless.
type store struct {
	Registry  *registry.Registry
	Receiving func(bucket string) (*storage.Bucket, error)
	Staging   *storage.Bucket
	Targets   copies.Targets
	Files     int // at once
}

func (s *store) Run(ctx context.Context, w *work) error {
	c, err := w.toCopy(ctx, s.Targets)
	if err != nil {
		return err
	}
	if w.had, err = s.Registry.StageDone(ctx, w.Item.ID, w.Item.Stage); err != nil {
		return err
	}
	if w.had { // else Storage Validation has found none
		if c.bad, err = w.Progress.Blobs(ctx, w.Item.ID, badCopies); err != nil {
			return w.ProgressErr(err)
		}
	}
	sends := make(chan struct{}, s.Files)
	tar, sent := newSource(w, s.Receiving, s.Staging), int64(lists.SentFile)
	if w.lists.Recent.Tar(w.Item.ID) != nil {
		sent = lists.SmallTar
	}
	_, err = w.each(ctx, s.Files, lists.InRequests(c.files, s.Files, sent), func(ctx context.Context, group []*lists.File, finished func(*lists.File, string)) error {
		if group[0].Size <= sent {
			return s.putGroup(ctx, tar, c, group, sends, finished)
		}
		if err := s.copy(ctx, tar, c, group[0]); err != nil {
			return err
		}
		finished(group[0], "")
		return nil
	})
	return err
}

// putGroup makes the copies of small files, which one request reads, or none if this process
// still has the tar. Copies are sent side by side, as many as sends has room for.
func (s *store) putGroup(
	ctx context.Context, w *source, c copyPlan, files []*lists.File, sends chan struct{}, finished func(*lists.File, string),
) error {
	var group sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	err := lists.ReadGroup(ctx, w.open(files[0]), files, func(f *lists.File, content []byte) error {
		if err := w.verify(ctx, f, content); err != nil {
			return err
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
func (s *store) put(ctx context.Context, w *source, c copyPlan, target int, f *lists.File, content []byte) error {
	up := w.upload(f, copies.EncodesPath(c.names[target]))
	if !c.isBad(target, f) && w.there(ctx, c.targets[target], f.Key(), f, up) {
		return nil
	}
	if _, err := c.targets[target].Put(ctx, f.Key(), bytes.NewReader(content), up); err != nil {
		return fmt.Errorf("store in %s: %w", c.names[target], cause.Storage(err))
	}
	return s.replaced(ctx, w, c, target, f)
}

// copiedWhole is the size in bytes up to which a service makes the second copy of a file from the
// first by one request. It has to write no parts, and then an object of them; but a request that
// takes minutes may not get through.
const copiedWhole = 1 << 30

// copy makes the copies of a large file: the first from its range of the tar, others where that is
// less work from a copy that is there.
func (s *store) copy(ctx context.Context, w *source, c copyPlan, f *lists.File) error {
	tar, err := w.origin(ctx, f)
	if err != nil {
		return err
	}
	var made *storage.Bucket // has a copy that can be read
	w.Count.Copies(f.Index, len(c.targets))
	for i, target := range c.targets {
		up := w.upload(f, copies.EncodesPath(c.names[i]))
		if c.isBad(i, f) || !w.there(ctx, target, f.Key(), f, up) {
			var from []storage.Source
			if made != nil && target.Reaches(made) && (f.Size <= copiedWhole || !target.Reaches(tar.Bucket)) {
				from = append(from, storage.Source{Bucket: made, Key: f.Key()})
			}
			if err := s.copyFrom(ctx, w, f, target, up, append(from, tar.of(f))...); err != nil {
				return w.notCopied(ctx, f, fmt.Errorf("copy to %s: %w", c.names[i], err))
			}
			if err := s.replaced(ctx, w, c, i, f); err != nil {
				return err
			}
		}
		if made == nil && (storage.Object{StorageClass: target.Class()}).Readable(time.Now()) {
			made = target
		}
	}
	return nil
}

// copyFrom makes a copy from the first source from which it can be made.
func (s *store) copyFrom(ctx context.Context, w *source, f *lists.File, target *storage.Bucket, up storage.Upload, from ...storage.Source) error {
	var err error
	for _, one := range from {
		parts, failed := w.parts(ctx, f.Index, f.Size, target, f.Key())
		if failed != nil {
			return failed
		}
		if f.Parts != nil {
			parts.SHA256, parts.MD5 = f.Parts.SHA256, f.Parts.MD5
		}
		if _, err = target.Copy(ctx, one, f.Key(), up, parts); err == nil || ctx.Err() != nil {
			return err
		}
	}
	return err
}

// replaced deletes the note that a copy is bad. If that fails, the copy is made once more
// after a crash.
func (s *store) replaced(ctx context.Context, w *source, c copyPlan, target int, f *lists.File) error {
	if !c.isBad(target, f) {
		return nil
	}
	w.Log.InfoContext(ctx, "bad copy replaced", "path", f.Path, "target", c.names[target], "key", f.Key())
	err := w.Progress.Put(ctx, w.Claim(), badCopies, noteOf(c.names[target], f), "")
	if errors.Is(err, progress.ErrLost) {
		return w.ProgressErr(err)
	}
	return nil
}
