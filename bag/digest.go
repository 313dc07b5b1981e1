package bag

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
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

// size is the length of a digest in bytes, zero for an algorithm that is not
// one of the four.
func (a Algorithm) size() int {
	var d Digests
	return len(d.sum(a))
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
func (d *Digests) Hex(a Algorithm) string { return hex.EncodeToString(d.sum(a)) }

// sum is the digest itself, nil for an unknown algorithm.
func (d *Digests) sum(a Algorithm) []byte {
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

// agrees compares without allocating; a bag may have millions of files.
func (d *Digests) agrees(e Expected) bool {
	var space [64]byte
	if len(e.Digest) > hex.EncodedLen(len(space)) {
		return false
	}
	n, err := hex.Decode(space[:], []byte(e.Digest))
	return err == nil && n > 0 && bytes.Equal(space[:n], d.sum(e.Algorithm))
}

// digestsJSON is how digests are written: hex, since people and jq read it.
type digestsJSON struct {
	MD5    string `json:"md5"`
	SHA1   string `json:"sha1"`
	SHA256 string `json:"sha256"`
	SHA512 string `json:"sha512"`
}

// MarshalJSON writes an object with a member for each algorithm, in lower-case
// hex.
func (d Digests) MarshalJSON() ([]byte, error) {
	return json.Marshal(digestsJSON{
		MD5:    d.Hex(MD5),
		SHA1:   d.Hex(SHA1),
		SHA256: d.Hex(SHA256),
		SHA512: d.Hex(SHA512),
	})
}

// UnmarshalJSON reads what MarshalJSON writes, and refuses digests of the wrong
// length.
func (d *Digests) UnmarshalJSON(data []byte) error {
	var j digestsJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return fmt.Errorf("digests: %w", err)
	}
	var out Digests
	for _, one := range []struct {
		to   []byte
		from string
	}{
		{out.MD5[:], j.MD5},
		{out.SHA1[:], j.SHA1},
		{out.SHA256[:], j.SHA256},
		{out.SHA512[:], j.SHA512},
	} {
		raw, err := hex.DecodeString(one.from)
		if err != nil {
			return fmt.Errorf("digests: %w", err)
		}
		if len(raw) != len(one.to) {
			return fmt.Errorf("digest of %d bytes, want %d", len(raw), len(one.to))
		}
		copy(one.to, raw)
	}
	*d = out
	return nil
}
