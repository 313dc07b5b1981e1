package bag

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrOutline says that an outline does not have what is needed to judge its bag.
var ErrOutline = errors.New("the outline of the tar is incomplete")

// ReadOutline indexes a tar from some pieces of it, so that a bag can be judged
// before it is uploaded. r has pieces in the order of the tar: each is its offset (8 bytes,
// big-endian), its length (4 bytes) and its bytes. All headers, the manifests, fetch.txt, the
// tag files whose tags are wanted and the end of the archive must be among them.
//
// The other files are taken to have the digests that the manifests give; [Verdict.Unread]
// counts them. All else is found as by [Read]. Of the options it takes MaxFiles. The error is
// that of r or ctx, or [ErrOutline].
func ReadOutline(ctx context.Context, r io.Reader, size int64, o ReadOptions) (*Bag, error) {
	pieces := &outline{r: bufio.NewReader(r), size: size}
	rd := newReader(ctx, pieces, ReadOptions{MaxFiles: o.MaxFiles})
	defer rd.close()
	rd.known = func(string, int64) (Digests, bool, error) { return Digests{}, true, nil }
	rd.src.seeker, rd.outline = pieces, pieces
	rd.tar.r = bufio.NewReaderSize(rd.src, headersAhead)
	return rd.read(ctx)
}

// mostZeros bounds the bytes that an outline may leave out where they are read: the padding
// of the files, and entries that no bag may have.
const mostZeros = 512 << 20

// outline is a tar that has zeros wherever it is not known.
type outline struct {
	r          *bufio.Reader
	size       int64 // of the tar
	at         int64
	start, end int64 // of the present piece
	left       int64 // bytes of it to come
	ended      bool  // there is no further piece
	zeros      int64 // read so far
	hole       int64 // where the last ones ended
}

// Read is of io.Reader.
func (o *outline) Read(p []byte) (int, error) {
	for !o.ended && o.at >= o.end {
		if err := o.next(); err != nil {
			return 0, err
		}
	}
	switch {
	case o.at >= o.size:
		return 0, io.EOF
	case o.at >= o.start && o.at < o.end:
		return o.known(p)
	}
	until := o.size
	if !o.ended {
		until = o.start
	}
	n := int(min(int64(len(p)), until-o.at))
	clear(p[:n])
	o.at += int64(n)
	o.hole = o.at
	if o.zeros += int64(n); o.zeros > mostZeros {
		return 0, fmt.Errorf("%w: too much of it is left out before offset %d", ErrOutline, o.at)
	}
	return n, nil
}

// known reads what is left of the present piece.
func (o *outline) known(p []byte) (int, error) {
	passed := o.at - (o.end - o.left)
	if _, err := io.CopyN(io.Discard, o.r, passed); err != nil {
		return 0, cutOutline(err)
	}
	o.left -= passed
	n, err := o.r.Read(p[:min(int64(len(p)), o.left)])
	o.left -= int64(n)
	o.at += int64(n)
	if err != nil {
		err = cutOutline(err)
	}
	return n, err
}

// next passes over the rest of a piece, and goes on to the one after it.
func (o *outline) next() error {
	if _, err := io.CopyN(io.Discard, o.r, o.left); err != nil {
		return cutOutline(err)
	}
	var head [12]byte
	o.left = 0
	_, err := io.ReadFull(o.r, head[:])
	switch {
	case errors.Is(err, io.EOF):
		o.ended = true
		return nil
	case err != nil:
		return cutOutline(err)
	}
	start, length := binary.BigEndian.Uint64(head[:8]), int64(binary.BigEndian.Uint32(head[8:]))
	if start < uint64(o.end) || start > uint64(o.size) || length == 0 || length > o.size-int64(start) { //nolint:gosec // neither is negative
		return fmt.Errorf("%w: a piece of %d bytes at offset %d does not follow the one before, or lies outside the tar", ErrOutline, length, start)
	}
	o.start, o.left = int64(start), length //nolint:gosec // no more than the size
	o.end = o.start + length
	return nil
}

// cutOutline is the error of an outline that ends within a piece, or cannot be read.
func cutOutline(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends within a piece", ErrOutline)
	}
	return err
}

// Seek is of io.Seeker, and goes forward only.
func (o *outline) Seek(n int64, _ int) (int64, error) {
	o.at += min(n, o.size-o.at)
	return o.at, nil
}

// leftOut says that something was read as zeros that is not known, behind an offset.
func (rd *reader) leftOut(offset int64) error {
	if rd.outline == nil || rd.outline.hole <= offset {
		return nil
	}
	return fmt.Errorf("%w: what is at offset %d is left out", ErrOutline, offset)
}
