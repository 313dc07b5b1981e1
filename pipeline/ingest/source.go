package ingest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/pipeline/lists"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// source is where the stages after Receive have the bag's bytes from: the upload in the receiving
// bucket, by the ETag that Receive has read. In a bucket that keeps versions that upload stays
// readable when it is replaced or removed; in others the item then ends. Its bytes are compared
// with nothing but the inventory: a stage that uses a file checks its digest.
type source struct {
	*work
	receiving func(bucket string) (*storage.Bucket, error)
	staging   *storage.Bucket

	mu   sync.Mutex
	list []origin // empty before it was looked for, or if it has to be again
}

func newSource(w *work, receiving func(bucket string) (*storage.Bucket, error), staging *storage.Bucket) *source {
	return &source{work: w, receiving: receiving, staging: staging}
}

// origin is an object with a range of the tar.
type origin struct {
	storage.Source
	from, length int64 // bytes of the tar
}

// of is a file in the object.
func (o origin) of(f *lists.File) storage.Source {
	s := o.Source
	s.Range, s.Offset = true, f.Offset-o.from
	return s
}

// origins finds the upload, or what an earlier version of Farol has copied of it to the staging
// bucket: depositors were told that they may remove it then.
func (s *source) origins(ctx context.Context) ([]origin, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.list) > 0 {
		return s.list, nil
	}
	receiving, err := s.receiving(s.Item.Bucket)
	if err != nil {
		return nil, fmt.Errorf("open the receiving bucket: %w", err)
	}
	version := s.lists.Recent.Version(s.Item.ID)
	if version == nil {
		var id string
		id, err = receiving.Pinned(ctx, s.Item.Name, s.Item.ETag)
		version = []byte(id)
	}
	switch {
	case err == nil:
		s.lists.Recent.KeepVersion(s.Item.ID, version)
		s.list = []origin{{storage.Source{Bucket: receiving, Key: s.Item.Name, IfMatch: s.Item.ETag, Version: string(version)}, 0, s.Item.Size}}
		return s.list, nil
	case !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrChanged):
		return nil, s.receivingErr(err)
	}
	for o, failed := range s.staging.List(ctx, lists.Key(s.Item.ID, lists.StagedTar), "") {
		if failed != nil {
			return nil, cause.Storage(failed)
		}
		one := origin{Source: storage.Source{Bucket: s.staging, Key: o.Key, IfMatch: o.ETag}}
		if _, scanErr := fmt.Sscanf(strings.TrimPrefix(o.Key, lists.Key(s.Item.ID, lists.StagedTar)), "%d-%d", &one.from, &one.length); scanErr == nil && o.Size == one.length {
			s.list = append(s.list, one)
		}
	}
	if len(s.list) == 0 {
		return nil, s.receivingErr(err)
	}
	return s.list, nil
}

// origin is the object that has a file.
func (s *source) origin(ctx context.Context, f *lists.File) (origin, error) {
	list, err := s.origins(ctx)
	if err != nil {
		return origin{}, err
	}
	for _, o := range list {
		if f.Offset >= o.from && f.Offset+f.Size <= o.from+o.length {
			return o, nil
		}
	}
	return origin{}, s.receivingErr(fmt.Errorf("%w: no copy of %s in the staging area", storage.ErrNotFound, f.Path))
}

// open opens ranges of the tar around a file, in memory if this process still has the tar.
func (s *source) open(f *lists.File) lists.Opener {
	if kept := s.lists.Recent.Tar(s.Item.ID); kept != nil {
		return lists.InMemory(kept)
	}
	return s.stored(f)
}

func (s *source) stored(f *lists.File) lists.Opener {
	return func(ctx context.Context, offset, length int64) (io.ReadCloser, error) {
		o, err := s.origin(ctx, f)
		if err != nil {
			return nil, err
		}
		r, err := o.Bucket.Get(ctx, o.Key, storage.Range{Offset: offset - o.from, Length: length, IfMatch: o.IfMatch, Version: o.Version})
		return r, s.failed(ctx, err)
	}
}

// failed finds out whether something failed because the upload is no longer there.
func (s *source) failed(ctx context.Context, err error) error {
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrChanged) {
		s.mu.Lock()
		s.list = nil
		s.mu.Unlock()
		s.lists.Recent.KeepVersion(s.Item.ID, nil)
		if _, gone := s.origins(ctx); gone != nil { // else it is not at fault
			return gone
		}
	}
	return cause.Storage(err)
}

// notCopied finds out whether a copy failed because of the tar.
func (s *source) notCopied(ctx context.Context, f *lists.File, err error) error {
	if errors.Is(err, storage.ErrDigest) && ctx.Err() == nil {
		return cmp.Or(s.check(ctx, f), cause.Storage(err))
	}
	return s.failed(ctx, err)
}

// verify checks what was read of a file.
func (s *source) verify(ctx context.Context, f *lists.File, content []byte) error {
	if sha256.Sum256(content) == f.SHA256 {
		return nil
	}
	s.lists.Recent.Forget(s.Item.ID) // another try reads it from the bucket
	if bad := s.check(ctx, f); bad != nil {
		return cause.InFile(f.Path, bad)
	}
	return claim.Transient("storage-digest", fmt.Errorf("%w: %s was read wrongly, and is whole in the bag", storage.ErrDigest, f.Path))
}

// check reads a file to its end, twice, and tells whether it is still what Receive has read. If it
// is not, the inventory is of no use.
func (s *source) check(ctx context.Context, f *lists.File) error {
	o, err := s.origin(ctx, f)
	if err != nil {
		return err
	}
	open := s.stored(f)
	sum, err := copies.Agreed(ctx, o.Bucket, f.Path, func() (io.ReadCloser, error) { return open(ctx, f.Offset, f.Size) })
	if err != nil || sum == f.SHA256 {
		return err
	}
	return claim.SendBack(registry.Receive, fmt.Sprintf("The file %s in the bag does not have the digest that Receive found. The bag is read again.", f.Path))
}
