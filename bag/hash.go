package bag

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding"
	"fmt"
	"hash"
	"io"
	"slices"
	"sync/atomic"
)

const (
	// smallFile is the size up to which a file is hashed by the goroutine that
	// read it: handing a block to four others costs more than it gains.
	smallFile = 64 << 10
	// Blocks of large files, and how many there are: 4 MiB in all.
	blockBytes = 512 << 10
	blockCount = 8
)

// A block is a piece of a large file on its way through the hash workers. The
// last worker that is done with it gives it back.
type block struct {
	data []byte
	n    int
	refs atomic.Int32
}

// digester computes the four digests of one content after the other. It is not
// safe for concurrent use. Its workers start with the first large content, and
// end with close.
type digester struct {
	small   []byte
	large   [4]hash.Hash // MD5, SHA-1, SHA-256, SHA-512
	parts   *partHash
	md5s    *partHash // nil unless they are wanted
	workers []chan *block
	free    chan *block
}

func newDigester(partMD5 bool) *digester {
	d := &digester{small: make([]byte, smallFile)}
	if partMD5 {
		d.md5s = &partHash{hash: md5.New()}
	}
	return d
}

func (d *digester) close() {
	for _, w := range d.workers {
		close(w)
	}
	d.workers = nil
}

// content is what digester.read found.
type content struct {
	digests Digests
	parts   *PartDigests
	size    int64
}

// A pass is what is to be done with one content while it is read. All but its
// size may be left out.
type pass struct {
	size     int64
	partSize int64        // see partHash
	tee      func([]byte) // sees each piece, and must not change or keep it
	from     *hashState   // reading goes on from there
	// save is given the state at every saveEvery bytes of the content, but not
	// at its end. Its error ends the reading.
	save      func(hashState) error
	saveEvery int64
}

// read takes all that r has, at most p.size bytes. The error is that of r, of
// ctx or of p.save.
func (d *digester) read(ctx context.Context, r io.Reader, p pass) (content, error) {
	if p.size <= smallFile && (p.partSize <= 0 || p.size <= p.partSize) {
		return d.readSmall(r, p.size, p.tee)
	}
	return d.readLarge(ctx, r, p)
}

func (d *digester) readSmall(r io.Reader, size int64, tee func([]byte)) (content, error) {
	n, err := io.ReadFull(r, d.small[:size])
	p := d.small[:n]
	if err != nil {
		return content{size: int64(n)}, err
	}
	if tee != nil {
		tee(p)
	}
	return content{
		digests: Digests{MD5: md5.Sum(p), SHA1: sha1.Sum(p), SHA256: sha256.Sum256(p), SHA512: sha512.Sum512(p)},
		size:    int64(n),
	}, nil
}

func (d *digester) readLarge(ctx context.Context, r io.Reader, p pass) (content, error) {
	d.start()
	for _, h := range d.large {
		h.Reset()
	}
	d.parts.reset(p.size, p.partSize)
	if d.md5s != nil {
		d.md5s.reset(p.size, p.partSize)
	}
	var total int64
	if p.from != nil {
		if err := d.restore(*p.from); err != nil {
			return content{}, err
		}
		total = p.from.Done
	}
	total, err := d.feed(ctx, r, total, p)
	d.settle() // also after an error: the workers must be idle before the next file
	if err != nil {
		return content{size: total}, err
	}
	out := content{size: total}
	var md5s [][]byte
	if d.md5s != nil {
		md5s = d.md5s.finish()
	}
	out.parts = newPartDigests(d.parts.finish(), md5s)
	d.large[0].Sum(out.digests.MD5[:0])
	d.large[1].Sum(out.digests.SHA1[:0])
	d.large[2].Sum(out.digests.SHA256[:0])
	d.large[3].Sum(out.digests.SHA512[:0])
	return out, nil
}

// feed hands the content to the workers, block by block. Of what is there
// already, total bytes have been read.
func (d *digester) feed(ctx context.Context, r io.Reader, total int64, p pass) (int64, error) {
	saved := total
	for total < p.size {
		if err := ctx.Err(); err != nil {
			return total, err
		}
		if p.save != nil && total-saved >= p.saveEvery {
			d.settle()
			state, err := d.state(total)
			if err == nil {
				err = p.save(state)
			}
			if err != nil {
				return total, err
			}
			saved = total
		}
		b := <-d.free // never for long: the workers only compute
		n, err := io.ReadFull(r, b.data[:min(int64(len(b.data)), p.size-total)])
		total += int64(n)
		if err != nil {
			d.free <- b
			return total, err
		}
		if p.tee != nil {
			p.tee(b.data[:n])
		}
		b.n = n
		b.refs.Store(int32(len(d.workers))) //nolint:gosec // there are six at most
		for _, w := range d.workers {
			w <- b
		}
	}
	return total, nil
}

