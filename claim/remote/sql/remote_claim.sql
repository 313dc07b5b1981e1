-- remote_claim: reads what the transition of an item needs that a remote worker holds.
-- Index: work_items_pkey, work_item_attempts_pkey
-- Parameters: $1, $2 item and token.
SELECT w.action, w.stage, w.attempt, w.size_band, w.priority, w.virtual_start, coalesce(s.worker, 'http'), coalesce(a.current_file, ''),
	w.created_at, coalesce(a.claimed_at, w.updated_at), (SELECT i.identifier FROM institutions i WHERE i.id = w.institution_id), w.size, w.worker
FROM work_items w
LEFT JOIN stage_settings s ON s.action = w.action AND s.stage = w.stage
LEFT JOIN work_item_attempts a ON a.work_item_id = w.id AND a.claim_token = w.claim_token
WHERE w.id = $1 AND w.claim_token = $2 AND w.status = 'Started'
