package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Registry reads records and decides about them over the REST API, whose reference is GET
// /api on the server: [List] and [Get] read, [Post] and [Ask] decide, into the types of
// package record. A decision may name the ETag with which the record was read.
//
//	items := client.List[record.WorkItem](ctx, r, "items", record.ItemFilter{Institution: "test.edu"})
//	item, etag, err := client.Ask[record.ItemView](ctx, r, client.Call{Path: "items/7"})
//	_, err = r.Do(ctx, client.Call{Method: "POST", Path: "items/7/cancel", IfMatch: etag}, nil)
//
// What the token may not see is answered as what does not exist: an [*Error] with the status
// 404. A Registry is safe for concurrent use.
//
// A request that is sent again because its answer was lost is carried out once: each has an
// Idempotency-Key of its own.
type Registry struct{ c *Client }

// Registry returns the registry of a server that serves people (farol serve --web).
func (c *Client) Registry() Registry { return Registry{c} }

// apiPath begins all paths of the REST API.
const apiPath = "/api/v1/"

// Call is a request to the REST API.
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

// Ask sends a request and reads its answer, with the ETag of the record, or "".
func Ask[T any](ctx context.Context, r Registry, call Call) (v T, etag string, err error) {
	etag, err = r.Do(ctx, call, &v)
	return v, etag, err
}

// Get reads one record, such as items/7.
func Get[T any](ctx context.Context, r Registry, path string) (v T, err error) {
	_, err = r.Do(ctx, Call{Path: path}, &v)
	return v, err
}

// Post sends a request that makes or decides something, and reads its answer.
func Post[T any](ctx context.Context, r Registry, path string, body any) (v T, err error) {
	_, err = r.Do(ctx, Call{Method: http.MethodPost, Path: path, Body: body}, &v)
	return v, err
}

// List reads the records that a filter of package record finds, such as record.ItemFilter
// among items. nil finds all.
func List[T any](ctx context.Context, r Registry, path string, filter any) iter.Seq2[T, error] {
	return Pages[T](ctx, r, path, Query(filter), 0)
}

// Query is a filter of package record as the API takes it. What is zero narrows nothing.
func Query(filter any) url.Values {
	q := url.Values{}
	if filter == nil {
		return q
	}
	for field, v := range reflect.ValueOf(filter).Fields() {
		name, _, _ := strings.Cut(cmp.Or(field.Tag.Get("query"), field.Tag.Get("json")), ",")
		switch {
		case name == "" || v.IsZero():
		case v.Kind() == reflect.Slice:
			for i := range v.Len() {
				q.Add(name, parameter(v.Index(i)))
			}
		default:
			q.Set(name, parameter(reflect.Indirect(v)))
		}
	}
	return q
}

func parameter(v reflect.Value) string {
	if t, ok := v.Interface().(time.Time); ok {
		return t.UTC().Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v.Interface())
}
