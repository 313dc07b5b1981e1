package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/pipeline/cause"
	"github.com/farol-preservation/farol/pipeline/copies"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// stream produces content that is made of stored files, from the beginning of any part. While
// a large file passes, the state of its digests is kept for each part that begins within it,
// so that a restart there needs nothing that was sent.
type stream struct {
	*giving

	partSize int64
	write    func(ctx context.Context, out *outlet) error // all of the content
	whole    whole                                        // of what was produced; the reader's

	mu     sync.Mutex
	states map[int64]fileState // by the offset of a part
	failed error               // what no further try would repair
}

// fileState is how far the file is digested within which a part begins.
type fileState struct {
	File  string `json:"file"` // identifier
	State []byte `json:"state"`
	Mixed bool   `json:"mixed,omitempty"` // not all of it came from one copy, or in this attempt

	Begin  int64  `json:"begin,omitempty"`  // offset of the part in which the file begins
	Before []byte `json:"before,omitempty"` // state there of the SHA-256 of the content
}

const (
	leastPart = 16 << 20
	mostParts = 10_000 // S3's bound
)

// partSizeOf is the size of the parts of content: a failure costs one of them.
func partSizeOf(size int64) int64 {
	const unit = 1 << 20
	part := (size + mostParts - 1) / mostParts
	return max((part+unit-1)/unit*unit, leastPart)
}

// from is what [storage.Stream] asks for. Closing the reader ends the goroutine that writes
// to it.
func (s *stream) from(ctx context.Context, offset int64) (io.ReadCloser, error) {
	if err := s.verdict(nil); err != nil {
		return nil, err
	}
	s.whole.part = s.partSize
	if !s.whole.begin(offset) { // an earlier attempt sent what is before it
		return nil, &storage.RewindError{Err: errors.New("the digest of what was sent is not known there")}
	}
	ctx, cancel := context.WithCancel(ctx)
	h := newHandover()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		out := &outlet{stream: s, to: h, from: offset}
		err := s.w.Hold.Do(func(context.Context) error { return s.write(ctx, out) })
		h.end(s.verdict(err))
	}()
	return &produced{handover: h, whole: &s.whole, cancel: cancel, ended: ended}, nil
}

// verdict keeps an error that says what it comes to, so that a later try
// gets the same.
func (s *stream) verdict(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil && err != nil && cause.Known(err) && !claim.IsTransient(err) {
		s.failed = err
	}
	return cmp.Or(s.failed, err)
}

// produced is the reading end.
type produced struct {
	*handover

	whole  *whole
	cancel context.CancelFunc
	ended  chan struct{}
}

// Read digests what it returns.
func (p *produced) Read(b []byte) (int, error) {
	n, err := p.handover.Read(b)
	return n, cmp.Or(p.whole.write(b[:n]), err)
}

// Close waits until nothing more is read from any copy.
func (p *produced) Close() error {
	p.cancel()
	err := p.handover.Close()
	<-p.ended
	return err
}

func (s *stream) keep(offset int64, st fileState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states == nil {
		s.states = map[int64]fileState{}
	}
	s.states[offset] = st
}

// an outlet takes the content from its beginning and passes on what is wanted.
type outlet struct {
	*stream

	to   io.Writer
	from int64 // what is before it is not passed on
	at   int64
}

// put takes bytes that are at hand.
func (o *outlet) put(p []byte) error {
	skip := min(max(o.from-o.at, 0), int64(len(p)))
	o.at += int64(len(p))
	if skip == int64(len(p)) {
		return nil
	}
	if _, err := o.to.Write(p[skip:]); err != nil {
		return fmt.Errorf("%w: %w", errClosed, err)
	}
	return nil
}

