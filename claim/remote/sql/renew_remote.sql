-- renew_remote: is renew for claims that no process of Farol holds. It skips locked items too.
-- Index: work_items_pkey, work_item_attempts_pkey
-- The processing timeout of the stage is enforced here, since nobody else watches the
-- clock. A lease that has lapsed and was not ended lapsed because the clock was set, or
-- because no reaper ran: that time does not count against the worker.
-- Parameters: $1 to $3 items, tokens and current files.
WITH held AS (
	SELECT w.id, h.token, h.file, s.lease, s.processing_timeout,
		a.heartbeat_at > now() + interval '5 seconds' AS set_back, w.lease_expires_at < now() AS lapsed,
		coalesce(a.claimed_at + s.processing_timeout <= now() AND w.lease_expires_at > now(), false) AS late
	FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS h (id, token, file)
	JOIN work_items w ON w.id = h.id AND w.claim_token = h.token AND w.status = 'Started'
	JOIN work_item_attempts a ON a.work_item_id = w.id AND a.claim_token = w.claim_token
	JOIN stage_settings s ON s.action = w.action AND s.stage = w.stage AND s.worker = 'http'
	FOR NO KEY UPDATE OF w SKIP LOCKED
), renewed AS (
	UPDATE work_items w SET lease_expires_at = CASE WHEN held.set_back THEN now() + held.lease ELSE greatest(w.lease_expires_at, now() + held.lease) END
	FROM held
	WHERE w.id = held.id AND w.claim_token = held.token AND NOT held.late
	RETURNING w.id, held.token, held.file, held.lease, w.lease_expires_at, held.lapsed
), noted AS (
	UPDATE work_item_attempts a SET heartbeat_at = now(), current_file = coalesce(nullif(renewed.file, ''), a.current_file),
		claimed_at = a.claimed_at + CASE WHEN renewed.lapsed THEN now() - a.heartbeat_at ELSE '0' END
	FROM renewed
	WHERE a.work_item_id = renewed.id AND a.claim_token = renewed.token
)
SELECT id, token, 'renewed', lease, lease_expires_at FROM renewed
UNION ALL
SELECT id, token, 'late', processing_timeout, now() FROM held WHERE late
UNION ALL
SELECT w.id, h.token, 'locked', '0', now()
FROM unnest($1::bigint[], $2::bigint[]) AS h (id, token)
JOIN work_items w ON w.id = h.id AND w.claim_token = h.token AND w.status = 'Started'
JOIN stage_settings s ON s.action = w.action AND s.stage = w.stage AND s.worker = 'http'
WHERE NOT EXISTS (SELECT FROM held WHERE held.id = w.id)
