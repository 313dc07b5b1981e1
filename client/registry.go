package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Registry reads work items, objects, files and events, and decides about items, plans and
// requests, over the REST API (GET /api on the server is its reference). What the token may
// not see is answered as what does not exist: an [*Error] with the status 404. It is safe
// for concurrent use.
//
// A request that is sent again because its answer was lost is carried out once: each has an
// Idempotency-Key of its own.
type Registry struct{ c *Client }

// Registry returns the registry of a server that serves people (farol serve --web).
func (c *Client) Registry() Registry { return Registry{c} }

// apiPath begins all paths of the REST API.
const apiPath = "/api/v1/"

// Call is a request to the REST API that has no method of its own here.
type Call struct {
	Method  string     // such as PATCH; "": GET
	Path    string     // behind /api/v1/, such as items/7/cancel
	Query   url.Values // nil: none
	Body    any        // becomes JSON; nil: none
	IfMatch string     // ETag of the record when the change was decided; if it has changed, nothing is done (412)

	// Key names the request. With the same key it is not carried out again within a day, but
	// answered as before. "": a change gets a random one. NoKey sends none, which operations need
	// whose answers have a secret; such a request is sent once.
	Key   string
	NoKey bool
}

// Do sends a request and reads its answer into a pointer, unless that is nil. It returns the
// ETag of the record, or "".
func (r Registry) Do(ctx context.Context, call Call, answer any) (etag string, err error) {
	path, err := pathOf(call)
	if err != nil {
		return "", err
	}
	sent := request{method: call.Method, path: path, header: http.Header{}}
	if sent.method == "" {
		sent.method = http.MethodGet
	}
	if call.Body != nil {
		if sent.body, err = json.Marshal(call.Body); err != nil {
			return "", fmt.Errorf("call %s: %w", call.Path, err)
		}
	}
	if call.IfMatch != "" {
		sent.header.Set("If-Match", call.IfMatch)
	}
	sent.once = sent.method != http.MethodGet && call.NoKey
	if sent.method != http.MethodGet && !call.NoKey {
		key := call.Key
		if key == "" {
			key = rand.Text()
		}
		sent.header.Set("Idempotency-Key", key)
	}
	header, err := r.c.send(ctx, sent, answer, 0)
	if err != nil {
		return "", err
	}
	return header.Get("ETag"), nil
}

// pathOf refuses what would leave the API: the token goes nowhere else.
func pathOf(call Call) (string, error) {
	path := apiPath + strings.TrimPrefix(call.Path, "/")
	if len(call.Query) > 0 {
		path += "?" + call.Query.Encode()
	}
	if u, err := url.Parse(path); err != nil || u.Host != "" || !strings.HasPrefix(path, apiPath) {
		return "", fmt.Errorf("%q is no path of the API", call.Path)
	}
	return path, nil
}

// Pages reads a list of the REST API, page by page as it is ranged over. The error is the
// last that it yields. limit is how many records a page has; 0 is the server's choice.
func Pages[T any](ctx context.Context, r Registry, path string, query url.Values, limit int) iter.Seq2[T, error] {
	if limit > 0 {
		more := url.Values{"limit": {strconv.Itoa(limit)}}
		for name, values := range query {
			more[name] = values
		}
		query = more
	}
	return func(yield func(T, error) bool) {
		for call := (Call{Path: path, Query: query}); call.Path != ""; {
			var page struct {
				Items []T     `json:"items"`
				Next  *string `json:"next"`
			}
			_, err := r.Do(ctx, call, &page)
			if err == nil && page.Next != nil && (!strings.HasPrefix(*page.Next, apiPath) || apiPath+call.Path == *page.Next) {
				err = fmt.Errorf("list %s: the server answers that the next page is %q, which is none of its own, or the same", path, *page.Next)
			}
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, v := range page.Items {
				if !yield(v, nil) {
					return
				}
			}
			call = Call{}
			if page.Next != nil {
				call.Path = strings.TrimPrefix(*page.Next, apiPath)
			}
		}
	}
}

// get reads one record.
func get[T any](ctx context.Context, r Registry, path string, query url.Values) (v T, err error) {
	_, err = r.Do(ctx, Call{Path: path, Query: query}, &v)
	return v, err
}

// post sends a request that has an answer.
func post[T any](ctx context.Context, r Registry, path string, body any) (v T, err error) {
	_, err = r.Do(ctx, Call{Method: http.MethodPost, Path: path, Body: body}, &v)
	return v, err
}

// about is the path of something about a record.
func about(kind string, id int64, what string) string {
	return kind + "/" + strconv.FormatInt(id, 10) + what
}

// query is a filter in the making: what is zero narrows nothing.
type query url.Values

func (q query) text(name string, values ...string) {
	for _, v := range values {
		if v != "" {
			q[name] = append(q[name], v)
		}
	}
}

func (q query) number(name string, n int64) {
	if n != 0 {
		q[name] = []string{strconv.FormatInt(n, 10)}
	}
}

func (q query) bound(name string, n *int64) {
	if n != nil {
		q[name] = []string{strconv.FormatInt(*n, 10)}
	}
}

func (q query) truth(name string, v bool) {
	if v {
		q[name] = []string{"true"}
	}
}

func (q query) time(name string, t time.Time) {
	if !t.IsZero() {
		q[name] = []string{t.UTC().Format(time.RFC3339Nano)}
	}
}
