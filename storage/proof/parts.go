package proof

import (
	"bytes"
	"crypto/md5"
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
)

const (
	mebibyte = 1 << 20
	gibibyte = 1 << 30
)

// Makes tells whether parts of a size are so many.
func Makes(part, size int64, parts int) bool {
	return part > 0 && (size+part-1)/part == int64(parts)
}

// Likely is the size of parts in bytes that most clients would have chosen for so
// many: a power of two, or else the smallest number of whole mebibytes; 0 if there is none.
func Likely(size int64, parts int) int64 {
	least := (size + int64(parts) - 1) / int64(parts)
	for part := int64(mebibyte); part <= 8*gibibyte; part *= 2 {
		if Makes(part, size, parts) {
			return part
		}
	}
	if part := (least + mebibyte - 1) / mebibyte * mebibyte; Makes(part, size, parts) {
		return part
	}
	return 0
}

// A digest is the MD5 of the MD5s of parts: what the ETag of a multipart upload
// consists of, without the number of parts. It is an [encoding.BinaryMarshaler] and
// an [encoding.BinaryUnmarshaler], which refuses the state of parts of another size.
type digest struct {
	part, left   int64
	inner, outer hash.Hash
}

func newDigest(part int64) *digest {
	return &digest{part: part, left: part, inner: md5.New(), outer: md5.New()}
}

// Write never fails.
func (h *digest) Write(p []byte) (int, error) {
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
func (h *digest) Sum(b []byte) []byte {
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
func (h *digest) Reset() { *h = *newDigest(h.part) }

// Size is that of an MD5.
func (*digest) Size() int { return md5.Size }

// BlockSize is that of MD5.
func (*digest) BlockSize() int { return md5.BlockSize }

const partsMagic = "parts\x01"

// MarshalBinary returns the state.
func (h *digest) MarshalBinary() ([]byte, error) {
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
func (h *digest) UnmarshalBinary(state []byte) error {
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