// A hashState is how far the digests of one content are, in the binary forms of
// the standard library's hashes. Another version of it may refuse them.
type hashState struct {
	Done   int64     `json:"done"`          // bytes
	Hashes [5][]byte `json:"hashes"`        // of the content, and of the part that has begun
	Part   int64     `json:"part,omitzero"` // size of a part
	Left   int64     `json:"left,omitzero"` // bytes of that one to come
	Parts  []byte    `json:"parts,omitempty"`

	PartMD5  []byte `json:"part_md5,omitempty"` // state of the part that has begun
	PartsMD5 []byte `json:"parts_md5,omitempty"`
}

func (d *digester) hashes() [5]hash.Hash {
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
		return fmt.Errorf("%w: the state of %T cannot be restored", ErrCheckpoint, h)
	}
	if err := m.UnmarshalBinary(state); err != nil {
		return fmt.Errorf("%w: %w", ErrCheckpoint, err)
	}
	return nil
}

// state may be called while the workers are idle.
func (d *digester) state(done int64) (s hashState, err error) {
	s.Done, s.Part, s.Left = done, d.parts.size, d.parts.left
	for i, h := range d.hashes() {
		if s.Hashes[i], err = keepState(h); err != nil {
			return s, err
		}
	}
	s.Parts = bytes.Join(d.parts.sums, nil)
	if d.md5s != nil {
		s.PartsMD5 = bytes.Join(d.md5s.sums, nil)
		s.PartMD5, err = keepState(d.md5s.hash)
	}
	return s, err
}

func (d *digester) restore(s hashState) error {
	if len(s.Parts)%sha256.Size != 0 || s.Part != d.parts.size || s.Left < 0 || s.Left > s.Part {
		return fmt.Errorf("%w: the state of the digests is invalid", ErrCheckpoint)
	}
	for i, h := range d.hashes() {
		if err := restoreState(h, s.Hashes[i]); err != nil {
			return err
		}
	}
	d.parts.restore(s.Left, s.Parts)
	if d.md5s == nil {
		return nil
	}
	if len(s.PartsMD5) != len(s.Parts)/2 {
		return fmt.Errorf("%w: it has no MD5 of the parts", ErrCheckpoint)
	}
	d.md5s.restore(s.Left, s.PartsMD5)
	return restoreState(d.md5s.hash, s.PartMD5)
}

// start brings up one goroutine for each algorithm, and one or two for the parts.
func (d *digester) start() {
	if d.workers != nil {
		return
	}
	d.large = [4]hash.Hash{md5.New(), sha1.New(), sha256.New(), sha512.New()}
	d.parts = &partHash{hash: sha256.New()}
	d.free = make(chan *block, blockCount)
	for range blockCount {
		d.free <- &block{data: make([]byte, blockBytes)}
	}
	hashes := []io.Writer{d.large[0], d.large[1], d.large[2], d.large[3], d.parts}
	if d.md5s != nil {
		hashes = append(hashes, d.md5s)
	}
	for _, h := range hashes {
		w := make(chan *block, blockCount)
		d.workers = append(d.workers, w)
		go d.work(w, h)
	}
}

func (d *digester) work(in <-chan *block, h io.Writer) {
	for b := range in {
		_, _ = h.Write(b.data[:b.n]) // hashes do not fail
		if b.refs.Add(-1) == 0 {
			d.free <- b
		}
	}
}

// settle waits until every block is back. From then on the hashes belong to the
// caller: each worker's last write came before it let go of its block.
func (d *digester) settle() {
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
	if size <= partSize {
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

// newPartDigests is nil if there are no parts.
func newPartDigests(sha256s, md5s [][]byte) *PartDigests {
	if len(sha256s) == 0 {
		return nil
	}
	p := &PartDigests{}
	for _, sum := range sha256s {
		p.SHA256 = append(p.SHA256, [32]byte(sum))
	}
	for _, sum := range md5s {
		p.MD5 = append(p.MD5, [16]byte(sum))
	}
	return p
}
