package digest

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"sync/atomic"
)

const (
	// Small is the size up to which a file is hashed by the goroutine that
	// read it: handing a block to four others costs more than it gains.
	Small = 64 << 10
	// Blocks of large files, and how many there are: 4 MiB in all.
	blockBytes = 512 << 10
	blockCount = 8
)

// ErrState says that a [State] does not fit its content, or was made by another
// version of Go. Without it reading begins again.
var ErrState = errors.New("checkpoint within a file is unusable")

// A block is a piece of a large file on its way through the hash workers. The
// last worker that is done with it gives it back.
type block struct {
	data []byte
	n    int
	refs atomic.Int32
}

// A Digester computes the four digests of one content after the other. It is not
// safe for concurrent use. Its workers start with the first large content, and
// end with Close.
type Digester struct {
	small   []byte
	large   [4]hash.Hash // MD5, SHA-1, SHA-256, SHA-512
	parts   *partHash
	md5s    *partHash
	workers []chan *block
	free    chan *block
}

// New has the MD5 of each slice computed too, if that is wanted.
func New(partMD5 bool) *Digester {
	return &Digester{
		small: make([]byte, Small), parts: &partHash{hash: sha256.New()}, md5s: &partHash{hash: md5.New(), unwanted: !partMD5},
	}
}

// Close ends the workers.
func (d *Digester) Close() {
	for _, w := range d.workers {
		close(w)
	}
	d.workers = nil
}

// Content is what [Digester.Read] found.
type Content struct {
	Digests Digests
	Parts   *Parts // nil if there is one slice
	Size    int64
}

// A Pass is what is to be done with one content while it is read. All but its
// size may be left out.
type Pass struct {
	Size     int64
	PartSize int64        // of the slices; not positive for one
	Tee      func([]byte) // sees each piece, and must not change or keep it
	From     *State       // reading goes on from there
	// Save is given the state at every SaveEvery bytes of the content, but not
	// at its end. Its error ends the reading.
	Save      func(State) error
	SaveEvery int64
}

// Read takes all that r has, at most p.Size bytes. The error is that of r, of
// ctx or of Pass.Save.
func (d *Digester) Read(ctx context.Context, r io.Reader, p Pass) (Content, error) {
	if p.Size <= Small && (p.PartSize <= 0 || p.Size <= p.PartSize) {
		return d.readSmall(r, p.Size, p.Tee)
	}
	return d.readLarge(ctx, r, p)
}

func (d *Digester) readSmall(r io.Reader, size int64, tee func([]byte)) (Content, error) {
	n, err := io.ReadFull(r, d.small[:size])
	p := d.small[:n]
	if err != nil {
		return Content{Size: int64(n)}, err
	}
	if tee != nil {
		tee(p)
	}
	return Content{
		Digests: Digests{MD5: md5.Sum(p), SHA1: sha1.Sum(p), SHA256: sha256.Sum256(p), SHA512: sha512.Sum512(p)},
		Size:    int64(n),
	}, nil
}

func (d *Digester) readLarge(ctx context.Context, r io.Reader, p Pass) (Content, error) {
	d.start()
	for _, h := range d.large {
		h.Reset()
	}
	d.parts.reset(p.Size, p.PartSize)
	d.md5s.reset(p.Size, p.PartSize)
	var total int64
	if p.From != nil {
		if err := d.restore(*p.From); err != nil {
			return Content{}, err
		}
		total = p.From.Done
	}
	total, err := d.feed(ctx, r, total, p)
	d.settle() // also after an error: the workers must be idle before the next file
	if err != nil {
		return Content{Size: total}, err
	}
	out := Content{Size: total}
	out.Parts = NewParts(d.parts.finish(), d.md5s.finish())
	d.large[0].Sum(out.Digests.MD5[:0])
	d.large[1].Sum(out.Digests.SHA1[:0])
	d.large[2].Sum(out.Digests.SHA256[:0])
	d.large[3].Sum(out.Digests.SHA512[:0])
	return out, nil
}

// feed hands the content to the workers, block by block. Of what is there
// already, total bytes have been read.
func (d *Digester) feed(ctx context.Context, r io.Reader, total int64, p Pass) (int64, error) {
	saved := total
	for total < p.Size {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		if p.Save != nil && total-saved >= p.SaveEvery {
			d.settle()
			state, err := d.state(total)
			if err == nil {
				err = p.Save(state)
			}
			if err != nil {
				return total, err
			}
			saved = total
		}
		b := <-d.free // never for long: the workers only compute
		n, err := io.ReadFull(r, b.data[:min(int64(len(b.data)), p.Size-total)])
		total += int64(n)
		if err != nil {
			d.free <- b
			return total, err
		}
		if p.Tee != nil {
			p.Tee(b.data[:n])
		}
		b.n = n
		b.refs.Store(int32(len(d.workers))) //nolint:gosec // there are six at most
		for _, w := range d.workers {
			w <- b
		}
	}
	return total, nil
}

// A State is how far the digests of one content are, in the binary forms of
// the standard library's hashes. Another version of it may refuse them.
type State struct {
	Done   int64     `json:"done"`          // bytes
	Hashes [5][]byte `json:"hashes"`        // of the content, and of the part that has begun
	Part   int64     `json:"part,omitzero"` // size of a part
	Left   int64     `json:"left,omitzero"` // bytes of that one to come
	Parts  []byte    `json:"parts,omitempty"`

	PartMD5  []byte `json:"part_md5,omitempty"` // state of the part that has begun
	PartsMD5 []byte `json:"parts_md5,omitempty"`
}

