package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/storage"
)

// stageTar copies the tar to the staging bucket, below the item's own prefix, so that its
// depositor may do with the upload what he likes. The store makes that copy if it can, in
// parts if it is large; a small tar that this process still has in memory is written from
// there. The copy is of the upload that Receive has read, by its ETag. Its bytes are compared
// with the inventory when they are used.
type stageTar struct {
	Receiving func(bucket string) (*storage.Bucket, error)
	Staging   *storage.Bucket
	Files     int // pieces at once
}

func (s *stageTar) Run(ctx context.Context, w *work) error {
	_, files, _, err := w.toStore(ctx)
	if err != nil {
		return err
	}
	w.asOne = true
	_, err = w.each(ctx, s.Files, lists.InPieces(files), func(ctx context.Context, group []*lists.File, finished func(*lists.File, string)) error {
		if err := s.stage(ctx, w, group[0].Piece); err != nil {
			return err
		}
		for _, f := range group {
			finished(f, "")
		}
		return nil
	})
	return err
}

// stage copies a piece of the tar. It is made again by an attempt that does not know of it,
// since nothing but its size would tell that it is whole.
func (s *stageTar) stage(ctx context.Context, w *work, p *lists.Piece) error {
	key, up := lists.Key(w.Item.ID, p.Key()), storage.Upload{Size: p.Length, ContentType: "application/x-tar"}
	if kept := w.lists.Recent.Tar(w.Item.ID); kept != nil {
		_, err := s.Staging.Put(ctx, key, bytes.NewReader(kept[p.Offset:p.Offset+p.Length]), up)
		return cause.Storage(err)
	}
	receiving, err := s.Receiving(w.Item.Bucket)
	if err != nil {
		return fmt.Errorf("open the receiving bucket: %w", err)
	}
	parts, err := w.parts(ctx, p.Files[0].Index, p.Length, s.Staging, key)
	if err != nil {
		return err
	}
	_, err = s.Staging.Copy(ctx, storage.Source{
		Bucket: receiving, Key: w.Item.Name, IfMatch: w.Item.ETag, Unchecked: true,
		Range: p.Length < w.Item.Size || parts.Size > 0, Offset: p.Offset,
	}, key, up, parts)
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrChanged) {
		if gone := w.gone(ctx, receiving); gone != nil { // else the tar is not at fault
			return gone
		}
	}
	return cause.Storage(err)
}
