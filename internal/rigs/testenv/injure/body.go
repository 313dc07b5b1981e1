package injure

import (
	"io"
	"net/http"
	"strconv"
)

// Flip changes a bit of the byte at an offset of an answer.
func Flip(r *http.Response, at int64) {
	r.Body = &body{&flipper{r.Body, at}, r.Body}
}

// Cut ends the connection before the byte at an offset of an answer.
func Cut(r *http.Response, at int64) {
	r.Body = &body{io.MultiReader(io.LimitReader(r.Body, at), broken{}), r.Body}
}

// Shorten takes away the end of an answer and says that this is all.
func Shorten(r *http.Response, length int64) {
	r.ContentLength = length
	r.Header.Set("Content-Length", strconv.FormatInt(length, 10))
	r.Body = &body{io.LimitReader(r.Body, length), r.Body}
}

// body is a body with another reader.
type body struct {
	io.Reader
	io.Closer
}

// flipper changes the byte at an offset, which is negative when it has passed.
type flipper struct {
	r  io.Reader
	at int64
}

func (f *flipper) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if f.at >= 0 && f.at < int64(n) {
		p[f.at] ^= 1
	}
	f.at -= int64(n)
	return n, err
}

// broken is the end of a connection.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, http.ErrAbortHandler }
