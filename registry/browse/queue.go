package browse

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Queue is what waited, ran and was parked at one moment. It is read for all institutions
// at once, so that a server can read it rarely and show it often; [Queue.Of] is the only way
// to what it has.
type Queue struct {
	at         time.Time
	partitions []record.QueuePartition
	own        map[int64][]record.QueuePartition // of each institution
	workers    []record.Worker
}

// countsSQL reads the queue once from end to end. It has the live items, and those that have
// ended since the archive was last written.
const countsSQL = `
SELECT w.institution_id, i.identifier AS institution, w.action, w.stage, w.size_band,
	count(*) FILTER (WHERE w.status = 'Pending' AND w.run_at <= now()) AS due,
	count(*) FILTER (WHERE w.status = 'Pending' AND w.run_at > now() AND w.run_at < 'infinity') AS delayed,
	count(*) FILTER (WHERE w.status = 'Pending' AND w.run_at = 'infinity') AS waiting,
	count(*) FILTER (WHERE w.status = 'Started') AS running,
	count(*) FILTER (WHERE w.status IN ('Failed', 'Suspended')) AS parked,
	coalesce(sum(w.size) FILTER (WHERE w.status IN ('Pending', 'Started')), 0)::bigint AS bytes,
	coalesce(extract(epoch FROM now() - min(w.run_at) FILTER (WHERE w.status = 'Pending' AND w.run_at <= now())), 0)::float8 AS oldest_due
FROM work_items w JOIN institutions i ON i.id = w.institution_id
WHERE w.status IN ('Pending', 'Started', 'Failed', 'Suspended')
GROUP BY w.institution_id, i.identifier, w.action, w.stage, w.size_band
ORDER BY w.action, w.stage, w.size_band, i.identifier`

// TakeQueue reads the queue. What is left of ctx's time is the bound of the statement, too.
func TakeQueue(ctx context.Context, r *registry.Registry) (q Queue, err error) {
	most := time.Minute
	if deadline, ok := ctx.Deadline(); ok {
		most = max(time.Until(deadline), time.Millisecond)
	}
	err = pgx.BeginTxFunc(ctx, r.DB(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, `SELECT now() FROM set_config('statement_timeout', $1, true)`, strconv.FormatInt(most.Milliseconds(), 10)).Scan(&q.at); err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, countsSQL)
		if q.partitions, err = pgx.CollectRows(rows, pgx.RowToStructByName[record.QueuePartition]); err != nil {
			return err
		}
		q.workers, err = registry.WorkersIn(ctx, tx)
		return err
	})
	if err != nil {
		return Queue{}, fmt.Errorf("count the queue: %w", err)
	}
	q.own = map[int64][]record.QueuePartition{}
	for _, c := range q.partitions {
		q.own[c.InstitutionID] = append(q.own[c.InstitutionID], c)
	}
	return q, nil
}

// At is when the queue was read, by the database's clock.
func (q Queue) At() time.Time { return q.at }

// Workers are the worker processes that lived at that moment, with the items that ran in each.
func (q Queue) Workers() []record.Worker { return q.workers }

// Of returns what a scope has of the queue: nothing for the zero scope.
func (q Queue) Of(s registry.Scope) []record.QueuePartition {
	if s.All() {
		return q.partitions
	}
	id, _ := s.Institution()
	return q.own[id]
}

// endedSQL finds those that have ended (work_items_ended, and work_items_archive_updated in
// the archive) and those that are parked (work_items_review).
const endedSQL = `
SELECT date_trunc('hour', w.updated_at, 'UTC') AS hour, w.action, w.status, count(*) AS items,
	count(*) FILTER (WHERE w.updated_at > now() - interval '1 hour') AS recent, sum(w.size)::bigint AS bytes FROM (
	SELECT w.institution_id, w.updated_at, w.action, w.status, w.size FROM work_items w
	WHERE w.status IN ('Success', 'Cancelled') AND w.updated_at >= @since
	UNION ALL
	SELECT w.institution_id, w.updated_at, w.action, w.status, w.size FROM work_items w
	WHERE w.status IN ('Failed', 'Suspended') AND w.updated_at >= @since
	UNION ALL
	SELECT w.institution_id, w.updated_at, w.action, w.status, w.size FROM work_items_archive w
	WHERE w.updated_at >= @since
) w
WHERE `

// History counts the items that came to an end in each of the last hours, of each action.
// An item that was requeued since does not count. The error is [ErrTooBroad] if there are
// too many.
func (r Records) History(ctx context.Context, hours int) ([]record.Ended, error) {
	q := in(r.scope, "", "ask for fewer hours")
	q.within(`w.institution_id`)
	var since time.Time
	if err := r.db.QueryRow(ctx, `SELECT date_trunc('hour', now(), 'UTC') - make_interval(hours => $1)`, hours-1).Scan(&since); err != nil {
		return nil, fmt.Errorf("count items that ended: %w", err)
	}
	q.args["since"] = since
	list, err := read(ctx, r.db, q, endedSQL+q.all()+` GROUP BY 1, 2, 3 ORDER BY 1, 2, 3`, pgx.RowToStructByName[record.Ended])
	if err != nil {
		return nil, fmt.Errorf("count items that ended: %w", err)
	}
	return append([]record.Ended{}, list...), nil // null is no list in JSON
}
