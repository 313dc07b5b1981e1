package browse

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/farol-preservation/farol/registry"
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
	Next   Key   // place of the last row in the list's own order; zero if it is sorted in another
	Count  int64 // rows of the whole list, or the bound of the count
	Exact  bool  // Count is no bound
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
	tie     string // SQL that tells rows with equal columns apart
	key     func(T) Key
	timeout time.Duration // 0: that of the filter
}

// part reads a slice of a list. In another order than its own it is sorted only if the
// filter finds few enough rows: no index has the order, and all of them are read.
func part[T any](ctx context.Context, r Records, l flat[T], f Filter, s Slice) (p Part[T], err error) {
	if s.Limit < 1 || s.Limit > MostRows || s.Offset < 0 || s.Offset > MostSkipped {
		return p, fmt.Errorf("list %s: %w: a page has 1 to %d rows and passes over 0 to %d", l.what, registry.ErrRefused, MostRows, MostSkipped)
	}
	order, err := l.order(s.Sort)
	if err != nil {
		return p, err
	}
	p.Own = l.own
	p.Sorted = len(s.Sort) == 0 || len(s.Sort) == 1 && s.Sort[0] == l.own
	if s.Count > 0 || !p.Sorted {
		if p.Count, p.Exact, err = r.CountTo(ctx, f, max(s.Count, MostSkipped)); err != nil {
			return p, err
		}
	}
	sort := !p.Sorted && p.Exact && p.Count <= MostSkipped && s.After == (Key{})
	p.Sorted = p.Sorted || sort
	q, err := f.find(r.scope, s.After)
	if err != nil {
		return p, fmt.Errorf("list %s: %w", l.what, err)
	}
	q.args["n"], q.args["skip"], q.args["most"] = s.Offset+s.Limit+1, s.Offset, s.Limit+1
	if sort {
		q.args["n"] = MostSkipped + 1
	} else {
		order = l.ownSQL
	}
	q.timeout = max(q.timeout, l.timeout)
	page := fmt.Sprintf(`SELECT `+l.row+`.* FROM `+l.from+` ORDER BY `+order+` LIMIT @most OFFSET @skip`, q.sql)
	if p.Rows, err = read(ctx, r.db, q, fmt.Sprintf(l.show, page)+` ORDER BY `+order, pgx.RowToStructByName[T]); err != nil {
		return p, fmt.Errorf("list %s: %w", l.what, err)
	}
	if p.More = len(p.Rows) > s.Limit; p.More {
		p.Rows = p.Rows[:s.Limit]
		if !sort {
			p.Next = l.key(p.Rows[s.Limit-1])
		}
	}
	return p, nil
}

// order is the SQL of an order. Its pieces are constants.
func (l flat[T]) order(sort []Order) (string, error) {
	terms, last := []string{}, ` DESC`
	for _, o := range sort {
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
