package claim

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/registry"
)

// postgres is the queue in a database. Its statements have few connections of
// their own, so that neither a claim nor a heartbeat ever waits for the many
// statements of the stages.
type postgres struct {
	hot    lane // claims and ends of claims
	beat   lane // heartbeats, and what others are told
	upkeep lane // what may take its time

	direct *pgx.ConnConfig // for listening; nil: there is only a pooler

	institutions sync.Map // identifiers by ID
}

const (
	hotConns    = 4
	beatConns   = 1
	upkeepConns = 2
)

func newPostgres(db *pgxpool.Pool, direct *pgx.ConnConfig) (*postgres, error) {
	if direct == nil && !registry.Pooled(db.Config().ConnConfig) {
		direct = db.Config().ConnConfig
	}
	p := &postgres{direct: direct}
	for l, most := range map[*lane]int32{&p.hot: hotConns, &p.beat: beatConns, &p.upkeep: upkeepConns} {
		var err error
		if *l, err = newLane(db, most); err != nil {
			p.close()
			return nil, err
		}
	}
	return p, nil
}

func (p *postgres) close() {
	for _, l := range []lane{p.hot, p.beat, p.upkeep} {
		if l.Pool != nil {
			l.Close()
		}
	}
}

// lane is a few connections for one purpose. Their statements forbid the plans
// that would be cheaper while the table is small and a catastrophe when it has
// grown: there is an index for all that they do, and one generic plan for each.
// A process that is stopped in the middle of a transaction does not keep others
// from claiming and reaping for longer than a few heartbeats.
type lane struct {
	*pgxpool.Pool

	// pooled connections are sessions of a pooler, which others get next. The
	// settings are then those of each transaction.
	pooled bool
}

// Settings of a session, and of a transaction. A process that stands still in the
// middle of one must not keep its locks from all others.
const (
	plain = `SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_sort = off; SET enable_bitmapscan = off;
		SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off;
		SET idle_in_transaction_session_timeout = '10s'`
	beginPlain = `BEGIN; SET LOCAL plan_cache_mode = force_generic_plan; SET LOCAL jit = off; SET LOCAL enable_sort = off;
		SET LOCAL enable_bitmapscan = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off;
		SET LOCAL enable_mergejoin = off; SET LOCAL enable_material = off; SET LOCAL idle_in_transaction_session_timeout = '10s'`
	plainLocally = `SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('jit', 'off', true),
		set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('enable_seqscan', 'off', true),
		set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('enable_material', 'off', true)`
)

func newLane(db *pgxpool.Pool, most int32) (lane, error) {
	config := db.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = most, 0, 0
	l := lane{pooled: registry.Pooled(config.ConnConfig)}
	if !l.pooled {
		config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, plain)
			return err
		}
	}
	var err error
	if l.Pool, err = registry.Open(context.Background(), config); err != nil {
		return lane{}, fmt.Errorf("open the queue's own connections: %w", err)
	}
	return l, nil
}

// Query sends a statement, to a pooler together with its settings: what is sent
// in one go is one transaction, and takes no longer on its way.
func (l lane) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if !l.pooled {
		return l.Pool.Query(ctx, sql, args...) //nolint:wrapcheck // as its own
	}
	b := &pgx.Batch{}
	b.Queue(plainLocally)
	b.Queue(sql, args...)
	results := l.SendBatch(ctx, b)
	results.Exec() //nolint:errcheck // the next result has its error too
	rows, err := results.Query()
	return &lastRows{Rows: rows, results: results}, err
}

// transact runs do in a transaction, and once more if it fell to another.
func (l lane) transact(ctx context.Context, do func(pgx.Tx) error) error {
	var o pgx.TxOptions
	if l.pooled {
		o.BeginQuery = beginPlain
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
