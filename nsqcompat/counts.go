package nsqcompat

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry/fixity"
	"github.com/farol-preservation/farol/registry/topiclog"
)

// counts are what the registry has of one topic; those of all topics are read in one
// snapshot.
type counts struct {
	Topic     string
	Paused    bool
	Due       int64 // Pending and claimable
	Later     int64 // Pending, for a later time
	Far       int64 // of these, later than clocks may differ
	Waiting   int64 // Pending until another item has ended
	Running   int64
	Unread    int64 // committed messages that are not published yet
	Unshown   int64 // retries that nsqd does not show yet
	requeuing bool  // its messages are ids of items
	behind    int64 // unread messages of all topics, at most maxUnread
}

// expected is how many messages the channel must have.
func (c counts) expected() int64 { return c.Due + c.Later + c.Waiting + c.Running - c.Unread }

// queueReader reads the log and the queue over the connection of a session.
type queueReader struct {
	topiclog.Reader

	conn *pgx.Conn
}

// callTimeout bounds one statement.
const callTimeout = 10 * time.Second

// querier is a connection or a pool.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// collect reads rows in bounded time. what names that in errors.
func collect[T any](ctx context.Context, db querier, what string, row pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, _ := db.Query(ctx, sql, args...) // CollectRows returns the error
	list, err := pgx.CollectRows(rows, row)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return list, nil
}

// maxUnread bounds the count of messages behind the cursor. A mirror that is
// further behind has no figures to compare.
const maxUnread = 50_000

// waitingSQL counts what waits at a stage.
const waitingSQL = `
		SELECT count(*) FILTER (WHERE run_at <= now()) AS due, count(*) FILTER (WHERE run_at > now() AND run_at < 'infinity') AS later,
			count(*) FILTER (WHERE run_at > now() + interval '1.5 seconds' AND run_at < 'infinity') AS far,
			count(*) FILTER (WHERE run_at = 'infinity') AS waiting
		FROM work_items w WHERE w.status = 'Pending' AND w.retry AND w.stage = s.stage`

// countsSQL counts by the partial indexes work_items_ready, work_items_requested and
// work_items_lease, and unread messages by the key of pipeline_messages. Ingests have
// stages of their own, so their counts need no access to the items. Fixity checks have no
// items: those that run have a lease, those that are due and allowed are found as a
// claim finds them, and there is one message for a file.
const countsSQL = `
WITH behind AS MATERIALIZED (
	SELECT topic, count(*) AS n FROM (
		SELECT topic FROM pipeline_messages WHERE (xid, id) > (@xid, @id) ORDER BY xid, id LIMIT @most) m
	GROUP BY topic
), unshown AS MATERIALIZED (
	SELECT topic, count(*) AS n FROM topic_retries GROUP BY topic
), stages AS (
	SELECT s.topic, bool_and(s.paused) AS paused,
		sum(coalesce(i.due, 0) + coalesce(q.due, 0)) AS due, sum(coalesce(i.later, 0) + coalesce(q.later, 0)) AS later,
		sum(coalesce(i.far, 0) + coalesce(q.far, 0)) AS far, sum(coalesce(i.waiting, 0) + coalesce(q.waiting, 0)) AS waiting,
		sum(r.n) AS running, true AS requeuing
	FROM stage_settings s
	LEFT JOIN LATERAL (` + waitingSQL + `
	) i ON s.action = 'Ingest'
	LEFT JOIN LATERAL (` + waitingSQL + ` AND w.action = s.action
	) q ON s.action <> 'Ingest'
	CROSS JOIN LATERAL (
		SELECT count(*) AS n FROM work_items w WHERE w.status = 'Started' AND w.stage = s.stage AND w.action = s.action
	) r
	GROUP BY s.topic
	UNION ALL
	SELECT 'fixity_check', (SELECT paused FROM fixity_feed), (SELECT count(*) FROM fixity_due(@days, @few)), 0, 0, 0, (
		SELECT count(DISTINCT s.generic_file_id) FROM fixity_checks c JOIN storage_records s ON s.id = c.storage_record_id
		WHERE c.worker <> '' AND c.run_at > now()), false
)
SELECT s.topic, s.paused, s.due::bigint, s.later::bigint, s.far::bigint, s.waiting::bigint, s.running::bigint,
	coalesce(b.n, 0) AS unread, (SELECT coalesce(sum(n), 0) FROM behind)::bigint, coalesce(u.n, 0) AS unshown, s.requeuing
FROM stages s LEFT JOIN behind b USING (topic) LEFT JOIN unshown u USING (topic)
ORDER BY s.topic`

