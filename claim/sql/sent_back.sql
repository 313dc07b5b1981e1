-- sent_back: counts how often an item was sent back to an earlier stage since a person
-- last requeued it.
-- Index: work_item_attempts_pkey
-- Parameter: $1 item.
SELECT count(*)
FROM work_item_attempts
WHERE work_item_id = $1 AND outcome = 'sent back' AND claim_token >
	coalesce((SELECT max(claim_token) FROM work_item_attempts WHERE work_item_id = $1 AND outcome = 'fatal'), 0)
