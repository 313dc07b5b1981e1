package bagtest

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
)

// noise is an endless stream of bytes that do not compress.
type noise struct {
	random *rand.PCG
	left   []byte
	word   [8]byte
}

func newNoise(path string, seed uint64) *noise {
	h := fnv.New64a()
	_, _ = h.Write([]byte(path)) // hashes do not fail
	return &noise{random: rand.NewPCG(h.Sum64(), seed)}
}

// Read fills p whole words at a time. It never fails.
func (n *noise) Read(p []byte) (int, error) {
	done := copy(p, n.left)
	n.left = n.left[done:]
	for ; len(p)-done >= 8; done += 8 {
		binary.LittleEndian.PutUint64(p[done:], n.random.Uint64())
	}
	if done < len(p) {
		binary.LittleEndian.PutUint64(n.word[:], n.random.Uint64())
		m := copy(p[done:], n.word[:])
		n.left = n.word[m:]
		done += m
	}
	return done, nil
}
