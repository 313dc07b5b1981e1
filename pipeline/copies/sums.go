package copies

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"slices"

	"github.com/farol-preservation/farol/bag"
	"github.com/farol-preservation/farol/registry"
)

// Sums are digests of one content that is read from its beginning to its end.
type Sums struct {
	algorithms []bag.Algorithm
	hashes     []hash.Hash
}

// NewSums computes the digests of some algorithms, and SHA-256.
func NewSums(algorithms []bag.Algorithm) *Sums {
	s := &Sums{}
	for _, a := range append([]bag.Algorithm{bag.SHA256}, algorithms...) {
		if slices.Contains(s.algorithms, a) {
			continue
		}
		s.algorithms = append(s.algorithms, a)
		switch a {
		case bag.MD5:
			s.hashes = append(s.hashes, md5.New())
		case bag.SHA1:
			s.hashes = append(s.hashes, sha1.New())
		case bag.SHA256:
			s.hashes = append(s.hashes, sha256.New())
		case bag.SHA512:
			s.hashes = append(s.hashes, sha512.New())
		}
	}
	return s
}

// Write adds to the content. It never fails.
func (s *Sums) Write(p []byte) (int, error) {
	for _, h := range s.hashes {
		h.Write(p) // never an error
	}
	return len(p), nil
}

// Digests are those of all that was written.
func (s *Sums) Digests() (d bag.Digests) {
	for i, a := range s.algorithms {
		sum := s.hashes[i].Sum(nil)
		switch a {
		case bag.MD5:
			copy(d.MD5[:], sum)
		case bag.SHA1:
			copy(d.SHA1[:], sum)
		case bag.SHA256:
			copy(d.SHA256[:], sum)
		case bag.SHA512:
			copy(d.SHA512[:], sum)
		}
	}
	return d
}

// Differ is badBytes unless all digests are those on record. SHA-256 has the last word.
func (s *Sums) Differ(f registry.StoredFile) error {
	var bad *badBytes
	for i, a := range s.algorithms {
		got, want := hex.EncodeToString(s.hashes[i].Sum(nil)), OnRecord(f, a)
		if got != want && (bad == nil || a == bag.SHA256) {
			bad = &badBytes{a, got, want}
		}
	}
	if bad == nil {
		return nil
	}
	return bad
}

// OnRecord is a file's digest as the registry has it; "" if it has none.
func OnRecord(f registry.StoredFile, a bag.Algorithm) string {
	switch a {
	case bag.MD5:
		return f.MD5
	case bag.SHA1:
		return f.SHA1
	case bag.SHA256:
		return f.SHA256
	case bag.SHA512:
		return f.SHA512
	}
	return ""
}

// State is what of the digests has to be kept to go on later, in another process.
func (s *Sums) State() ([]byte, error) {
	states := make([][]byte, len(s.hashes))
	for i, h := range s.hashes {
		m, ok := h.(encoding.BinaryMarshaler)
		if !ok {
			return nil, fmt.Errorf("%s cannot be interrupted", s.algorithms[i])
		}
		var err error
		if states[i], err = m.MarshalBinary(); err != nil {
			return nil, fmt.Errorf("interrupt %s: %w", s.algorithms[i], err)
		}
	}
	return json.Marshal(states)
}

// GoOn takes up what state returned. It says whether it could: another version of
// Go may keep something else.
func (s *Sums) GoOn(state []byte) bool {
	var states [][]byte
	if json.Unmarshal(state, &states) != nil || len(states) != len(s.hashes) {
		return false
	}
	for i, h := range s.hashes {
		u, ok := h.(encoding.BinaryUnmarshaler)
		if !ok || u.UnmarshalBinary(states[i]) != nil {
			return false
		}
	}
	return true
}

// ErrBadCopy says that a copy's bytes are not those on record.
var ErrBadCopy = errors.New("its bytes are not those on record")

// badBytes is [ErrBadCopy] of a copy that was read to its end.
type badBytes struct {
	algorithm       bag.Algorithm
	found, expected string
}

func (e *badBytes) Error() string {
	return fmt.Sprintf("%v: its %s is %s, expected %s", ErrBadCopy, e.algorithm, e.found, e.expected)
}

func (e *badBytes) Is(target error) bool { return target == ErrBadCopy }
