package requests

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// DoomedFile is a file that is to be deleted, with its copies.
type DoomedFile struct {
	ID         int64
	Identifier string
	UUID       string
	SHA256     string `db:"sha256"` // on record
	Copies     []DoomedCopy
}

// DoomedCopy is one of its copies.
type DoomedCopy struct {
	record.StoredCopy

	Kept    string `json:"kept"`    // why its bytes must stay; "": they go
	Ours    bool   `json:"ours"`    // a deletion may have removed it, or this one saw it today: it is not looked for
	Removed bool   `json:"removed"` // by this item
}

// doomedSQL goes by generic_files_object, or by the file's id. A copy under a key
// that the record of another living file names is not touched. What an earlier item has begun to
// delete is ours as well, unless it was stored again since (deletion_receipts_file).
const doomedSQL = `
SELECT f.id, f.identifier, f.uuid::text AS uuid, coalesce((SELECT c.digest FROM checksums c
	WHERE c.generic_file_id = f.id AND c.algorithm = 'sha256' ORDER BY c.datetime DESC LIMIT 1), '') AS sha256, coalesce((
	SELECT jsonb_agg(jsonb_build_object('id', s.id, 'target', s.target, 'bucket', s.bucket, 'key', s.key, 'url', s.url, 'stored_at', s.stored_at,
		'ours', EXISTS (SELECT FROM deletion_receipts r WHERE r.generic_file_id = f.id AND r.target = s.target AND r.key = s.key
			AND CASE r.work_item_id WHEN @item THEN r.begun_at IS NOT NULL OR NOT r.found_missing AND r.seen_at > now() - interval '1 day' ELSE r.begun_at > s.stored_at END),
		'removed', EXISTS (SELECT FROM deletion_receipts r WHERE r.work_item_id = @item AND r.generic_file_id = f.id AND r.target = s.target AND r.key = s.key
			AND r.removed_at IS NOT NULL),
		'kept', coalesce((
			SELECT 'the record of ' || o.identifier || ' names it too' FROM storage_records n JOIN generic_files o ON o.id = n.generic_file_id
			WHERE n.target = s.target AND n.key = s.key AND n.generic_file_id <> f.id AND o.state = 'A' LIMIT 1), '')) ORDER BY s.target, s.key)
	FROM storage_records s WHERE s.generic_file_id = f.id), '[]') AS copies
FROM generic_files f
WHERE f.intellectual_object_id = @object AND (@file::bigint = 0 OR f.id = @file) AND f.state = 'A' AND f.id > @after
ORDER BY f.id
LIMIT @n`

// DoomedFiles returns up to n of the files that an item has still to delete, in the
// order of their IDs, from after one on.
func (r Records) DoomedFiles(ctx context.Context, w DeletionWork, after int64, n int) ([]DoomedFile, error) {
	return registry.Collect[DoomedFile](ctx, r.db, fmt.Sprintf("list what item %d deletes", w.Item), doomedSQL, pgx.NamedArgs{"item": w.Item, "object": w.ObjectID, "file": w.FileID, "after": after, "n": n})
}

// A Receipt records a copy that a deletion removes.
type Receipt struct {
	FileID int64
	DoomedCopy

	Missing     bool   // it was looked for, and not there
	KeptByStore string // until when its store keeps it under Object Lock; "": it does not
}

// lookedSQL notes what was seen of a copy before any goes. What was deleted stays so, and what was
// accepted as missing unless it is back: it may have been repaired.
const lookedSQL = `
INSERT INTO deletion_receipts AS r (work_item_id, generic_file_id, target, bucket, key, url, found_missing, seen_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, now())
ON CONFLICT (work_item_id, generic_file_id, target, key) DO UPDATE SET found_missing = excluded.found_missing, seen_at = excluded.seen_at,
	accepted_by = CASE WHEN excluded.found_missing THEN r.accepted_by ELSE '' END
WHERE r.removed_at IS NULL AND r.kept = '' AND (r.accepted_by = '' OR NOT excluded.found_missing)`

// removedSQL notes that a copy was deleted. One that was found missing was not deleted.
const removedSQL = `
UPDATE deletion_receipts r SET removed_at = now()
WHERE r.work_item_id = $1 AND r.generic_file_id = $2 AND r.target = $3 AND r.key = $4 AND r.removed_at IS NULL AND NOT r.found_missing`

// NoteLook puts on record which copies of a deletion are there, and which are not,
// before the first is deleted.
func (r Records) NoteLook(ctx context.Context, w DeletionWork, receipts []Receipt) error {
	return r.noteReceipts(ctx, w, receipts, func(batch *pgx.Batch, c Receipt) {
		batch.Queue(lookedSQL, w.Item, c.FileID, c.Target, c.Bucket, c.Key, c.URL, c.Missing)
	})
}

