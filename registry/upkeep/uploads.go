package upkeep

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
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

// UploadFates reports each upload of an institution whether an item is or was
// about it, in their order.
func (r Records) UploadFates(ctx context.Context, in record.Institution, uploads []registry.Upload) ([]UploadFate, error) {
	keys, etags := make([]string, len(uploads)), make([]string, len(uploads))
	for i, u := range uploads {
		keys[i], etags[i] = u.Key, u.ETag
	}
	return registry.Collect[UploadFate](ctx, r.db, fmt.Sprintf("look up %d uploads of %s", len(uploads), in.Identifier), uploadFatesSQL, pgx.NamedArgs{
		"institution": in.ID, "identifier": in.Identifier, "keys": keys, "etags": etags,
	})
}
