package memberapi

import (
	"cmp"
	"context"
	"net/http"
	"strconv"

	"github.com/farol-preservation/farol/registry/browse"
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

// list answers a list: filter reads what it is narrowed by, and read has its rows. The newest
// come first, by the time in the column newest. unserved are the columns of [query.check].
func list[F, T any](
	r *request, what, newest string,
	read func(browse.Records, context.Context, F, browse.Slice) (browse.Part[T], error),
	filter func(q *query, s browse.Slice, institution string) (F, error), unserved ...string,
) (any, error) {
	q := newQuery(r.Request)
	s := q.slice(browse.Order{Column: newest, Desc: true})
	institution, err := institutionOf(r, q)
	if err != nil {
		return nil, err
	}
	f, err := filter(q, s, institution)
	if err == nil {
		err = q.check(what, unserved...)
	}
	if err != nil {
		return nil, err
	}
	p := browse.Part[T]{Exact: true, Sorted: true}
	if !q.nothing {
		if p, err = read(r.records, r.Context(), f, s); err != nil {
			return nil, err
		}
	}
	return enveloped(r, q, s, p), nil
}

// enveloped puts a page into its envelope.
func enveloped[T any](r *request, q *query, s browse.Slice, p browse.Part[T]) envelope[T] {
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
	return e
}

// link is the path and the query of another page.
func link(r *request, q *query, s browse.Slice, name, value string) string {
	q.values.Del("page")
	q.values.Del("cursor")
	q.values.Set(name, value)
	q.values.Set("per_page", strconv.Itoa(s.Limit))
	return r.URL.EscapedPath() + "?" + q.values.Encode()
}

// institutionOf is the identifier of the institution that a list is narrowed to; "": none is
// named. One that the caller may not know of has no records.
func institutionOf(r *request, q *query) (string, error) {
	id := q.id("institution_id")
	if id == 0 || q.settled() {
		return "", nil
	}
	in, err := r.people.Institution(r.Context(), r.caller.Scope, id)
	return in.Identifier, q.unlessMissing(err)
}

// object is the ID of the object that a query names by its ID or its identifier.
func object(r *request, q *query) (int64, error) {
	return named(q, "intellectual_object", func(identifier string) (int64, error) {
		o, err := r.records.ObjectByIdentifier(r.Context(), identifier)
		return o.ID, err //nolint:wrapcheck // it names the object
	})
}

// file is the ID of the file that a query names by its ID or its identifier.
func file(r *request, q *query) (int64, error) {
	return named(q, "generic_file", func(identifier string) (int64, error) {
		f, err := r.records.FileByIdentifier(r.Context(), identifier)
		return f.ID, err //nolint:wrapcheck // it names the file
	})
}

// named is the one ID that the two parameters for a kind of record name; 0: none.
func named(q *query, kind string, find func(identifier string) (int64, error)) (int64, error) {
	id, identifier := q.id(kind+"_id"), q.text(kind+"_identifier")
	if identifier == "" || q.settled() {
		return id, nil
	}
	found, err := find(identifier)
	if id != 0 && found != 0 && id != found {
		q.nothing = true
	}
	return cmp.Or(id, found), q.unlessMissing(err)
}

// notFound is the error for what cannot be the name of a record.
func notFound() error {
	return failure{http.StatusNotFound, "there is no such record, or it is not yours to see"}
}
