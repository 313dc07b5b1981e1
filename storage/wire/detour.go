package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	smithyhttp "github.com/aws/smithy-go/transport/http"
)

var errNoLength = &strangeAnswer{"the answer does not give the object's length"}

// sized is an answer with the length of the object, which some servers and proxies leave out where
// they send in chunks. The answer to a range says it.
func (c *Conn) sized(ctx context.Context, r *Request, got *http.Response) (*http.Response, error) {
	if got.ContentLength >= 0 || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return got, nil
	}
	if from, to, _, ok := rangeOf(got); ok && r.Method == http.MethodGet {
		got.ContentLength = to - from + 1
		return got, nil
	}
	if r.Header["Range"] != nil || r.Query != "" {
		_ = got.Body.Close() // nothing of it is used
		return nil, errNoLength
	}
	c.detour()
	part, err := c.sendAgain(ctx, r.ranged())
	var response *smithyhttp.ResponseError
	switch {
	case errors.As(err, &response) && response.HTTPStatusCode() == http.StatusRequestedRangeNotSatisfiable:
		got.ContentLength = 0 // there is no first byte
		return got, nil
	case err != nil:
		_ = got.Body.Close() // nothing of it is used
		return nil, err
	}
	_, _, size, ok := rangeOf(part)
	if ok = ok && size > 0 && part.Header.Get("Etag") == got.Header.Get("Etag"); r.Method == http.MethodGet {
		got, part = part, got
	}
	_ = part.Body.Close() // nothing of it is used
	if !ok {
		_ = got.Body.Close()
		return nil, errNoLength
	}
	got.ContentLength = size
	return got, nil
}

// ranged asks for the same in a range: all of it, or the first byte for a HEAD.
func (r *Request) ranged() *Request {
	again := NewRequest("GetObject", http.MethodGet, r.Key)
	again.Header = r.Header.Clone()
	again.Set("Range", "bytes=0-")
	if r.Method == http.MethodHead {
		again.Set("Range", "bytes=0-0")
	}
	return again
}

// rangeOf reads a Content-Range (RFC 9110, section 14.4): the first and the last byte, and the
// length of the whole; below 0: the server does not know it.
func rangeOf(r *http.Response) (from, to, size int64, ok bool) {
	text, unit := strings.CutPrefix(r.Header.Get("Content-Range"), "bytes ")
	first, rest, dash := strings.Cut(text, "-")
	last, whole, slash := strings.Cut(rest, "/")
	from, err := strconv.ParseInt(first, 10, 64)
	to, err2 := strconv.ParseInt(last, 10, 64)
	size, err3 := strconv.ParseInt(whole, 10, 64)
	if whole == "*" {
		size, err3 = -1, nil
	}
	ok = unit && dash && slash && errors.Join(err, err2, err3) == nil && 0 <= from && from <= to && (size < 0 || to < size)
	return from, to, size, ok
}

// An askingTransport sends a body unasked where something on the way answers 417 to the question
// whether it wants one (RFC 9110, section 10.1.1), and asks that endpoint no more.
type askingTransport struct {
	http.RoundTripper
	refused *atomic.Bool
	detour  func()
}

// RoundTrip sends a request, at most twice.
func (t askingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header["Expect"] == nil || r.Body == nil {
		return t.RoundTripper.RoundTrip(r)
	}
	if t.refused.Load() {
		return t.RoundTripper.RoundTrip(unasked(r))
	}
	held := &heldBody{ReadCloser: r.Body}
	asking := r.WithContext(r.Context())
	asking.Body = held
	response, err := t.RoundTripper.RoundTrip(asking)
	if err != nil || response.StatusCode != http.StatusExpectationFailed {
		held.letGo()
		return response, err
	}
	t.refused.Store(true)
	if !held.leave() { // some of it is gone, since the answer took long: who sends it again will not ask
		return response, nil
	}
	t.detour()
	_ = response.Body.Close() // a refusal that is not passed on
	return t.RoundTripper.RoundTrip(unasked(r))
}

func unasked(r *http.Request) *http.Request {
	again := r.Clone(r.Context())
	delete(again.Header, "Expect")
	return again
}

// A heldBody is not closed before it was read from, so that another request may have it.
type heldBody struct {
	io.ReadCloser

	mu                      sync.Mutex
	began, asked, elsewhere bool
}

func (b *heldBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	if b.elsewhere {
		b.mu.Unlock()
		return 0, fmt.Errorf("read a body: %w", io.ErrClosedPipe)
	}
	b.began = true
	b.mu.Unlock()
	return b.ReadCloser.Read(p)
}

// Close closes a body that was read from, and remembers it of another one.
func (b *heldBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = true
	if b.elsewhere || !b.began {
		return nil
	}
	return b.ReadCloser.Close()
}

// letGo closes the body if it was to be closed, and has Close do so from now on.
func (b *heldBody) letGo() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if asked := b.asked && !b.began; asked {
		_ = b.ReadCloser.Close() // nothing was read of it
	}
	b.began = true
}

// leave has nobody read the body by this request any more, and reports whether nobody has.
func (b *heldBody) leave() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.elsewhere = !b.began
	return b.elsewhere
}