// Write is put, as an [io.Writer].
func (o *outlet) Write(p []byte) (int, error) {
	if err := o.put(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// past tells whether content of a size would be passed over as a whole, and then
// does.
func (o *outlet) past(size int64) bool {
	if o.at+size > o.from {
		return false
	}
	o.at += size
	return true
}

// large passes a large file on as it is read. If its digest is wrong at its end, the parts
// that were sent have to be replaced: the content continues from the part in which the file
// began, and another copy is read.
func (o *outlet) large(ctx context.Context, f registry.StoredFile) error {
	begin := o.at
	p := &passing{outlet: o, f: f, begin: begin, sums: copies.NewSums(o.algorithms)}
	if o.from > begin {
		p.resume()
	}
	return o.fromAny(ctx, f, func(b *storage.Bucket, c record.StoredCopy) error { return p.read(ctx, b, c) })
}

// passing is a large file on its way.
type passing struct {
	*outlet

	f     registry.StoredFile
	begin int64 // of its content
	done  int64 // bytes of it that were read
	sums  *copies.Sums
	copy  string // URL of the copy that all of it came from so far
	mixed bool   // not all of it came from one copy, in this attempt
}

// resume goes on within the file, where the part begins that is wanted. Without a
// state for that the file is read from its beginning, and only digested until there.
func (p *passing) resume() {
	st := p.stateFor(p.from)
	if st.File != p.f.Identifier || !p.sums.GoOn(st.State) {
		p.sums = copies.NewSums(p.algorithms)
		return
	}
	p.done, p.at, p.mixed = p.from-p.begin, p.from, true
}

// read reads what is left of the file from one copy. A connection that breaks after
// it has brought something is no reason to give up.
func (p *passing) read(ctx context.Context, b *storage.Bucket, c record.StoredCopy) error {
	const something = 1 << 20
	if p.copy != "" && p.copy != c.URL {
		p.mixed = true
	}
	p.copy = c.URL
	for {
		before := p.done
		err := p.readOn(ctx, b, c)
		if err == nil || p.done < before+something || ends(err) || useless(err) || ctx.Err() != nil {
			return err
		}
	}
}

func (p *passing) readOn(ctx context.Context, b *storage.Bucket, c record.StoredCopy) error {
	body, err := b.Get(ctx, c.Key, storage.Range{Offset: p.done, Length: p.f.Size - p.done})
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // what was read of it is digested
	buffer := make([]byte, 128<<10)
	for p.done < p.f.Size {
		// Full, since TLS brings 16 KiB at a time, and each piece wakes up the upload.
		got := copies.Fill(body, buffer[:min(int64(len(buffer)), p.f.Size-p.done, p.toBoundary())])
		if len(got.Buf) > 0 {
			if err := p.pass(got.Buf); err != nil {
				return err
			}
		}
		if got.Err != nil && p.done < p.f.Size {
			return got.Err
		}
	}
	return p.judge(ctx, c)
}

// toBoundary is how many bytes there are to the beginning of the next part.
func (p *passing) toBoundary() int64 { return p.partSize - p.at%p.partSize }

func (p *passing) pass(bytes []byte) error {
	_, _ = p.sums.Write(bytes) // never an error
	p.done += int64(len(bytes))
	if err := p.put(bytes); err != nil {
		return err
	}
	if p.at%p.partSize != 0 {
		return nil
	}
	state, err := p.sums.State()
	if err != nil {
		return err
	}
	p.keep(p.at, fileState{File: p.f.Identifier, State: state, Mixed: p.mixed, Begin: p.begin / p.partSize * p.partSize})
	return nil
}

// judge compares the digests at the end of the file. A copy is to blame only if all
// of the file came from it, and is read so twice.
func (p *passing) judge(ctx context.Context, c record.StoredCopy) error {
	err := p.sums.Differ(p.f)
	if err == nil {
		return nil
	}
	if !p.mixed && p.doubt(c, err) {
		p.spoil(ctx, p.f, c, err)
	}
	p.forget()
	return &storage.RewindError{Offset: p.begin / p.partSize * p.partSize, Err: err}
}

// forget drops the states of a file that has to be read again.
func (p *passing) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for offset, st := range p.states {
		if st.File == p.f.Identifier {
			delete(p.states, offset)
		}
	}
}
