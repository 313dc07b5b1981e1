package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/farol-preservation/farol/storage"
)

// stageFiles copies what will be stored from the tar to the staging bucket, each
// file under its key below the item's own prefix. It reads the tar by the
// offsets of the inventory, in parallel; every byte is checked against the
// digests that Receive computed, so that a tar which changed between the two
// reads is noticed whatever its ETag says.
type stageFiles struct{ Deps }

func (s *stageFiles) Run(ctx context.Context, w *work) error {
	_, files, _, err := w.toStore(ctx, s.Deps)
	if err != nil {
		return err
	}
	tar, err := s.Receiving(w.item.Bucket)
	if err != nil {
		return fmt.Errorf("open the receiving bucket: %w", err)
	}
	_, err = w.each(ctx, s.Deps, files, func(ctx context.Context, group []*file, finished func(*file, string)) error {
		if group[0].size > smallFile {
			if err := s.stream(ctx, w, tar, group[0]); err != nil {
				return err
			}
			finished(group[0], "")
			return nil
		}
		return w.readGroup(ctx, tar, group, func(f *file, content []byte) error {
			_, err := s.Staging.Put(ctx, w.staged(f.key), bytes.NewReader(content), w.upload(f, f.format, false))
			if err != nil {
				return storageErr(err)
			}
			finished(f, "")
			return nil
		})
	})
	return err
}

// stream copies a larger file without holding it: in one request, or in parts of
// which those that the staging bucket has already are not sent again.
func (s *stageFiles) stream(ctx context.Context, w *work, tar *storage.Bucket, f *file) error {
	open := func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		r, err := tar.Get(ctx, w.item.Name, storage.Range{Offset: f.offset + offset, Length: length, IfMatch: w.item.ETag})
		if err != nil {
			return nil, w.receivingErr(err)
		}
		return r, nil
	}
	up := w.upload(f, f.format, false)
	if storage.PartSize(f.size) > 0 {
		parts, err := w.parts(ctx, s.Deps, f, s.Staging, w.staged(f.key))
		if err != nil {
			return err
		}
		parts.Open = open
		_, err = s.Staging.PutParts(ctx, w.staged(f.key), up, parts)
		return storageErr(err)
	}
	r, err := open(ctx, 0, f.size)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // nothing is lost by a reader that was read as far as we need
	_, err = s.Staging.Put(ctx, w.staged(f.key), r, up)
	return storageErr(err)
}

// parts says how a large file is uploaded in parts, and takes up the upload that
// an earlier attempt began.
//
// Uploads of this key that nobody remembers are aborted first, as their parts
// would be paid for ever.
func (w *work) parts(ctx context.Context, d Deps, f *file, target *storage.Bucket, key string) (storage.Parts, error) {
	name := fmt.Sprintf("upload:%s:%d", target.Name(), f.index)
	id, err := d.Progress.Get(ctx, w.item.ID, w.passOf(), name)
	if err != nil {
		return storage.Parts{}, w.progressErr(err)
	}
	if id == "" {
		if _, err := target.AbortUploads(ctx, key, time.Now().Add(24*time.Hour)); err != nil {
			return storage.Parts{}, fmt.Errorf("abort forgotten uploads: %w", storageErr(err))
		}
	}
	return storage.Parts{
		Size: storage.PartSize(f.size), SHA256: f.parts, Resume: id,
		SaveID: func(ctx context.Context, id string) error {
			return w.progressErr(d.Progress.Put(ctx, w.claim(), w.passOf(), name, id))
		},
	}, nil
}
