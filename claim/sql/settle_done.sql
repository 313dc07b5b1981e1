-- settle_done: is settle for items whose stage is done, with nothing to record but the next
-- stage. These are most.
-- Index: work_items_pkey, work_item_attempts_pkey
-- It writes the columns that the function moved returns for such a move, and what record_moves
-- adds. It is a statement of its own because calling move_items costs a tenth of a transition.
-- A test makes the same move both ways and compares every column.
-- Parameters: $1 to $6 as in settle.
WITH moved AS (
	UPDATE work_items w SET
		stage              = m.stage,
		status             = 'Pending',
		claim_token        = w.claim_token + 1,
		entered_token      = CASE WHEN w.stage = m.stage THEN w.entered_token ELSE w.claim_token + 1 END,
		attempt            = 0,
		run_at             = now(),
		lease_expires_at   = NULL,
		node               = NULL,
		pid                = NULL,
		worker             = NULL,
		retry              = true,
		needs_admin_review = false,
		note               = m.note,
		error_code         = '',
		updated_at         = now()
	FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[]) AS m (id, token, stage, note, topic, file)
	WHERE w.id = m.id AND w.claim_token = m.token
	RETURNING w.id, m.token, m.topic, m.file
), ended AS (
	UPDATE work_item_attempts a SET
		ended_at = clock_timestamp(), heartbeat_at = now(), outcome = 'done', error_code = '', error = '', current_file = m.file, service = ''
	FROM moved m
	WHERE a.work_item_id = m.id AND a.claim_token = m.token
), said AS (
	INSERT INTO topic_messages (topic, body, work_item_id)
	SELECT m.topic, m.id::text, m.id FROM moved m WHERE m.topic <> ''
)
SELECT id, token FROM moved
