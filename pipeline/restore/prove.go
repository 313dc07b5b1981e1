package restore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/storage"
)

// A whole is the SHA-256 of content while it is produced part by part. It keeps the state at
// each boundary of parts, since content may go on at any of them.
type whole struct {
	sum    hashed
	part   int64 // size of parts
	size   int64 // of the content
	states map[int64][]byte
}

// begin goes on at the boundary of a part. It tells whether the state there is known.
func (d *whole) begin(offset int64) bool {
	if offset == 0 {
		d.sum = hashed{sum: sha256.New()}
		return true
	}
	state, ok := d.states[offset]
	return ok && d.sum.goOn(offset, state)
}

// goOn has an attempt begin where another stopped, or at the file in which that was.
func (d *whole) goOn(at restorePoint, size int64) {
	d.size, d.states = size, nil
	d.keep(at.Offset, at.Sum)
	d.keep(at.State.Begin, at.State.Before)
}

// write takes what was produced.
func (d *whole) write(p []byte) error {
	for len(p) > 0 {
		n := min(int64(len(p)), d.part-d.sum.at%d.part)
		_, _ = d.sum.Write(p[:n]) // never an error
		if p = p[n:]; d.sum.at%d.part != 0 && d.sum.at != d.size {
			continue
		}
		state, err := copies.StateOf(d.sum.sum)
		if err != nil {
			return err
		}
		d.keep(d.sum.at, state)
	}
	return nil
}

func (d *whole) keep(offset int64, state []byte) {
	if d.states == nil {
		d.states = map[int64][]byte{}
	}
	if len(state) > 0 {
		d.states[offset] = state
	}
}

// digest is that of all of the content; nil if its end was not seen.
func (d *whole) digest() []byte {
	if !d.begin(d.size) {
		return nil
	}
	return d.sum.sum.Sum(nil)
}

// proven reads back what a bucket has and compares it with what was built: a store may have
// lost or changed bytes, and still answer with the checksums that it noted when it received
// them. What two reads found so is [errSpoilt]. Two that differ prove nothing.
func (g *giveBack) proven(ctx context.Context, b *storage.Bucket, key, etag string, at *restorePoint) error {
	first, err := g.readBack(ctx, b, key, etag, at)
	if err != nil || bytes.Equal(first, at.Built) {
		return err
	}
	g.w.Log.WarnContext(ctx, "restored data differs from what was written; reading it again", "bucket", b.Name(), "key", key)
	at.Read = readPoint{}
	second, err := g.readBack(ctx, b, key, etag, at)
	switch {
	case err != nil || bytes.Equal(second, at.Built):
		return err
	case !bytes.Equal(first, second):
		return cause.WrongAnswer(b, "two reads differ", "two reads of %s/%s differ", b.Name(), key)
	}
	return fmt.Errorf("%w: SHA-256 of %s/%s is %x, should be %x", errSpoilt, b.Name(), key, second, at.Built)
}

// errSpoilt is that what is in a bucket is not what was written there.
var errSpoilt = errors.New("data was damaged in the bucket")

// mostSpoilt is how often a restoration is built again since a bucket damaged it.
const mostSpoilt = 3

// again notes that what was staged or delivered is spoilt, so that it is made again: by a
// copy if staging has it, or else from preservation. What was delivered is removed first.
func (g *giveBack) again(ctx context.Context, at *restorePoint, spoilt error) error {
	next := restorePoint{ID: g.id, Spoilt: at.Spoilt + 1}
	if at.Published != "" {
		if err := g.withdraw(ctx, at.Published); err != nil {
			return err
		}
		next.Staged, next.Built = at.Staged, at.Built
	}
	*at = next
	if err := savePoint(ctx, g.w, restorePointName, next); err != nil {
		return err
	}
	if next.Spoilt > mostSpoilt {
		return claim.Suspend("restore-damaged", fmt.Sprintf("Nothing was delivered. The restored data was written %d times, and each time it was found damaged when it was read back (%v). "+
			"Find out what damages data in that bucket, and requeue the item.", next.Spoilt, spoilt))
	}
	g.w.Log.WarnContext(ctx, "restored data was damaged in its bucket; writing it again", "err", spoilt)
	return nil
}

