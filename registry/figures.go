package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

// Figures are what dashboards and alarms ask of the database. However much has
// ended, and however much waits, they cost about the same.
type Figures struct {
	Bands  []BandFigures
	Stages []StageFigures
	Tables []record.TableView
	Notify float64 // share of the queue of NOTIFY that is in use; when it is full, commits fail
	Oldest []record.SnapshotView

	Services []record.QueueServices
}

// BandFigures counts the items of a stage in one size band, in the words of the view
// queue_depth. What waits is counted up to a bound.
type BandFigures struct {
	Action    Action
	Stage     Stage
	SizeBand  int16
	Due       int64
	Delayed   int64
	Waiting   int64
	Running   int64
	OldestDue float64 // seconds for which the first of those counted has been due
}

// StageFigures is how a stage stands.
type StageFigures struct {
	Action Action
	Stage  Stage
	Paused bool
	Failed int64 // items at the stage that are in the view failed

	Running, Claimable, Held int64 // as autoscalers count: see scaling_items
}

// MostCounted is how many waiting items are counted at a stage in a size band.
const MostCounted = 100_000

// waitingSQL has what waits in each queue partition, in the order of claims and no further than
// the bound. It reads work_items_ready and work_items_requested, and of the items no rows: only
// ingests have the stages of ingests, and requests wait at their first stage alone.
const waitingSQL = `
	SELECT 'Ingest' AS action, c.stage, c.band, q.* FROM (
		SELECT s.stage, b.band FROM stage_settings s CROSS JOIN size_bands b WHERE s.action = 'Ingest'
	) c CROSS JOIN LATERAL (` + walkBegin + ` AND w.stage = c.stage AND w.size_band = c.band` + walkEnd + `) q
	UNION ALL
	SELECT c.action, 'Requested', c.band, q.* FROM (
		SELECT s.action, b.band FROM stage_settings s CROSS JOIN size_bands b WHERE s.stage = 'Requested'
	) c CROSS JOIN LATERAL (` + walkBegin + ` AND w.stage = 'Requested' AND w.action = c.action AND w.size_band = c.band` + walkEnd + `) q`

const (
	walkBegin = `
		SELECT w.priority, w.virtual_start, w.run_at, w.id FROM work_items w WHERE w.status = 'Pending' AND w.retry`
	walkEnd = `
		ORDER BY w.priority, w.virtual_start, w.run_at, w.id LIMIT $1
	`
)

// bandsSQL counts what [waitingSQL] has. Every stage and band has a row, so that a gauge falls
// to 0 and does not vanish.
const bandsSQL = `
WITH ready AS (
	SELECT action, stage, band, count(*) FILTER (WHERE run_at <= now()) AS due,
		count(*) FILTER (WHERE run_at > now() AND run_at < 'infinity') AS delayed,
		count(*) FILTER (WHERE run_at = 'infinity') AS waiting,
		extract(epoch FROM now() - min(run_at) FILTER (WHERE run_at <= now())) AS oldest
	FROM (` + waitingSQL + `
	) w GROUP BY action, stage, band
), busy AS (
	SELECT action, stage, size_band AS band, count(*) AS running FROM work_items WHERE status = 'Started' GROUP BY action, stage, size_band
)
SELECT s.action, s.stage, b.band, coalesce(r.due, 0), coalesce(r.delayed, 0), coalesce(r.waiting, 0), coalesce(o.running, 0),
	coalesce(r.oldest, 0)::float8
FROM stage_settings s CROSS JOIN size_bands b
LEFT JOIN ready r ON r.action = s.action AND r.stage = s.stage AND r.band = b.band
LEFT JOIN busy o ON o.action = s.action AND o.stage = s.stage AND o.band = b.band
ORDER BY s.action, s.ordinal, b.band`

// frontsSQL numbers what is due of [waitingSQL].
const frontsSQL = `
SELECT action, stage, band, ahead, priority, virtual_start, run_at, id FROM (
	SELECT *, row_number() OVER (PARTITION BY action, stage, band ORDER BY priority, virtual_start, run_at, id) - 1 AS ahead
	FROM (` + waitingSQL + `
	) w WHERE run_at <= now()
) f
WHERE ahead % greatest(ahead / 64, 1) = 0
ORDER BY action, stage, band, ahead`

// stagesSQL goes by work_items_review, which has what the view failed has. An
// item is counted at its stage even if that has no settings any more.
const stagesSQL = `
SELECT action, stage, bool_or(paused), sum(n)::bigint, sum(running)::bigint, sum(claimable)::bigint, sum(held)::bigint FROM (
	SELECT action, stage, paused, 0 AS n, 0 AS running, 0 AS claimable, 0 AS held FROM stage_pauses
	UNION ALL
	SELECT action, stage, false, count(*), 0, 0, 0 FROM work_items WHERE status IN ('Failed', 'Suspended') GROUP BY action, stage
	UNION ALL
	SELECT action, stage, false, 0, running, claimable, held FROM scaling_items()
) f
GROUP BY action, stage ORDER BY action, stage`

// tablesSQL takes the partitions of the topic log together.
const tablesSQL = `
SELECT t.name, sum(t.n_live_tup)::bigint, sum(t.n_dead_tup)::bigint FROM (
	SELECT CASE WHEN relname LIKE ANY ('{pipeline\_messages\_%, posted\_messages\_%}') THEN 'topic_messages' ELSE relname::text END AS name,
		n_live_tup, n_dead_tup
	FROM pg_stat_user_tables WHERE schemaname = current_schema()
) t
WHERE t.name = ANY ('{work_items, work_item_attempts, worker_processes, institution_virtual_times, uploads_in_work, objects_in_work,
	topic_messages, topic_deliveries}')
GROUP BY t.name ORDER BY t.name`