// count counts each topic, for a reader at a position. days is the interval of fixity
// checks where a policy leaves it open.
func count(ctx context.Context, db querier, at topiclog.Position, days int) ([]counts, error) {
	return collect(ctx, db, "count the queue", func(row pgx.CollectableRow) (c counts, err error) {
		err = row.Scan(&c.Topic, &c.Paused, &c.Due, &c.Later, &c.Far, &c.Waiting, &c.Running, &c.Unread, &c.behind, &c.Unshown, &c.requeuing)
		if !c.requeuing {
			c.Unread = 0 // a file that is due has its message before its check is announced
		}
		return c, err
	}, countsSQL, pgx.NamedArgs{"xid": at.XID, "id": at.MessageID, "most": maxUnread, "days": days, "few": fixity.Few})
}

// retriedItem is an attempt after which the item is tried again, and how long the item
// waits for that; 0 if it no longer does.
type retriedItem struct {
	Topic string
	After time.Duration
}

// retriesSQL deletes the retries that it returns: if the process dies now, nsqd's count
// lacks them. If an item was retried twice, only its last row says when it is due.
const retriesSQL = `
WITH taken AS (
	DELETE FROM topic_retries WHERE id IN (SELECT id FROM topic_retries ORDER BY id LIMIT 1000)
	RETURNING id, topic, work_item_id
), last AS (
	SELECT *, row_number() OVER (PARTITION BY topic, work_item_id ORDER BY id DESC) AS back FROM taken
)
SELECT l.topic, coalesce(CASE WHEN l.back = 1 AND w.status = 'Pending' AND w.waits_for IS NULL AND w.run_at > now()
	AND EXISTS (SELECT FROM stage_settings s WHERE s.topic = l.topic AND s.stage = w.stage AND s.action = w.action)
	THEN least(w.run_at - now(), '1 day') END, '0')
FROM last l LEFT JOIN work_items w ON w.id = l.work_item_id
ORDER BY l.id`

func (q queueReader) retries(ctx context.Context) ([]retriedItem, error) {
	return collect(ctx, q.conn, "read the messages to retry", pgx.RowToStructByPos[retriedItem], retriesSQL)
}

// laterSQL uses the partial index work_items_ready.
const laterSQL = `
SELECT least(w.run_at - now(), '1 day') FROM work_items w JOIN stage_settings s ON s.action = w.action AND s.stage = w.stage
WHERE s.topic = $1 AND w.status = 'Pending' AND w.retry AND w.run_at > now() + interval '1.5 seconds' AND w.run_at < 'infinity'
ORDER BY w.run_at LIMIT 5000`

// later returns when items of a topic are due that wait for a time, soonest first.
func (q queueReader) later(ctx context.Context, topic string) ([]time.Duration, error) {
	return collect(ctx, q.conn, "read when items are due", pgx.RowTo[time.Duration], laterSQL, topic)
}

// liveSQL walks the primary key of work_items.
const liveSQL = `
SELECT w.id FROM work_items w JOIN stage_settings s ON s.action = w.action AND s.stage = w.stage
WHERE s.topic = $1 AND w.retry AND w.id > $2
ORDER BY w.id LIMIT $3`

// live returns the next ids that a topic's messages would have, beyond one.
func (q queueReader) live(ctx context.Context, topic string, beyond int64, n int64) ([]int64, error) {
	return collect(ctx, q.conn, "read which ids are live", pgx.RowTo[int64], liveSQL, topic, beyond, n)
}

// checkedSQL reads the few checks that run, and those that a claim would find next.
const checkedSQL = `
SELECT r.generic_file_id FROM fixity_checks c JOIN storage_records r ON r.id = c.storage_record_id
WHERE c.worker <> '' AND c.run_at > now()
UNION SELECT * FROM fixity_due($1, $2)
LIMIT $3`

// checked returns the files whose fixity is being checked, or would be next.
func (q queueReader) checked(ctx context.Context, days int) ([]int64, error) {
	return collect(ctx, q.conn, "read which ids are live", pgx.RowTo[int64], checkedSQL, days, fixity.Few, maxOwn)
}
