-- archive: copies items that ended for good, and their attempts, to the archive, the
-- oldest first. The caller deletes them in the same transaction.
-- Index: work_items_ended, work_items_pkey, work_item_attempts_pkey
-- Items whose old copies Cleanup could not delete stay.
-- Parameters: $1 least age; $2 how many.
WITH old AS MATERIALIZED (
	SELECT id FROM work_items w
	WHERE status IN ('Success', 'Cancelled') AND updated_at < now() - $1::interval
	  AND NOT EXISTS (SELECT FROM retired_copies c WHERE c.work_item_id = w.id)
	ORDER BY updated_at
	LIMIT $2
	FOR UPDATE SKIP LOCKED
), items AS (
	INSERT INTO work_items_archive SELECT w.* FROM work_items w WHERE id IN (SELECT id FROM old)
), attempts AS (
	INSERT INTO work_item_attempts_archive SELECT a.* FROM work_item_attempts a WHERE work_item_id IN (SELECT id FROM old)
)
SELECT id FROM old
