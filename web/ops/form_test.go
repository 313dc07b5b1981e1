package ops_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/ops"
)

// formed is a body with a field of each kind.
type formed struct {
	ID   int64 `path:"id"`
	Body struct {
		Name   string    `json:"name,omitempty"`
		Kind   string    `json:"kind,omitempty" enum:"a,b"`
		Count  *int      `json:"count,omitempty"`
		Share  float64   `json:"share,omitempty"`
		On     *bool     `json:"on,omitempty"`
		At     time.Time `json:"at,omitzero"`
		IDs    []int64   `json:"ids,omitempty"`
		Names  []string  `json:"names,omitempty"`
		Filter struct {
			Status []string `json:"status,omitempty"`
			Max    *int64   `json:"max,omitempty"`
		} `json:"filter,omitempty"`
	}
}

func formTable() *ops.API {
	t := ops.New(http.NewServeMux(), nil, "test", 1000, func(*http.Request) (access.Caller, error) { return access.Caller{}, nil }, slog.New(slog.DiscardHandler))
	for method, id := range map[string]string{http.MethodPost: "things.make", http.MethodPatch: "things.set"} {
		ops.Register(t, ops.Operation{ID: id, Method: method, Path: "/api/v1/things/{id}", Access: ops.SignedIn},
			func(context.Context, access.Caller, *formed) (*struct{}, error) { return &struct{}{}, nil })
	}
	return t
}

// A form becomes the body that its operation takes: numbers, lists in lines, fields within fields.
func TestForms(t *testing.T) {
	t.Parallel()
	table := formTable()
	for _, tc := range []struct{ id, form, path, body string }{
		{"things.make", "id=7&name=+a+b+&count=-3&share=0.5&on=false&on=true&ids=1&ids=2%0A3%0A&names=x%0D%0A%0D%0Ay", "/api/v1/things/7", `{"count":-3,"ids":[1,2,3],"name":"a b","names":["x","y"],"on":true,"share":0.5}`},
		{"things.make", "id=7&name=&kind=&count=&at=&ids=&filter.max=", "/api/v1/things/7", `{}`},
		{"things.make", "id=7&filter.status=A&filter.status=B&filter.max=9&else=x&back=/", "/api/v1/things/7", `{"filter":{"max":9,"status":["A","B"]}}`},
		{"things.make", "id=7&at=2026-01-31T12:30", "/api/v1/things/7", `{"at":"2026-01-31T12:30:00Z"}`},
		{"things.make", "id=7%2F..%2F8&on=false", "/api/v1/things/7%2F..%2F8", `{"on":false}`},
		{"things.set", "id=7&name=&kind=", "/api/v1/things/7", `{"name":""}`}, // a text can be taken away
	} {
		form := must.Get(url.ParseQuery(tc.form))(t)
		q, err := table.FromForm(tc.id, form)
		if err != nil || q.Path != tc.path || string(q.Body) != tc.body {
			t.Errorf("%s: %s %s, %v; want %s %s", tc.form, q.Path, q.Body, err, tc.path, tc.body)
		}
	}
	for form, want := range map[string]string{
		"name=x": "id: it is missing", "id=..": "id: it is missing", "id=7&count=many": `count: "many" is no whole number`, "id=7&share=NaN": `share: "NaN" is no number`,
		"id=7&ids=1%0Ax": `ids: "x" is no whole number`, "id=7&filter.max=1.5": `filter.max: "1.5" is no whole number`,
	} {
		values, err := url.ParseQuery(form)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = table.FromForm("things.make", values); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", form, err, want)
		}
	}
	if _, err := table.FromForm("things.none", nil); err == nil {
		t.Error("a form is for an operation that there is not")
	}
}

// FuzzForms: whatever a form has, what is sent is JSON and stays at its operation.
func FuzzForms(f *testing.F) {
	f.Add("7", "name", "x")
	f.Add("../x", "ids", "1\n2")
	f.Add("7?a=b", "filter.status", "\xff\x00")
	f.Add("7", "at", "0000-00-00T00:00")
	table := formTable()
	f.Fuzz(func(t *testing.T, id, name, value string) {
		q, err := table.FromForm("things.make", url.Values{"id": {id}, name: {value}})
		if err != nil {
			return
		}
		u, err := url.Parse(q.Path)
		rest, within := strings.CutPrefix(u.EscapedPath(), "/api/v1/things/")
		if err != nil || !within || strings.Contains(rest, "/") || u.RawQuery != "" || u.Fragment != "" || !json.Valid(q.Body) {
			t.Fatalf("%q, %q, %q: %s %s", id, name, value, q.Path, q.Body)
		}
	})
}
