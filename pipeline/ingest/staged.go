package ingest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// staged is the tar as Copy To Staging has left it. That copy was compared with nothing: a stage
// that uses a file of it checks its digest.
type staged struct {
	*work
	bucket    *storage.Bucket
	receiving func(bucket string) (*storage.Bucket, error)
}

// open opens ranges of a piece of the tar, in memory if this process still has the tar.
func (s staged) open(p *lists.Piece) lists.Opener {
	if kept := s.lists.Recent.Tar(s.Item.ID); kept != nil {
		return lists.InMemory(kept)
	}
	return s.stored(p)
}

// stored opens ranges of a piece in the staging bucket. If two requests find the piece missing,
// or of another size, the item goes back.
func (s staged) stored(p *lists.Piece) lists.Opener {
	return func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		var lost error
		for range 2 {
			r, err := s.bucket.Get(ctx, lists.Key(s.Item.ID, p.Key()), storage.Range{Offset: offset - p.Offset, Length: length})
			if err == nil {
				return r, nil
			}
			if lost = s.lost(ctx, p, err); lost == nil {
				return nil, cause.Storage(err)
			}
		}
		return nil, lost
	}
}

// lost tells whether something failed because a piece is not there as it was made. Items that an
// earlier version of Farol has staged have none.
func (s staged) lost(ctx context.Context, p *lists.Piece, failed error) error {
	if fault.In(failed) != nil {
		return nil //nolint:nilerr // the service has no answer
	}
	o, err := s.bucket.Head(ctx, lists.Key(s.Item.ID, p.Key()))
	switch {
	case errors.Is(err, storage.ErrNotFound): // or this process looks into the wrong bucket
		return claim.Doubt(s.bucket.Service(), unstaged(p.Files[0]))
	case err == nil && o.Size != p.Length:
		return unstaged(p.Files[0])
	}
	return nil
}

// unstaged sends the item back to Copy To Staging, which copies the tar again.
func unstaged(f *lists.File) error {
	return claim.SendBack(registry.CopyToStaging, fmt.Sprintf("The file %s is no longer whole in the staging area. It is copied again.", f.Path))
}

// verify checks what was read of a file.
func (s staged) verify(ctx context.Context, f *lists.File, content []byte) error {
	if sha256.Sum256(content) == f.SHA256 {
		return nil
	}
	s.lists.Recent.Forget(s.Item.ID) // another try reads it from staging
	if bad := s.check(ctx, f); bad != nil {
		return cause.InFile(f.Path, bad)
	}
	return claim.Transient("storage-digest", fmt.Errorf("%w: %s was read wrongly, and is whole in the staging area", storage.ErrDigest, f.Path))
}

// check reads a file in staging to its end, twice, and tells whether it is still whole. If it
// is not, the tar decides: if that has the same bytes as ever, the copy of it is at fault, and
// else the inventory is of no use.
func (s staged) check(ctx context.Context, f *lists.File) error {
	sum, err := s.agreed(ctx, s.bucket, f, s.stored(f.Piece))
	if err != nil {
		return err
	}
	if sum == f.SHA256 {
		return nil
	}
	receiving, err := s.receiving(s.Item.Bucket)
	if err != nil {
		return fmt.Errorf("open the receiving bucket: %w", err)
	}
	sum, err = s.agreed(ctx, receiving, f, func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		return receiving.Get(ctx, s.Item.Name, storage.Range{Offset: offset, Length: length, IfMatch: s.Item.ETag})
	})
	if err == nil && sum != f.SHA256 {
		return claim.SendBack(registry.Receive, fmt.Sprintf("The file %s in the bag does not have the digest that Receive found. The bag is read again.", f.Path))
	}
	return unstaged(f) // which finds out what is wrong with the tar, if it is that
}

func (s staged) agreed(ctx context.Context, b *storage.Bucket, f *lists.File, open lists.Opener) ([32]byte, error) {
	return copies.Agreed(ctx, b, f.Path, func() (io.ReadCloser, error) { return open(ctx, f.Offset, f.Size) })
}
