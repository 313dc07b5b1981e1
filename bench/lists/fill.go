package lists

import (
	"context"
	_ "embed" // the statements that make records
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// sizes are how many records of each kind there are.
type sizes struct{ Ended, Live, Objects, Files, Events, Copies, Institutions int64 }

func (z *sizes) list() []int64 {
	return []int64{z.Ended, z.Live, z.Objects, z.Files, z.Events, z.Copies, z.Institutions}
}

// complete sets what is not set to a share of the goal.
func (z *sizes) complete(scale float64) {
	for _, one := range []struct {
		size *int64
		full float64
	}{{&z.Ended, 10e6}, {&z.Live, 1e6}, {&z.Objects, 2e6}, {&z.Files, 20e6}, {&z.Events, 2e6}} {
		if *one.size == 0 {
			*one.size = int64(one.full * scale)
		}
	}
}

// bytes is what the database takes, as measured on a hundredth, with its log and what the
// building of indexes needs in between.
func (z *sizes) bytes() int64 {
	const item, live, object, file, storedCopy, event, rest = 630, 700, 1050, 1250, 480, 430, 5e9
	return z.Ended*item + z.Live*live + z.Objects*object + z.Files*(file+z.Copies*storedCopy) + z.Events*event + rest
}

//go:embed fill.sql
var fillSQL string

// section is a part of fill.sql, which is run for all numbers up to a count.
type section struct {
	name, sql string
	count     int64 // 0: it is several statements, which are run once
}

// sections are those of fill.sql, in their order.
func (z *sizes) sections() []section {
	counts := map[string]int64{
		"objects": z.Objects, "events of objects": z.Objects, "files": z.Files, "digests": z.Files, "copies": z.Files, "events of ingests": z.Files,
		"later events": z.Events, "ended items": z.Ended, "live items": z.Live, "deletion requests": z.requests(), "alerts": max(z.Ended/50, 100), "actions": max(z.Ended/10, 100),
	}
	var list []section
	for i, part := range strings.Split(fillSQL, "-- name: ") {
		name, sql, _ := strings.Cut(part, "\n")
		if i > 0 {
			list = append(list, section{name, sql, counts[name]})
		}
	}
	return list
}

// requests is how many deletion requests there are.
func (z *sizes) requests() int64 { return max(z.Ended/1000, 10) }

// chunk is how many rows a statement makes.
const chunk = 1_000_000

// fill makes all records. Indexes are built when the rows are there, and no trigger runs but for
// the texts of events, whose numbers one of them makes.
func fill(ctx context.Context, url string, z sizes, progress io.Writer) error {
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close(ctx) //nolint:errcheck // everything was done or failed before
	if _, err := db.Exec(ctx, `SET synchronous_commit = off; SET maintenance_work_mem = '1GB'; SET work_mem = '64MB'; SET jit = off`); err != nil {
		return err
	}
	indexes, err := dropIndexes(ctx, db)
	if err != nil {
		return err
	}
	for _, s := range z.sections() {
		began := time.Now()
		if err := s.run(ctx, db, z); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		fmt.Fprintf(progress, "%s: %d in %s\n", s.name, s.count, time.Since(began).Round(time.Millisecond))
	}
	began := time.Now()
	for _, sql := range indexes {
		if _, err := db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	fmt.Fprintf(progress, "indexes: %d in %s\n", len(indexes), time.Since(began).Round(time.Millisecond))
	for _, sql := range []string{`VACUUM (ANALYZE)`, `CHECKPOINT`} {
		if _, err := db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func (s section) run(ctx context.Context, db *pgx.Conn, z sizes) error {
	if s.count == 0 {
		_, err := db.Exec(ctx, strings.ReplaceAll(s.sql, "@institutions", fmt.Sprint(z.Institutions)))
		return err
	}
	for from := int64(1); from <= s.count; from += chunk {
		_, err := db.Exec(ctx, s.sql, pgx.NamedArgs{
			"from": from, "to": min(from+chunk-1, s.count), "count": s.count, "ended": z.Ended, "objects": z.Objects, "files": z.Files, "copies": z.Copies,
			"requests": z.requests(),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// indexesSQL lists the indexes of the large tables, with how they are dropped and built again:
// all but primary keys, and those that foreign keys need.
const indexesSQL = `
SELECT CASE WHEN k.oid IS NULL THEN format('DROP INDEX %s', x.indexrelid::regclass)
		ELSE format('ALTER TABLE %s DROP CONSTRAINT %I', x.indrelid::regclass, k.conname) END,
	CASE WHEN k.oid IS NULL THEN replace(pg_get_indexdef(x.indexrelid), ' ON ONLY ', ' ON ')
		ELSE format('ALTER TABLE %s ADD CONSTRAINT %I %s', x.indrelid::regclass, k.conname, pg_get_constraintdef(k.oid)) END
FROM pg_index x
LEFT JOIN pg_constraint k ON k.conindid = x.indexrelid AND k.contype = 'u'
WHERE x.indrelid = ANY ('{intellectual_objects,generic_files,file_digests,storage_records,event_records,work_items_archive,work_items,alerts}'::regclass[])
	AND NOT x.indisprimary AND NOT EXISTS (SELECT FROM pg_constraint f WHERE f.contype = 'f' AND f.conindid = x.indexrelid)
ORDER BY x.indexrelid`

// dropIndexes drops indexes, and returns the statements that build them again.
func dropIndexes(ctx context.Context, db *pgx.Conn) (build []string, err error) {
	rows, err := db.Query(ctx, indexesSQL)
	if err != nil {
		return nil, fmt.Errorf("list the indexes: %w", err)
	}
	var drop []string
	var dropped, built string
	_, err = pgx.ForEachRow(rows, []any{&dropped, &built}, func() error {
		drop, build = append(drop, dropped), append(build, built)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the indexes: %w", err)
	}
	for _, sql := range drop {
		if _, err := db.Exec(ctx, sql); err != nil {
			return nil, fmt.Errorf("%s: %w", sql, err)
		}
	}
	return build, nil
}
