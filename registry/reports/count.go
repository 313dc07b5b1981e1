// Package reports counts what each institution has in storage and what became of work items,
// day by day.
//
// A count reads the files of objects that have changed since the day before the last count,
// and the items that have ended since. Counting twice gives what counting once gives.
package reports

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// Records are these records in a registry. They are safe for concurrent use.
type Records struct{ db registry.Database }

// In returns those of r.
func In(r *registry.Registry) Records { return Records{r.DB()} }

// Counted is what a count read.
type Counted struct {
	Since   *time.Time `json:"since"`   // from when on changes were read; nil: everything was
	Objects int64      `json:"objects"` // whose files were counted
	Items   int64      `json:"items"`   // that ended since
}

// String is the result of the job.
func (c Counted) String() string {
	if c.Since == nil {
		return fmt.Sprintf("counted everything: %d objects, %d items", c.Objects, c.Items)
	}
	return fmt.Sprintf("counted changes since %s: %d objects, %d items", c.Since.UTC().Format(time.DateOnly), c.Objects, c.Items)
}

// sinceSQL is midnight, in UTC, of the day before the last count. A change is read that was
// made before a count and committed after it, unless its transaction took a day. Without any
// count it is NULL.
const sinceSQL = `SELECT (max(day) - 1)::timestamp AT TIME ZONE 'UTC' FROM holdings_daily`

// changedSQL are the objects that may have other files: those that were recorded or deleted
// (intellectual_objects_updated), and those whose files an item deleted (work_items_ended,
// work_items_archive_updated).
const changedSQL = `
SELECT o.id FROM institutions i CROSS JOIN LATERAL (SELECT k.id FROM intellectual_objects k WHERE k.institution_id = i.id AND k.updated_at >= @since) o
UNION
SELECT w.intellectual_object_id FROM work_items w
WHERE w.status IN ('Success', 'Cancelled') AND w.updated_at >= @since AND w.action = 'Delete' AND w.intellectual_object_id IS NOT NULL
UNION
SELECT w.intellectual_object_id FROM work_items_archive w
WHERE w.updated_at >= @since AND w.action = 'Delete' AND w.intellectual_object_id IS NOT NULL`

// countObjectsSQL counts the files of changed objects (generic_files_object), and
// countAllObjectsSQL those of all.
const (
	countObjectsSQL = `
WITH changed AS MATERIALIZED (` + changedSQL + `), gone AS (
	DELETE FROM object_holdings h USING changed c, intellectual_objects o
	WHERE h.intellectual_object_id = c.id AND o.id = c.id AND o.state <> 'A'
)
INSERT INTO object_holdings (intellectual_object_id, files, bytes)
SELECT o.id, n.files, n.bytes
FROM changed c JOIN intellectual_objects o ON o.id = c.id CROSS JOIN LATERAL (
	SELECT count(*) AS files, coalesce(sum(f.size), 0) AS bytes FROM generic_files f WHERE f.intellectual_object_id = o.id AND f.state = 'A') n
WHERE o.state = 'A'
ON CONFLICT (intellectual_object_id) DO UPDATE SET files = excluded.files, bytes = excluded.bytes`

	countAllObjectsSQL = `
WITH gone AS (
	DELETE FROM object_holdings h USING intellectual_objects o WHERE o.id = h.intellectual_object_id AND o.state <> 'A'
)
INSERT INTO object_holdings (intellectual_object_id, files, bytes)
SELECT o.id, coalesce(n.files, 0), coalesce(n.bytes, 0)
FROM intellectual_objects o LEFT JOIN (
	SELECT f.intellectual_object_id AS id, count(*) AS files, sum(f.size) AS bytes FROM generic_files f WHERE f.state = 'A' GROUP BY 1) n ON n.id = o.id
WHERE o.state = 'A'
ON CONFLICT (intellectual_object_id) DO UPDATE SET files = excluded.files, bytes = excluded.bytes`
)

