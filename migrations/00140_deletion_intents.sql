-- A receipt says when the removal of its copy began, before it is removed. So the record says
-- exactly which copies may be gone, and all others of a deletion stay in preservation.

-- +goose Up
ALTER TABLE deletion_receipts ADD begun_at timestamptz; -- NULL: the copy is untouched
DROP TRIGGER IF EXISTS object_changes_its_fixity ON intellectual_objects;
DROP FUNCTION IF EXISTS object_changes_its_fixity();

CREATE TEMPORARY TABLE deletions ON COMMIT DROP AS
	SELECT id, status = 'Cancelled' AS cancelled FROM work_items WHERE action = 'Delete'
	UNION ALL
	SELECT id, status = 'Cancelled' FROM work_items_archive WHERE action = 'Delete';

-- What a deletion had not completed was marked, but not which copies it had come to: any that
-- it had looked for may be gone.
UPDATE deletion_receipts r SET begun_at = coalesce(r.removed_at, r.seen_at)
FROM generic_files f JOIN intellectual_objects o ON o.id = f.intellectual_object_id
WHERE f.id = r.generic_file_id AND r.kept = '' AND (r.removed_at IS NOT NULL
	OR f.state = 'A' AND r.work_item_id IN (f.deleted_by_item, o.deleted_by_item));

-- A mark is of a deletion that can go on. One that was cancelled gives back what it has left:
-- the copies are checked, and what is missing is found.
UPDATE generic_files f SET deleted_by_item = CASE WHEN NOT w.cancelled THEN w.id END
FROM intellectual_objects o, deletions w
WHERE o.id = f.intellectual_object_id AND f.state = 'A' AND w.id = coalesce(f.deleted_by_item, o.deleted_by_item)
  AND (w.cancelled OR EXISTS (
	SELECT FROM deletion_receipts r WHERE r.work_item_id = w.id AND r.generic_file_id = f.id AND r.begun_at IS NOT NULL));
INSERT INTO fixity_checks (storage_record_id, target, requested)
SELECT DISTINCT s.id, s.target, true FROM storage_records s
JOIN deletion_receipts r ON r.generic_file_id = s.generic_file_id AND r.target = s.target AND r.key = s.key AND r.begun_at > s.stored_at
JOIN deletions w ON w.id = r.work_item_id AND w.cancelled
JOIN generic_files f ON f.id = s.generic_file_id AND f.state = 'A'
ON CONFLICT (storage_record_id) DO UPDATE SET requested = true;
UPDATE intellectual_objects o SET deleted_by_item = NULL
FROM deletions w
WHERE w.id = o.deleted_by_item AND o.state = 'A' AND (w.cancelled
	OR NOT EXISTS (SELECT FROM deletion_receipts r WHERE r.work_item_id = w.id AND r.begun_at IS NOT NULL));

-- An object's mark took all its files out of preservation.
UPDATE storage_records s SET active = NOT EXISTS (
	SELECT FROM deletion_receipts r WHERE r.work_item_id = f.deleted_by_item AND r.generic_file_id = s.generic_file_id
	  AND r.target = s.target AND r.key = s.key AND r.begun_at IS NOT NULL)
FROM generic_files f WHERE f.id = s.generic_file_id AND f.state = 'A' AND NOT s.active;
