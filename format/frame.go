package format

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The parent and a child talk in frames over the child's standard input and
// output: a kind of one byte, the payload's length in four, big endian, and
// the payload. The parent leads; the child reads one file at a time.
//
//	parent                     child
//	signatures (bytes)     →                             any number of times; none: the built-in ones
//	hello (limits)         →
//	                       ←   ready (version)
//	file (name, size, head) →
//	                       ←   read (offset, length)     any number of times
//	data (bytes) or fail   →
//	                       ←   answer (JSON)
type kind byte

const (
	kindHello  kind = 'H'
	kindSigs   kind = 'S'
	kindReady  kind = 'V'
	kindFile   kind = 'F'
	kindRead   kind = 'R'
	kindData   kind = 'D'
	kindFail   kind = 'E' // the content can not be read; the file is given up
	kindAnswer kind = 'A'
)

const (
	// headSize is how much of a file rides in its first frame: all of a small
	// file, so that it costs one round trip.
	headSize = 256 << 10
	// maxName keeps the end of longer names; Siegfried looks at the extension.
	maxName  = 4 << 10
	maxFrame = headSize + maxName + 64
)

// errProtocol is the end of a conversation: after it, nothing that comes from
// the other side means anything.
var errProtocol = errors.New("protocol broken")

type frame struct {
	kind    kind
	payload []byte
}

// writeFrame sends the parts as the payload of one frame.
func writeFrame(w *bufio.Writer, k kind, parts ...[]byte) error {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	if n > maxFrame {
		return fmt.Errorf("%w: frame %q of %d bytes", errProtocol, k, n)
	}
	// a bufio.Writer keeps its first error, and Flush returns it
	header := binary.BigEndian.AppendUint32([]byte{byte(k)}, uint32(n))
	_, _ = w.Write(header)
	for _, p := range parts {
		_, _ = w.Write(p)
	}
	return w.Flush()
}

// readFrame returns io.EOF only between frames.
func readFrame(r io.Reader) (frame, error) {
	var header [5]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return frame{}, err
	}
	n := binary.BigEndian.Uint32(header[1:])
	if n > maxFrame {
		return frame{}, fmt.Errorf("%w: frame %q of %d bytes", errProtocol, header[0], n)
	}
	f := frame{kind: kind(header[0]), payload: make([]byte, n)}
	if _, err := io.ReadFull(r, f.payload); err != nil {
		return frame{}, fmt.Errorf("%w: frame %q cut short: %w", errProtocol, header[0], noEOF(err))
	}
	return f, nil
}

// noEOF keeps an end inside of something from looking like its proper end.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// protocolVersion changes with the frames: a child of another build of the
// program, upgraded in place while the parent runs, is refused.
const protocolVersion = 1

// limits is the payload of hello.
type limits struct {
	memory int64 // bytes the child may use on top of what it has after loading
	budget int64 // bytes it may ask for of one file, in addition to both ends
}

func (l limits) encode() []byte {
	p := []byte{protocolVersion}
	p = binary.BigEndian.AppendUint64(p, uint64(l.memory))
	return binary.BigEndian.AppendUint64(p, uint64(l.budget))
}

func parseLimits(p []byte) (limits, error) {
	if len(p) != 17 || p[0] != protocolVersion {
		return limits{}, fmt.Errorf("%w: hello of another version", errProtocol)
	}
	l := limits{
		memory: int64(binary.BigEndian.Uint64(p[1:])),
		budget: int64(binary.BigEndian.Uint64(p[9:])),
	}
	if l.memory <= 0 || l.budget <= 0 {
		return limits{}, fmt.Errorf("%w: limits %+v", errProtocol, l)
	}
	return l, nil
}

// subject is the payload of file: whose format is asked for.
type subject struct {
	name string
	size int64
	head []byte // its first bytes, all of them up to headSize
}

func (s subject) encode() [][]byte {
	name := s.name
	if len(name) > maxName {
		name = name[len(name)-maxName:]
	}
	fixed := binary.BigEndian.AppendUint64(nil, uint64(s.size))
	fixed = binary.BigEndian.AppendUint32(fixed, uint32(len(name)))
	return [][]byte{fixed, []byte(name), s.head}
}

func parseSubject(p []byte) (subject, error) {
	if len(p) < 12 {
		return subject{}, fmt.Errorf("%w: file of %d bytes", errProtocol, len(p))
	}
	size := int64(binary.BigEndian.Uint64(p))
	n := int64(binary.BigEndian.Uint32(p[8:]))
	p = p[12:]
	if n > int64(len(p)) {
		return subject{}, fmt.Errorf("%w: name of %d bytes in %d", errProtocol, n, len(p))
	}
	s := subject{name: string(p[:n]), size: size, head: p[n:]}
	if size < 0 || int64(len(s.head)) != min(size, headSize) {
		return subject{}, fmt.Errorf("%w: %d bytes of a file of %d", errProtocol, len(s.head), size)
	}
	return s, nil
}

// span is the payload of read: what the child wants of the file.
type span struct {
	off int64
	n   int
}

func (s span) encode() []byte {
	p := binary.BigEndian.AppendUint64(nil, uint64(s.off))
	return binary.BigEndian.AppendUint32(p, uint32(s.n))
}

// parseSpan refuses what does not lie within a file of the given size.
func parseSpan(p []byte, size int64) (span, error) {
	if len(p) != 12 {
		return span{}, fmt.Errorf("%w: read of %d bytes", errProtocol, len(p))
	}
	off := int64(binary.BigEndian.Uint64(p))
	n := int64(binary.BigEndian.Uint32(p[8:]))
	if off < 0 || n == 0 || n > runBlocks*blockSize || off > size-n {
		return span{}, fmt.Errorf("%w: read of %d bytes at %d of %d", errProtocol, n, off, size)
	}
	return span{off, int(n)}, nil
}
