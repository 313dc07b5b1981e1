package bagtest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
)

// noise is an endless stream of bytes that do not compress: the key stream of a
// cipher, which processors make quickly, under the race detector too.
type noise struct{ stream cipher.Stream }

func newNoise(path string, seed uint64) *noise {
	key := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte(path), seed))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has one of the lengths that keys have
	}
	return &noise{cipher.NewCTR(block, make([]byte, aes.BlockSize))} //nolint:gosec // nothing is kept secret
}

// Read fills p. It never fails.
func (n *noise) Read(p []byte) (int, error) {
	clear(p)
	n.stream.XORKeyStream(p, p)
	return len(p), nil
}
