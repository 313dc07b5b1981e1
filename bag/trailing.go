package bag

import (
	"bytes"
	"strconv"
)

// trailing looks at what comes after the end of the archive. It is given all of it,
// in order.
type trailing struct {
	garbage bool // there is more than zeros
	archive bool // there is the header of another tar

	skip  int // bytes to the next block
	block [blockSize]byte
	n     int // bytes of the block that are there
}

// after begins at an offset of the file.
func after(offset int64) trailing { return trailing{skip: int(padded(offset) - offset)} }

func (t *trailing) write(p []byte) {
	if t.archive || t.n == 0 && t.skip == 0 && len(p)%blockSize == 0 && isZero(p) {
		return
	}
	t.garbage = t.garbage || !isZero(p)
	n := min(t.skip, len(p))
	t.skip, p = t.skip-n, p[n:]
	for len(p) > 0 {
		n := copy(t.block[t.n:], p)
		t.n, p = t.n+n, p[n:]
		if t.n == blockSize {
			t.archive = t.archive || isHeader(&t.block)
			t.n = 0
		}
	}
}

func isZero(p []byte) bool { return len(bytes.Trim(p, "\x00")) == 0 }

// isHeader tells whether a block has the checksum of a tar's header. No other block is
// likely to have it.
func isHeader(block *[blockSize]byte) bool {
	const from, to = 148, 156 // the checksum, which counts as spaces
	want, err := strconv.ParseInt(string(bytes.Trim(block[from:to], " \x00")), 8, 64)
	if err != nil {
		return false
	}
	sum := int64((to - from) * ' ')
	for i, c := range block {
		if i < from || i >= to {
			sum += int64(c)
		}
	}
	return sum == want
}
