package bag

import (
	"bufio"
	"io"

	"github.com/farol-preservation/farol/bag/digest"
)

// readAhead makes many small reads of headers few reads of the source. Larger
// reads go past it.
const readAhead = 256 << 10

// source remembers why the caller's reader stopped. Once archive/tar has
// wrapped or replaced an error, nothing else can tell a broken connection (try
// again) from a broken tar (tell the depositor).
type source struct {
	r   io.Reader
	err error // of the caller's reader, other than io.EOF

	seeker io.Seeker // r, where contents may be passed over
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	for tries := 0; n == 0 && err == nil && len(p) > 0; tries++ {
		if tries == 100 { // a reader that is stuck must not take us with it
			err = io.ErrNoProgress
			break
		}
		n, err = s.r.Read(p)
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// counter knows the offset in the tar of the next byte that archive/tar reads.
// It must not implement io.Seeker, or archive/tar would seek past the content.
type counter struct {
	r      *bufio.Reader
	offset int64
	whole  *digest.Whole
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.whole.Write(c.offset, p[:n])
	c.offset += int64(n)
	return n, err
}

// blockSize is the unit of a tar: headers are, and contents are padded to, a
// multiple of it.
const blockSize = 512

// padded is the size that content of a size takes in a tar.
func padded(size int64) int64 { return size + (-size & (blockSize - 1)) }
