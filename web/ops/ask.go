package ops

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/reply"
)

// apiPath begins the paths of all operations.
const apiPath = "/api/v1/"

// Operated reports whether the operator of the registry asks, who may know why something fails.
func Operated(ctx context.Context) bool {
	c, _ := ctx.Value(callerKey{}).(access.Caller)
	return c.Operator
}

// Question is a request to an operation from within this process.
type Question struct {
	Method  string // "": GET
	Path    string // with its query, such as /api/v1/items/7
	Body    []byte // JSON; nil: none
	IfMatch string
	Key     string // Idempotency-Key; "": none
	Accept  string
}

// Answer is what an operation answers a [Question].
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// askedKey is of the caller for whom a question is asked.
type askedKey struct{}

// As has requests of this process be those of a caller who has been identified already.
func As(ctx context.Context, c access.Caller) context.Context {
	return context.WithValue(ctx, askedKey{}, c)
}

// Ask has an operation answer a question of a caller who has been identified already, as part
// of a request of theirs. All that the operation checks of a request over the network is
// checked of it, but for how often the caller asks: that is counted for the whole request. An
// answer that is no success is a [*reply.Problem].
func (a *API) Ask(r *http.Request, c access.Caller, q Question) (Answer, error) {
	if q.Method == "" {
		q.Method = http.MethodGet
	}
	in, err := http.NewRequestWithContext(As(r.Context(), c), q.Method, q.Path, bytes.NewReader(q.Body))
	if err != nil || !strings.HasPrefix(in.URL.Path, apiPath) || unclean(in.URL.Path) {
		return Answer{}, NotFound()
	}
	in.Host, in.RemoteAddr = r.Host, r.RemoteAddr
	for _, name := range []string{"Cookie", "User-Agent", "X-Forwarded-For"} {
		in.Header[name] = r.Header[name]
	}
	for name, value := range map[string]string{"If-Match": q.IfMatch, keyHeader: q.Key, "Accept": q.Accept} {
		if value != "" {
			in.Header.Set(name, value)
		}
	}
	if q.Body != nil {
		in.Header.Set("Content-Type", "application/json")
	}
	out := &asked{header: http.Header{}, status: http.StatusOK}
	a.mux.ServeHTTP(out, in)
	if out.status < http.StatusMultipleChoices {
		return Answer{out.status, out.header, out.body.Bytes()}, nil
	}
	p := &reply.Problem{}
	if err := json.Unmarshal(out.body.Bytes(), p); err != nil || p.Code == "" { // there is no such operation
		p = NotFound()
	}
	p.RetryAfter = out.header.Get("Retry-After")
	return Answer{out.status, out.header, nil}, p
}

// asked keeps an answer within this process.
type asked struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header is of http.ResponseWriter.
func (a *asked) Header() http.Header { return a.header }

// WriteHeader is of http.ResponseWriter.
func (a *asked) WriteHeader(status int) { a.status = status }

// errTooLong ends an answer that is no page of a list.
var errTooLong = errors.New("the answer is too long to be part of a page")

// Write is of http.ResponseWriter.
func (a *asked) Write(p []byte) (int, error) {
	if a.body.Len()+len(p) > largest {
		return 0, errTooLong
	}
	n, err := a.body.Write(p)
	if err != nil {
		err = fmt.Errorf("keep an answer: %w", err)
	}
	return n, err
}

// identified is who sends a request. What is asked for within the process does not count as a
// request of its own.
func (a *API) identified(w http.ResponseWriter, r *http.Request) (access.Caller, error) {
	if c, ok := r.Context().Value(askedKey{}).(access.Caller); ok {
		return c, nil
	}
	c, err := a.caller(r)
	if err == nil {
		err = a.Limit(w, c)
	}
	return c, err
}
