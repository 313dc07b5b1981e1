package lists

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/storage"
)

// spool copies a list or inventory from the staging area to a temporary file, for a caller
// that reads it more than once, or slowly. It returns the digest of its bytes too. The file is
// on disk only as long as it is open. If the list is missing, the item goes back to its maker.
func (a *Area) spool(ctx context.Context, name string) (*os.File, string, error) {
	spool, id, err := a.fetch(ctx, name)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, "", a.Gone(name)
	}
	return spool, id, err
}

// fetch is spool for a caller that can do without: a missing list is [storage.ErrNotFound].
func (a *Area) fetch(ctx context.Context, name string) (spool *os.File, id string, err error) {
	body, err := a.Bucket.Get(ctx, Key(a.Item, name), storage.Range{Length: -1})
	if err != nil {
		return nil, "", cause.Storage(err)
	}
	defer body.Close() //nolint:errcheck // it was read to its end, or the error says more
	spool, err = os.CreateTemp("", "farol-*")
	if err != nil {
		return nil, "", fmt.Errorf("spool %s: %w", name, cause.Host(err))
	}
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(spool, hash), body)
	if err = errors.Join(err, os.Remove(spool.Name())); err != nil {
		return nil, "", fmt.Errorf("spool %s: %w", name, cause.Host(errors.Join(err, spool.Close())))
	}
	return spool, hex.EncodeToString(hash.Sum(nil)), nil
}

// fromStart reads a file without moving its offset.
func fromStart(f *os.File) io.Reader { return io.NewSectionReader(f, 0, 1<<62) }

// Put writes a list to the staging area, if this claim still holds the item.
func (a *Area) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	to := Spooled{Bucket: a.Bucket, Key: Key(a.Item, name), Up: storage.Upload{ContentType: "application/zstd"}, Check: a.Check}
	return to.Put(ctx, write)
}

// Spooled is an object that is written to disk first, since S3 wants to know its size
// and digest before.
type Spooled struct {
	Bucket *storage.Bucket
	Key    string
	Up     storage.Upload              // without size and digest
	Check  func(context.Context) error // of whether it may still be written, before it is sent
}

// Put writes the object to disk, and sends it if it may still be written.
func (o Spooled) Put(ctx context.Context, write func(io.Writer) error) (err error) {
	spool, err := os.CreateTemp("", "farol-*")
	if err != nil {
		return fmt.Errorf("spool %s: %w", o.Key, cause.Host(err))
	}
	defer func() {
		err = errors.Join(err, cause.Host(spool.Close()), cause.Host(os.Remove(spool.Name())))
	}()
	hash := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(spool, hash), 64<<10)
	if err := write(buffered); err != nil {
		return fmt.Errorf("spool %s: %w", o.Key, cause.Host(err))
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("spool %s: %w", o.Key, cause.Host(err))
	}
	if o.Up.Size, err = spool.Seek(0, io.SeekCurrent); err != nil {
		return fmt.Errorf("spool %s: %w", o.Key, cause.Host(err))
	}
	if err := o.Check(ctx); err != nil {
		return err
	}
	o.Up.SHA256 = [32]byte(hash.Sum(nil))
	if storage.PartSize(o.Up.Size) > 0 {
		_, err = o.Bucket.PutParts(ctx, o.Key, o.Up, storage.Parts{
			Open: func(_ context.Context, offset, length int64) (io.ReadCloser, error) {
				return io.NopCloser(io.NewSectionReader(spool, offset, length)), nil
			},
		})
		return cause.Storage(err)
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("spool %s: %w", o.Key, cause.Host(err))
	}
	_, err = o.Bucket.Put(ctx, o.Key, spool, o.Up)
	return cause.Storage(err)
}
