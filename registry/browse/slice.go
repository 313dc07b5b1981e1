package browse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// MostSkipped is how many rows a [Slice] may pass over, and how many a list may have to be
// sorted in another order than its own.
const MostSkipped = 50_000

// Slice is a part of a list: up to Limit rows, 1 to [MostRows], after the first Offset ones,
// at most [MostSkipped], or else after a key of the list's own order.
type Slice struct {
	Limit  int
	Offset int
	After  Key
	Sort   []Order // what comes first; none: the list's own order
	Count  int     // up to which the rows are counted; 0: they are not
}

// Order sorts by a column.
type Order struct {
	Column string
	Desc   bool
}

// Part are the rows of a [Slice].
type Part[T any] struct {
	Rows   []T
	More   bool  // rows follow
	Next   Key   // place of the last row in the list's own order, if rows follow
	Count  int64 // rows of the whole list, or if it is not Exact, rows that it has at least
	Exact  bool
	Sorted bool  // the rows are in the order asked for
	Own    Order // by which they are sorted if not
}

// Time is a time that JSON has in UTC. NULL is the zero time.
type Time struct{ time.Time }

// MarshalJSON has the time in UTC.
func (t Time) MarshalJSON() ([]byte, error) {
	return json.Marshal(t.UTC()) //nolint:wrapcheck // of a time
}

// ScanTimestamptz reads a time of the database.
func (t *Time) ScanTimestamptz(v pgtype.Timestamptz) error {
	t.Time = v.Time
	return nil
}

// flat is how a list is shown that has a row for each record with what it refers to, and in
// which nothing is NULL. row is the alias of a row in its SQL.
type flat[T any] struct {
	what    string
	from    string            // rows that were found, for %s, as they are sorted
	row     string            // alias of these
	show    string            // the statement without its order; %s is the one that finds the page
	columns map[string]string // SQL of what the rows can be sorted by
	own     Order             // the list's own order, as one would ask for it
	ownSQL  string
	tie     string // SQL that puts rows with equal columns in an order
	key     func(T) Key
	timeout time.Duration // 0: that of the filter
}

// part reads a slice of a list. In another order than its own it is sorted only if the
// filter finds few enough rows: no index has the order, and all of them are read.
func part[T any](ctx context.Context, r Records, l flat[T], f Filter, s Slice) (p Part[T], err error) {
	order, err := l.order(s)
	if err != nil {
		return p, err
	}
	p.Own, p.Sorted = l.own, len(s.Sort) == 0 || len(s.Sort) == 1 && s.Sort[0] == l.own
	if err := p.count(ctx, r, f, s); err != nil {
		return p, err
	}
	if p.Sorted || !p.Exact || p.Count > MostSkipped || s.After != (Key{}) {
		p.Rows, err = l.read(ctx, r, f, s, l.ownSQL, s.Offset+s.Limit+1)
	} else {
		p.Sorted = true
		p.Rows, err = l.read(ctx, r, f, s, order, MostSkipped+1)
	}
	if err != nil {
		return p, fmt.Errorf("list %s: %w", l.what, err)
	}
	if !p.Exact {
		p.Count = max(p.Count, int64(s.Offset+len(p.Rows)))
	}
	if p.More = len(p.Rows) > s.Limit; p.More {
		p.Rows = p.Rows[:s.Limit]
		p.Next = l.key(p.Rows[s.Limit-1])
	}
	return p, nil
}

// count counts the rows of the list, if they are few enough to be counted in time.
func (p *Part[T]) count(ctx context.Context, r Records, f Filter, s Slice) (err error) {
	if s.Count == 0 && p.Sorted {
		return nil
	}
	p.Count, p.Exact, err = r.CountTo(ctx, f, max(s.Count, MostSkipped))
	if errors.Is(err, ErrTooBroad) {
		return nil // a page of it may not be
	}
	return err
}

// read reads the rows of a slice, and one more, in an order of the first n rows that the
// filter finds.
func (l flat[T]) read(ctx context.Context, r Records, f Filter, s Slice, order string, n int) ([]T, error) {
	q, err := f.find(r.scope, s.After)
	if err != nil {
		return nil, err
	}
	q.args["n"], q.args["skip"], q.args["most"] = n, s.Offset, s.Limit+1
	q.timeout = max(q.timeout, l.timeout)
	return read(ctx, r.db, q, l.statement(q.sql, order), pgx.RowToStructByName[T])
}

// statement shows a page, in an order, of the rows that another statement finds.
func (l flat[T]) statement(found, order string) string {
	page := fmt.Sprintf(`SELECT `+l.row+`.* FROM `+l.from+` ORDER BY `+order+` LIMIT @most OFFSET @skip`, found)
	return fmt.Sprintf(l.show, page) + ` ORDER BY ` + order
}

// order is the SQL of the order of a slice, whose bounds it checks. Its pieces are constants.
func (l flat[T]) order(s Slice) (string, error) {
	if s.Limit < 1 || s.Limit > MostRows || s.Offset < 0 || s.Offset > MostSkipped {
		return "", refused("a page of %s has 1 to %d rows and passes over 0 to %d", l.what, MostRows, MostSkipped)
	}
	terms, last := []string{}, ` DESC`
	for _, o := range s.Sort {
		column, known := l.columns[o.Column]
		if !known {
			return "", refused("%s cannot be sorted by %q", l.what, o.Column)
		}
		if last = ``; o.Desc {
			last = ` DESC`
		}
		terms = append(terms, column+last)
	}
	return strings.Join(append(terms, l.tie+last), `, `), nil
}

// single looks one record up by the conditions of q for a row of a table.
func single[T any](ctx context.Context, r Records, l flat[T], what, found string, q *query) (T, error) {
	q.sql = fmt.Sprintf(l.show, found+` WHERE `+q.all())
	q.timeout = max(q.timeout, l.timeout)
	return one[T](ctx, r, what, q)
}
