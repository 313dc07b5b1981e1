package reports

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// recounted is how many objects are counted in a transaction: whose files are recorded or
// deleted waits for it.
const recounted = 100

// What an object has is counted while its row is locked. Who records or deletes files changes
// the row before the end: either it has ended, and its files are seen, or it waits and adds to
// what was counted (generic_files_object). Each statement sees what the one before it waited for.
const (
	pageSQL    = `SELECT coalesce(max(id), 0) FROM (SELECT id FROM intellectual_objects WHERE id > @after ORDER BY id LIMIT @n) o`
	missingSQL = `
INSERT INTO object_holdings (intellectual_object_id, files, bytes)
SELECT id, 0, 0 FROM intellectual_objects WHERE id > @after AND id <= @last ORDER BY id ON CONFLICT DO NOTHING`
	lockHoldingsSQL = `SELECT FROM object_holdings WHERE intellectual_object_id > @after AND intellectual_object_id <= @last ORDER BY intellectual_object_id FOR UPDATE`
	recountSQL      = `
UPDATE object_holdings h SET files = n.files, bytes = n.bytes, payload_files = n.payload_files, payload_bytes = n.payload_bytes
FROM (SELECT id FROM intellectual_objects WHERE id > @after AND id <= @last) o CROSS JOIN LATERAL (
	SELECT count(*) AS files, coalesce(sum(f.size), 0)::bigint AS bytes, count(*) FILTER (WHERE is_payload(f.identifier)) AS payload_files,
		coalesce(sum(f.size) FILTER (WHERE is_payload(f.identifier)), 0)::bigint AS payload_bytes
	FROM generic_files f WHERE f.intellectual_object_id = o.id AND f.state = 'A') n
WHERE h.intellectual_object_id = o.id
	AND (h.files, h.bytes, h.payload_files, h.payload_bytes) <> (n.files, n.bytes, n.payload_files, n.payload_bytes)`
)

// recount counts the files of all objects, and returns how many objects had other figures.
func (r Records) recount(ctx context.Context) (corrected int64, err error) {
	for after, last := int64(0), int64(0); ; after = last {
		err := pgx.BeginFunc(ctx, r.db, func(tx pgx.Tx) error {
			args := pgx.NamedArgs{"after": after, "n": recounted}
			if err := tx.QueryRow(ctx, pageSQL, args).Scan(&last); err != nil || last == 0 {
				return err
			}
			args["last"] = last
			for _, sql := range []string{missingSQL, lockHoldingsSQL} {
				if _, err := tx.Exec(ctx, sql, args); err != nil {
					return err
				}
			}
			tag, err := tx.Exec(ctx, recountSQL, args)
			corrected += tag.RowsAffected()
			return err
		})
		if err != nil {
			return corrected, fmt.Errorf("count the files of objects: %w", err)
		}
		if last == 0 {
			return corrected, nil
		}
	}
}
