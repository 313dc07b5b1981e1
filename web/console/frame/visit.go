package frame

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/console/live"
	"github.com/farol-preservation/farol/web/console/words"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
	"github.com/farol-preservation/farol/web/reply"
)

// Visit is a request for a page by a person who has signed in.
type Visit struct {
	*http.Request

	Caller  access.Caller
	Frame   *Frame
	Writer  http.ResponseWriter
	Sheet   Sheet
	Title   string
	Watch   live.Watched // what the page is kept up to date of
	Every   int          // after so many seconds the page is fetched again, as long as something runs; 0: it is not
	Style   string       // of the whole page: "", "wide" or "wall"
	File    string       // template of the page; "": that of the sheet
	alerts  *string      // how many are unread, once it was read
	Connect string       // origin to which the script of the page may send, too; "": none
}

// List is an answer with several records.
type List[T any] struct {
	Items []T     `json:"items"`
	Next  *string `json:"next"`
	Count *struct {
		Value int64 `json:"value"`
		Exact bool  `json:"exact"`
	} `json:"count"`
}

// Get asks an operation for a record, by its path behind /api/v1/.
func Get[T any](v *Visit, path string, query url.Values) (T, error) {
	answer, _, err := GetTagged[T](v, path, query)
	return answer, err
}

// GetTagged returns the ETag of the record, too, which decisions about it are sent with.
func GetTagged[T any](v *Visit, path string, query url.Values) (answer T, tag string, err error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	a, err := v.Frame.Table.Ask(v.Request, v.Caller, ops.Question{Path: "/api/v1/" + path})
	if err != nil {
		return answer, "", err //nolint:wrapcheck // a problem is shown as it is
	}
	if err := json.Unmarshal(a.Body, &answer); err != nil {
		return answer, "", fmt.Errorf("read the answer about %s: %w", path, err)
	}
	return answer, a.Header.Get("ETag"), nil
}

// Optional is a part of a page without which the rest is shown: what there is not is nil. The
// reason is kept for the page.
func Optional[T any](v *Visit, path string, query url.Values) (*T, string) {
	answer, err := Get[T](v, path, query)
	if err == nil {
		return &answer, ""
	}
	var p *reply.Problem
	if errors.As(err, &p) {
		return nil, words.Sentence(p.Detail)
	}
	return nil, "It cannot be shown now."
}

// Holds reports whether the person has a permission.
func (v *Visit) Holds(p permission.Permission) bool { return v.Caller.Holds(p) }

// ID is the number in the path, as text for another path; "0" if it is none.
func (v *Visit) ID() string {
	n, err := strconv.ParseInt(v.PathValue("id"), 10, 64)
	if err != nil || n < 1 {
		return "0"
	}
	return strconv.FormatInt(n, 10)
}

// Query is what the address has of some fields, for an operation: those that are empty are
// left out.
func (v *Visit) Query(fields ...string) url.Values {
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

// More is the address of this page with the next records, from the next page of the API; "":
// there is none.
func (v *Visit) More(next *string) string {
	at := After(next)
	if at == "" {
		return ""
	}
	q := v.URL.Query()
	q.Set("after", at)
	return v.URL.Path + "?" + q.Encode()
}

// After is where the next page of the API begins; "": there is none.
func After(next *string) string {
	if next == nil {
		return ""
	}
	u, err := url.Parse(*next)
	if err != nil {
		return ""
	}
	return u.Query().Get("after")
}

// Zone is the time zone of the person.
func (v *Visit) Zone() *time.Location {
	zone, err := time.LoadLocation(v.Caller.Person.TimeZone)
	if err != nil {
		return time.UTC
	}
	return zone
}

// TooBroad reports whether a list was refused because it would read too much. The page shows
// its filters again, with the reason.
func TooBroad(err error) (string, bool) {
	var p *reply.Problem
	if errors.As(err, &p) && (p.Code == ops.CodeTooBroad || p.Code == ops.CodeBadRequest) {
		return words.Sentence(p.Detail), true
	}
	return "", false
}

// Answer has an operation that changes nothing answer what a form asks.
func (v *Visit) Answer(operation string, form url.Values) ([]byte, error) {
	q, err := v.Frame.Table.FromForm(operation, form)
	if err != nil {
		return nil, err //nolint:wrapcheck // a problem is shown as it is
	}
	a, err := v.Frame.Table.Ask(v.Request, v.Caller, q)
	return a.Body, err //nolint:wrapcheck // a problem is shown as it is
}

// Refusal is why a request was refused, if it was for what it asks for.
func Refusal(err error) (string, bool) {
	var found *reply.Problem
	if errors.As(err, &found) && found.Status < http.StatusInternalServerError && found.Status != http.StatusForbidden && found.Code != ops.CodeRateLimited {
		return words.Sentence(found.Detail), true
	}
	return "", false
}

// Save answers with a table that the browser saves.
func (v *Visit) Save(name string, text []byte) {
	v.Writer.Header().Set("Content-Type", "text/csv; charset=utf-8")
	v.Writer.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
	v.Frame.Send(v.Writer, v.Request, http.StatusOK, text)
}

// plainName is an identifier that a shell takes as it is.
var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/@+-]*$`)

// ShellFor names an object or a file in the command that shows the same as a page.
func (v *Visit) ShellFor(identifier string) {
	if plainName.MatchString(identifier) {
		v.Sheet.Shell = strings.ReplaceAll(v.Sheet.Shell, "IDENTIFIER", identifier)
	}
}
