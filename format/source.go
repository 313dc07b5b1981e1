package format

import (
	"errors"
	"io"
	"sync"
)

const (
	// blockSize is what one read far from the others costs.
	blockSize = 64 << 10
	// runBlocks is how many blocks are requested at once when reading continues from a
	// block that is there: a round trip to S3 costs as much as that many.
	runBlocks = 4
	// edge at both ends of a file is read whatever the budget says, since most
	// signatures lie there, and so does a zip's directory.
	edge = 1 << 20
)

// errNotStream is the error of a use of a source as a stream.
var errNotStream = errors.New("format: a source is read by slices")

// A source gives Siegfried a file by ranges.
//
// Siegfried takes any reader that also has the methods IsSlicer, Slice,
// EofSlice and Size for one it may slice, and leaves its content where it is;
// any other it drains to the end, into memory and a temporary file. Several of
// its goroutines may slice at once.
type source struct {
	size   int64
	budget int64
	head   []byte // the first bytes, up to headSize

	// fetch returns the bytes of a span, or nil if there will be no more.
	fetch func(span) []byte

	mu     sync.Mutex
	blocks map[int64][]byte // guarded by mu; by number, not changed once there
	read   int64            // guarded by mu; bytes charged to the budget
	over   bool             // guarded by mu; fetch gave up
}

func newSource(s subject, budget int64, fetch func(span) []byte) *source {
	return &source{
		size:   s.size,
		budget: budget,
		head:   s.head,
		fetch:  fetch,
		blocks: map[int64][]byte{},
		read:   int64(len(s.head)),
	}
}

// Read is here because Siegfried's argument is an io.Reader.
func (*source) Read([]byte) (int, error) { return 0, errNotStream }

// IsSlicer is how Siegfried asks whether it may slice.
func (*source) IsSlicer() bool { return true }

// Size returns the size of the file.
func (s *source) Size() int64 { return s.size }

// Slice returns n bytes from off on. Where the file, or the budget, ends
// before that it returns what there is and io.EOF.
func (s *source) Slice(off int64, n int) ([]byte, error) {
	if off < 0 || off >= s.size || n < 0 {
		return nil, io.EOF
	}
	return s.between(off, off+int64(n), false)
}

// EofSlice returns the n bytes that end off bytes before the end of the file.
// Unlike Slice it returns nothing if any of them is beyond the budget, since
// who reads backwards needs the last of them first.
func (s *source) EofSlice(off int64, n int) ([]byte, error) { //nolint:revive // Siegfried looks for this name
	if off < 0 || off >= s.size || n < 0 {
		return nil, io.EOF
	}
	return s.between(s.size-off-int64(n), s.size-off, true)
}

// between returns the bytes of [start, end), as far as the file has them.
func (s *source) between(start, end int64, backwards bool) (whole []byte, err error) {
	if start == end {
		return nil, nil
	}
	if end > s.size || end < start {
		end, err = s.size, io.EOF
	}
	if start < 0 {
		start, err = 0, io.EOF
	}
	if end <= int64(len(s.head)) {
		return s.head[start:end:end], err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if backwards && len(s.piece(max(start, (end-1)/blockSize*blockSize), end, true)) == 0 {
		return nil, io.EOF
	}
	for at := start; at < end; {
		p := s.piece(at, end, backwards)
		switch {
		case len(p) == 0 && backwards:
			return nil, io.EOF
		case len(p) == 0:
			return whole, io.EOF
		case at == start && int64(len(p)) == end-start:
			return p, err
		case at == start:
			whole = make([]byte, 0, min(end-start, 2*runBlocks*blockSize))
		}
		whole = append(whole, p...)
		at += int64(len(p))
	}
	return whole, err
}

// piece returns what the block at off holds of [off, end), or nothing if the
// block can not be had.
func (s *source) piece(off, end int64, backwards bool) []byte {
	number := off / blockSize
	b := s.block(number, backwards)
	from, to := off-number*blockSize, min(end-number*blockSize, int64(len(b)))
	if from >= to {
		return nil
	}
	return b[from:to:to]
}

func (s *source) block(number int64, backwards bool) []byte {
	if b := s.known(number); b != nil {
		return b
	}
	low, high := s.run(number, backwards)
	if low > high || s.over {
		return nil
	}
	off := low * blockSize
	p := s.fetch(span{off, int(min((high+1)*blockSize, s.size) - off)})
	if p == nil {
		s.over = true
		return nil
	}
	s.read += int64(len(p))
	for i := low; i <= high; i++ {
		n := min(blockSize, len(p))
		s.blocks[i] = p[:n:n]
		p = p[n:]
	}
	return s.blocks[number]
}

// known returns a block that needs no fetching. Only whole blocks of the head
// count, apart from the file's last.
func (s *source) known(number int64) []byte {
	off := number * blockSize
	if end := min(off+blockSize, s.size); end <= int64(len(s.head)) {
		return s.head[off:end:end]
	}
	return s.blocks[number]
}

// run returns the first and the last block to fetch for the sake of one: a run
// of them if its neighbour, on the side that the reader comes from, is there, or if it
// is the file's last, since few readers of that stop there.
// The first is above the last if the budget does not allow even the one.
func (s *source) run(number int64, backwards bool) (low, high int64) {
	step := int64(1)
	if backwards {
		step = -1
	}
	want := 1
	if from := number - step; from*blockSize >= s.size || from >= 0 && s.known(from) != nil {
		want = runBlocks
	}
	got, spend := 0, s.read
	for i := number; got < want && i >= 0 && i*blockSize < s.size; i += step {
		spend += blockSize
		if s.known(i) != nil || (spend > s.budget && !s.atEdge(i)) {
			break
		}
		got++
	}
	last := number + step*int64(got-1)
	if got == 0 {
		return 1, 0
	}
	return min(number, last), max(number, last)
}

// atEdge reports whether all of a block lies in the first or last mebibyte.
func (s *source) atEdge(number int64) bool {
	return (number+1)*blockSize <= edge || number*blockSize >= s.size-edge
}
