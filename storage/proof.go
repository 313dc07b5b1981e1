package storage

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
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
	h, size, err := b.head(ctx, key, ifMatch, 0)
	if err != nil {
		return unproven(), b.errorf("head", key, b.explain(ctx, err))
	}
	return b.proofOf(ctx, key, ifMatch, h, size), nil
}

// GetProven is [Bucket.Get] of all of an object, with its [Proof].
func (b *Bucket) GetProven(ctx context.Context, key, ifMatch string) (io.ReadCloser, Proof, error) {
	body, out, err := b.get(ctx, key, Range{Length: -1, IfMatch: ifMatch}, b.can(SHA256))
	if err != nil {
		return nil, unproven(), err
	}
	return body, b.proofOf(ctx, key, etagOf(out.header), out.header, out.size), nil
}

// unproven has a digest, that agrees with nothing.
func unproven() Proof { return Proof{name: "SHA-256", new: sha256.New} }

// proofOf reads a proof from an answer about an object of a size.
func (b *Bucket) proofOf(ctx context.Context, key, ifMatch string, h http.Header, size int64) Proof {
	if p, ok := checksumOf(h); ok {
		return p
	}
	const encryption = "X-Amz-Server-Side-Encryption"
	encrypted := strings.HasPrefix(h.Get(encryption), "aws:kms") || h.Get(encryption+"-Customer-Algorithm") != ""
	want, parts := ofETag(etagOf(h))
	switch {
	case encrypted || want == nil:
		return unproven()
	case parts == 0:
		return Proof{"MD5", md5.New, want}
	}
	part := b.partOf(ctx, key, ifMatch, size, parts)
	if part == 0 {
		return unproven()
	}
	return Proof{fmt.Sprintf("MD5 of %d parts", parts), func() hash.Hash { return newPartsMD5(part) }, want}
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
	h, first, err := b.head(ctx, key, ifMatch, 1)
	if err == nil && h.Get("X-Amz-Mp-Parts-Count") == strconv.Itoa(parts) && makes(first, size, parts) {
		return first
	}
	return likelyPart(size, parts)
}

// makes tells whether parts of a size are so many.
func makes(part, size int64, parts int) bool {
	return part > 0 && (size+part-1)/part == int64(parts)
}

// likelyPart is the power of two, or else the smallest number of whole mebibytes, of
// which there are so many parts; 0 if there is none.
func likelyPart(size int64, parts int) int64 {
	least := (size + int64(parts) - 1) / int64(parts)
	for part := int64(mebibyte); part <= 8*gibibyte; part *= 2 {
		if makes(part, size, parts) {
			return part
		}
	}
	if part := (least + mebibyte - 1) / mebibyte * mebibyte; makes(part, size, parts) {
		return part
	}
	return 0
}

// partsMD5 is the MD5 of the MD5s of parts: what the ETag of a multipart upload
// consists of, without the number of parts.
type partsMD5 struct {
	part, left   int64
	inner, outer hash.Hash
}

func newPartsMD5(part int64) *partsMD5 {
	return &partsMD5{part: part, left: part, inner: md5.New(), outer: md5.New()}
}

// Write never fails.
func (h *partsMD5) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		take := min(int64(len(p)), h.left)
		_, _ = h.inner.Write(p[:take]) // hashes do not fail
		p = p[take:]
		if h.left -= take; h.left == 0 {
			_, _ = h.outer.Write(h.inner.Sum(nil))
			h.inner.Reset()
			h.left = h.part
		}
	}
	return n, nil
}

// Sum changes nothing: more may be written.
func (h *partsMD5) Sum(b []byte) []byte {
	all := *h
	if h.left < h.part {
		all.outer = md5.New()
		state, err := stateOf(h.outer)
		if err == nil {
			err = restore(all.outer, state)
		}
		if err != nil {
			return append(b, make([]byte, md5.Size)...) // agrees with nothing
		}
		_, _ = all.outer.Write(h.inner.Sum(nil))
	}
	return all.outer.Sum(b)
}

// Reset begins again.
func (h *partsMD5) Reset() { *h = *newPartsMD5(h.part) }

// Size is that of an MD5.
func (*partsMD5) Size() int { return md5.Size }

// BlockSize is that of MD5.
func (*partsMD5) BlockSize() int { return md5.BlockSize }

const partsMagic = "parts\x01"

// MarshalBinary returns the state.
func (h *partsMD5) MarshalBinary() ([]byte, error) {
	state := binary.BigEndian.AppendUint64([]byte(partsMagic), uint64(h.part)) //nolint:gosec // sizes are positive
	state = binary.BigEndian.AppendUint64(state, uint64(h.left))               //nolint:gosec // likewise
	for _, of := range []hash.Hash{h.inner, h.outer} {
		one, err := stateOf(of)
		if err != nil {
			return nil, fmt.Errorf("keep the MD5 of parts: %w", err)
		}
		state = append(binary.BigEndian.AppendUint32(state, uint32(len(one))), one...) //nolint:gosec // about a hundred
	}
	return state, nil
}

func stateOf(h hash.Hash) ([]byte, error) {
	m, ok := h.(encoding.BinaryMarshaler)
	if !ok {
		return nil, errState
	}
	return m.MarshalBinary()
}

func restore(h hash.Hash, state []byte) error {
	m, ok := h.(encoding.BinaryUnmarshaler)
	if !ok {
		return errState
	}
	return m.UnmarshalBinary(state)
}

var errState = errors.New("it is not the saved MD5 state of these parts")

// UnmarshalBinary goes on from a state. One of parts of another size is refused.
func (h *partsMD5) UnmarshalBinary(state []byte) error {
	rest, ok := bytes.CutPrefix(state, []byte(partsMagic))
	if !ok || len(rest) < 16 {
		return errState
	}
	part, left := binary.BigEndian.Uint64(rest), binary.BigEndian.Uint64(rest[8:])
	if part != uint64(h.part) || left > part || left == 0 { //nolint:gosec // sizes are positive
		return errState
	}
	rest = rest[16:]
	for _, of := range []hash.Hash{h.inner, h.outer} {
		if len(rest) < 4 || int64(len(rest)-4) < int64(binary.BigEndian.Uint32(rest)) {
			return errState
		}
		n := 4 + int(binary.BigEndian.Uint32(rest))
		if err := restore(of, rest[4:n]); err != nil {
			return fmt.Errorf("%w: %w", errState, err)
		}
		rest = rest[n:]
	}
	h.left = int64(left) //nolint:gosec // at most part
	return nil
}
