package request

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// Timed bounds how long the body of a request may take, whether a handler reads it or not:
// the server reads what is left of it before it answers, and waits for it without limit
// otherwise. A body may take ten seconds, and after that has to come at 16 KiB a second on
// average. It returns the request for the handler; that of the server stays as it is, since
// the server looks at its body.
func Timed(w http.ResponseWriter, r *http.Request) *http.Request {
	if r.Body == nil || r.Body == http.NoBody {
		return r
	}
	b := &timed{ReadCloser: r.Body, connection: http.NewResponseController(w), began: time.Now()}
	b.bound()
	r = r.WithContext(r.Context())
	r.Body = b
	return r
}

// timed is a body that has to come in time.
type timed struct {
	io.ReadCloser

	connection *http.ResponseController
	began      time.Time
	n          int64
	ended      bool
}

// bound sets the deadline for what is still to come.
func (b *timed) bound() {
	long := grace + time.Duration(float64(b.n)/rate*float64(time.Second))
	b.connection.SetReadDeadline(b.began.Add(long)) //nolint:errcheck // where there is none to set, none is needed
}

// Read is of io.Reader. At the end of the body the deadline is taken back: from then on the
// server reads the connection to notice that the caller has gone.
func (b *timed) Read(p []byte) (int, error) {
	if !b.ended {
		b.bound()
	}
	n, err := b.ReadCloser.Read(p)
	b.n += int64(n)
	if errors.Is(err, io.EOF) && !b.ended {
		b.ended = true
		b.connection.SetReadDeadline(time.Time{}) //nolint:errcheck // as above
	}
	return n, err //nolint:wrapcheck // as it is
}