func (d *Digester) hashes() [5]hash.Hash {
	return [5]hash.Hash{d.large[0], d.large[1], d.large[2], d.large[3], d.parts.hash}
}

func keepState(h hash.Hash) ([]byte, error) {
	m, ok := h.(encoding.BinaryMarshaler)
	if !ok {
		return nil, fmt.Errorf("the state of %T cannot be saved", h)
	}
	state, err := m.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("save the state of a digest: %w", err)
	}
	return state, nil
}

func restoreState(h hash.Hash, state []byte) error {
	m, ok := h.(encoding.BinaryUnmarshaler)
	if !ok {
		return fmt.Errorf("%w: the state of %T cannot be restored", ErrState, h)
	}
	if err := m.UnmarshalBinary(state); err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	return nil
}

// state may be called while the workers are idle.
func (d *Digester) state(done int64) (s State, err error) {
	s.Done, s.Part, s.Left = done, d.parts.size, d.parts.left
	for i, h := range d.hashes() {
		if s.Hashes[i], err = keepState(h); err != nil {
			return s, err
		}
	}
	s.Parts = bytes.Join(d.parts.sums, nil)
	if !d.md5s.unwanted {
		s.PartsMD5 = bytes.Join(d.md5s.sums, nil)
		s.PartMD5, err = keepState(d.md5s.hash)
	}
	return s, err
}

func (d *Digester) restore(s State) error {
	if len(s.Parts)%sha256.Size != 0 || s.Part != d.parts.size || s.Left < 0 || s.Left > s.Part {
		return fmt.Errorf("%w: the state of the digests is invalid", ErrState)
	}
	for i, h := range d.hashes() {
		if err := restoreState(h, s.Hashes[i]); err != nil {
			return err
		}
	}
	d.parts.restore(s.Left, s.Parts)
	if d.md5s.unwanted {
		return nil
	}
	if len(s.PartsMD5) != len(s.Parts)/2 {
		return fmt.Errorf("%w: it has no MD5 of the parts", ErrState)
	}
	d.md5s.restore(s.Left, s.PartsMD5)
	return restoreState(d.md5s.hash, s.PartMD5)
}

// start brings up one goroutine for each algorithm, and two for the parts.
func (d *Digester) start() {
	if d.workers != nil {
		return
	}
	d.large = [4]hash.Hash{md5.New(), sha1.New(), sha256.New(), sha512.New()}
	d.free = make(chan *block, blockCount)
	for range blockCount {
		d.free <- &block{data: make([]byte, blockBytes)}
	}
	for _, h := range []io.Writer{d.large[0], d.large[1], d.large[2], d.large[3], d.parts, d.md5s} {
		w := make(chan *block, blockCount)
		d.workers = append(d.workers, w)
		go d.work(w, h)
	}
}

func (d *Digester) work(in <-chan *block, h io.Writer) {
	for b := range in {
		_, _ = h.Write(b.data[:b.n]) // hashes do not fail
		if b.refs.Add(-1) == 0 {
			d.free <- b
		}
	}
}

// settle waits until every block is back. From then on the hashes belong to the
// caller: each worker's last write came before it let go of its block.
func (d *Digester) settle() {
	var held [blockCount]*block
	for i := range held {
		held[i] = <-d.free
	}
	for _, b := range held {
		d.free <- b
	}
}

// partHash computes the digest of each slice of a content.
type partHash struct {
	hash       hash.Hash
	unwanted   bool
	size, left int64
	sums       [][]byte
}

// restore goes on with the slice of which so many bytes are to come.
func (p *partHash) restore(left int64, sums []byte) {
	p.left = left
	p.sums = slices.Collect(slices.Chunk(sums, p.hash.Size()))
}

// reset prepares for the next content; one that has a single part needs none.
func (p *partHash) reset(size, partSize int64) {
	p.hash.Reset()
	p.sums = nil
	p.size = partSize
	if size <= partSize || p.unwanted {
		p.size = 0
	}
	p.left = p.size
}

func (p *partHash) Write(b []byte) (int, error) {
	n := len(b)
	for p.size > 0 && len(b) > 0 {
		take := min(int64(len(b)), p.left)
		p.hash.Write(b[:take])
		b = b[take:]
		if p.left -= take; p.left == 0 {
			p.cut()
		}
	}
	return n, nil
}

func (p *partHash) cut() {
	p.sums = append(p.sums, p.hash.Sum(nil))
	p.hash.Reset()
	p.left = p.size
}

// finish returns the sums, with that of a last part that is not full.
func (p *partHash) finish() [][]byte {
	if p.size > 0 && p.left < p.size {
		p.cut()
	}
	return p.sums
}

// NewParts is nil if there are no parts.
func NewParts(sha256s, md5s [][]byte) *Parts {
	if len(sha256s) == 0 {
		return nil
	}
	p := &Parts{}
	for _, sum := range sha256s {
		p.SHA256 = append(p.SHA256, [32]byte(sum))
	}
	for _, sum := range md5s {
		p.MD5 = append(p.MD5, [16]byte(sum))
	}
	return p
}
