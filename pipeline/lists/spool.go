package lists

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/storage"
)

// A spooled list can be read from any place. It is in memory, or on disk as long as it is
// open.
type spooled interface {
	io.ReaderAt
	io.Closer
}

// fetch copies a list or inventory from the staging area to a temporary file, for a caller that
// reads it more than once, or slowly. It returns the digest of its bytes too. A missing list is
// [storage.ErrNotFound].
func (a *Area) fetch(ctx context.Context, name string) (spool spooled, id string, err error) {
	body, err := a.open(ctx, name)
	if err != nil {
		return nil, "", err
	}
	defer body.Close() //nolint:errcheck // it was read to its end, or the error says more
	hash := sha256.New()
	s := &spill{}
	if _, err = io.Copy(io.MultiWriter(s, hash), body); err != nil {
		return nil, "", fmt.Errorf("spool %s: %w", name, cause.Host(errors.Join(err, s.Close())))
	}
	s.answered(ctx)
	return s, hex.EncodeToString(hash.Sum(nil)), nil
}

// fromStart reads a list from its beginning.
func fromStart(s spooled) io.Reader { return io.NewSectionReader(s, 0, 1<<62) }

// spill holds bytes that are written once and then read: in memory while they are few, and
// else in a temporary file, which is on disk only as long as it is open.
type spill struct {
	memory []byte
	file   *os.File
	size   int64
}

// answered notes that the disk took what was too much for memory.
func (s *spill) answered(ctx context.Context) {
	if s.file != nil {
		fault.Answered(ctx, fault.Disk)
	}
}

// Write adds bytes at the end.
func (s *spill) Write(p []byte) (int, error) {
	if s.file == nil && len(s.memory)+len(p) <= largestKept {
		s.memory = append(s.memory, p...)
		s.size += int64(len(p))
		return len(p), nil
	}
	if s.file == nil {
		if err := s.toDisk(); err != nil {
			return 0, err
		}
	}
	n, err := s.file.Write(p)
	s.size += int64(n)
	return n, err
}

func (s *spill) toDisk() error {
	file, err := os.CreateTemp("", "farol-*")
	if err != nil {
		return err
	}
	if _, err = file.Write(s.memory); err == nil {
		err = os.Remove(file.Name())
	}
	if err != nil {
		return errors.Join(err, file.Close(), os.RemoveAll(file.Name()))
	}
	s.file, s.memory = file, nil
	return nil
}

// ReadAt reads what was written.
func (s *spill) ReadAt(p []byte, offset int64) (int, error) {
	if s.file != nil {
		return s.file.ReadAt(p, offset)
	}
	return bytes.NewReader(s.memory).ReadAt(p, offset)
}

// Close gives back memory and disk.
func (s *spill) Close() error {
	s.memory = nil
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// mostInRegistry is the size in bytes up to which a list is kept in the registry. That of a bag of some
// thirty files is smaller; the log of PostgreSQL gets it once more.
const mostInRegistry = 8 << 10

// Put writes a list, if this claim still holds the item: a small one with the end of the claim, others
// to the staging bucket at once.
func (a *Area) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	a.Recent.put(a.Item, name, nil) // whatever comes of this, the list of before is not the item's any more
	list := claim.List{Name: name}
	to := Spooled{Bucket: a.Bucket, Key: Key(a.Item, name), Up: storage.Upload{ContentType: "application/zstd"}, Check: a.Check}
	to.instead = func(content []byte) bool {
		if len(content) <= mostInRegistry {
			list.Content = content
		}
		return list.Content != nil
	}
	small, err := to.Put(ctx, write)
	if err != nil {
		return err
	}
	if small != nil {
		a.Recent.put(a.Item, name, small)
	}
	a.Leave(list)
	return nil
}

// Spooled is an object that is written aside first, since S3 wants to know its size and
// digest before.
type Spooled struct {
	Bucket *storage.Bucket
	Key    string
	Up     storage.Upload              // without size and digest
	Check  func(context.Context) error // of whether it may still be written, before it is sent

	instead func(content []byte) bool // takes what is small, so that it is not sent; nil: nothing
}

// Put writes the object aside, and sends it if it may still be written. It returns the
// content if that is small.
func (o Spooled) Put(ctx context.Context, write func(io.Writer) error) (small []byte, err error) {
	aside := &spill{}
	defer func() { err = errors.Join(err, cause.Host(aside.Close())) }()
	hash := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(aside, hash), 64<<10)
	if err := errors.Join(write(buffered), buffered.Flush()); err != nil {
		return nil, fmt.Errorf("spool %s: %w", o.Key, cause.Host(err))
	}
	aside.answered(ctx)
	if err := o.Check(ctx); err != nil {
		return nil, err
	}
	small = aside.memory
	if o.instead != nil && small != nil && o.instead(small) {
		return small, nil
	}
	o.Up.Size, o.Up.SHA256 = aside.size, [32]byte(hash.Sum(nil))
	if storage.PartSize(o.Up.Size) > 0 {
		_, err = o.Bucket.PutParts(ctx, o.Key, o.Up, storage.Parts{
			Open: func(_ context.Context, offset, length int64) (io.ReadCloser, error) {
				return io.NopCloser(io.NewSectionReader(aside, offset, length)), nil
			},
		})
		return small, cause.Storage(err)
	}
	_, err = o.Bucket.Put(ctx, o.Key, io.NewSectionReader(aside, 0, aside.size), o.Up)
	return small, cause.Storage(err)
}
