package exports

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// bytesOfFile is about what an export has of a file. An item's size says when its turn is.
const bytesOfFile = 500

// queueSQL makes the item that writes an export. What it is about has the name of no object,
// so that it keeps nothing else waiting.
const queueSQL = `
WITH made AS (
	INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, object_identifier, "user", note, outcome)
	SELECT e.institution_id, 'Export', 'Requested', @name, i.restore_bucket, 'export-' || e.id, @size, e.created_at, i.identifier || '/exports/' || e.id,
		CASE WHEN e.requested_by LIKE '_%@_%' THEN e.requested_by ELSE 'system@aptrust.org' END, 'Requested by ' || e.requested_by || '.', 'Item is pending export'
	FROM exports e JOIN institutions i ON i.id = e.institution_id WHERE e.id = @id
	RETURNING id, object_identifier
)
UPDATE exports e SET work_item_id = made.id, key = made.object_identifier || '/' || @name FROM made WHERE e.id = @id`

// Queue has an export of some files written into the restoration bucket by a work item.
func (r Records) Queue(ctx context.Context, id int64, o Of, files int64) error {
	return registry.Do(ctx, r.db, "queue an export", queueSQL, pgx.NamedArgs{"id": id, "name": o.Name(), "size": files * bytesOfFile})
}

// OfItem returns the export that a work item writes (exports_work_item_id_key).
func (r Records) OfItem(ctx context.Context, item int64) (record.Export, Of, error) {
	var id int64
	if err := r.db.QueryRow(ctx, `SELECT id FROM exports WHERE work_item_id = $1`, item).Scan(&id); err != nil {
		return record.Export{}, Of{}, fmt.Errorf("look up the export of item %d: %w", item, registry.Refusal(err))
	}
	return r.Show(ctx, id, Kinds())
}

// CompleteItem notes that the item of an export has written it to its end, if the claim still
// holds; otherwise it is [registry.ErrLost].
func (r Records) CompleteItem(ctx context.Context, item, token int64, w Written) error {
	tag, err := r.db.Exec(ctx, `
		UPDATE exports e SET records = $3, bytes = $4, sha256 = $5, taken_at = $6, completed_at = now()
		FROM (SELECT id FROM work_items WHERE id = $1 AND claim_token = $2 AND status = 'Started' FOR SHARE) w WHERE e.work_item_id = w.id`,
		item, token, w.Records, w.Bytes, w.SHA256, w.Taken)
	if err == nil && tag.RowsAffected() == 0 {
		err = registry.ErrLost
	}
	if err != nil {
		return fmt.Errorf("record the end of an export: %w", registry.Refusal(err))
	}
	return nil
}

// Piece writes the next pages of an export, of one moment, until they have this many bytes.
// It returns when that moment was.
func (r Records) Piece(ctx context.Context, o Of, c Cursor, w *bytes.Buffer, most int) (_ Cursor, taken time.Time, err error) {
	err = r.Snapshot(ctx, "", func(ctx context.Context, s *Snapshot) (err error) {
		taken = s.Taken
		for !c.Done && w.Len() < most && err == nil {
			c, err = s.Write(ctx, w, o, c)
		}
		return err
	})
	return c, taken, err
}
