// Package reports counts what each institution has in storage and what became of work items,
// day by day.
//
// What an object has is counted as its files are recorded; here it is added up. Of the items
// those are counted that have ended since the day before the last count. Counting twice gives
// what counting once gives.
package reports

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Records are these records in a registry. They are safe for concurrent use.
type Records struct{ db registry.Database }

// In returns those of r.
func In(r *registry.Registry) Records { return Records{r.DB()} }

// sinceSQL is midnight, in UTC, of the day before the last count. A change is read that was
// made before a count and committed after it, unless its transaction took a day. Without any
// count it is NULL.
const sinceSQL = `SELECT (max(day) - 1)::timestamp AT TIME ZONE 'UTC' FROM holdings_daily`

// today is the present day in UTC.
const today = `(now() AT TIME ZONE 'UTC')::date`

// holdingsSQL writes the rows of today. What an institution had the day before, and has no
// longer, gets a row of zeros.
const holdingsSQL = `
INSERT INTO holdings_daily (day, institution_id, storage_option, objects, files, bytes)
SELECT ` + today + `, institution_id, storage_option, sum(objects), sum(files), sum(bytes)
FROM (
	SELECT o.institution_id, o.storage_option, 1 AS objects, coalesce(h.files, 0) AS files, coalesce(h.bytes, 0) AS bytes
	FROM intellectual_objects o LEFT JOIN object_holdings h ON h.intellectual_object_id = o.id
	WHERE o.state = 'A'
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

// Count adds up what is in storage, counts the items that ended since the day before the
// last count, and writes the rows of today. With all it counts all files and items again.
func (r Records) Count(ctx context.Context, all bool) (done record.Counted, err error) {
	var corrected int64
	if all {
		if corrected, err = r.recount(ctx); err != nil {
			return record.Counted{}, err
		}
	}
	err = pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
		// Of two counts at once the second waits, and finds the rows of the first.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('farol reports', 0))`); err != nil {
			return err
		}
		done = record.Counted{Corrected: corrected}
		if !all {
			if err := tx.QueryRow(ctx, sinceSQL).Scan(&done.Since); err != nil {
				return err
			}
		}
		if done.Objects, err = countHoldings(ctx, tx); err != nil {
			return err
		}
		done.Items, err = countOutcomes(ctx, tx, done.Since)
		return err
	})
	if err != nil {
		return record.Counted{}, fmt.Errorf("count for reports: %w", registry.Refusal(err))
	}
	return done, nil
}

func countHoldings(ctx context.Context, tx pgx.Tx) (objects int64, err error) {
	if _, err := tx.Exec(ctx, `DELETE FROM holdings_daily WHERE day = `+today); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, holdingsSQL); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, `SELECT coalesce(sum(objects), 0)::bigint FROM holdings_daily WHERE day = `+today).Scan(&objects)
	return objects, err
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
