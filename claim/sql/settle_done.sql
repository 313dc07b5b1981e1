-- settle_done: is settle for items whose stage is done: they go on to the next, or have come to
-- their end. These are most.
-- An item that its worker carries on begins the next stage in the same moment, unless the stage is
-- paused or has as many as its cap allows. Then the item waits there, as all others do. What
-- begins is as a claim would have left it: so the token grows by two, with one row version.
-- Index: work_items_pkey, work_item_attempts_pkey, work_item_lists_pkey, work_items_lease
-- The last is for counting the live leases of a stage with a cap, whose advisory lock the caller
-- then holds.
-- It writes the columns that the function moved returns for such a move, what record_moves adds,
-- and what claim_ingest writes. It is a statement of its own because calling move_items costs a
-- tenth of a transition. Tests make the same moves in the other ways and compare every column.
-- Parameters: $1 to $9 as in settle; $10 to $12 status, outcome and object; $13 how many, with
-- this one, are carried on to its stage, 0 if it is not; $14 to $16 node, process and worker;
-- $17, $18 leases that differ from the settings, and their stages; $19, $20 what each stage leaves
-- for the next ones, and its name. It goes when the item has ended.
WITH moved AS (
	UPDATE work_items w SET
		stage              = m.stage,
		status             = CASE WHEN m.lease IS NULL THEN m.status ELSE 'Started' END,
		claim_token        = w.claim_token + CASE WHEN m.lease IS NULL THEN 1 ELSE 2 END,
		entered_token      = CASE WHEN w.stage = m.stage THEN w.entered_token ELSE w.claim_token + 1 END,
		attempt            = CASE WHEN m.lease IS NULL THEN 0 ELSE 1 END,
		run_at             = now(),
		lease_expires_at   = now() + m.lease,
		node               = CASE WHEN m.lease IS NOT NULL THEN $14 END,
		pid                = CASE WHEN m.lease IS NOT NULL THEN $15::integer END,
		worker             = CASE WHEN m.lease IS NOT NULL THEN $16 END,
		stage_started_at   = CASE WHEN m.lease IS NULL THEN w.stage_started_at ELSE now() END,
		retry              = m.status = 'Pending',
		needs_admin_review = false,
		note               = CASE WHEN m.lease IS NULL THEN m.note ELSE 'Item has started stage ' || m.topic END,
		error_code         = '',
		outcome            = coalesce(m.outcome, w.outcome),
		intellectual_object_id = coalesce(m.object, w.intellectual_object_id),
		storage_option     = coalesce(m.storage_option, w.storage_option),
		memory_need        = coalesce(nullif(m.memory_need, 0), w.memory_need),
		updated_at         = now()
	FROM (
		SELECT m.*,
			CASE WHEN s.stage IS NOT NULL AND (s.cap IS NULL
				OR m.nth <= s.cap - (
					SELECT count(*) FROM work_items r
					WHERE r.status = 'Started' AND r.stage = s.stage AND r.action = s.action AND r.lease_expires_at > now() - s.lease))
			THEN coalesce(($17::interval[])[array_position($18::text[], m.stage)], s.lease) END AS lease
		FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[],
				$10::text[], $11::text[], $12::bigint[], $13::int[], $19::bytea[], $20::text[])
			AS m (id, token, stage, note, topic, file, error, storage_option, memory_need, status, outcome, object, nth, content, list)
		LEFT JOIN stage_settings s ON m.nth > 0 AND s.action = 'Ingest' AND s.stage = m.stage AND NOT s.paused
	) m
	WHERE w.id = m.id AND w.claim_token = m.token
	RETURNING w.id, m.token, w.claim_token, w.stage, m.topic, m.file, m.error, m.lease, clock_timestamp() AS ended_at, m.status, m.content, m.list
), ended AS (
	UPDATE work_item_attempts a SET
		ended_at = m.ended_at, heartbeat_at = now(), outcome = 'done', error_code = '', error = m.error, current_file = m.file, service = ''
	FROM moved m
	WHERE a.work_item_id = m.id AND a.claim_token = m.token
), begun AS (
	INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker, claimed_at, heartbeat_at)
	SELECT m.id, m.claim_token, m.stage, 1, $14, $15, $16, m.ended_at, m.ended_at FROM moved m WHERE m.lease IS NOT NULL
), said AS (
	INSERT INTO topic_messages (topic, body, work_item_id)
	SELECT m.topic, m.id::text, m.id FROM moved m WHERE m.topic <> ''
), listed AS (
	INSERT INTO work_item_lists AS l (work_item_id, name, content, staged)
	SELECT m.id, m.list, m.content, m.content IS NULL FROM moved m WHERE m.list <> ''
	ON CONFLICT (work_item_id, name) DO UPDATE SET content = excluded.content, staged = l.staged OR excluded.staged, written_at = now()
), unlisted AS (
	DELETE FROM work_item_lists l USING moved m WHERE l.work_item_id = m.id AND m.status = 'Success'
)
SELECT id, token, lease FROM moved
