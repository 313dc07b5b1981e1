package ingest

import (
	"context"

	"github.com/farol-preservation/farol/storage"
)

// pin makes sure that the receiving bucket still has the upload that Receive has read. Nothing is
// copied to the staging bucket: the stages after it read this very upload, and stores copy from
// it, by its ETag and version. A small tar that this process has in memory needs neither.
type pin struct {
	Receiving func(bucket string) (*storage.Bucket, error)
	Staging   *storage.Bucket
}

func (s *pin) Run(ctx context.Context, w *work) error {
	if w.lists.Recent.Tar(w.Item.ID) != nil {
		return nil
	}
	_, err := newSource(w, s.Receiving, s.Staging).origins(ctx)
	return err
}
