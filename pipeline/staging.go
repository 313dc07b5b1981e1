package pipeline

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	"github.com/farol-preservation/farol/storage"
)

// stageFiles copies what will be stored from the tar to the staging bucket, below
// the item's own prefix: small neighbours in one object, each other file under
// its key. It reads the tar by the offsets of the inventory, in parallel; every
// byte is checked against the digests that Receive computed, so that a tar which
// changed between the two reads is noticed whatever its ETag says.
type stageFiles struct{ Deps }

func (s *stageFiles) Run(ctx context.Context, w *work) error {
	_, files, _, err := w.toStore(ctx, s.Deps)
	if err != nil {
		return err
	}
	_, tar, err := w.tar(s.Deps)
	if err != nil {
		return err
	}
	_, err = w.each(ctx, s.Deps, inTheTarByPack(files, s.Files), func(ctx context.Context, group []*file, finished func(*file, string)) error {
		first := group[0]
		switch {
		case first.pack.shared():
			if err := s.pack(ctx, w, tar, first.pack); err != nil {
				return err
			}
			for _, f := range group {
				finished(f, "")
			}
			return nil
		case first.size > wholeFile:
			if err := s.stream(ctx, w, tar, first); err != nil {
				return err
			}
			finished(first, "")
			return nil
		}
		return readGroup(ctx, tar, group, atTar, func(f *file, content []byte) error {
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

// pack copies small files as one object.
func (s *stageFiles) pack(ctx context.Context, w *work, tar opener, p *pack) error {
	content := bytes.NewBuffer(make([]byte, 0, p.size()))
	err := readGroup(ctx, tar, p.files, atTar, func(f *file, c []byte) error {
		if got := sha256.Sum256(c); got != f.sha256 {
			return fmt.Errorf("%w: SHA-256 of %s in the tar is %x now, Receive found %x", storage.ErrDigest, f.path, got, f.sha256)
		}
		content.Write(c)
		return nil
	})
	if err != nil {
		return err
	}
	up := storage.Upload{
		Size: p.size(), SHA256: sha256.Sum256(content.Bytes()), MD5: md5.Sum(content.Bytes()), ContentType: "application/octet-stream",
	}
	_, err = s.Staging.Put(ctx, w.staged(p.key()), content, up)
	return storageErr(err)
}

// stream copies a larger file without holding it: in one request, or in parts of
// which those that the staging bucket has already are not sent again.
func (s *stageFiles) stream(ctx context.Context, w *work, tar opener, f *file) error {
	key, up := w.staged(f.key), w.upload(f, f.format, false)
	if storage.PartSize(f.size) > 0 {
		parts, err := w.parts(ctx, s.Deps, f, s.Staging, key)
		if err != nil {
			return err
		}
		parts.Open = func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
			return tar(ctx, f.offset+offset, length)
		}
		_, err = s.Staging.PutParts(ctx, key, up, parts)
		return storageErr(err)
	}
	r, err := tar(ctx, f.offset, f.size)
	if err != nil {
		return err
	}
	defer r.Close() //nolint:errcheck // nothing is lost by a reader that was read as far as we need
	_, err = s.Staging.Put(ctx, key, r, up)
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
