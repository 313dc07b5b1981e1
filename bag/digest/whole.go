package digest

import "hash"

// Whole computes the digest of the tar itself, in step with what is made of its
// bytes: at a checkpoint it stands where the checkpoint does. The first block is
// hashed where it is read, all others by another goroutine. Without a hash it does
// nothing.
type Whole struct {
	hash hash.Hash
	buf  []byte // not hashed yet
	in   chan wholeBlock
	free chan []byte

	// What is read from an offset on is held back, so that the state can still be
	// that of the offset when the header there has been read.
	holding bool
	from    int64
	held    []byte
	late    bool // too much was held back, and some of it hashed
}

type wholeBlock struct {
	data []byte
	idle chan<- struct{} // is closed when it has been hashed; may be nil
}

const (
	wholeBytes  = 256 << 10
	wholeBlocks = 4
	// maxHeld is more than a header has that archive/tar takes, but for absurd ones.
	maxHeld = 4 << 20
)

// NewWhole goes on from the state that a checkpoint has, if it is one. If that
// cannot be used, the digest will not be known.
func NewWhole(h hash.Hash, resumed bool, state []byte) *Whole {
	if h == nil || resumed && (state == nil || restoreState(h, state) != nil) {
		return &Whole{}
	}
	return &Whole{hash: h, buf: make([]byte, 0, wholeBytes)}
}

// Write takes the bytes at an offset of the tar.
func (w *Whole) Write(offset int64, p []byte) {
	if w.hash == nil {
		return
	}
	if !w.holding {
		w.feed(p)
		return
	}
	now := min(max(w.from-offset, 0), int64(len(p)))
	w.feed(p[:now])
	w.held = append(w.held, p[now:]...)
	if len(w.held) > maxHeld {
		w.Release()
		w.late = true
	}
}

// Hold keeps back what is read from an offset on.
func (w *Whole) Hold(offset int64) { w.holding, w.from, w.late = w.hash != nil, offset, false }

// Release ends hold.
func (w *Whole) Release() {
	w.feed(w.held)
	w.holding, w.held = false, w.held[:0]
}

func (w *Whole) feed(p []byte) {
	for len(p) > 0 {
		if len(w.buf) == cap(w.buf) {
			w.pass(nil)
		}
		n := min(len(p), cap(w.buf)-len(w.buf))
		w.buf = append(w.buf, p[:n]...)
		p = p[n:]
	}
}

// pass hands on what there is to be hashed.
func (w *Whole) pass(idle chan<- struct{}) {
	if w.in == nil {
		w.in, w.free = make(chan wholeBlock, wholeBlocks), make(chan []byte, wholeBlocks)
		for range wholeBlocks - 1 {
			w.free <- make([]byte, 0, wholeBytes)
		}
		go w.run(w.in)
	}
	w.in <- wholeBlock{w.buf, idle}
	w.buf = <-w.free
}

func (w *Whole) run(in <-chan wholeBlock) {
	for b := range in {
		_, _ = w.hash.Write(b.data) // hashes do not fail
		if b.idle != nil {
			close(b.idle)
		}
		w.free <- b.data[:0]
	}
}

// settle has all of it hashed. Then the hash is the caller's until the next write.
func (w *Whole) settle() {
	if w.in == nil {
		_, _ = w.hash.Write(w.buf)
		w.buf = w.buf[:0]
		return
	}
	idle := make(chan struct{})
	w.pass(idle)
	<-idle
}

// State is for a checkpoint at an offset up to which all was written and nothing
// behind it hashed; nil if that is not so.
func (w *Whole) State(offset int64) []byte {
	if w.hash == nil || w.late || w.holding && w.from != offset {
		return nil
	}
	w.settle()
	state, err := keepState(w.hash)
	if err != nil {
		return nil // after a resume from there the digest is unknown
	}
	return state
}

// Sum is the digest of all that was written; nil if that is not known.
func (w *Whole) Sum() []byte {
	if w.hash == nil {
		return nil
	}
	w.Release()
	w.settle()
	return w.hash.Sum(nil)
}

// Close ends the goroutine that hashes.
func (w *Whole) Close() {
	if w.in != nil {
		close(w.in)
		w.in = nil
	}
}
