package client

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// described is an operation as the OpenAPI document of a server describes it.
type described struct {
	ID         string `json:"operationId"`
	Parameters []struct {
		Name     string `json:"name"`
		In       string `json:"in"`
		Required bool   `json:"required"`
	} `json:"parameters"`
	RequestBody *struct{} `json:"requestBody"`

	method, path string
}

// Operate carries out an operation of the server by its name, such as items.add_note: all that
// GET /api lists can be called, also what this package has no method for. in are its values by
// their names, wherever it takes them; the answer is read into a pointer, unless that is nil. It
// returns the ETag of the record, or "". The server is asked once how it describes its
// operations.
func (r Registry) Operate(ctx context.Context, operation string, in map[string]any, answer any) (etag string, err error) {
	o, err := r.described(ctx, operation)
	if err != nil {
		return "", err
	}
	call := Call{Method: o.method, Path: strings.TrimPrefix(o.path, apiPath), Query: url.Values{}, NoKey: true}
	body := maps.Clone(in)
	for _, p := range o.Parameters {
		if p.Name == "Idempotency-Key" {
			call.NoKey = false
		}
		v, given := in[p.Name]
		delete(body, p.Name)
		switch {
		case p.In == "path" && (!given || fmt.Sprint(v) == ""):
			return "", fmt.Errorf("operation %s needs a value for %s", operation, p.Name)
		case p.In == "path":
			call.Path = strings.ReplaceAll(call.Path, "{"+p.Name+"}", url.PathEscape(fmt.Sprint(v)))
		case p.In == "query" && given:
			call.Query.Set(p.Name, fmt.Sprint(v))
		case p.Name == "If-Match" && given:
			call.IfMatch = fmt.Sprint(v)
		}
	}
	if o.RequestBody != nil {
		call.Body = body
	} else if len(body) > 0 {
		return "", fmt.Errorf("operation %s takes no %s", operation, strings.Join(slices.Sorted(maps.Keys(body)), ", "))
	}
	return r.Do(ctx, call, answer)
}

// described is what the server says of an operation.
func (r Registry) described(ctx context.Context, operation string) (described, error) {
	r.c.learning.Lock()
	defer r.c.learning.Unlock()
	if r.c.operations == nil {
		var document struct {
			Paths map[string]map[string]json.RawMessage `json:"paths"`
		}
		if _, err := r.Do(ctx, Call{Path: "openapi.json"}, &document); err != nil {
			return described{}, err
		}
		known := map[string]described{}
		for path, methods := range document.Paths {
			for method, text := range methods {
				o := described{method: strings.ToUpper(method), path: path}
				if json.Unmarshal(text, &o) == nil && o.ID != "" {
					known[o.ID] = o
				}
			}
		}
		r.c.operations = known
	}
	o, found := r.c.operations[operation]
	if !found {
		return o, fmt.Errorf("the server has no operation %q; %s lists those that it has", operation, r.c.base+"/api")
	}
	return o, nil
}
