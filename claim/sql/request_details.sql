-- request_details: reads what only requests have. It is not part of the claim, so
-- that ingests do not pay for it.
-- Index: work_items_pkey
-- Parameter: $1 items.
SELECT id, coalesce(intellectual_object_id, 0), coalesce(generic_file_id, 0), "user", coalesce(inst_approver, ''),
	coalesce(deletion_request_id, 0), created_at
FROM work_items
WHERE id = ANY ($1)
