package storage

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/farol-preservation/farol/storage/partsum"
	"github.com/farol-preservation/farol/storage/wire"
)

// A Proof is what a server says of all bytes of an object, in a form that can be
// computed of them as they pass.
//
// What agrees with it is what the server has. What does not may still be: the ETag
// of an object that is encrypted with a key of KMS is no MD5, and that of a
// multipart upload is one only if we know the size of its parts.
type Proof struct {
	name string
	new  func() hash.Hash
	want []byte // nil: the server says nothing of use
}

// Name is that of the digest.
func (p Proof) Name() string { return p.name }

// Known tells whether the server says anything of use.
func (p Proof) Known() bool { return p.want != nil }

// New returns the digest to compute. It is an [encoding.BinaryMarshaler] and an
// [encoding.BinaryUnmarshaler].
func (p Proof) New() hash.Hash { return p.new() }

// Agrees tells whether a digest is that of what the server has. A digest that is
// not known is nil, and agrees with nothing.
func (p Proof) Agrees(sum []byte) bool {
	return len(sum) > 0 && p.want != nil && string(sum) == string(p.want)
}

// Proof asks for what the server says of an object's bytes: a checksum of all of
// them, or the ETag. ifMatch is as in [Range]. With an error, too, the Proof has a
// digest, that agrees with nothing.
func (b *Bucket) Proof(ctx context.Context, key, ifMatch string) (Proof, error) {
	got, err := b.head(ctx, key, ifMatch, 0)
	if err != nil {
		return unproven(), b.conn.Wrap("head", key, b.conn.Explain(ctx, err))
	}
	return b.proofOf(ctx, key, ifMatch, got), nil
}

// GetProven is [Bucket.Get] of all of an object, with its [Proof].
func (b *Bucket) GetProven(ctx context.Context, key, ifMatch string) (io.ReadCloser, Proof, error) {
	body, out, err := b.get(ctx, key, Range{Length: -1, IfMatch: ifMatch}, b.can(SHA256))
	if err != nil {
		return nil, unproven(), err
	}
	return body, b.proofOf(ctx, key, out.ETag(), out), nil
}

// unproven has a digest, that agrees with nothing.
func unproven() Proof { return Proof{name: "SHA-256", new: sha256.New} }

// proofOf reads a proof from an answer about an object.
func (b *Bucket) proofOf(ctx context.Context, key, ifMatch string, got *wire.Reply) Proof {
	h := got.Header
	if p, ok := checksumOf(h); ok {
		return p
	}
	const encryption = "X-Amz-Server-Side-Encryption"
	encrypted := strings.HasPrefix(h.Get(encryption), "aws:kms") || h.Get(encryption+"-Customer-Algorithm") != ""
	want, parts := ofETag(got.ETag())
	switch {
	case encrypted || want == nil:
		return unproven()
	case parts == 0:
		return Proof{"MD5", md5.New, want}
	}
	part := b.partOf(ctx, key, ifMatch, got.Size, parts)
	if part == 0 {
		return unproven()
	}
	return Proof{fmt.Sprintf("MD5 of %d parts", parts), func() hash.Hash { return partsum.New(part) }, want}
}

// ofETag takes an MD5 and a number of parts out of an ETag, which is 0 where there are
// none; nil if it does not look like that.
func ofETag(etag string) (sum []byte, parts int) {
	digest, number, inParts := strings.Cut(etag, "-")
	sum, err := hex.DecodeString(digest)
	if err != nil || len(sum) != md5.Size {
		return nil, 0
	}
	if !inParts {
		return sum, 0
	}
	if parts, err = strconv.Atoi(number); err != nil || parts < 1 {
		return nil, 0
	}
	return sum, parts
}

// checksumOf picks the checksum of the whole content that costs least.
func checksumOf(h http.Header) (Proof, bool) {
	if h.Get("X-Amz-Checksum-Type") == string(types.ChecksumTypeComposite) {
		return Proof{}, false
	}
	for _, c := range []struct {
		name string
		said string
		new  func() hash.Hash
	}{
		{"CRC32C", h.Get("X-Amz-Checksum-Crc32c"), func() hash.Hash { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }},
		{"CRC32", h.Get("X-Amz-Checksum-Crc32"), func() hash.Hash { return crc32.NewIEEE() }},
		{"SHA-256", h.Get("X-Amz-Checksum-Sha256"), sha256.New},
		{"CRC64NVME", h.Get("X-Amz-Checksum-Crc64nvme"), func() hash.Hash { return crc64.New(crc64.MakeTable(nvme)) }},
	} {
		want, err := base64.StdEncoding.DecodeString(c.said) // a composite one has parts behind it
		if p := (Proof{c.name, c.new, want}); err == nil && len(want) > 0 && len(want) == p.New().Size() {
			return p, true
		}
	}
	return Proof{}, false
}

// nvme is the polynomial of CRC-64/NVME, reversed.
const nvme = 0x9a6c9329ac4bc9b5

// partOf is the size of the parts that an object was uploaded in, but the last: the
// server is asked for it. One that does not tell leaves us with what most clients
// would have chosen for so many parts; a wrong guess proves nothing. 0: nobody knows.
func (b *Bucket) partOf(ctx context.Context, key, ifMatch string, size int64, parts int) int64 {
	first, err := b.head(ctx, key, ifMatch, 1)
	if err == nil && first.Header.Get("X-Amz-Mp-Parts-Count") == strconv.Itoa(parts) && partsum.Makes(first.Size, size, parts) {
		return first.Size
	}
	return partsum.Likely(size, parts)
}