// oldestSQL finds who keeps vacuum from rows of this database. Of a session
// that may not see others', a slot and a standby only the transaction is known, not the
// time: the topic log has the time of the first message that they hold back. A session
// that vacuums holds nothing.
const oldestSQL = `
WITH held AS (
	SELECT 'transaction' AS kind, backend_xmin AS horizon, xact_start AS since,
		concat_ws(' ', 'process', pid, 'of', usename, nullif(application_name, ''), state) AS name
	FROM pg_stat_activity a
	WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()
	  AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum v WHERE v.pid = a.pid)
	UNION ALL
	SELECT 'transaction', backend_xid, xact_start, concat_ws(' ', 'process', pid, 'of', usename, nullif(application_name, ''), state)
	FROM pg_stat_activity
	WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()
	UNION ALL
	SELECT 'prepared', transaction, prepared, 'prepared transaction ' || gid FROM pg_prepared_xacts WHERE database = current_database()
	UNION ALL
	SELECT 'slot', xmin, NULL, 'replication slot ' || slot_name FROM pg_replication_slots WHERE xmin IS NOT NULL
	UNION ALL
	SELECT 'standby', backend_xmin, NULL, concat_ws(' ', 'standby', nullif(application_name, ''), client_addr) FROM pg_stat_replication
	WHERE backend_xmin IS NOT NULL
), aged AS (
	SELECT kind, name, age(horizon)::bigint AS transactions,
		extract(epoch FROM clock_timestamp() - coalesce(since, (
			SELECT m.created_at FROM pipeline_messages m
			WHERE m.xid >= (pg_snapshot_xmax(pg_current_snapshot())::text::bigint - age(horizon))::text::xid8
			ORDER BY m.xid, m.id LIMIT 1))) AS seconds
	FROM held
), oldest AS (
	SELECT DISTINCT ON (kind) kind, name, transactions, coalesce(seconds, 0) AS seconds FROM aged
	ORDER BY kind, coalesce(seconds, 0) DESC, transactions DESC, name
)
SELECT k.kind, coalesce(greatest(o.seconds, 0), 0)::float8, coalesce(o.transactions, 0), coalesce(o.name, '')
FROM unnest('{transaction, prepared, slot, standby}'::text[]) k (kind) LEFT JOIN oldest o ON o.kind = k.kind`

// Figures reads them in one short look at the database, with what is left of
// ctx's time as the bound of each statement there too.
func (r *Registry) Figures(ctx context.Context) (f Figures, err error) {
	err = r.Look(ctx, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, bandsSQL, MostCounted)
		if f.Bands, err = pgx.CollectRows(rows, pgx.RowToStructByPos[BandFigures]); err != nil {
			return fmt.Errorf("count the queue: %w", err)
		}
		rows, _ = tx.Query(ctx, stagesSQL)
		if f.Stages, err = pgx.CollectRows(rows, pgx.RowToStructByPos[StageFigures]); err != nil {
			return fmt.Errorf("count failed items, and what autoscalers count: %w", err)
		}
		rows, _ = tx.Query(ctx, tablesSQL)
		if f.Tables, err = pgx.CollectRows(rows, pgx.RowToStructByPos[record.TableView]); err != nil {
			return fmt.Errorf("count dead rows: %w", err)
		}
		if err := tx.QueryRow(ctx, `SELECT pg_notification_queue_usage()`).Scan(&f.Notify); err != nil {
			return fmt.Errorf("read the usage of the NOTIFY queue: %w", err)
		}
		rows, _ = tx.Query(ctx, `SELECT service, state = 'held', workers_failing FROM services ORDER BY service`)
		if f.Services, err = pgx.CollectRows(rows, pgx.RowToStructByPos[record.QueueServices]); err != nil {
			return fmt.Errorf("read which services are held: %w", err)
		}
		f.Oldest, err = oldest(ctx, tx)
		return err
	})
	return f, err
}

// Oldest reports who keeps vacuum from dead rows, the oldest of each kind.
func (r *Registry) Oldest(ctx context.Context) (list []record.SnapshotView, err error) {
	err = r.Look(ctx, func(tx pgx.Tx) error {
		list, err = oldest(ctx, tx)
		return err
	})
	return list, err
}

func oldest(ctx context.Context, tx pgx.Tx) ([]record.SnapshotView, error) {
	rows, _ := tx.Query(ctx, oldestSQL)
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[record.SnapshotView])
	if err != nil {
		return nil, fmt.Errorf("find old snapshots: %w", err)
	}
	return list, nil
}

// Look reads in a transaction that goes by indexes whatever the planner thinks of
// them, and that the server ends should we be gone.
func (r *Registry) Look(ctx context.Context, read func(pgx.Tx) error) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(time.Minute)
	}
	most := max(time.Until(deadline).Milliseconds(), 1)
	err := pgx.BeginTxFunc(ctx, r.db, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', $1, true), set_config('enable_seqscan', 'off', true),
			set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)`, fmt.Sprint(most))
		if err != nil {
			return err
		}
		return read(tx)
	})
	if err != nil {
		return fmt.Errorf("read the queue: %w", err)
	}
	return nil
}