// NoteReceipts puts on record which copies an item has deleted. The first word on a
// copy stays.
func (r Records) NoteReceipts(ctx context.Context, w DeletionWork, receipts []Receipt) error {
	return r.noteReceipts(ctx, w, receipts, func(batch *pgx.Batch, c Receipt) {
		batch.Queue(removedSQL, w.Item, c.FileID, c.Target, c.Key)
	})
}

// NoteLate puts on record which copies an item had deleted when it was cancelled: see
// deletion_was_late. Of an item that goes on it says nothing, since that finds out.
func (r Records) NoteLate(ctx context.Context, w DeletionWork, receipts []Receipt) error {
	var files []int64
	var targets, keys []string
	for _, c := range receipts {
		files, targets, keys = append(files, c.FileID), append(targets, c.Target), append(keys, c.Key)
	}
	return registry.Do(ctx, r.db, fmt.Sprintf("record %d copies that item %d deleted before it was cancelled", len(receipts), w.Item), `SELECT deletion_was_late($1, $2, $3, $4)`, w.Item, files, targets, keys)
}

func (r Records) noteReceipts(ctx context.Context, w DeletionWork, receipts []Receipt, queue func(*pgx.Batch, Receipt)) error {
	err := r.deleting(ctx, w, func(tx pgx.Tx) error {
		batch := &pgx.Batch{}
		for _, c := range receipts {
			queue(batch, c)
		}
		return tx.SendBatch(ctx, batch).Close()
	})
	if err != nil {
		return fmt.Errorf("record %d deleted copies of item %d: %w", len(receipts), w.Item, err)
	}
	return nil
}

// MissingCopies counts the copies that a deletion found missing and nobody has
// accepted, and names the first n of them (deletion_receipts_pkey).
func (r Records) MissingCopies(ctx context.Context, item int64, n int) (names []string, all int64, err error) {
	rows, _ := r.db.Query(ctx, `
		SELECT f.identifier || ' in ' || d.target, count(*) OVER ()
		FROM deletion_receipts d JOIN generic_files f ON f.id = d.generic_file_id
		WHERE d.work_item_id = $1 AND d.found_missing AND d.accepted_by = ''
		ORDER BY f.identifier, d.target LIMIT $2`, item, n)
	var name string
	_, err = pgx.ForEachRow(rows, []any{&name, &all}, func() error {
		names = append(names, name)
		return nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list the missing copies of item %d: %w", item, err)
	}
	return names, all, nil
}

// AcceptMissing lets a deletion continue although copies were found missing, and returns
// how many these are. The record names the role of the database, and the person named or
// the one who runs the command. The item still has to be requeued.
func (r Records) AcceptMissing(ctx context.Context, item int64, by string) (int64, error) {
	tag, err := r.db.Exec(ctx, `
		UPDATE deletion_receipts SET accepted_by = coalesce(session_user || ' (' || nullif($2, '') || ')', acting_user())
		WHERE work_item_id = $1 AND found_missing AND accepted_by = ''`, item, by)
	if err != nil {
		return 0, fmt.Errorf("accept the missing copies of item %d: %w", item, err)
	}
	return tag.RowsAffected(), nil
}

const receiptSQL = `
SELECT d.work_item_id AS item, d.generic_file_id AS file_id, f.identifier, d.target, d.bucket, d.key, d.url, d.seen_at, d.found_missing AS missing, d.accepted_by,
	d.removed_at, d.kept, d.absent_at, d.kept_by_store
FROM deletion_receipts d JOIN generic_files f ON f.id = d.generic_file_id`

// Receipts returns up to n receipts of a deletion request (work_items_deletion,
// deletion_receipts_pkey).
func (r Records) Receipts(ctx context.Context, request int64, n int) ([]record.DeletedCopy, error) {
	return registry.Collect[record.DeletedCopy](ctx, r.db, fmt.Sprintf("list the receipts of request %d", request), receiptSQL+`
		WHERE d.work_item_id IN (SELECT id FROM all_work_items WHERE deletion_request_id = $1)
		ORDER BY f.identifier, d.target, d.key LIMIT $2`, request, n)
}

// FileReceipts returns what deletions did to the copies of a file
// (deletion_receipts_file).
func (r Records) FileReceipts(ctx context.Context, fileID int64) ([]record.DeletedCopy, error) {
	return registry.Collect[record.DeletedCopy](ctx, r.db, "list the receipts of a file", receiptSQL+`
		WHERE d.generic_file_id = @file ORDER BY d.work_item_id, d.target, d.key`, pgx.NamedArgs{"file": fileID})
}
