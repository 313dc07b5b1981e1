package restore

import (
	"io"
	"sync"
)

// A handover is a pipe that holds some chunks, so that the reader from preservation and the
// writer to staging do not wait for each other at every piece. The reader gets the writer's
// error after all bytes that were written before it.
type handover struct {
	full, free chan []byte
	closed     chan struct{} // nobody reads any more
	once       sync.Once
	err        error // once full is closed

	filling []byte // the writer's
	reading []byte // the reader's, and what is left of it
	left    []byte
}

func newHandover() *handover {
	const chunk, chunks = 128 << 10, 4
	h := &handover{full: make(chan []byte, chunks), free: make(chan []byte, chunks), closed: make(chan struct{})}
	for range chunks {
		h.free <- make([]byte, 0, chunk)
	}
	return h
}

// Write keeps a copy of p.
func (h *handover) Write(p []byte) (n int, err error) {
	for n < len(p) {
		if h.filling == nil {
			select {
			case h.filling = <-h.free:
			case <-h.closed:
				return n, io.ErrClosedPipe
			}
		}
		m := min(len(p)-n, cap(h.filling)-len(h.filling))
		h.filling = append(h.filling, p[n:n+m]...)
		n += m
		if len(h.filling) == cap(h.filling) {
			h.pass()
		}
	}
	return n, nil
}

func (h *handover) pass() {
	h.full <- h.filling // which has space for all chunks
	h.filling = nil
}

// end says why nothing more will be written; nil is the end of the content.
func (h *handover) end(err error) {
	if h.filling != nil {
		h.pass()
	}
	if h.err = err; err == nil {
		h.err = io.EOF
	}
	close(h.full)
}

// Read waits for what is written, or for the writer's end.
func (h *handover) Read(p []byte) (int, error) {
	for len(h.left) == 0 {
		if h.reading != nil {
			h.free <- h.reading[:0]
			h.reading = nil
		}
		chunk, ok := <-h.full
		if !ok {
			return 0, h.err
		}
		h.reading, h.left = chunk, chunk
	}
	n := copy(p, h.left)
	h.left = h.left[n:]
	return n, nil
}

// Close says that nobody reads any more.
func (h *handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}
