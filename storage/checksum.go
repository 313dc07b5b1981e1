package storage

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30

	multipartAbove = 256 * mebibyte
	smallestPart   = 64 * mebibyte
	maxParts       = 10_000
)

// PartSize is the size in bytes of the parts in which an object of size bytes
// is uploaded, or 0 if it goes in a single request. It depends on nothing else,
// so that digests of parts computed on one machine serve any other.
func PartSize(size int64) int64 {
	if size <= multipartAbove {
		return 0
	}
	part := (size + maxParts - 1) / maxParts
	part = (part + mebibyte - 1) / mebibyte * mebibyte
	return max(part, smallestPart)
}

// ExpectedChecksum is what [Object.SHA256] must be for content with this
// SHA-256, if parts is empty, or that was uploaded in parts with these SHA-256
// digests: S3's composite checksum.
func ExpectedChecksum(whole [32]byte, parts [][32]byte) string {
	if len(parts) == 0 {
		return base64.StdEncoding.EncodeToString(whole[:])
	}
	h := sha256.New()
	for _, p := range parts {
		h.Write(p[:])
	}
	return fmt.Sprintf("%s-%d", base64.StdEncoding.EncodeToString(h.Sum(nil)), len(parts))
}

// ExpectedETag is what [Object.ETag] must be for content with this MD5, if parts
// is empty, or that was uploaded in parts with these MD5 digests. Buckets
// encrypted with keys of KMS have other ETags.
func ExpectedETag(whole [16]byte, parts [][16]byte) string {
	if len(parts) == 0 {
		return hex.EncodeToString(whole[:])
	}
	h := md5.New()
	for _, p := range parts {
		h.Write(p[:])
	}
	return fmt.Sprintf("%x-%d", h.Sum(nil), len(parts))
}

// known reports whether a digest was given: that of no content is all zeros.
func known(digest []byte) bool {
	return len(bytes.Trim(digest, "\x00")) > 0
}
