// Package lane keeps a few database connections for one purpose, so that its
// statements never wait for those of others.
package lane

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
)

// Lane is a few connections for one purpose, safe for concurrent use. Their statements forbid the plans
// that would be cheaper while the table is small and a catastrophe when it has
// grown: there is an index for all that they do, and one generic plan for each.
// A process that is stopped in the middle of a transaction does not keep others
// from claiming and reaping for longer than a few heartbeats.
type Lane struct {
	*pgxpool.Pool

	// pooled connections are sessions of a pooler, which others get next. The
	// settings are then those of each transaction.
	pooled bool
}

// Settings are those of a session; the others are the same for one transaction. A process
// that is stopped in the middle of a transaction must not keep its locks from all others.
const (
	Settings = `SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_sort = off; SET enable_bitmapscan = off;
		SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off;
		SET idle_in_transaction_session_timeout = '10s'`
	begin = `BEGIN; SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL jit = off; SET LOCAL enable_sort = off;
		SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off;
		SET LOCAL enable_mergejoin = off; SET LOCAL enable_material = off; SET LOCAL idle_in_transaction_session_timeout = '10s'`
	locally = `SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true),
		set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true),
		set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('enable_material', 'off', true)`
)

// Open returns a lane of up to most connections to the database of a pool.
func Open(db *pgxpool.Pool, most int32) (Lane, error) {
	config := db.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = most, 0, 0
	l := Lane{pooled: dial.Pooled(config.ConnConfig)}
	if !l.pooled {
		config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, Settings)
			return err
		}
	}
	var err error
	if l.Pool, err = dial.Open(context.Background(), config); err != nil {
		return Lane{}, fmt.Errorf("open connections: %w", err)
	}
	return l, nil
}

// Statement is one with its parameters.
type Statement struct {
	SQL  string
	Args []any
}

// Column is what of returns for each element of a list, such as a parameter of a statement.
func Column[S, T any](list []S, of func(*S) T) []T {
	values := make([]T, len(list))
	for i := range list {
		values[i] = of(&list[i])
	}
	return values
}

// Query sends a statement, to a pooler together with its settings.
func (l Lane) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if !l.pooled {
		return l.Pool.Query(ctx, sql, args...) //nolint:wrapcheck // as its own
	}
	b := &pgx.Batch{}
	b.Queue(locally)
	b.Queue(sql, args...)
	results := l.SendBatch(ctx, b)
	results.Exec() //nolint:errcheck // the next result has its error too
	rows, err := results.Query()
	return &lastRows{Rows: rows, results: results}, err
}

// QueryAll sends several statements behind others that take the locks they need and return nothing,
// and has the rows of each read in turn. What is sent in one go is one transaction, and takes no
// longer on its way than one statement. With an error, nothing of it was done, unless it is not
// known whether the transaction committed.
func (l Lane) QueryAll(ctx context.Context, first, all []Statement, read func(i int, rows pgx.Rows) error) error {
	if l.pooled {
		first = append([]Statement{{SQL: locally}}, first...)
	}
	if len(first) == 0 && len(all) == 1 {
		rows, _ := l.Pool.Query(ctx, all[0].SQL, all[0].Args...) // read returns the error
		return read(0, rows)
	}
	b := &pgx.Batch{}
	for _, s := range slices.Concat(first, all) {
		b.Queue(s.SQL, s.Args...)
	}
	results := l.SendBatch(ctx, b)
	for range first {
		results.Exec() //nolint:errcheck // the next result has its error too
	}
	for i := range all {
		rows, _ := results.Query()
		if err := read(i, rows); err != nil {
			results.Close() //nolint:errcheck // it has the same error
			return err
		}
	}
	return results.Close() //nolint:wrapcheck // as its own; it may say that the transaction did not commit
}

// Transact runs do in a transaction, and once more if it fell to another.
func (l Lane) Transact(ctx context.Context, do func(pgx.Tx) error) error {
	var o pgx.TxOptions
	if l.pooled {
		o.BeginQuery = begin
	}
	return registry.Again(func() error { return pgx.BeginTxFunc(ctx, l, o, do) })
}

// lastRows are those of the last statement of a batch, which is only done, and
// its connection free, when they have been read.
type lastRows struct {
	pgx.Rows

	results pgx.BatchResults
	err     error
}

func (r *lastRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *lastRows) Close() {
	r.Rows.Close()
	if r.results != nil {
		r.err = r.results.Close() // it may say that the transaction did not commit
		r.results = nil
	}
}

func (r *lastRows) Err() error {
	if err := r.Rows.Err(); err != nil {
		return err
	}
	return r.err
}
