package pipeline

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/fault"
	"github.com/farol-preservation/farol/storage"
)

// lastRead is the name in Redis of the digest that the last read of the whole tar
// had, if the bucket did not confirm it.
const lastRead = "last-read"

// proven reads the tar until it is known that the bytes are those in the bucket:
// either the digest is the one that the bucket tells, or two reads had the same. So
// nothing that was altered on its way here is taken for the bag's.
func (s *receive) proven(ctx context.Context, w *work, tar *storage.Bucket) (*bag.Bag, error) {
	proof, err := tar.Proof(ctx, w.item.Name, w.item.ETag)
	if err != nil && !errors.Is(err, storage.ErrNotFound) { // which a bucket that is gone says too: reading it tells
		return nil, w.receivingErr(err)
	}
	before, err := s.Progress.Get(ctx, w.item.ID, w.passOf(), lastRead)
	if err != nil {
		return nil, w.progressErr(err)
	}
	for {
		b, err := s.readOn(ctx, w, tar, proof)
		if err != nil {
			return nil, w.receivingErr(err)
		}
		if proof.Agrees(b.Whole) {
			return b, nil
		}
		now := ""
		if b.Whole != nil {
			now = proof.Name() + " " + hex.EncodeToString(b.Whole)
		}
		if now != "" && now == before {
			w.log.InfoContext(ctx, "two reads of the tar agree with each other, but not with its ETag, which is no digest of it", "digest", now)
			return b, nil
		}
		if err := s.forget(ctx, w, now); err != nil {
			return nil, err
		}
		if now != "" && before != "" {
			return nil, wrongAnswer(tar, "two reads of the bag differ", "read %s twice: its %s, and before %s", w.item.Name, now, before)
		}
		before = now
		w.log.WarnContext(ctx, "the bucket does not confirm what was read of the tar; reading it again", "digest", now, "bucket_tells", proof.Known())
	}
}

// forget discards what was kept of a read that nobody confirms, so that the next one
// begins at the tar's start. Should the digest of that read not be kept, the next
// attempt reads once more.
func (s *receive) forget(ctx context.Context, w *work, digest string) error {
	if err := s.Progress.ClearStage(ctx, w.claim(), w.passOf()); err != nil {
		return w.progressErr(err)
	}
	return w.progressErr(s.Progress.Put(ctx, w.claim(), w.passOf(), lastRead, digest))
}

// readOn reads the tar from where an earlier attempt came to. What that has left and
// cannot be used is discarded.
func (s *receive) readOn(ctx context.Context, w *work, tar *storage.Bucket, proof storage.Proof) (*bag.Bag, error) {
	b, err := s.read(ctx, w, tar, proof, true)
	if errors.Is(err, bag.ErrCheckpoint) {
		w.log.WarnContext(ctx, "the file that was in hand is read from its start", "err", err)
		b, err = s.read(ctx, w, tar, proof, false)
	}
	if !errors.Is(err, bag.ErrChanged) {
		return b, err
	}
	w.log.WarnContext(ctx, "the checkpoints are not of this tar; reading it from its start", "err", err)
	if err := s.forget(ctx, w, ""); err != nil {
		return nil, err
	}
	return s.read(ctx, w, tar, proof, true)
}

// wrongAnswer is the error of a bucket whose answers cannot be relied on: nothing is
// known of what is in it.
func wrongAnswer(b *storage.Bucket, said, format string, args ...any) error {
	return &fault.Error{Service: fault.Bucket(b.TargetName()), Kind: fault.WrongAnswer, Said: said, Err: fmt.Errorf(format, args...)}
}
