package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

const queuesSQL = `
SELECT q.name, q.last_number, CASE WHEN first.number IS NULL THEN 0 ELSE q.last_number - first.number + 1 END,
	coalesce(extract(epoch FROM greatest(clock_timestamp() - first.created_at, '0'))::float8, 0)
FROM (SELECT * FROM queues WHERE $1 = '' OR name = $1 ORDER BY name LIMIT $2) q
LEFT JOIN LATERAL (SELECT p.number, p.created_at FROM posted_messages p WHERE p.topic = q.name ORDER BY p.number LIMIT 1) first ON true
ORDER BY q.name`

const queueReceiversSQL = `
SELECT r.topic AS queue, is_pipeline_topic(r.topic) AS pipeline, r.name AS receiver, r.position,
	coalesce(posted.waiting, passing.waiting, 0) AS waiting, given.processing, given.delayed, given.failed,
	coalesce(extract(epoch FROM greatest(clock_timestamp() - least(posted.since, passing.since, given.since), '0'))::float8, 0) AS oldest, r.pulled_at
FROM (SELECT * FROM topic_receivers WHERE $1 = '' OR topic = $1 ORDER BY pulled_at DESC, id LIMIT $2) r
LEFT JOIN LATERAL (
	SELECT q.last_number - p.number + 1 AS waiting, p.created_at AS since FROM queues q
	CROSS JOIN LATERAL (SELECT p.number, p.created_at FROM posted_messages p WHERE p.topic = q.name AND p.number > r.position ORDER BY p.number LIMIT 1) p
	WHERE q.name = r.topic
) posted ON true
LEFT JOIN LATERAL (
	SELECT count(*) AS waiting, min(m.created_at) AS since FROM (
		SELECT m.topic, m.created_at FROM pipeline_messages m WHERE is_pipeline_topic(r.topic) AND (m.xid, m.id) > (r.xid, r.position)
		ORDER BY m.xid, m.id LIMIT 10000) m WHERE m.topic = r.topic
) passing ON posted.waiting IS NULL
CROSS JOIN LATERAL (
	SELECT (SELECT count(*) FROM topic_deliveries d WHERE d.receiver_id = r.id AND d.status = 'processing') AS processing,
		(SELECT count(*) FROM topic_deliveries d WHERE d.receiver_id = r.id AND d.status = 'delayed') AS delayed,
		(SELECT count(*) FROM topic_deliveries d WHERE d.receiver_id = r.id AND d.status = 'failed') AS failed,
		(SELECT min(d.created_at) FROM topic_deliveries d WHERE d.receiver_id = r.id AND d.status = 'processing') AS since
) given
ORDER BY r.topic, r.name`

// Queues reports how the queues of the pull API stand, up to so many queues and of the
// receivers so many that pulled last. "" is all queues; one that there is not is none.
func (r *Registry) Queues(ctx context.Context, queue string, most int) ([]record.Queue, error) {
	list := []record.Queue{} // null is no list in JSON
	at := map[string]int{}
	rows, _ := r.db.Query(ctx, queuesSQL, queue, most)
	var q record.Queue
	if _, err := pgx.ForEachRow(rows, []any{&q.Queue, &q.Last, &q.Messages, &q.Oldest}, func() error {
		q.Depth, q.Receivers = q.Messages, []record.QueueReceiver{}
		at[q.Queue] = len(list)
		list = append(list, q)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("list queues: %w", err)
	}
	rows, _ = r.db.Query(ctx, queueReceiversSQL, queue, most)
	receivers, err := pgx.CollectRows(rows, pgx.RowToStructByName[record.QueueReceiver])
	if err != nil {
		return nil, fmt.Errorf("list the receivers of queues: %w", err)
	}
	for _, one := range receivers {
		n, ok := at[one.Queue]
		if !ok && !one.Pipeline {
			continue // its queue is beyond the last that was asked for
		}
		if !ok {
			n, at[one.Queue] = len(list), len(list)
			list = append(list, record.Queue{Queue: one.Queue, Pipeline: true, Receivers: []record.QueueReceiver{}})
		}
		add(&list[n], one)
	}
	return list, nil
}

func add(q *record.Queue, r record.QueueReceiver) {
	if len(q.Receivers) == 0 { // without a receiver all messages wait
		q.Depth, q.Oldest = 0, 0
	}
	q.Depth = max(q.Depth, r.Waiting+r.Processing+r.Delayed)
	q.Oldest = max(q.Oldest, r.Oldest)
	q.Failed += r.Failed
	q.Receivers = append(q.Receivers, r)
}

// PostedMessage reports what has become of a message. One that there is not, or that is
// no longer kept, is ErrNotFound.
func (r *Registry) PostedMessage(ctx context.Context, queue string, number int64) (record.PostedMessage, error) {
	m := record.PostedMessage{Queue: queue, Number: number}
	err := r.db.QueryRow(ctx, `SELECT coalesce(sender, ''), created_at, run_at FROM posted_messages WHERE topic = $1 AND number = $2`, queue, number).
		Scan(&m.Sender, &m.CreatedAt, &m.RunAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return m, fmt.Errorf("look up message %d of %s: %w", number, queue, ErrNotFound)
	}
	if err != nil {
		return m, fmt.Errorf("look up message %d of %s: %w", number, queue, err)
	}
	rows, _ := r.db.Query(ctx, `
		SELECT r.name AS receiver, coalesce(d.status, CASE WHEN r.position < $2 THEN 'waiting' ELSE 'passed' END) AS status,
			coalesce(d.fail_count, 0) AS fail_count, d.result, CASE WHEN d.status <> 'delayed' THEN d.created_at END AS given_at, d.updated_at
		FROM topic_receivers r LEFT JOIN topic_deliveries d ON d.receiver_id = r.id AND d.message = $2
		WHERE r.topic = $1 ORDER BY r.name LIMIT 10000`, queue, number)
	m.Receivers, err = pgx.CollectRows(rows, pgx.RowToStructByName[record.MessageReceiver])
	if err != nil {
		return m, fmt.Errorf("look up the deliveries of message %d of %s: %w", number, queue, err)
	}
	if m.Receivers == nil {
		m.Receivers = []record.MessageReceiver{}
	}
	return m, nil
}

// PlaceReceiver has a receiver of a queue go on behind a message; 0 is at the
// beginning. It returns the number of the last message: beyond that, nothing is moved.
// A queue that there is not is ErrNotFound.
func (r *Registry) PlaceReceiver(ctx context.Context, queue, receiver string, behind int64) (last int64, err error) {
	var found *int64
	if err := r.db.QueryRow(ctx, `SELECT place_receiver($1, $2, $3)`, queue, receiver, behind).Scan(&found); err != nil {
		return 0, fmt.Errorf("set the position of receiver %s of %s: %w", receiver, queue, err)
	}
	if found == nil {
		return 0, fmt.Errorf("set the position of receiver %s of %s: %w", receiver, queue, ErrNotFound)
	}
	return *found, nil
}
