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
	makes := map[bag.Algorithm]func() hash.Hash{bag.MD5: md5.New, bag.SHA1: sha1.New, bag.SHA256: sha256.New, bag.SHA512: sha512.New}
	s := &Sums{}
	for _, a := range append([]bag.Algorithm{bag.SHA256}, algorithms...) {
		if slices.Contains(s.algorithms, a) {
			continue
		}
		s.algorithms, s.hashes = append(s.algorithms, a), append(s.hashes, makes[a]())
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
	to := map[bag.Algorithm][]byte{bag.MD5: d.MD5[:], bag.SHA1: d.SHA1[:], bag.SHA256: d.SHA256[:], bag.SHA512: d.SHA512[:]}
	for i, a := range s.algorithms {
		copy(to[a], s.hashes[i].Sum(nil))
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
	return map[bag.Algorithm]string{bag.MD5: f.MD5, bag.SHA1: f.SHA1, bag.SHA256: f.SHA256, bag.SHA512: f.SHA512}[a]
}

// State is what of the digests has to be kept to go on later, in another process.
func (s *Sums) State() ([]byte, error) {
	states := make([][]byte, len(s.hashes))
	for i, h := range s.hashes {
		var err error
		if states[i], err = StateOf(h); err != nil {
			return nil, fmt.Errorf("interrupt %s: %w", s.algorithms[i], err)
		}
	}
	return json.Marshal(states)
}

// StateOf is [Sums.State] of one digest, for [GoOn].
func StateOf(h hash.Hash) ([]byte, error) {
	m, ok := h.(encoding.BinaryMarshaler)
	if !ok {
		return nil, errors.New("the digest has no state")
	}
	return m.MarshalBinary()
}

// GoOn has a digest take up a state. It says whether it could.
func GoOn(h hash.Hash, state []byte) bool {
	u, ok := h.(encoding.BinaryUnmarshaler)
	return ok && u.UnmarshalBinary(state) == nil
}

// GoOn takes up what state returned. It says whether it could: another version of
// Go may keep something else.
func (s *Sums) GoOn(state []byte) bool {
	var states [][]byte
	if json.Unmarshal(state, &states) != nil || len(states) != len(s.hashes) {
		return false
	}
	for i, h := range s.hashes {
		if !GoOn(h, states[i]) {
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
