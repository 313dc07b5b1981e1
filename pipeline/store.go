package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/storage"
)

// store makes all copies that the storage option promises, from the staging
// bucket: by the server where source and target share one, else through here.
// The same file always goes under the same key with the same bytes, and never
// under one that is on record, so doing it again is harmless.
type store struct{ Deps }

func (s *store) Run(ctx context.Context, w *work) error {
	c, err := w.toCopy(ctx, s.Deps)
	if err != nil {
		return err
	}
	_, err = w.each(ctx, s.Deps, c.files, func(ctx context.Context, group []*file, finished func(*file, string)) error {
		for _, f := range group {
			for i, target := range c.targets {
				if err := s.copy(ctx, w, f, c.names[i], target, c.formats[f.index].MIME); err != nil {
					return err
				}
			}
			finished(f, "")
		}
		return nil
	})
	return err
}

func (s *store) copy(ctx context.Context, w *work, f *file, name string, target *storage.Bucket, contentType string) error {
	var parts storage.Parts
	if storage.PartSize(f.size) > 0 {
		var err error
		if parts, err = w.parts(ctx, s.Deps, f, target, f.key); err != nil {
			return err
		}
	}
	source := storage.Source{Bucket: s.Staging, Key: w.staged(f.key)}
	_, err := target.Copy(ctx, source, f.key, w.upload(f, contentType, encodesPath(name)), parts)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return claim.SendBack("Copy To Staging", fmt.Sprintf("The file %s is no longer in the staging area. It is copied again.", f.path))
	case err != nil:
		return fmt.Errorf("copy to %s: %w", name, storageErr(err))
	}
	return nil
}
