package requests

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// mostRequests is how many deletion requests of one object are read.
const mostRequests = 100

// ObjectDeletion returns what is on record of deletions of an object
// (generic_files_deleting, deletion_requests_object, deletion_requests_file). Files that were
// deleted are counted if counted (generic_files_object).
func (r Records) ObjectDeletion(ctx context.Context, objectID int64, counted bool) (d record.ObjectDeletion, err error) {
	err = r.db.QueryRow(ctx, `
		SELECT o.deleted_by_item,
			CASE WHEN $2 THEN (SELECT count(*) FROM generic_files f WHERE f.intellectual_object_id = o.id AND f.state = 'D') END,
			CASE WHEN o.deleted_by_item IS NULL
				THEN (SELECT count(*) FROM generic_files f WHERE f.intellectual_object_id = o.id AND f.state = 'A' AND f.deleted_by_item IS NOT NULL)
				ELSE coalesce((SELECT h.files FROM object_holdings h WHERE h.intellectual_object_id = o.id), 0) END
		FROM intellectual_objects o WHERE o.id = $1`, objectID, counted).Scan(&d.Item, &d.FilesDeleted, &d.FilesGoing)
	if err != nil {
		return d, fmt.Errorf("look up deletions of object %d: %w", objectID, err)
	}
	d.Requests, err = registry.Collect[record.DeletionRequest](ctx, r.db, "list the deletion requests of an object", deletionRequestsSQL+`
		WHERE d.id IN (
			SELECT deletion_request_id FROM deletion_requests_intellectual_objects WHERE intellectual_object_id = @object
			UNION ALL
			SELECT q.deletion_request_id FROM deletion_requests_generic_files q JOIN generic_files f ON f.id = q.generic_file_id
			WHERE f.intellectual_object_id = @object)
		ORDER BY d.id DESC LIMIT @n`, pgx.NamedArgs{"object": objectID, "n": mostRequests})
	return d, err
}
