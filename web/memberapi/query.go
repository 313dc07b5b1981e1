package memberapi

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
)

const (
	mostPerPage    = browse.MostRows
	defaultPerPage = 20
	mostValues     = 100 // of one parameter
)

// query are the parameters of a list. The first one that is wrong is kept, so that what
// reads them can be written as a list of names.
type query struct {
	values  url.Values
	taken   map[string]bool
	wrong   error
	nothing bool // no record can meet the filter
}

func newQuery(r *http.Request) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &query{values: values, taken: map[string]bool{}}
	if err != nil {
		q.refuse("the query is not well-formed: %v", err)
	}
	for name, list := range values {
		if len(list) > mostValues {
			q.refuse("%s has more than %d values", name, mostValues)
		}
		for _, v := range list {
			if !storable(v) {
				q.refuse("%q is no text in UTF-8", v)
			}
		}
	}
	return q
}

// storable reports whether the database could have a text at all.
func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// refuse keeps the first thing that is wrong.
func (q *query) refuse(format string, args ...any) {
	if q.wrong == nil {
		q.wrong = failure{http.StatusBadRequest, fmt.Sprintf(format, args...)}
	}
}

// settled reports whether nothing has to be looked up any more.
func (q *query) settled() bool { return q.nothing || q.wrong != nil }

// unlessMissing drops the error for a record that is not there: a list that names it is
// empty.
func (q *query) unlessMissing(err error) error {
	if errors.Is(err, registry.ErrNotFound) {
		q.nothing = true
		return nil
	}
	return err
}

// text is the value of a parameter; "": it has none, as a form sends what is not filled in.
func (q *query) text(name string) string {
	q.taken[name] = true
	list := slices.DeleteFunc(slices.Clone(q.values[name]), func(v string) bool { return v == "" })
	if len(list) > 1 {
		q.refuse("%s is given more than once, and takes one value", name)
	}
	return strings.Join(list, "")
}

// all are the values of a filter that takes several: name, or name__in repeated.
func (q *query) all(name string) []string {
	q.taken[name+"__in"] = true
	one := q.text(name)
	list := slices.DeleteFunc(slices.Clone(q.values[name+"__in"]), func(v string) bool { return v == "" })
	if one != "" && len(list) > 0 {
		q.refuse("give %s or %s__in, and not both", name, name)
	}
	if one != "" {
		return []string{one}
	}
	return list
}

// id is an ID; 0: none is given. What no record can have as its ID finds nothing.
func (q *query) id(name string) int64 {
	n := q.number(name)
	if n == nil {
		return 0
	}
	if *n < 1 {
		q.nothing = true
	}
	return *n
}

func (q *query) number(name string) *int64 {
	text := q.text(name)
	if text == "" {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		q.refuse("%s takes a whole number, and not %q", name, text)
	}
	return &n
}

// sizes are the bounds of a size.
func (q *query) sizes(name string) (from int64, to *int64) {
	if n := q.number(name + "__gteq"); n != nil {
		from = *n
	}
	return from, q.number(name + "__lteq")
}

func (q *query) truth(name string) *bool {
	text := q.text(name)
	if text == "" {
		return nil
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		q.refuse("%s takes true or false, and not %q", name, text)
	}
	return &b
}

// given is whether a field has to have a value, by name__is_null and name__not_null.
func (q *query) given(name string) *bool {
	null, notNull := q.truth(name+"__is_null"), q.truth(name+"__not_null")
	if null == nil {
		return notNull
	}
	has := !*null
	if notNull != nil && *notNull != has {
		q.nothing = true
	}
	return &has
}

// moments bound a time by name__gteq and name__lteq. before is exclusive: the database
// keeps microseconds.
func (q *query) moments(name string) (after, before time.Time) {
	after = q.moment(name + "__gteq")
	if before = q.moment(name + "__lteq"); !before.IsZero() {
		before = before.Add(time.Microsecond)
	}
	return after, before
}

// moment is a time by RFC 3339, in UTC if it has no zone.
func (q *query) moment(name string) time.Time {
	text := q.text(name)
	if text == "" {
		return time.Time{}
	}
	// A plus sign that was not encoded arrives as a space.
	clean := strings.ToUpper(text)
	if i := strings.LastIndexByte(clean, ' '); i > len("2006-01-02") {
		clean = clean[:i] + "+" + clean[i+1:]
	}
	clean = strings.Replace(clean, " ", "T", 1)
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", time.DateOnly} {
		if t, err := time.Parse(layout, clean); err == nil && t.Year() >= 1 {
			return t.UTC().Truncate(time.Microsecond)
		}
	}
	q.refuse("%s takes a time such as 2024-03-18T00:00:00Z, and not %q", name, text)
	return time.Time{}
}

// slice is the page that is asked for, in an order.
func (q *query) slice(byDefault browse.Order) (s browse.Slice) {
	s.Count, s.Limit = mostCounted, defaultPerPage
	if n, err := strconv.Atoi(q.text("per_page")); err == nil {
		switch {
		case n < 1:
			q.refuse("per_page is 1 to %d, and not %d", mostPerPage, n)
		case n <= mostPerPage:
			s.Limit = n
		}
	}
	if cursor := q.text("cursor"); cursor != "" {
		s.After = q.place(cursor)
		q.taken["page"] = true
	} else {
		s.Offset = q.offset(s.Limit)
	}
	q.taken["sort"] = true
	for _, text := range q.values["sort"] {
		if text != "" {
			s.Sort = append(s.Sort, q.order(text))
		}
	}
	if len(s.Sort) == 0 {
		s.Sort = []browse.Order{byDefault}
	}
	return s
}

// offset is how many rows come before a page.
func (q *query) offset(perPage int) int {
	text := cmp.Or(q.text("page"), "1")
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || n < 1:
		q.refuse("page is a number from 1 on, and not %q", text)
	case n-1 > browse.MostSkipped/perPage:
		q.refuse("pages by number end at row %d: follow next, or narrow the list", browse.MostSkipped)
	default:
		return (n - 1) * perPage
	}
	return 0
}

// order reads column, column__asc or column__desc.
func (q *query) order(text string) browse.Order {
	column, direction, _ := strings.Cut(text, "__")
	if direction != "" && direction != "asc" && direction != "desc" {
		q.refuse("sort takes a column with __asc or __desc, and not %q", text)
	}
	return browse.Order{Column: column, Desc: direction == "desc"}
}

// place is the place in a list that a cursor leads to.
func (q *query) place(cursor string) (k browse.Key) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(text, &k)
	}
	if err != nil || k == (browse.Key{}) || !storable(k.Identifier) {
		q.refuse("the cursor is not one that next had")
	}
	return k
}

// cursorTo is the cursor that leads to a place.
func cursorTo(k browse.Key) string {
	text, err := json.Marshal(k)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// check refuses names that the list does not take. unserved are those that the predecessor
// took, and no index bears here.
func (q *query) check(what string, unserved ...string) error {
	for _, name := range slices.Sorted(maps.Keys(q.values)) {
		column, operator, _ := strings.Cut(name, "__")
		switch {
		case q.taken[name]:
		case operator == "contains" || slices.Contains(unserved, column):
			q.refuse("%s cannot be narrowed by %s: no index has it, and the list would read every record", what, name)
		default:
			q.refuse("%s is no filter of %s", name, what)
		}
	}
	return q.wrong
}
