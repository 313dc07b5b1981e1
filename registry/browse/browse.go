// Package browse lists and looks up records within a scope: work items, objects, files,
// copies, checksums, events, deletion requests and alerts.
//
// The scope is a condition of each statement. What lies outside it is answered as what
// does not exist, by the same error and the same text.
//
// A list is read page by page, from a [Key] to the next one, and never by counting rows.
// Each statement is made of constant pieces of SQL, one for each filter that is set, so
// that PostgreSQL can use the index that the filter needs; values are always parameters.
// A list that would have to read a large table is refused with [ErrTooBroad].
package browse

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/registry"
)

// ErrTooBroad says that a list would read too much of a large table, or that it took too
// long. The text of the error names the filters to add.
var ErrTooBroad = errors.New("too broad")

// MostRows is how many rows a page has at most.
const MostRows = 1000

// MostCounted is how far [Records.Count] counts.
const MostCounted = 10_000

// Time that a statement may take before it is ErrTooBroad.
const (
	timeout      = 2 * time.Second
	eventTimeout = 3 * time.Second
)

// Records are those of a registry that lie within a scope. They are safe for concurrent use.
type Records struct {
	db    registry.Database
	scope registry.Scope
}

// In returns the records of r within s. The zero scope has none.
func In(r *registry.Registry, s registry.Scope) Records { return Records{r.DB(), s} }

// Page is a part of a list: up to Limit rows, 1 to [MostRows], of those that come after a
// key. The zero Key is the beginning.
type Page struct {
	Limit int
	After Key
}

// Key is the place of a row in its list. Which fields it has depends on the list and its
// filter; the zero Key is no place. A list returns the key of the last row on a page if
// more rows follow, or else the zero Key.
type Key struct {
	ID         int64     `json:"id,omitempty"`
	Of         int64     `json:"of,omitempty"` // ID of the file that a checksum is of
	At         time.Time `json:"at,omitzero"`
	Identifier string    `json:"identifier,omitempty"`
}

// Filter says which records are wanted: [ItemFilter], [ObjectFilter], [FileFilter],
// [EventFilter], [ChecksumFilter], [CopyFilter], [DeletionFilter] or [AlertFilter]. Its
// empty fields narrow nothing.
type Filter interface {
	// find makes the statement that finds the rows after a key.
	find(s registry.Scope, after Key) (*query, error)
}

// Count counts what a filter finds. Above [MostCounted] it returns that number, and false.
// The errors are those of the filter's list.
func (r Records) Count(ctx context.Context, f Filter) (n int64, exact bool, err error) {
	return r.CountTo(ctx, f, MostCounted)
}

// CountTo counts as [Records.Count] does, up to another bound.
func (r Records) CountTo(ctx context.Context, f Filter, most int) (n int64, exact bool, err error) {
	q, err := f.find(r.scope, Key{})
	if err != nil {
		return 0, false, fmt.Errorf("count records: %w", err)
	}
	q.args["n"] = most + 1
	counts, err := read(ctx, r.db, q, `SELECT count(*) FROM (`+q.sql+`) c`, pgx.RowTo[int64])
	if err != nil {
		return 0, false, fmt.Errorf("count records: %w", err)
	}
	if len(counts) == 0 {
		return 0, true, nil
	}
	return min(counts[0], int64(most)), counts[0] <= int64(most), nil
}

// list reads a page. show makes of the statement that finds the rows the one that shows
// them, and key is the place of a row.
func list[T any](ctx context.Context, r Records, what string, f Filter, p Page, show func(found string) string, key func(T) Key) ([]T, Key, error) {
	if p.Limit < 1 || p.Limit > MostRows {
		return nil, Key{}, fmt.Errorf("list %s: %w: a page has 1 to %d rows, not %d", what, registry.ErrRefused, MostRows, p.Limit)
	}
	q, err := f.find(r.scope, p.After)
	if err != nil {
		return nil, Key{}, fmt.Errorf("list %s: %w", what, err)
	}
	q.args["n"] = p.Limit + 1
	if q.upwards {
		q.args["n"] = p.Limit
	}
	rows, err := read(ctx, r.db, q, show(q.sql), pgx.RowToStructByName[T])
	if err != nil {
		return nil, Key{}, fmt.Errorf("list %s: %w", what, err)
	}
	if len(rows) > p.Limit {
		rows = rows[:p.Limit]
		return rows, key(rows[p.Limit-1]), nil
	}
	return append([]T{}, rows...), Key{}, nil // null is no list in JSON
}

// one looks a record up: the statement of q has to find exactly one row.
func one[T any](ctx context.Context, r Records, what string, q *query) (T, error) {
	rows, err := read(ctx, r.db, q, q.sql, pgx.RowToStructByName[T])
	var none T
	switch {
	case err == nil && len(rows) == 0:
		return none, registry.NoSuch(what)
	case err != nil:
		return none, fmt.Errorf("look up %s: %w", what, err)
	}
	return rows[0], nil
}

// settingsSQL holds for the transaction that it begins: the statements of a batch are one.
// The planner is kept from plans that read whole tables, and where an index has the order of
// a list, from sorting. It plans each statement once for all values, and cannot know how few rows are
// wanted. Only parts of a row, such as the events of a record, are sorted among themselves.
const settingsSQL = `
SELECT set_config('transaction_read_only', 'on', true), set_config('statement_timeout', $1, true),
	set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
	set_config('enable_sort', $2, true), set_config('enable_incremental_sort', $3, true)`

// read runs a statement in a read-only transaction of its own, in one round trip.
func read[T any](ctx context.Context, db registry.Database, q *query, sql string, row pgx.RowToFunc[T]) (rows []T, err error) {
	if q.nothing {
		return nil, nil
	}
	var b pgx.Batch
	b.Queue(settingsSQL, strconv.FormatInt(q.timeout.Milliseconds(), 10), onOff(!q.ordered), onOff(q.parts))
	b.Queue(sql, q.args).Query(func(r pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(r, row)
		return err
	})
	err = db.SendBatch(ctx, &b).Close()
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "57014" && ctx.Err() == nil { // query_canceled
		return nil, fmt.Errorf("%w: not finished after %s; %s", ErrTooBroad, q.timeout, q.advice)
	}
	return rows, registry.Refusal(err)
}
