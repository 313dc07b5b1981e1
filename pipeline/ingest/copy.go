package ingest

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// stageFiles copies the files that will be stored from the tar to the staging bucket, below
// the item's own prefix: small neighbours in one object, each other file under its key. It
// reads the tar by the offsets of the inventory, in parallel. If the store can, it copies the
// parts of large files by itself. Every byte is compared with the digests that Receive
// computed, so a tar that changed between the two reads is noticed whatever its ETag is.
type stageFiles struct {
	Receiving func(bucket string) (*storage.Bucket, error)
	Staging   *storage.Bucket
	Files     int // at once
}

func (s *stageFiles) Run(ctx context.Context, w *work) error {
	_, files, _, err := w.toStore(ctx)
	if err != nil {
		return err
	}
	receiving, tar, err := w.tar(s.Receiving)
	if err != nil {
		return err
	}
	_, err = w.each(ctx, s.Files, lists.InPacks(files), func(ctx context.Context, group []*lists.File, finished func(*lists.File, string)) error {
		var err error
		if pack := group[0].Pack; pack.Shared() {
			err = s.pack(ctx, w, receiving, tar, pack)
		} else {
			err = s.alone(ctx, w, receiving, tar, group[0])
		}
		if err != nil {
			return err
		}
		for _, f := range group {
			finished(f, "")
		}
		return nil
	})
	return err
}

// pack copies small files as one object. Its key is a digest of their digests, so an object
// that is there already is this one. Store checks each file that it takes out.
func (s *stageFiles) pack(ctx context.Context, w *work, receiving *storage.Bucket, tar lists.Opener, p *lists.Pack) error {
	if w.again() {
		if o, err := s.Staging.Head(ctx, lists.Key(w.Item.ID, p.Key())); err == nil && o.Size == p.Size() {
			return nil
		}
	}
	content := bytes.NewBuffer(make([]byte, 0, p.Size()))
	err := lists.ReadGroup(ctx, tar, p.Files, lists.AtTar, func(f *lists.File, c []byte) error {
		if got := sha256.Sum256(c); got != f.SHA256 {
			return s.digestErr(ctx, receiving, tar, f,
				fmt.Errorf("%w: SHA-256 of %s in the tar is %x now, Receive found %x", storage.ErrDigest, f.Path, got, f.SHA256))
		}
		content.Write(c)
		return nil
	})
	if err != nil {
		return err
	}
	up := storage.Upload{
		Size: p.Size(), SHA256: sha256.Sum256(content.Bytes()), MD5: md5.Sum(content.Bytes()), ContentType: "application/octet-stream",
	}
	_, err = s.Staging.Put(ctx, lists.Key(w.Item.ID, p.Key()), content, up)
	return cause.Storage(err)
}

// alone copies a file that has an object of its own: in one request, or in parts. Parts that
// the staging bucket already has are not sent again.
func (s *stageFiles) alone(ctx context.Context, w *work, receiving *storage.Bucket, tar lists.Opener, f *lists.File) error {
	key, up := lists.Key(w.Item.ID, f.Key), w.upload(f, f.Format, false)
	if w.there(ctx, s.Staging, key, f, up) {
		return nil
	}
	var parts storage.Parts
	if storage.PartSize(f.Size) > 0 {
		var err error
		if parts, err = w.parts(ctx, f, s.Staging, key); err != nil {
			return err
		}
	}
	source := storage.Source{Bucket: receiving, Key: w.Item.Name, IfMatch: w.Item.ETag, Range: true, Offset: f.Offset}
	_, err := s.Staging.Copy(ctx, source, key, up, parts)
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrChanged) {
		if gone := w.gone(ctx, receiving); gone != nil { // else the tar is not at fault
			return gone
		}
	}
	return s.digestErr(ctx, receiving, tar, f, err)
}

// digestErr reads a file again if the error says that its bytes differ from what Receive has
// read. If the tar really has other bytes, the inventory is of no use.
func (s *stageFiles) digestErr(ctx context.Context, receiving *storage.Bucket, tar lists.Opener, f *lists.File, err error) error {
	if !errors.Is(err, storage.ErrDigest) {
		return cause.Storage(err)
	}
	sum, readErr := copies.Agreed(ctx, receiving, f.Path, func() (io.ReadCloser, error) { return tar(ctx, f.Offset, f.Size) })
	switch {
	case readErr != nil:
		return readErr
	case sum != f.SHA256:
		return claim.SendBack(registry.Receive, fmt.Sprintf("The file %s in the bag does not have the digest that Receive found. The bag is read again.", f.Path))
	}
	return cause.Storage(err)
}
