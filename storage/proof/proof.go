// Package proof makes of what a server says of an object a digest that can be computed as the bytes
// pass.
//
// What comes in is the header of an answer, and the size of the parts that an object was uploaded in.
// What goes out is a [Proof]. The MD5 that S3 shows as the ETag of such an object is that of the MD5s
// of its parts. The state of its computation can be saved, and the size of the parts be guessed.
package proof

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/crc32"
	"hash/crc64"
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

// None has a digest, that agrees with nothing.
func None() Proof { return Proof{name: "SHA-256", new: sha256.New} }

// Of reads a proof from the header of an answer about an object with an ETag, unquoted. partOf is
// asked for the size of its parts if they are so many; 0 is not known.
func Of(h http.Header, etag string, partOf func(parts int) int64) Proof {
	if p, ok := checksumOf(h); ok {
		return p
	}
	const encryption = "X-Amz-Server-Side-Encryption"
	encrypted := strings.HasPrefix(h.Get(encryption), "aws:kms") || h.Get(encryption+"-Customer-Algorithm") != ""
	want, parts := ofETag(etag)
	switch {
	case encrypted || want == nil:
		return None()
	case parts == 0:
		return Proof{"MD5", md5.New, want}
	}
	part := partOf(parts)
	if part == 0 {
		return None()
	}
	return Proof{fmt.Sprintf("MD5 of %d parts", parts), func() hash.Hash { return newDigest(part) }, want}
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
