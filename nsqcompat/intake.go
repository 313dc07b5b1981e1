package nsqcompat

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// intake is the memory for requests that are being read, and saved. It is taken as
// bytes arrive: what a caller announces and does not send takes none. Nobody waits
// for it, since those who have it may be slow; who finds none is told to come again.
type intake struct {
	most  int64 // bytes of all
	share int64 // bytes of one caller

	mu   sync.Mutex
	used int64
	of   map[string]int64 // by caller
}

func newIntake(most, share int64) *intake {
	return &intake{most: most, share: share, of: map[string]int64{}}
}

// errBusy says that there is no memory for a request at the moment.
var errBusy = errors.New("too many requests are being read at the moment; send it again in a second")

// errSlow says that a request came so slowly that it was given up.
var errSlow = errors.New("the request came too slowly; send it again over a quicker connection, or in parts")

func (in *intake) take(caller string, n int64) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.used+n > in.most || in.of[caller]+n > in.share {
		return false
	}
	in.used += n
	in.of[caller] += n
	return true
}

func (in *intake) give(caller string, n int64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.used -= n
	if in.of[caller] -= n; in.of[caller] <= 0 {
		delete(in.of, caller)
	}
}

// intakes are the memory for small parts of requests and that for what is beyond
// them, so that many small ones never wait for few large ones; and how quickly
// requests have to come.
type intakes struct {
	small, large *intake
	grace        time.Duration // that a request has in any case
	rate         float64       // bytes that have to come in each second, on average, after that
}

const (
	// smallBody is what a small request has at most.
	smallBody = 64 << 10
	// smallBytes and largeBytes are how many bytes of requests are in memory at once,
	// as they came; a caller has half of them at most.
	smallBytes = 32 << 20
	largeBytes = 64 << 20
	// Slower than this is nobody who means it.
	readGrace = 10 * time.Second
	leastRate = 16 << 10
	// firstBytes is what a request takes at first.
	firstBytes = 1 << 10
)

func newIntakes(mostBody int64) intakes {
	large := max(largeBytes, 2*mostBody)
	return intakes{small: newIntake(smallBytes, smallBytes/2), large: newIntake(large, large/2), grace: readGrace, rate: leastRate}
}

// held is what one request has of the memory.
type held struct {
	of     intakes
	caller string
	mu     sync.Mutex
	bytes  int64
	left   bool
}

// grow takes memory for a request that is to have so many bytes.
func (h *held) grow(to int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	small := max(min(to, smallBody)-min(h.bytes, smallBody), 0)
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

// leave gives all back. It may be called again.
func (h *held) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left {
		return
	}
	h.left = true
	small := min(h.bytes, smallBody)
	h.of.small.give(h.caller, small)
	h.of.large.give(h.caller, h.bytes-small)
}

// callerOf is who has a share: the token, or without one the address.
func callerOf(c Caller, r *http.Request) string {
	if c.Name != "" {
		return "token " + c.Name
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// read reads a request of up to most bytes. leave gives its memory back, and has to
// be called when the request is no longer in memory.
func (in intakes) read(w http.ResponseWriter, r *http.Request, caller string, most int64) (body []byte, leave func(), err error) {
	if r.ContentLength > most {
		return nil, nil, &http.MaxBytesError{Limit: most}
	}
	h := &held{of: in, caller: caller}
	body, err = in.readAll(http.NewResponseController(w), http.MaxBytesReader(w, r.Body, most), h, r.ContentLength, most)
	if err != nil {
		h.leave()
		return nil, nil, err
	}
	return body, h.leave, nil
}

func (in intakes) readAll(c *http.ResponseController, from io.Reader, h *held, announced, most int64) (body []byte, err error) {
	began := time.Now()
	last := most + 1 // one more, for the end to be seen
	if announced >= 0 {
		last = announced + 1
	}
	for {
		if len(body) == cap(body) {
			to := min(max(2*int64(cap(body)), firstBytes), max(last, int64(cap(body))+1))
			if !h.grow(to) {
				return nil, errBusy
			}
			grown := make([]byte, len(body), to)
			copy(grown, body)
			body = grown
		}
		long := in.grace + time.Duration(float64(len(body))/in.rate*float64(time.Second))
		c.SetReadDeadline(began.Add(long)) //nolint:errcheck // where there is none to set, none is needed
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case errors.Is(err, io.EOF):
			c.SetReadDeadline(time.Time{}) //nolint:errcheck // it may wait as long as it likes for the answer
			return body, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, errSlow
		case err != nil:
			return nil, fmt.Errorf("read the request: %w", err)
		}
	}
}
