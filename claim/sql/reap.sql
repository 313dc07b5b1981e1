-- reap: ends the attempts at items whose worker is gone, by the schema's transition.
-- Index: work_items_pkey, work_item_attempts_pkey
-- Each counts: an item that kills its workers is parked after as many attempts as its stage
-- allows, unless they got it further each time. A worker whose heartbeats went on for one and a
-- half of their interval and never named the item does not know of it: the answer to its claim was
-- lost, and the attempt does not count. A lease of three intervals has room for one heartbeat that
-- fails and is tried again. Nor does that of a worker that was asked to stop, and
-- ended before it had given the item back. An item whose lease was renewed since it was listed,
-- or that another worker has claimed since, is left alone.
-- Parameters: $1 items, of lapsed or held_by_dead; $2, $3 allowed attempts where this process
-- overrides them, as the item's worker may in its pools, and their stages; $4, $5 files that dead workers had in progress, by item; $6,
-- $7 dead workers and the beginnings of their panics.
WITH dead AS MATERIALIZED (
	SELECT w.id, w.action, w.stage, w.size_band, w.priority, w.virtual_start, w.claim_token, w.entered_token, w.worker AS of_worker, n.attempt,
		w.created_at, w.size, (SELECT i.identifier FROM institutions i WHERE i.id = w.institution_id) AS institution,
		lost.ending, n.attempt >= m.most AND NOT lost.blameless AS parks,
		CASE WHEN lost.blameless THEN '0' ELSE backoff_of(s, n.attempt) END AS backoff
	FROM (
		SELECT * FROM work_items
		WHERE id = ANY ($1::bigint[]) AND status = 'Started'
		  AND (lease_expires_at < now() OR worker = ANY ($6::text[]))
		FOR UPDATE SKIP LOCKED
	) w
	JOIN stage_settings s ON s.action = w.action AND s.stage = w.stage
	LEFT JOIN worker_processes p ON p.worker = w.worker
	CROSS JOIN LATERAL (
		SELECT coalesce(($2::int[])[array_position($3::text[], step.name)],
			(SELECT max((pool->'max_attempts'->>step.name)::int) FROM jsonb_array_elements(p.pools) pool), s.max_attempts) AS most
		FROM (SELECT CASE w.action WHEN 'Ingest' THEN w.stage ELSE w.action END AS name) step
	) m
	CROSS JOIN LATERAL (
		SELECT ending, ending IN ('unaware', 'stopped') AS blameless
		FROM (SELECT CASE
			WHEN EXISTS (
				SELECT FROM work_item_attempts a
				WHERE a.work_item_id = w.id AND a.claim_token = w.claim_token
				  AND a.heartbeat_at < a.claimed_at + interval '100 microseconds' AND p.heartbeat_at > a.claimed_at + 1.5 * p.heartbeat) THEN 'unaware'
			WHEN p.draining AND p.ending IS NULL THEN 'stopped'
			ELSE coalesce(p.ending, 'silent') END AS ending) found
	) lost
	CROSS JOIN LATERAL (
		SELECT CASE WHEN lost.blameless THEN w.attempt - 1 WHEN w.attempt < m.most THEN w.attempt
			ELSE least(w.attempt, 1 + failed_attempts(w.id, w.entered_token, w.claim_token))::int END AS attempt
	) n
), judged AS MATERIALIZED (
	SELECT dead.*, a.claimed_at,
		CASE ending WHEN 'oom' THEN 'oom' WHEN 'killed' THEN 'killed' WHEN 'panic' THEN 'panic' WHEN 'stopped' THEN 'stopped' WHEN 'unaware' THEN 'claim-lost' ELSE 'lease-expired' END AS code,
		CASE ending WHEN 'oom' THEN 'oom' WHEN 'killed' THEN 'killed' WHEN 'panic' THEN 'panic' WHEN 'stopped' THEN 'stopped' ELSE 'lease expired' END AS ended,
		coalesce(nullif(hand.file, ''), a.current_file) AS file,
		CASE dead.ending
			WHEN 'oom'    THEN 'The worker ' || of_worker || ' ran out of memory and was killed while it worked on this stage.'
			WHEN 'killed' THEN 'The worker ' || of_worker || ' was killed while it worked on this stage.'
			WHEN 'panic'  THEN 'The worker ' || of_worker || ' crashed while it worked on this stage' || coalesce(': ' || said.words, '') || '.'
			WHEN 'stopped' THEN 'The worker ' || of_worker || ' was asked to stop, and ended before it gave the item back.'
			WHEN 'unaware' THEN 'The worker ' || of_worker || ' did not receive the answer to its claim.'
			ELSE 'The worker ' || of_worker || ' stopped sending heartbeats while it worked on this stage.'
		END AS what,
		least(dead.attempt, 1 + failed_attempts(dead.id, dead.entered_token, dead.claim_token, '{lease expired,killed,oom,panic}')) AS kills
	FROM dead
	JOIN work_item_attempts a ON a.work_item_id = dead.id AND a.claim_token = dead.claim_token
	LEFT JOIN unnest($4::bigint[], $5::text[]) AS hand (item, file) ON hand.item = dead.id
	LEFT JOIN unnest($6::text[], $7::text[]) AS said (worker, words) ON said.worker = dead.of_worker
), moves AS MATERIALIZED (
	SELECT m.*
	FROM move_items(ARRAY(
		SELECT ROW(id, claim_token, NULL, CASE WHEN parks THEN 'Suspended' ELSE 'Pending' END, attempt,
			now() + CASE WHEN parks THEN '0' ELSE backoff END,
			what || CASE WHEN file <> '' THEN ' The file in progress was ' || file || '.' ELSE '' END
				|| CASE WHEN NOT parks THEN '' ELSE ' Will not retry: failed ' || attempt || ' times, and '
					|| kills || CASE kills WHEN 1 THEN ' worker' ELSE ' workers' END || ' died. Interim processing data persists.' END,
			code, NULL, NULL,
			ended, what, file, NULL, NULL,
			NULL, NULL, NULL,
			NULL, NULL, NULL, parks)::work_item_move
		FROM judged
	), false, false) m
)
SELECT judged.id, judged.action, judged.stage, judged.size_band, judged.priority, judged.virtual_start, m.note, m.code, m.status, m.attempt,
	judged.claim_token, judged.created_at, judged.claimed_at, judged.institution, judged.size, judged.of_worker
FROM moves m
JOIN judged ON judged.id = m.id
