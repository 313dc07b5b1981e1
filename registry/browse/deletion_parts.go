package browse

import (
	"context"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// NamedFilter is the deletion request whose objects and files are listed.
type NamedFilter struct {
	Deletion int64 // ID
}

const namedAdvice = "add deletion"

// namedPartsSQL reads the objects of a request, then its files, each by ID
// (deletion_requests_intellectual_objects_pkey, deletion_requests_generic_files_pkey). The
// request is a range and part of the order, so that no index on the other column is walked. The
// sizes of objects are kept (object_holdings_pkey); their retention is that of the youngest file.
const namedPartsSQL = `
(SELECT 'object' AS kind, o.id, o.identifier, o.state, coalesce(h.bytes, 0) AS size,
		CASE WHEN s.retention_days > 0 AND o.state = 'A' AND coalesce(h.files, 0) <= 1000 THEN
			greatest(o.created_at, (SELECT max(f.created_at) FROM generic_files f WHERE f.intellectual_object_id = o.id AND f.state = 'A'))
			+ s.retention_days * interval '1 day' END AS kept_until
	FROM deletion_requests_intellectual_objects d JOIN intellectual_objects o ON o.id = d.intellectual_object_id
	LEFT JOIN object_holdings h ON h.intellectual_object_id = o.id LEFT JOIN storage_options s ON s.name = o.storage_option
	WHERE (d.deletion_request_id, d.intellectual_object_id) > (@deletion, @after) AND d.deletion_request_id <= @deletion
		AND NOT @files AND (@own::bigint = 0 OR o.institution_id = @own)
	ORDER BY d.deletion_request_id, d.intellectual_object_id LIMIT @n)
UNION ALL
(SELECT 'file', f.id, f.identifier, f.state, f.size, CASE WHEN s.retention_days > 0 AND f.state = 'A' THEN f.created_at + s.retention_days * interval '1 day' END
	FROM deletion_requests_generic_files d JOIN generic_files f ON f.id = d.generic_file_id LEFT JOIN storage_options s ON s.name = f.storage_option
	WHERE (d.deletion_request_id, d.generic_file_id) > (@deletion, CASE WHEN @files THEN @after ELSE 0 END) AND d.deletion_request_id <= @deletion
		AND (@own::bigint = 0 OR f.institution_id = @own)
	ORDER BY d.deletion_request_id, d.generic_file_id LIMIT @n)
ORDER BY kind DESC, id LIMIT @n`

// Named lists what a deletion request names: objects first, then files.
func (r Records) Named(ctx context.Context, f NamedFilter, p Page) ([]record.ListedNamed, Key, error) {
	return list(ctx, r, "what a deletion request names", f, p, func(found string) string { return found }, func(n record.ListedNamed) Key {
		return Key{ID: n.ID, Identifier: n.Kind}
	})
}

func (f NamedFilter) find(s registry.Scope, after Key) (*query, error) {
	q := in(s, "", namedAdvice)
	own, _ := s.Institution()
	q.args["deletion"], q.args["own"], q.args["after"], q.args["files"] = f.Deletion, own, after.ID, after.Identifier == "file"
	q.sql = namedPartsSQL
	return q, nil
}

// ReceiptFilter is the deletion request whose receipts are listed.
type ReceiptFilter struct {
	Deletion int64 // ID
}

const receiptAdvice = "add deletion"

// receiptPageSQL reads the receipts of a request's items, item by item, up to a page of each
// (work_items_deletion, work_items_archive_deletion, deletion_receipts_pkey).
const receiptPageSQL = `
WITH items AS MATERIALIZED (
	SELECT w.id FROM all_work_items w WHERE w.deletion_request_id = @deletion AND w.id >= @of AND (@own::bigint = 0 OR w.institution_id = @own)
)
SELECT d.work_item_id AS item, d.generic_file_id AS file_id, f.identifier, d.target, d.bucket, d.key, d.url, d.seen_at, d.found_missing AS missing,
	d.accepted_by, d.removed_at, d.kept, d.absent_at, d.kept_by_store
FROM (SELECT id FROM items ORDER BY id) w
CROSS JOIN LATERAL (
	SELECT r.*, (r.target || ' ' || r.key) COLLATE "C" AS place FROM deletion_receipts r
	WHERE r.work_item_id = w.id AND r.generic_file_id >= CASE w.id WHEN @of THEN @after ELSE 0 END
		AND (w.id > @of OR r.generic_file_id > @after OR (r.target || ' ' || r.key) COLLATE "C" > @place)
	ORDER BY r.generic_file_id, place LIMIT @n
) d
JOIN generic_files f ON f.id = d.generic_file_id
ORDER BY w.id, d.generic_file_id, d.place LIMIT @n`

// Receipts lists what a deletion request did to each copy, in the order of its items, and of
// the files and targets of each.
func (r Records) Receipts(ctx context.Context, f ReceiptFilter, p Page) ([]record.DeletedCopy, Key, error) {
	return list(ctx, r, "receipts", f, p, func(found string) string { return found }, func(d record.DeletedCopy) Key {
		return Key{Of: d.Item, ID: d.FileID, Identifier: d.Target + " " + d.Key}
	})
}

func (f ReceiptFilter) find(s registry.Scope, after Key) (*query, error) {
	q := in(s, "", receiptAdvice)
	q.parts = true
	own, _ := s.Institution()
	q.args["deletion"], q.args["own"], q.args["of"], q.args["after"], q.args["place"] = f.Deletion, own, after.Of, after.ID, after.Identifier
	q.sql = receiptPageSQL
	return q, nil
}
