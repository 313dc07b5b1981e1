package registry

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// An UploadFate says what became of an upload.
type UploadFate struct {
	Live  bool  // an item is in the queue for it
	Ended int64 // the last item that ended for it; 0: none
}

// uploadFatesSQL goes by one_live_ingest, work_items_ended_bag and
// work_items_archive_bag.
const uploadFatesSQL = `
SELECT EXISTS (SELECT FROM uploads_in_work w
		WHERE w.object_identifier = object_identifier_of(@identifier, u.key) AND w.name = u.key AND w.etag = u.etag) AS live,
	coalesce((SELECT max(w.id) FROM all_work_items w
		WHERE w.institution_id = @institution AND w.name = u.key AND w.etag = u.etag AND w.action = 'Ingest' AND NOT w.retry), 0) AS ended
FROM unnest(@keys::text[], @etags::text[]) WITH ORDINALITY AS u (key, etag, place)
ORDER BY u.place`

// UploadFates tells of each upload of an institution whether an item is or was
// about it, in their order.
func (r *Registry) UploadFates(ctx context.Context, in Institution, uploads []Upload) ([]UploadFate, error) {
	keys, etags := make([]string, len(uploads)), make([]string, len(uploads))
	for i, u := range uploads {
		keys[i], etags[i] = u.Key, u.ETag
	}
	rows, _ := r.db.Query(ctx, uploadFatesSQL, pgx.NamedArgs{
		"institution": in.ID, "identifier": in.Identifier, "keys": keys, "etags": etags,
	})
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[UploadFate])
	if err != nil {
		return nil, fmt.Errorf("look up %d uploads of %s: %w", len(uploads), in.Identifier, err)
	}
	return list, nil
}
