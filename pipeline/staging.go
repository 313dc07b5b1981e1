package pipeline

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/storage"
)

// stageFiles copies what will be stored from the tar to the staging bucket, below
// the item's own prefix: small neighbours in one object, each other file under
// its key. It reads the tar by the offsets of the inventory, in parallel; parts of
// large files the store copies by itself if it can. Every byte is checked against
// the digests that Receive computed, so that a tar which changed between the two
// reads is noticed whatever its ETag says.
type stageFiles struct{ Deps }

func (s *stageFiles) Run(ctx context.Context, w *work) error {
	_, files, _, err := w.toStore(ctx, s.Deps)
	if err != nil {
		return err
	}
	receiving, tar, err := w.tar(s.Deps)
	if err != nil {
		return err
	}
	_, err = w.each(ctx, s.Deps, inTheTarByPack(files, s.Files), func(ctx context.Context, group []*file, finished func(*file, string)) error {
		first := group[0]
		switch {
		case first.pack.shared():
			if err := s.pack(ctx, w, receiving, tar, first.pack); err != nil {
				return err
			}
			for _, f := range group {
				finished(f, "")
			}
			return nil
		case first.size > wholeFile:
			if err := s.large(ctx, w, receiving, tar, first); err != nil {
				return err
			}
			finished(first, "")
			return nil
		}
		return readGroup(ctx, tar, group, atTar, func(f *file, content []byte) error {
			key, up := w.staged(f.key), w.upload(f, f.format, false)
			if !w.there(ctx, s.Staging, key, f, up) {
				if _, err := s.Staging.Put(ctx, key, bytes.NewReader(content), up); err != nil {
					return s.digestErr(ctx, receiving, tar, f, err)
				}
			}
			finished(f, "")
			return nil
		})
	})
	return err
}

// pack copies small files as one object. Its key says what is in it, so that one
// which is there already is this one; Store checks each file that it takes out.
func (s *stageFiles) pack(ctx context.Context, w *work, receiving *storage.Bucket, tar opener, p *pack) error {
	if w.again() {
		if o, err := s.Staging.Head(ctx, w.staged(p.key())); err == nil && o.Size == p.size() {
			return nil
		}
	}
	content := bytes.NewBuffer(make([]byte, 0, p.size()))
	err := readGroup(ctx, tar, p.files, atTar, func(f *file, c []byte) error {
		if got := sha256.Sum256(c); got != f.sha256 {
			return s.digestErr(ctx, receiving, tar, f,
				fmt.Errorf("%w: SHA-256 of %s in the tar is %x now, Receive found %x", storage.ErrDigest, f.path, got, f.sha256))
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

// large copies a larger file without holding it: in one request, or in parts of
// which those that the staging bucket has already are not sent again.
func (s *stageFiles) large(ctx context.Context, w *work, receiving *storage.Bucket, tar opener, f *file) error {
	key, up := w.staged(f.key), w.upload(f, f.format, false)
	if w.there(ctx, s.Staging, key, f, up) {
		return nil
	}
	var parts storage.Parts
	if storage.PartSize(f.size) > 0 {
		var err error
		if parts, err = w.parts(ctx, s.Deps, f, s.Staging, key); err != nil {
			return err
		}
	}
	source := storage.Source{Bucket: receiving, Key: w.item.Name, IfMatch: w.item.ETag, Range: true, Offset: f.offset}
	_, err := s.Staging.Copy(ctx, source, key, up, parts)
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrChanged) {
		if gone := w.gone(ctx, receiving); gone != nil { // else it is not the tar's doing
			return gone
		}
	}
	return s.digestErr(ctx, receiving, tar, f, err)
}

// digestErr has a file read again that is not what Receive has read, if that is what
// an error says. If it is so in the tar, the inventory is of no use.
func (s *stageFiles) digestErr(ctx context.Context, receiving *storage.Bucket, tar opener, f *file, err error) error {
	if !errors.Is(err, storage.ErrDigest) {
		return storageErr(err)
	}
	sum, readErr := agreed(ctx, receiving, f.path, func() (io.ReadCloser, error) { return tar(ctx, f.offset, f.size) })
	switch {
	case readErr != nil:
		return readErr
	case sum != f.sha256:
		return claim.SendBack("Receive", fmt.Sprintf("The file %s in the bag has not the digest that Receive found. The bag is read again.", f.path))
	}
	return storageErr(err)
}

// gone tells whether the bag in the receiving bucket is still the one of the item.
func (w *work) gone(ctx context.Context, receiving *storage.Bucket) error {
	o, err := receiving.Head(ctx, w.item.Name)
	if err == nil && o.ETag != w.item.ETag {
		err = storage.ErrChanged
	}
	return w.receivingErr(err)
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
		Size: storage.PartSize(f.size), SHA256: f.parts, MD5: f.md5s, Resume: id, Sent: w.count.parts(f, target.Name()),
		SaveID: func(ctx context.Context, id string) error {
			return w.progressErr(d.Progress.Put(ctx, w.claim(), w.passOf(), name, id))
		},
	}, nil
}
