// Package digest computes the digests of contents as they stream by: the four of each file,
// those of its slices, and one of the whole tar. What comes in are bytes, or the state in
// which an earlier process stopped; what goes out are digests, or that state.
package digest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Algorithm is a digest algorithm, spelled as in the name of a manifest.
type Algorithm string

// The algorithms that are computed for every file, always all four.
const (
	MD5    Algorithm = "md5"
	SHA1   Algorithm = "sha1"
	SHA256 Algorithm = "sha256"
	SHA512 Algorithm = "sha512"
)

// Size is the length of a digest in bytes, zero for an algorithm that is not
// one of the four.
func (a Algorithm) Size() int {
	var d Digests
	return len(d.Sum(a))
}

// Digests are the four digests of one content.
type Digests struct {
	MD5    [16]byte
	SHA1   [20]byte
	SHA256 [32]byte
	SHA512 [64]byte
}

// Hex returns one of the digests in lower-case hex, blank for an algorithm that
// is not one of the four.
func (d *Digests) Hex(a Algorithm) string { return hex.EncodeToString(d.Sum(a)) }

// Sum is the digest itself, nil for an unknown algorithm.
func (d *Digests) Sum(a Algorithm) []byte {
	switch a {
	case MD5:
		return d.MD5[:]
	case SHA1:
		return d.SHA1[:]
	case SHA256:
		return d.SHA256[:]
	case SHA512:
		return d.SHA512[:]
	default:
		return nil
	}
}

// Agrees compares one of them with hex, without allocating; a bag may have millions of files.
func (d *Digests) Agrees(a Algorithm, digits string) bool {
	var space [64]byte
	if len(digits) > hex.EncodedLen(len(space)) {
		return false
	}
	n, err := hex.Decode(space[:], []byte(digits))
	return err == nil && n > 0 && bytes.Equal(space[:n], d.Sum(a))
}

// digestsJSON is how digests are written: hex, since people and jq read it.
type digestsJSON struct {
	MD5    hexDigest `json:"md5"`
	SHA1   hexDigest `json:"sha1"`
	SHA256 hexDigest `json:"sha256"`
	SHA512 hexDigest `json:"sha512"`
}

// hexDigest is a digest that is written in hex, and read into the space that it has.
type hexDigest struct {
	sum  []byte
	read bool
}

func (d *Digests) members() digestsJSON {
	return digestsJSON{hexDigest{sum: d.MD5[:]}, hexDigest{sum: d.SHA1[:]}, hexDigest{sum: d.SHA256[:]}, hexDigest{sum: d.SHA512[:]}}
}

// MarshalJSONTo writes an object with a member for each algorithm, in lower-case hex.
func (d *Digests) MarshalJSONTo(e *jsontext.Encoder) error { return json.MarshalEncode(e, d.members()) }

// UnmarshalJSONFrom reads what MarshalJSONTo writes, and refuses digests of the wrong length.
func (d *Digests) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	var out Digests
	m := out.members()
	if err := json.UnmarshalDecode(from, &m); err != nil {
		return err
	}
	if !m.MD5.read || !m.SHA1.read || !m.SHA256.read || !m.SHA512.read {
		return errors.New("a digest is missing")
	}
	*d = out
	return nil
}

// MarshalJSONTo writes a string.
func (h hexDigest) MarshalJSONTo(e *jsontext.Encoder) error {
	b := append(e.AvailableBuffer(), '"')
	return e.WriteValue(append(hex.AppendEncode(b, h.sum), '"'))
}

// UnmarshalJSONFrom reads a string.
func (h *hexDigest) UnmarshalJSONFrom(from *jsontext.Decoder) error {
	v, err := from.ReadValue()
	if err != nil {
		return err
	}
	if v.Kind() != '"' || len(v) != len(`""`)+hex.EncodedLen(len(h.sum)) {
		return fmt.Errorf("digest of %d bytes, want %d", max(0, len(v)-2)/2, len(h.sum))
	}
	if _, err := hex.Decode(h.sum, v[1:len(v)-1]); err != nil {
		return fmt.Errorf("digest: %w", err)
	}
	h.read = true
	return nil
}

// Parts are the digests of the slices of a content, in their order.
type Parts struct {
	SHA256 [][32]byte
	// MD5 is there if it was asked for: what a store without checksums makes the
	// ETag of.
	MD5 [][16]byte
}
