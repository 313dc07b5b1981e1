package pipeline

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/farol-preservation/farol/storage"
)

// spool fetches something of the item from the staging area, for who reads it more than
// once, or slowly, and returns its id, the digest of its bytes. It is on disk only as
// long as it is open. What is not there is made again.
func (w *work) spool(ctx context.Context, d Deps, name string) (*os.File, string, error) {
	spool, id, err := w.fetch(ctx, d, name)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, "", d.gone(name)
	}
	return spool, id, err
}

// fetch is spool for who can do without: what is not there is [storage.ErrNotFound].
func (w *work) fetch(ctx context.Context, d Deps, name string) (spool *os.File, id string, err error) {
	body, err := d.Staging.Get(ctx, w.staged(name), storage.Range{Length: -1})
	if err != nil {
		return nil, "", storageErr(err)
	}
	defer body.Close() //nolint:errcheck // it was read to its end, or the error says more
	spool, err = os.CreateTemp("", "farol-*")
	if err != nil {
		return nil, "", fmt.Errorf("spool %s: %w", name, ofHost(err))
	}
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(spool, hash), body)
	if err = errors.Join(err, os.Remove(spool.Name())); err != nil {
		return nil, "", fmt.Errorf("spool %s: %w", name, ofHost(errors.Join(err, spool.Close())))
	}
	return spool, hex.EncodeToString(hash.Sum(nil)), nil
}

// fromStart reads a file without moving its offset.
func fromStart(f *os.File) io.Reader { return io.NewSectionReader(f, 0, 1<<62) }

// putStaged writes something of this item to the staging bucket, if the item is
// still ours.
func (w *work) putStaged(ctx context.Context, d Deps, name string, write func(io.Writer) error) error {
	to := spooled{bucket: d.Staging, key: w.staged(name), up: storage.Upload{ContentType: "application/zstd"}, check: w.hold.Check}
	return to.put(ctx, write)
}

// spooled is an object that is written to disk first, since S3 wants to know its size
// and digest before.
type spooled struct {
	bucket *storage.Bucket
	key    string
	up     storage.Upload              // without size and digest
	check  func(context.Context) error // of whether it may still be written, before it is sent
}

func (o spooled) put(ctx context.Context, write func(io.Writer) error) (err error) {
	spool, err := os.CreateTemp("", "farol-*")
	if err != nil {
		return fmt.Errorf("spool %s: %w", o.key, ofHost(err))
	}
	defer func() {
		err = errors.Join(err, ofHost(spool.Close()), ofHost(os.Remove(spool.Name())))
	}()
	hash := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(spool, hash), 64<<10)
	if err := write(buffered); err != nil {
		return fmt.Errorf("spool %s: %w", o.key, ofHost(err))
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("spool %s: %w", o.key, ofHost(err))
	}
	if o.up.Size, err = spool.Seek(0, io.SeekCurrent); err != nil {
		return fmt.Errorf("spool %s: %w", o.key, ofHost(err))
	}
	if err := o.check(ctx); err != nil {
		return err
	}
	o.up.SHA256 = [32]byte(hash.Sum(nil))
	if storage.PartSize(o.up.Size) > 0 {
		_, err = o.bucket.PutParts(ctx, o.key, o.up, storage.Parts{
			Open: func(_ context.Context, offset, length int64) (io.ReadCloser, error) {
				return io.NopCloser(io.NewSectionReader(spool, offset, length)), nil
			},
		})
		return storageErr(err)
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("spool %s: %w", o.key, ofHost(err))
	}
	_, err = o.bucket.Put(ctx, o.key, spool, o.up)
	return storageErr(err)
}
