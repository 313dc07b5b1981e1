package reply

import (
	"net/http"

	"github.com/farol-preservation/farol/web/request"
)

// Timed bounds how long clients may take to send requests and to read answers. A handler may
// work and wait for as long as it likes: the time for a part of an answer begins when it is
// written.
func Timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&timed{w}, request.Timed(w, r))
		Begin(w) // for what the server writes when the handler has ended
	})
}

// timed gives the client time to read each part of an answer.
type timed struct{ http.ResponseWriter }

// WriteHeader is of http.ResponseWriter.
func (t *timed) WriteHeader(status int) {
	Begin(t.ResponseWriter)
	t.ResponseWriter.WriteHeader(status)
}

// Write is of http.ResponseWriter.
func (t *timed) Write(p []byte) (int, error) {
	Begin(t.ResponseWriter)
	return t.ResponseWriter.Write(p) //nolint:wrapcheck // as it is
}

// Unwrap is for http.ResponseController.
func (t *timed) Unwrap() http.ResponseWriter { return t.ResponseWriter }
