package pipeline

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/storage"
)

// errBadCopy says that a copy's bytes are not those on record.
var errBadCopy = errors.New("its bytes are not those on record")

// badBytes is errBadCopy of a copy that was read to its end.
type badBytes struct {
	algorithm       bag.Algorithm
	found, expected string
}

func (e *badBytes) Error() string {
	return fmt.Sprintf("%v: its %s is %s and should be %s", errBadCopy, e.algorithm, e.found, e.expected)
}

func (e *badBytes) Is(target error) bool { return target == errBadCopy }

// prove puts on record, as a fixity check would, what a reader has seen of a copy that
// it could not use: that it is missing, or has other bytes. What was only suspected,
// since its end was not read, is read here. Of any other error it says nothing.
// proven tells whether the copy is bad.
func (d Deps) prove(ctx context.Context, c registry.StoredCopy, sha256 string, seen error) (proven bool, err error) {
	b, err := d.holding(c.Target, c.Bucket)
	if err != nil {
		return false, err
	}
	r := fixity.Result{Key: c.Key, Algorithm: string(bag.SHA256), Expected: sha256, StoredAt: c.StoredAt}
	r.ID = c.ID
	var bytes *badBytes
	switch {
	case errors.Is(seen, storage.ErrNotFound):
		if err := b.Check(ctx); err != nil { // so says a bucket that is gone, too
			return false, err
		}
	case errors.As(seen, &bytes):
		r.Algorithm, r.Expected, r.Found = string(bytes.algorithm), bytes.expected, bytes.found
	case errors.Is(seen, errBadCopy) && sha256 != "":
		l, err := look(ctx, b, c.Key, sha256, time.Second)
		if err != nil || l.found == sha256 {
			return false, err
		}
		r.Found, r.Bytes = l.found, l.bytes
	default:
		return false, nil
	}
	return true, d.recordProof(ctx, r)
}

// recordProof waits a while for who is changing the file at this moment.
func (d Deps) recordProof(ctx context.Context, r fixity.Result) error {
	const tries = 10
	for range tries {
		ends, err := fixity.In(d.Registry).Record(ctx, r)
		if err != nil || ends[0] != fixity.Busy {
			return err
		}
		if !pause(ctx, busyPause) {
			return context.Cause(ctx)
		}
	}
	return errors.New("what was seen of a bad copy is not on record, since its file is being changed")
}

// asStored is errBadCopy of a copy whose provider describes it otherwise than is on
// record: that is for who reads it to prove. A copy that was written in parts has a
// checksum of these, which says nothing here.
func asStored(o storage.Object, f registry.StoredFile, c registry.StoredCopy) error {
	whole := ""
	if sum, err := hex.DecodeString(f.SHA256); err == nil && len(sum) == 32 {
		whole = storage.ExpectedChecksum([32]byte(sum), nil)
	}
	switch {
	case o.Size != f.Size:
		return fmt.Errorf("%w: it has %d bytes and should have %d", errBadCopy, o.Size, f.Size)
	case whole != "" && o.SHA256 == whole:
		return nil
	case whole != "" && o.SHA256 != "" && !strings.Contains(o.SHA256, "-"):
		return fmt.Errorf("%w: its provider has another SHA-256 of it", errBadCopy)
	case c.ETag != "" && o.ETag != c.ETag:
		return fmt.Errorf("%w: its ETag is %s and was %s", errBadCopy, o.ETag, c.ETag)
	}
	return nil
}

// badNote says in the note of an item which copies of what it was about are known to
// be bad; "" if none is.
func (d Deps) badNote(ctx context.Context, identifier string) (string, error) {
	const most = 5
	list, err := fixity.In(d.Registry).BadCopies(ctx, identifier, 0, 0, most+1)
	if err != nil || len(list) == 0 {
		return "", err
	}
	var named []string
	for _, b := range list[:min(len(list), most)] {
		named = append(named, fmt.Sprintf("%s in %s (%s)", b.File, b.Target, b.Problem))
	}
	if len(list) > most {
		named = append(named, "more")
	}
	return " Bad copies were passed over, are on record and can be repaired from the good ones: " + strings.Join(named, ", ") + ".", nil
}
