package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/storage"
)

// store makes all copies that the storage option promises, from the staging
// bucket: by the server where source and target share one, else through here,
// as with small files, which are staged several in one object.
// The same file always goes under the same key with the same bytes, and never
// under one that is on record, so doing it again is harmless.
type store struct{ Deps }

func (s *store) Run(ctx context.Context, w *work) error {
	c, err := w.toCopy(ctx, s.Deps)
	if err != nil {
		return err
	}
	_, err = w.each(ctx, s.Deps, inStaging(c.files, s.Files), func(ctx context.Context, group []*file, finished func(*file, string)) error {
		p := group[0].pack
		if !p.shared() {
			if err := s.copy(ctx, w, c, group[0]); err != nil {
				return err
			}
			finished(group[0], "")
			return nil
		}
		staged := func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
			r, err := s.Staging.Get(ctx, w.staged(p.key()), storage.Range{Offset: offset, Length: length})
			return r, stagedErr(err, group[0])
		}
		return readGroup(ctx, staged, group, atPack, func(f *file, content []byte) error {
			if err := s.put(ctx, w, c, f, content); err != nil {
				return err
			}
			finished(f, "")
			return nil
		})
	})
	return err
}

// put makes the copies of a small file.
func (s *store) put(ctx context.Context, w *work, c copyPlan, f *file, content []byte) error {
	for i, target := range c.targets {
		up := w.upload(f, c.formats[f.index].MIME, encodesPath(c.names[i]))
		if _, err := target.Put(ctx, f.key, bytes.NewReader(content), up); err != nil {
			return fmt.Errorf("store in %s: %w", c.names[i], stagedErr(err, f))
		}
	}
	return nil
}

// copy makes the copies of a file that has an object of its own in staging.
func (s *store) copy(ctx context.Context, w *work, c copyPlan, f *file) error {
	source := storage.Source{Bucket: s.Staging, Key: w.staged(f.key)}
	for i, target := range c.targets {
		var parts storage.Parts
		if storage.PartSize(f.size) > 0 {
			var err error
			if parts, err = w.parts(ctx, s.Deps, f, target, f.key); err != nil {
				return err
			}
		}
		up := w.upload(f, c.formats[f.index].MIME, encodesPath(c.names[i]))
		if _, err := target.Copy(ctx, source, f.key, up, parts); err != nil {
			return fmt.Errorf("copy to %s: %w", c.names[i], stagedErr(err, f))
		}
	}
	return nil
}

// stagedErr gives what went wrong with a copy its meaning: bytes that the staging
// area has lost, or that are not the file's any more, are taken from the tar again.
func stagedErr(err error, f *file) error {
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return claim.SendBack("Copy To Staging", fmt.Sprintf("The file %s is no longer in the staging area. It is copied again.", f.path))
	case errors.Is(err, storage.ErrDigest):
		return claim.SendBack("Copy To Staging", fmt.Sprintf("The file %s was damaged in the staging area. It is copied again.", f.path))
	}
	return storageErr(err)
}
