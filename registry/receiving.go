package registry

import (
	"context"
	"fmt"
	"time"
)

// repeatsSQL finds the item that brought the upload of another one before, if that is
// what the object is now, whole (work_items_ended_bag, work_items_archive_bag,
// generic_files_object, storage_records_generic_file_id_url_key, fixity_failures_copy).
// LATERAL and OFFSET 0 keep its order: hardly any upload came before, so that nothing else
// is looked at. While statistics are older than the bulk of the rows, the planner would
// walk all objects instead.
const repeatsSQL = `
SELECT coalesce(max(e.id), 0) FROM (SELECT * FROM work_items WHERE id = $1 OFFSET 0) w
CROSS JOIN LATERAL (
	SELECT e.id, e.intellectual_object_id FROM all_work_items e
	WHERE e.institution_id = w.institution_id AND e.name = w.name AND e.etag = w.etag AND e.action = 'Ingest'
	  AND NOT e.retry AND e.status = 'Success' AND e.size = w.size AND e.id <> w.id
	OFFSET 0
) e
CROSS JOIN LATERAL (
	SELECT o.id FROM intellectual_objects o
	WHERE o.id = e.intellectual_object_id AND o.identifier = w.object_identifier AND o.institution_id = w.institution_id
	  AND o.etag = w.etag AND o.state = 'A' AND o.deleted_by_item IS NULL
	OFFSET 0
) o
WHERE NOT EXISTS (
	SELECT FROM generic_files f WHERE f.intellectual_object_id = o.id AND (f.state = 'D' OR f.deleted_by_item IS NOT NULL
		OR NOT EXISTS (SELECT FROM storage_records s WHERE s.generic_file_id = f.id)
		OR EXISTS (SELECT FROM storage_records s JOIN fixity_checks c ON c.storage_record_id = s.id AND c.requested WHERE s.generic_file_id = f.id)
		OR EXISTS (SELECT FROM storage_records s JOIN fixity_failures b ON b.storage_record_id = s.id AND b.state = 'open' WHERE s.generic_file_id = f.id)))`

// Repeats returns the item that brought the same upload as an ingest does, if it is what
// the object is now, nothing of that was deleted, and no copy is missing on record, known to
// be bad, or about to be checked because someone doubts it. 0 is none.
func (r *Registry) Repeats(ctx context.Context, item int64) (int64, error) {
	return Value[int64](ctx, r.db, fmt.Sprintf("check whether item %d repeats an upload", item), repeatsSQL, item)
}

// Now is the time by the database's clock.
func (r *Registry) Now(ctx context.Context) (time.Time, error) {
	return Value[time.Time](ctx, r.db, "read the database's clock", `SELECT clock_timestamp()`)
}
