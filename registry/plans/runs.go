package plans

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Apply does what a plan says, or what is left of it. It refuses if more
// than tolerance per cent of the items have changed since the plan was made, or
// if someone else is at it. Wherever it stops, and be it killed, each item is
// done once or not at all, and another call goes on. After each batch progress receives
// how many items more were dealt with.
func (r Records) Apply(ctx context.Context, id int64, tolerance float64, progress func(items int)) (record.Plan, error) {
	p, err := r.run(ctx, id, progress, `SELECT plan_apply($1)`, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, `SELECT plan_begin($1, $2)`, id, tolerance)
		return err
	})
	if err != nil {
		return p, fmt.Errorf("apply plan %d: %w", id, registry.Refusal(err))
	}
	return p, nil
}

// Undo puts back the items that a plan has changed and that nobody has had
// since. It can be stopped and called again like ApplyPlan. What the plan has not
// come to by then, it never will.
func (r Records) Undo(ctx context.Context, id int64, progress func(items int)) (record.Plan, error) {
	p, err := r.run(ctx, id, progress, `SELECT plan_undo($1)`, func(*pgx.Conn) error { return nil })
	if err != nil {
		return p, fmt.Errorf("undo plan %d: %w", id, registry.Refusal(err))
	}
	return p, nil
}

func (r Records) run(ctx context.Context, id int64, progress func(int), batchSQL string, begin func(*pgx.Conn) error) (record.Plan, error) {
	c, err := r.hold(ctx, id)
	if err != nil {
		return record.Plan{}, err
	}
	defer closeConn(ctx, c) // which lets go of the plan
	if err := begin(c); err != nil {
		return record.Plan{}, err
	}
	for {
		n, err := batch(ctx, c, "", id, batchSQL)
		switch {
		case err != nil:
			return record.Plan{}, err
		case n == 0:
			return r.Plan(ctx, id)
		default:
			progress(n)
		}
	}
}

// mostDeadlocks is how often a batch is tried again in a row.
const mostDeadlocks = 20

// batch carries out the next items of a plan, in the name of a person if a server does it,
// and returns how many there were.
func batch(ctx context.Context, c *pgx.Conn, actor string, id int64, batchSQL string) (n int, err error) {
	for deadlocks := 0; ; deadlocks++ {
		var b pgx.Batch // which is one transaction
		b.Queue(`SELECT set_config('farol.actor', $1, true)`, actor)
		b.Queue(batchSQL, id).QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
		err = c.SendBatch(ctx, &b).Close()
		// A worker holds some of the items and waits for others of them. The batch was taken
		// back whole, and the worker is done by now.
		if pg := (*pgconn.PgError)(nil); !errors.As(err, &pg) || pg.Code != "40P01" || deadlocks == mostDeadlocks {
			return n, err
		}
	}
}

// holderSQL names the session that has a plan's lock.
const holderSQL = `
SELECT coalesce((
	SELECT format('%s of %s, backend process %s', coalesce(nullif(a.application_name, ''), 'a program'), a.usename, a.pid)
	FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
	WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND (l.classid::bigint << 32) | l.objid::bigint = hashtextextended('farol plan', $1)
), 'a process that has ended just now')`

// hold returns a connection that holds the plan until it is closed. One that
// was killed lets go as soon as its server process has come to the end of the
// batch, so this waits somewhat longer than a batch takes. Nothing hangs on this
// lock but what a second person sees: plan_lock guards each batch.
func (r Records) hold(ctx context.Context, id int64) (*pgx.Conn, error) {
	pooled, err := r.db.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	c := pooled.Hijack()
	err = pgx.BeginFunc(ctx, c, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '3s'`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended('farol plan', $1))`, id)
		return err
	})
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "55P03" { // lock_not_available
		var holder string
		if err = c.QueryRow(ctx, holderSQL, id).Scan(&holder); err == nil {
			err = fmt.Errorf("%w: plan %d is being applied by %s", registry.ErrRefused, id, holder)
		}
	}
	if err != nil {
		closeConn(ctx, c)
		return nil, err
	}
	return c, nil
}

// closeConn says goodbye, so that the server lets go of locks at once.
func closeConn(ctx context.Context, c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	c.Close(ctx) //nolint:errcheck // it is gone in any case
}
