package storage

import (
	"context"
	"io"
	"strconv"

	"github.com/farol-preservation/farol/storage/ability"
	"github.com/farol-preservation/farol/storage/proof"
	"github.com/farol-preservation/farol/storage/wire"
)

// Proof asks for what the server says of an object's bytes: a checksum of all of
// them, or the ETag. ifMatch is as in [Range]. With an error, too, the proof has a
// digest, that agrees with nothing.
func (b *Bucket) Proof(ctx context.Context, key, ifMatch string) (proof.Proof, error) {
	got, err := b.head(ctx, key, ifMatch, 0)
	if err != nil {
		return proof.None(), b.conn.Wrap("head", key, b.conn.Explain(ctx, err))
	}
	return b.proofOf(ctx, key, ifMatch, got), nil
}

// GetProven is [Bucket.Get] of all of an object, with its [proof.Proof].
func (b *Bucket) GetProven(ctx context.Context, key, ifMatch string) (io.ReadCloser, proof.Proof, error) {
	body, out, err := b.get(ctx, key, Range{Length: -1, IfMatch: ifMatch}, b.can(ability.SHA256))
	if err != nil {
		return nil, proof.None(), err
	}
	return body, b.proofOf(ctx, key, out.ETag(), out), nil
}

// proofOf reads a proof from an answer about an object.
func (b *Bucket) proofOf(ctx context.Context, key, ifMatch string, got *wire.Reply) proof.Proof {
	return proof.Of(got.Header, got.ETag(), func(parts int) int64 { return b.partOf(ctx, key, ifMatch, got.Size, parts) })
}

// partOf is the size of the parts that an object was uploaded in, but the last: the
// server is asked for it. One that does not tell leaves us with what most clients
// would have chosen for so many parts; a wrong guess proves nothing. 0: nobody knows.
func (b *Bucket) partOf(ctx context.Context, key, ifMatch string, size int64, parts int) int64 {
	first, err := b.head(ctx, key, ifMatch, 1)
	if err == nil && first.Header.Get("X-Amz-Mp-Parts-Count") == strconv.Itoa(parts) && proof.Makes(first.Size, size, parts) {
		return first.Size
	}
	return proof.Likely(size, parts)
}
