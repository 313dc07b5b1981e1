package copies

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/retry"
	"github.com/farol-preservation/farol/storage"
)

// Prove records, as a fixity check would, that a copy which a reader could not use is missing
// or has other bytes. A copy that was not read to its end is read here. Other errors record
// nothing. proven tells whether the copy is bad.
func (t Targets) Prove(ctx context.Context, r *registry.Registry, c record.StoredCopy, sha256 string, seen error) (proven bool, err error) {
	b, err := t.Holding(c.Target, c.Bucket)
	if err != nil {
		return false, err
	}
	result := fixity.Result{Key: c.Key, Algorithm: string(bag.SHA256), Expected: sha256, StoredAt: c.StoredAt}
	result.ID = c.ID
	bytes, read := errors.AsType[*badBytes](seen)
	switch {
	case errors.Is(seen, storage.ErrNotFound):
		if err := b.Check(ctx); err != nil { // a missing bucket looks like a missing key
			return false, err
		}
	case read:
		result.Algorithm, result.Expected, result.Found = string(bytes.algorithm), bytes.expected, bytes.found
	case errors.Is(seen, ErrBadCopy) && sha256 != "":
		l, err := Look(ctx, b, c.Key, sha256, time.Second)
		if err != nil || l.Found == sha256 {
			return false, err
		}
		result.Found, result.Bytes = l.Found, l.Bytes
	default:
		return false, nil
	}
	return true, recordProof(ctx, r, result)
}

// recordProof waits a while if another process is changing the file at this moment.
func recordProof(ctx context.Context, r *registry.Registry, result fixity.Result) error {
	const (
		tries      = 10
		proofPause = 500 * time.Millisecond
	)
	for range tries {
		ends, err := fixity.In(r).Record(ctx, result)
		if err != nil || ends[0] != fixity.Busy {
			return err
		}
		if !retry.Pause(ctx, proofPause) {
			return context.Cause(ctx)
		}
	}
	return errors.New("cannot record a bad copy because its file is being changed")
}

// AsStored returns [ErrBadCopy] if the provider describes a copy otherwise than the record
// does. That proves nothing: the caller has to read the copy. A copy that was written in
// parts has a checksum of the parts, which says nothing here.
func AsStored(o storage.Object, f registry.StoredFile, c record.StoredCopy) error {
	whole := ""
	if sum, err := hex.DecodeString(f.SHA256); err == nil && len(sum) == 32 {
		whole = storage.ExpectedChecksum([32]byte(sum), nil)
	}
	switch {
	case o.Size != f.Size:
		return fmt.Errorf("%w: it has %d bytes, expected %d", ErrBadCopy, o.Size, f.Size)
	case whole != "" && o.SHA256 == whole:
		return nil
	case whole != "" && o.SHA256 != "" && !strings.Contains(o.SHA256, "-"):
		return fmt.Errorf("%w: the provider reports another SHA-256", ErrBadCopy)
	case c.ETag != "" && o.ETag != c.ETag:
		return fmt.Errorf("%w: its ETag is %s and was %s", ErrBadCopy, o.ETag, c.ETag)
	}
	return nil
}
