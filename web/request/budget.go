package request

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"
)

// Errors that end the reading of a request: it was not read to its end, and so its
// connection cannot be used again.
var (
	ErrBusy = errors.New("too many requests are being read at the moment; send it again in a second")
	ErrSlow = errors.New("the request arrived too slowly; send it again over a faster connection, or in parts")
)

const (
	// SmallBody is the greatest size of a small request, in bytes.
	SmallBody = 64 << 10

	// smallBytes and largeBytes bound the bytes of requests in memory at once.
	smallBytes = 32 << 20
	largeBytes = 64 << 20
	// grace and rate are how slowly a request may come.
	grace = 10 * time.Second
	rate  = 16 << 10 // bytes a second
	// firstBytes is the memory that a request takes at first.
	firstBytes = 1 << 10
)

// Budget is the memory for requests that are being read and saved. It is taken as
// bytes arrive, so what a caller announces and does not send takes none. A caller
// who finds none left is refused at once, since those who have it may be slow.
//
// Small requests have memory of their own, so that many small ones never wait for a
// few large ones. It is safe for concurrent use.
type Budget struct {
	small, large *pool
	l            Limits
}

// Limits say how much memory requests may take, and how slowly they may come. What is
// zero has a default.
type Limits struct {
	MostBody int64         // bytes of one request; needed
	Large    int64         // bytes of all large requests; a caller may have half; 0 is 64 MiB, or twice MostBody
	Grace    time.Duration // that a request has in any case; 0 is 10 s
	Rate     float64       // bytes a second that have to come on average after that; 0 is 16 KiB
}

// NewBudget returns the budget of one API.
func NewBudget(l Limits) *Budget {
	if l.Large <= 0 {
		l.Large = max(largeBytes, 2*l.MostBody)
	}
	if l.Grace <= 0 {
		l.Grace = grace
	}
	if l.Rate <= 0 {
		l.Rate = rate
	}
	return &Budget{small: newPool(smallBytes), large: newPool(l.Large), l: l}
}

// pool is memory that callers share.
type pool struct {
	most int64 // bytes of all; a caller may have half

	mu   sync.Mutex
	used int64
	of   map[string]int64 // by caller
}

func newPool(most int64) *pool { return &pool{most: most, of: map[string]int64{}} }

func (p *pool) take(caller string, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used+n > p.most || p.of[caller]+n > p.most/2 {
		return false
	}
	p.used += n
	p.of[caller] += n
	return true
}

func (p *pool) give(caller string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= n
	if p.of[caller] -= n; p.of[caller] <= 0 {
		delete(p.of, caller)
	}
}

// Used is the memory that requests hold now, in bytes.
func (b *Budget) Used() (n int64) {
	for _, p := range []*pool{b.small, b.large} {
		p.mu.Lock()
		n += p.used
		p.mu.Unlock()
	}
	return n
}

// held is what one request holds of the budget.
type held struct {
	of       *Budget
	caller   string
	mu       sync.Mutex
	bytes    int64
	released bool
}

// grow takes memory for a request that is to have so many bytes.
func (h *held) grow(to int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	small := max(min(to, SmallBody)-min(h.bytes, SmallBody), 0)
	large := to - h.bytes - small
	if !h.of.small.take(h.caller, small) {
		return false
	}
	if !h.of.large.take(h.caller, large) {
		h.of.small.give(h.caller, small)
		return false
	}
	h.bytes = to
	return true
}

// release gives all back. It may be called again.
func (h *held) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.released {
		return
	}
	h.released = true
	small := min(h.bytes, SmallBody)
	h.of.small.give(h.caller, small)
	h.of.large.give(h.caller, h.bytes-small)
}

// Read reads a request for a caller. release gives its memory
// back; it must be called once the request is no longer in memory. In addition to [ErrBusy]
// and [ErrSlow] the error may be a [*http.MaxBytesError].
func (b *Budget) Read(w http.ResponseWriter, r *http.Request, caller string) (body []byte, release func(), err error) {
	return b.ReadUpTo(w, r, caller, b.l.MostBody)
}

// ReadUpTo is Read for a request that may have fewer bytes than others.
func (b *Budget) ReadUpTo(w http.ResponseWriter, r *http.Request, caller string, most int64) (body []byte, release func(), err error) {
	if r.ContentLength > most {
		return nil, nil, &http.MaxBytesError{Limit: most}
	}
	h := &held{of: b, caller: caller}
	body, err = b.readAll(http.NewResponseController(w), http.MaxBytesReader(w, r.Body, most), h, r.ContentLength, most)
	if err != nil {
		h.release()
		return nil, nil, err
	}
	return body, h.release, nil
}

func (b *Budget) readAll(c *http.ResponseController, from io.Reader, h *held, announced, most int64) (body []byte, err error) {
	began := time.Now()
	last := most + 1 // one more, for the end to be seen
	if announced >= 0 {
		last = announced + 1
	}
	for {
		if len(body) == cap(body) {
			to := min(max(2*int64(cap(body)), firstBytes), max(last, int64(cap(body))+1))
			if !h.grow(to) {
				return nil, ErrBusy
			}
			grown := make([]byte, len(body), to)
			copy(grown, body)
			body = grown
		}
		long := b.l.Grace + time.Duration(float64(len(body))/b.l.Rate*float64(time.Second))
		c.SetReadDeadline(began.Add(long)) //nolint:errcheck // where there is none to set, none is needed
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case errors.Is(err, io.EOF):
			c.SetReadDeadline(time.Time{}) //nolint:errcheck // it may wait for the answer without limit
			return body, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, ErrSlow
		case err != nil:
			return nil, fmt.Errorf("read the request: %w", err)
		}
	}
}
