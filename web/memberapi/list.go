package memberapi

import (
	"net/http"
	"strconv"

	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/people"
)

// mostCounted is how far the rows of a list are counted.
const mostCounted = 100_000

// envelope is the answer of a list. Tools expect null for no results.
type envelope[T any] struct {
	Count    int64  `json:"count"`
	Next     string `json:"next"`
	Previous string `json:"previous"`
	Results  []T    `json:"results"`
}

// answer reads a page and puts it into its envelope.
func answer[T any](r *request, q *query, s browse.Slice, list func() (browse.Part[T], error)) (any, error) {
	var p browse.Part[T]
	if q.nothing {
		p.Exact, p.Sorted = true, true
	} else {
		var err error
		if p, err = list(); err != nil {
			return nil, err
		}
	}
	if !p.Exact {
		r.header.Set("X-Farol-Count", "estimate")
	}
	if !p.Sorted {
		direction := "__asc"
		if p.Own.Desc {
			direction = "__desc"
		}
		r.header.Set("X-Farol-Sort", p.Own.Column+direction)
	}
	e := envelope[T]{Count: p.Count, Results: p.Rows}
	if len(p.Rows) == 0 {
		e.Results = nil
	}
	switch {
	case p.More && s.After == (browse.Key{}) && s.Offset+s.Limit <= browse.MostSkipped:
		e.Next = link(r, q, s, "page", strconv.Itoa(s.Offset/s.Limit+2))
	case p.More:
		e.Next = link(r, q, s, "cursor", cursorTo(p.Next))
	}
	if s.Offset > 0 {
		e.Previous = link(r, q, s, "page", strconv.Itoa(s.Offset/s.Limit))
	}
	return e, nil
}

// link is the path and the query of another page.
func link(r *request, q *query, s browse.Slice, name, value string) string {
	q.values.Del("page")
	q.values.Del("cursor")
	q.values.Set(name, value)
	q.values.Set("per_page", strconv.Itoa(s.Limit))
	return r.URL.EscapedPath() + "?" + q.values.Encode()
}

// institution is the identifier of the institution that a list is narrowed to; "": none is
// named. One that the caller may not know of has no records.
func (a *API) institution(r *request, q *query) (string, error) {
	id := q.id("institution_id")
	if id == 0 || q.settled() {
		return "", nil
	}
	in, err := people.In(a.Registry).Institution(r.Context(), r.caller.Scope, id)
	return in.Identifier, q.unlessMissing(err)
}

// named is the ID of a record that a filter names by its identifier.
func named(q *query, identifier string, find func() (int64, error)) (int64, error) {
	if identifier == "" || q.settled() {
		return 0, nil
	}
	id, err := find()
	return id, q.unlessMissing(err)
}

// object is the ID of the object that a query names by its ID or its identifier.
func object(r *request, q *query) (int64, error) {
	id, identifier := q.id("intellectual_object_id"), q.text("intellectual_object_identifier")
	found, err := named(q, identifier, func() (int64, error) {
		o, err := r.records.ObjectByIdentifier(r.Context(), identifier)
		return o.ID, err //nolint:wrapcheck // it names the object
	})
	return either(q, id, found), err
}

// file is the ID of the file that a query names by its ID or its identifier.
func file(r *request, q *query) (int64, error) {
	id, identifier := q.id("generic_file_id"), q.text("generic_file_identifier")
	found, err := named(q, identifier, func() (int64, error) {
		f, err := r.records.FileByIdentifier(r.Context(), identifier)
		return f.ID, err //nolint:wrapcheck // it names the file
	})
	return either(q, id, found), err
}

// either is the one ID that two parameters name.
func either(q *query, a, b int64) int64 {
	if a != 0 && b != 0 && a != b {
		q.nothing = true
	}
	if a != 0 {
		return a
	}
	return b
}

// notFound is the error for what cannot be the name of a record.
func notFound() error {
	return failure{http.StatusNotFound, "there is no such record, or it is not yours to see"}
}
