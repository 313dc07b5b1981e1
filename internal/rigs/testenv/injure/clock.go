package injure

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TimeColumns lists the columns of a database's tables that hold a point in time, as
// table.column. Of a partition the table that it is part of stands for it.
func TimeColumns(ctx context.Context, db *pgxpool.Pool) ([]string, error) {
	rows, _ := db.Query(ctx, `
		SELECT DISTINCT regexp_replace(c.relname, '_(\d+|rest)$', '') || '.' || a.attname FROM `+timeColumns+` ORDER BY 1`)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// timeColumns also finds those whose type is a domain.
const timeColumns = `pg_class c
	JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
	JOIN pg_type y ON y.oid = a.atttypid
	WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace AND c.relname <> 'goose_db_version'
	  AND c.relname !~ '^actions_' -- its partitions are months, which no time leaves
	  AND coalesce(nullif(y.typbasetype, 0), y.oid) IN ('timestamptz'::regtype, 'timestamp'::regtype, 'timestamptz[]'::regtype)`

// SetClock does to a database what setting its clock by so much does: every time
// that it has stored, but in the columns named except, is as much earlier now, seen from its clock.
// What is under way waits for it. By should be no whole number of minutes, or keys that are minutes
// could meet.
func SetClock(ctx context.Context, db *pgxpool.Pool, by time.Duration, except ...string) error {
	rows, _ := db.Query(ctx, `
		SELECT format('UPDATE %I SET ', c.relname) || string_agg(format(CASE y.typcategory
			WHEN 'A' THEN '%1$I = ARRAY(SELECT t - $1::interval FROM unnest(%1$I) WITH ORDINALITY u (t, n) ORDER BY n)'
			ELSE '%1$I = %1$I - $1::interval' END, a.attname), ', '), c.relname
		FROM `+timeColumns+` AND a.attname <> ALL (coalesce($1::text[], '{}')) GROUP BY c.relname ORDER BY c.relname`, except)
	var tables, statements []string
	var statement, table string
	_, err := pgx.ForEachRow(rows, []any{&statement, &table}, func() error {
		tables, statements = append(tables, pgx.Identifier{table}.Sanitize()), append(statements, statement)
		return nil
	})
	for err == nil {
		if err = setOnce(ctx, db, tables, statements, by); err == nil {
			return nil
		}
		if !strings.Contains(err.Error(), "SQLSTATE 55P03") && !strings.Contains(err.Error(), "SQLSTATE 40P01") {
			break
		}
		err = ctx.Err()
	}
	return fmt.Errorf("set the clock: %w", err)
}

// setOnce fails if what is under way is in the way.
func setOnce(ctx context.Context, db *pgxpool.Pool, tables, statements []string, by time.Duration) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		// No trigger is to take it for a change, and nobody to see half of it.
		_, err := tx.Exec(ctx, `SET LOCAL session_replication_role = replica; SET LOCAL lock_timeout = '1s'; LOCK TABLE `+
			strings.Join(tables, ", ")+` IN EXCLUSIVE MODE`)
		for _, s := range statements {
			if err == nil {
				if _, err = tx.Exec(ctx, s, by); err != nil {
					err = fmt.Errorf("%s: %w", s, err)
				}
			}
		}
		return err
	})
}
