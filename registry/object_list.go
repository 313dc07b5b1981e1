package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ObjectFilter narrows a list of objects. Empty fields do not.
type ObjectFilter struct {
	Institution   string // identifier
	State         string // A or D
	StorageOption string
	Before        int64 // only objects with a lower ID, for the next page
	After         int64 // only objects with a higher ID, for the page before
	Limit         int
}

// ListedObject is an object in a list, with what is kept of it.
type ListedObject struct {
	ID            int64      `json:"id"`
	Identifier    string     `json:"identifier"`
	Title         string     `json:"title"`
	StorageOption string     `json:"storage_option"`
	State         string     `json:"state"` // A or D
	Files         int64      `json:"files"` // active ones
	Bytes         int64      `json:"bytes"`
	LastIngest    *time.Time `json:"last_ingest"` // nil: no event says when
}

// A page is walked by the primary key, downwards, or upwards if it is to end where
// another begins. Only what is on it is counted: of each object by generic_files_object
// and premis_events_object.
const (
	objectsDownSQL = objectsSQL + ` DESC` + onPageSQL
	objectsUpSQL   = objectsSQL + onPageSQL
)

const objectsSQL = `
WITH page AS MATERIALIZED (
	SELECT o.id, o.identifier, o.title, o.storage_option, o.state
	FROM intellectual_objects o JOIN institutions i ON i.id = o.institution_id
	WHERE (@institution = '' OR i.identifier = @institution)
	  AND (@state = '' OR o.state = @state)
	  AND (@option = '' OR o.storage_option = @option)
	  AND (@before = 0 OR o.id < @before) AND o.id > @after
	ORDER BY o.id`

const onPageSQL = `
	LIMIT @n
)
SELECT p.*, f.files, f.bytes, (
	SELECT max(e.date_time) FROM premis_events e
	WHERE e.intellectual_object_id = p.id AND e.generic_file_id IS NULL AND e.event_type = 'ingestion') AS last_ingest
FROM page p CROSS JOIN LATERAL (
	SELECT count(*) AS files, coalesce(sum(size), 0)::bigint AS bytes FROM generic_files WHERE intellectual_object_id = p.id AND state = 'A'
) f
ORDER BY p.id DESC`

// Objects lists objects, newest first.
func (r *Registry) Objects(ctx context.Context, f ObjectFilter) ([]ListedObject, error) {
	sql := objectsDownSQL
	if f.After > 0 {
		sql = objectsUpSQL
	}
	return Collect[ListedObject](ctx, r.db, "list objects", sql, pgx.NamedArgs{
		"institution": f.Institution, "state": f.State, "option": f.StorageOption, "before": f.Before, "after": f.After, "n": f.Limit,
	})
}

// ObjectCopies counts what is known of the copies of an object's active files.
type ObjectCopies struct {
	NeverRead int64 `json:"never_read"` // since they were stored
	Bad       int64 `json:"bad"`        // altered or missing, and not yet repaired
}

// ObjectCopies counts the copies of an object that nobody has read, and those known
// to be bad (storage_records_generic_file_id_url_key, fixity_failures_open).
func (r *Registry) ObjectCopies(ctx context.Context, objectID int64) (c ObjectCopies, err error) {
	err = r.db.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE s.last_fixity_at IS NULL), count(*) FILTER (WHERE EXISTS (
			SELECT FROM fixity_failures b WHERE b.storage_record_id = s.id AND b.state = 'open'))
		FROM generic_files f JOIN storage_records s ON s.generic_file_id = f.id
		WHERE f.intellectual_object_id = $1 AND f.state = 'A'`, objectID).Scan(&c.NeverRead, &c.Bad)
	if err != nil {
		return c, fmt.Errorf("count copies of object %d: %w", objectID, err)
	}
	return c, nil
}

// ObjectItems returns up to n work items of an object, the newest first, those in the
// archive included. Only that is large enough to need an index
// (work_items_archive_object).
func (r *Registry) ObjectItems(ctx context.Context, identifier string, n int) ([]WorkItem, error) {
	return Collect[WorkItem](ctx, r.db, "list the items of "+identifier, `SELECT `+workItemColumns+`
		FROM all_work_items w JOIN institutions i ON i.id = w.institution_id
		WHERE w.object_identifier = @object ORDER BY w.id DESC LIMIT @n`, pgx.NamedArgs{"object": identifier, "n": n})
}
