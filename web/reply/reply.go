// Package reply writes the answers of the HTTP APIs: JSON for a success, and a
// problem as RFC 9457 defines it for everything else.
package reply

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/request"
)

// Problem is an answer that is not a success. Programs decide by its code, which does
// not change from version to version. As an error it is its detail.
type Problem struct {
	Type   string `json:"type"`  // made from the code
	Title  string `json:"title"` // made from the status
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`

	// Rule and Args say what refuses, for programs; Next is what the caller can do about it.
	Rule string            `json:"rule,omitempty"`
	Args map[string]string `json:"args,omitempty"`
	Next string            `json:"next,omitempty"`

	// Errors are the parts of a request that are wrong, if there are several.
	Errors []Wrong `json:"errors,omitempty"`

	// RetryAfter is the header of that name, in seconds.
	RetryAfter string `json:"-"`

	// How a claim had been ended before, of the code ended.
	Outcome   string `json:"outcome,omitempty"`
	ErrorCode string `json:"error_code,omitempty"`

	// NQ is the detail again, under the key where clients of NQ look for it.
	NQ string `json:"_error,omitempty"`
}

// Wrong is a part of a request that is wrong.
type Wrong struct {
	Pointer string `json:"pointer"` // a JSON pointer into the body, or the name of a parameter
	Detail  string `json:"detail"`
}

// Error is the detail.
func (p Problem) Error() string { return p.Detail }

// GetStatus is the status, for huma.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is that of RFC 9457, for huma.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// GetHeaders are the headers of the answer, for huma.
func (p *Problem) GetHeaders() http.Header { return p.headers() }

// MarshalJSON adds what follows from the code and the status.
func (p Problem) MarshalJSON() ([]byte, error) {
	type plain Problem
	p.Type, p.Title = "urn:farol:problem:"+p.Code, http.StatusText(p.Status)
	return json.Marshal(plain(p)) //nolint:wrapcheck // of a struct of texts
}

func (p Problem) headers() http.Header {
	h := http.Header{}
	switch {
	case p.Status == http.StatusServiceUnavailable, p.Status == http.StatusTooManyRequests, p.RetryAfter != "":
		h.Set("Retry-After", cmp.Or(p.RetryAfter, "1"))
	case p.Status == http.StatusUnauthorized:
		h.Set("WWW-Authenticate", `Bearer realm="farol"`)
	}
	switch p.Code {
	case "busy", "too-slow", "too-large":
		h.Set("Connection", "close")
	}
	return h
}

// ProblemOf returns the problem that an error is in every API: that of a refused
// caller, or of a request that is wrong, too large, too slow or comes at a bad time.
// known is false for other errors.
func ProblemOf(err error) (p Problem, known bool) {
	var refused *access.Error
	var tooLarge *http.MaxBytesError
	var wrong request.Error
	switch {
	case errors.As(err, &p):
	case errors.As(err, &refused):
		p = Problem{Status: refused.Status, Code: "not-allowed", Detail: refused.Reason}
		if refused.Status == http.StatusUnauthorized {
			p.Code = "unauthorized"
		}
	case errors.As(err, &tooLarge):
		p = Problem{Status: http.StatusRequestEntityTooLarge, Code: "too-large", Detail: fmt.Sprintf("the request is larger than %d bytes", tooLarge.Limit)}
	case errors.Is(err, request.ErrBusy):
		p = Problem{Status: http.StatusServiceUnavailable, Code: "busy", Detail: request.ErrBusy.Error()}
	case errors.Is(err, request.ErrSlow):
		p = Problem{Status: http.StatusRequestTimeout, Code: "too-slow", Detail: request.ErrSlow.Error()}
	case errors.As(err, &wrong):
		p = Problem{Status: http.StatusBadRequest, Code: "bad-request", Detail: wrong.Text}
	default:
		return Problem{}, false
	}
	return p, true
}

// Refuse answers with a problem. The connection of a request that was not read to its
// end is closed.
func Refuse(w http.ResponseWriter, p Problem) {
	maps.Copy(w.Header(), p.headers())
	write(w, p.Status, "application/problem+json", p) //nolint:errcheck // a caller who is gone reads nothing
}

// Guarded refuses what pages of other origins send, before any handler.
func Guarded(g access.Guard, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refused := g.Refused(r); refused != nil {
			Refuse(w, Problem{Status: refused.Status, Code: "not-allowed", Detail: refused.Reason, NQ: refused.Reason})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// JSON answers a call. After an error nothing more can be sent.
func JSON(w http.ResponseWriter, status int, answer any) error {
	return write(w, status, "application/json", answer)
}

// Raw answers a call with what was answered before.
func Raw(w http.ResponseWriter, status int, contentType string, body []byte) {
	Begin(w)
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(body) //nolint:errcheck // a caller who is gone reads nothing
}

// NoContent answers that there is nothing.
func NoContent(w http.ResponseWriter) {
	Begin(w)
	w.WriteHeader(http.StatusNoContent)
}

// answerTime is how long a client may take to read an answer.
const answerTime = time.Minute

// Begin gives the client time to read an answer, and must be called before each: the
// deadline of an earlier answer over the same connection still holds.
func Begin(w http.ResponseWriter) { begin(w, answerTime) }

func begin(w http.ResponseWriter, long time.Duration) {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(long)) //nolint:errcheck // where there is none to set, none is needed
}

func write(w http.ResponseWriter, status int, contentType string, answer any) error {
	Begin(w)
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // clients in shell read it too
	if err := e.Encode(answer); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}