// withdraw deletes what was delivered, if it is still there.
func (g *giveBack) withdraw(ctx context.Context, etag string) error {
	if err := g.w.Hold.Check(ctx); err != nil {
		return err
	}
	o, err := g.bucket.Head(ctx, g.key)
	if errors.Is(err, storage.ErrNotFound) || err == nil && o.ETag != etag {
		return nil
	}
	if err == nil {
		err = g.bucket.Delete(ctx, g.key)
	}
	if err != nil {
		return fmt.Errorf("delete damaged restored data: %w", cause.Storage(err))
	}
	return nil
}

// readPoint is how far something was read back.
type readPoint struct {
	Offset int64  `json:"offset,omitempty"`
	State  []byte `json:"state,omitempty"` // of the SHA-256
}

// readAtOnce is how much is read back between two notes of how far that is: a worker that
// dies costs so much.
const readAtOnce = 64 << 20

// readBack computes the SHA-256 of what a bucket has, from where an earlier attempt stopped.
// What is gone or replaced is [errSpoilt].
func (g *giveBack) readBack(ctx context.Context, b *storage.Bucket, key, etag string, at *restorePoint) ([]byte, error) {
	var sum hashed
	if at.Read.Offset == 0 || !sum.goOn(at.Read.Offset, at.Read.State) {
		sum, at.Read = hashed{sum: sha256.New()}, readPoint{}
	}
	g.w.Hold.CurrentFile(b.Name() + "/" + key)
	if err := g.isThere(ctx, b, key, etag); err != nil {
		return nil, err
	}
	written := at.passed() * g.size
	for failed := 0; sum.at < g.size; {
		if err := g.w.Hold.Check(ctx); err != nil {
			return nil, err
		}
		g.w.Count.Read(key, int(g.files), written+sum.at)
		err := sum.read(ctx, b, key, storage.Range{Offset: sum.at, Length: min(readAtOnce, g.size-sum.at), IfMatch: etag})
		switch {
		case errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrChanged):
			return nil, fmt.Errorf("%w: %w", errSpoilt, err) // since it was looked for
		case err != nil:
			if failed++; failed == copyTries || ctx.Err() != nil {
				return nil, cause.Storage(err)
			}
			continue // where it broke off
		case sum.at == g.size:
			return sum.sum.Sum(nil), nil
		}
		failed = 0
		state, err := copies.StateOf(sum.sum)
		if err != nil {
			return nil, err
		}
		at.Read = readPoint{sum.at, state}
		if err := savePoint(ctx, g.w, restorePointName, *at); err != nil {
			return nil, err
		}
	}
	return sum.sum.Sum(nil), nil
}

// isThere returns [errSpoilt] unless a bucket has what was written to it.
func (g *giveBack) isThere(ctx context.Context, b *storage.Bucket, key, etag string) error {
	o, err := b.Head(ctx, key)
	switch {
	case errors.Is(err, storage.ErrNotFound), err == nil && (o.ETag != etag || o.Size != g.size):
		return fmt.Errorf("%w: %s/%s was removed, replaced or cut before it was checked", errSpoilt, b.Name(), key)
	case err != nil:
		return cause.Storage(err)
	}
	return nil
}

// hashed is the SHA-256 of some bytes, and how many they are.
type hashed struct {
	sum hash.Hash
	at  int64
}

// goOn takes up a state. It tells whether that is one.
func (h *hashed) goOn(at int64, state []byte) bool {
	h.sum, h.at = sha256.New(), at
	return copies.GoOn(h.sum, state)
}

// Write never fails.
func (h *hashed) Write(p []byte) (int, error) {
	h.at += int64(len(p))
	return h.sum.Write(p)
}

// read takes what a bucket has in a range, or so much of it as comes.
func (h *hashed) read(ctx context.Context, b *storage.Bucket, key string, r storage.Range) error {
	body, err := b.Get(ctx, key, r)
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // what was read of it is digested
	_, err = io.CopyBuffer(h, body, make([]byte, 128<<10))
	return err
}
