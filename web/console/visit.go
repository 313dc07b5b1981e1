package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
	"github.com/farol-preservation/farol/web/reply"
)

// visit is a request for a page by a person who has signed in.
type visit struct {
	*http.Request

	Caller  access.Caller
	pages   *Pages
	w       http.ResponseWriter
	sheet   sheet
	title   string
	watch   watched // what the page is kept up to date of
	every   int     // after so many seconds the page is fetched again, as long as something runs; 0: it is not
	style   string  // of the whole page: "", "wide" or "wall"
	file    string  // template of the page; "": that of the sheet
	alerts  *string // how many are unread, once it was read
	connect string  // origin to which the script of the page may send, too; "": none
}

// list is an answer with several records.
type listOf[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next"`
	Count *struct {
		Value int64 `json:"value"`
		Exact bool  `json:"exact"`
	} `json:"count"`
}

// get asks an operation for a record, by its path behind /api/v1/.
func get[T any](v *visit, path string, query url.Values) (T, error) {
	answer, _, err := getTagged[T](v, path, query)
	return answer, err
}

// getTagged returns the ETag of the record, too, which decisions about it are sent with.
func getTagged[T any](v *visit, path string, query url.Values) (answer T, tag string, err error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	a, err := v.pages.table.Ask(v.Request, v.Caller, ops.Question{Path: "/api/v1/" + path})
	if err != nil {
		return answer, "", err //nolint:wrapcheck // a problem is shown as it is
	}
	if err := json.Unmarshal(a.Body, &answer); err != nil {
		return answer, "", fmt.Errorf("read the answer about %s: %w", path, err)
	}
	return answer, a.Header.Get("ETag"), nil
}

// optional is a part of a page without which the rest is shown: what there is not is nil. The
// reason is kept for the page.
func optional[T any](v *visit, path string, query url.Values) (*T, string) {
	answer, err := get[T](v, path, query)
	if err == nil {
		return &answer, ""
	}
	var p *reply.Problem
	if errors.As(err, &p) {
		return nil, sentence(p.Detail)
	}
	return nil, "It cannot be shown now."
}

// Holds reports whether the person has a permission.
func (v *visit) Holds(p permission.Permission) bool { return v.Caller.Holds(p) }

// id is the number in the path, as text for another path; "0" if it is none.
func (v *visit) id() string {
	n, err := strconv.ParseInt(v.PathValue("id"), 10, 64)
	if err != nil || n < 1 {
		return "0"
	}
	return strconv.FormatInt(n, 10)
}

// query is what the address has of some fields, for an operation: those that are empty are
// left out.
func (v *visit) query(fields ...string) url.Values {
	q := url.Values{}
	given := v.URL.Query()
	for _, name := range fields {
		for _, text := range given[name] {
			if text = strings.TrimSpace(text); text != "" {
				q.Add(name, text)
			}
		}
	}
	return q
}

// more is the address of this page with the next records, from the next page of the API; "":
// there is none.
func (v *visit) more(next *string) string {
	at := after(next)
	if at == "" {
		return ""
	}
	q := v.URL.Query()
	q.Set("after", at)
	return v.URL.Path + "?" + q.Encode()
}

// after is where the next page of the API begins; "": there is none.
func after(next *string) string {
	if next == nil {
		return ""
	}
	u, err := url.Parse(*next)
	if err != nil {
		return ""
	}
	return u.Query().Get("after")
}

// zone is the time zone of the person.
func (v *visit) zone() *time.Location {
	zone, err := time.LoadLocation(v.Caller.Person.TimeZone)
	if err != nil {
		return time.UTC
	}
	return zone
}

// tooBroad reports whether a list was refused because it would read too much. The page shows
// its filters again, with the reason.
func tooBroad(err error) (string, bool) {
	var p *reply.Problem
	if errors.As(err, &p) && (p.Code == ops.CodeTooBroad || p.Code == ops.CodeBadRequest) {
		return sentence(p.Detail), true
	}
	return "", false
}