// today is the present day in UTC.
const today = `(now() AT TIME ZONE 'UTC')::date`

// holdingsSQL writes the rows of today. What an institution had the day before, and has no
// longer, gets a row of zeros.
const holdingsSQL = `
INSERT INTO holdings_daily (day, institution_id, storage_option, objects, files, bytes)
SELECT ` + today + `, institution_id, storage_option, sum(objects), sum(files), sum(bytes)
FROM (
	SELECT o.institution_id, o.storage_option, 1 AS objects, h.files, h.bytes
	FROM object_holdings h JOIN intellectual_objects o ON o.id = h.intellectual_object_id
	UNION ALL
	SELECT d.institution_id, d.storage_option, 0, 0, 0 FROM holdings_daily d
	WHERE d.day = (SELECT max(day) FROM holdings_daily WHERE day < ` + today + `) AND d.objects > 0
) n GROUP BY institution_id, storage_option`

// outcomesSQL counts the items that ended since, each on its last day (work_items_ended,
// work_items_archive_updated), and all that are parked now (work_items_review): those may still
// end otherwise.
const outcomesSQL = `
INSERT INTO daily_outcomes (day, institution_id, action, result, items, bytes)
SELECT (at AT TIME ZONE 'UTC')::date, institution_id, action, status, count(*), sum(size)
FROM (
	SELECT updated_at AS at, institution_id, action, status, size FROM work_items
	WHERE status IN ('Success', 'Cancelled') AND updated_at >= @since
	UNION ALL
	SELECT updated_at, institution_id, action, status, size FROM work_items WHERE status IN ('Failed', 'Suspended')
	UNION ALL
	SELECT updated_at, institution_id, action, status, size FROM work_items_archive WHERE updated_at >= @since
) w GROUP BY 1, 2, 3, 4`

// Count counts what changed since the day before the last count, and writes the rows of
// today. With all it counts everything again.
func (r Records) Count(ctx context.Context, all bool) (done Counted, err error) {
	err = pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
		// Of two counts at once the second waits, and finds the rows of the first.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('farol reports', 0))`); err != nil {
			return err
		}
		done = Counted{}
		if !all {
			if err := tx.QueryRow(ctx, sinceSQL).Scan(&done.Since); err != nil {
				return err
			}
		}
		if done.Objects, err = countHoldings(ctx, tx, done.Since); err != nil {
			return err
		}
		done.Items, err = countOutcomes(ctx, tx, done.Since)
		return err
	})
	if err != nil {
		return Counted{}, fmt.Errorf("count for reports: %w", registry.Refusal(err))
	}
	return done, nil
}

func countHoldings(ctx context.Context, tx pgx.Tx, since *time.Time) (int64, error) {
	sql, args := countAllObjectsSQL, pgx.NamedArgs{}
	if since != nil {
		sql, args = countObjectsSQL, pgx.NamedArgs{"since": *since}
	}
	tag, err := tx.Exec(ctx, sql, args)
	if err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, `DELETE FROM holdings_daily WHERE day = `+today); err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, holdingsSQL)
	return tag.RowsAffected(), err
}

func countOutcomes(ctx context.Context, tx pgx.Tx, since *time.Time) (n int64, err error) {
	args := pgx.NamedArgs{"since": time.Time{}}
	if since != nil {
		args["since"] = *since
	}
	_, err = tx.Exec(ctx, `DELETE FROM daily_outcomes WHERE result IN ('Failed', 'Suspended') OR day >= (@since::timestamptz AT TIME ZONE 'UTC')::date`, args)
	if err != nil {
		return 0, err
	}
	if _, err = tx.Exec(ctx, outcomesSQL, args); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, `SELECT coalesce(sum(items), 0)::bigint FROM daily_outcomes WHERE day >= (@since::timestamptz AT TIME ZONE 'UTC')::date`, args).Scan(&n)
	return n, err
}
