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
// long as it is open.
func (w *work) spool(ctx context.Context, d Deps, name string) (spool *os.File, id string, err error) {
	body, err := d.Staging.Get(ctx, w.staged(name), storage.Range{Length: -1})
	if errors.Is(err, storage.ErrNotFound) {
		return nil, "", d.gone(name)
	}
	if err != nil {
		return nil, "", storageErr(err)
	}
	defer body.Close() //nolint:errcheck // it was read to its end, or the error says more
	spool, err = os.CreateTemp("", "farol-*")
	if err != nil {
		return nil, "", fmt.Errorf("spool %s: %w", name, err)
	}
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(spool, hash), body)
	if err = errors.Join(err, os.Remove(spool.Name())); err != nil {
		return nil, "", fmt.Errorf("spool %s: %w", name, errors.Join(err, spool.Close()))
	}
	return spool, hex.EncodeToString(hash.Sum(nil)), nil
}

// fromStart reads a file without moving its offset.
func fromStart(f *os.File) io.Reader { return io.NewSectionReader(f, 0, 1<<62) }

// putStaged writes something of this item to the staging bucket, if the item is
// still ours. It is spooled on disk first, since S3 wants to know its size and
// digest before.
func (w *work) putStaged(ctx context.Context, d Deps, name string, write func(io.Writer) error) (err error) {
	spool, err := os.CreateTemp("", "farol-*")
	if err != nil {
		return fmt.Errorf("spool %s: %w", name, err)
	}
	defer func() {
		err = errors.Join(err, spool.Close(), os.Remove(spool.Name()))
	}()
	hash := sha256.New()
	buffered := bufio.NewWriterSize(io.MultiWriter(spool, hash), 64<<10)
	if err := write(buffered); err != nil {
		return fmt.Errorf("spool %s: %w", name, err)
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("spool %s: %w", name, err)
	}
	size, err := spool.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("spool %s: %w", name, err)
	}
	if err := w.hold.Check(ctx); err != nil {
		return err
	}
	up := storage.Upload{Size: size, SHA256: [32]byte(hash.Sum(nil)), ContentType: "application/zstd"}
	if storage.PartSize(size) > 0 {
		_, err = d.Staging.PutParts(ctx, w.staged(name), up, storage.Parts{
			Open: func(_ context.Context, offset, length int64) (io.ReadCloser, error) {
				return io.NopCloser(io.NewSectionReader(spool, offset, length)), nil
			},
		})
		return storageErr(err)
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("spool %s: %w", name, err)
	}
	_, err = d.Staging.Put(ctx, w.staged(name), spool, up)
	return storageErr(err)
}
