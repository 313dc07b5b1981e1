package reply

import (
	"net/http"
	"time"

	"github.com/farol-preservation/farol/web/request"
)

// Timed bounds how long clients may take to send requests and to read answers. A handler may
// work and wait for as long as it likes: the time for a part of an answer begins when it is
// written.
func Timed(next http.Handler) http.Handler { return timedBy(next, answerTime) }

func timedBy(next http.Handler, long time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out := &timed{w, long}
		next.ServeHTTP(out, request.Timed(w, r))
		out.begin() // for what the server writes when the handler has ended
	})
}

// timed gives the client time to read each part of an answer.
type timed struct {
	http.ResponseWriter

	long time.Duration
}

func (t *timed) begin() { begin(t.ResponseWriter, t.long) }

// WriteHeader is of http.ResponseWriter.
func (t *timed) WriteHeader(status int) {
	t.begin()
	t.ResponseWriter.WriteHeader(status)
}

// Write is of http.ResponseWriter.
func (t *timed) Write(p []byte) (int, error) {
	t.begin()
	return t.ResponseWriter.Write(p) //nolint:wrapcheck // as it is
}

// Unwrap is for http.ResponseController.
func (t *timed) Unwrap() http.ResponseWriter { return t.ResponseWriter }
