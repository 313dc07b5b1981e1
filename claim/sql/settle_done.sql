-- settle_done: is settle for items whose stage is done and of which nothing is to be said
-- but where they go. These are most: reading the other arrays costs a twentieth of a transition.
-- Index: work_items_pkey, work_item_attempts_pkey
-- Parameters: $1 to $6 as in settle.
WITH moved AS (
	UPDATE work_items w SET
		stage                  = m.stage,
		status                 = m.status,
		claim_token            = w.claim_token + 1,
		entered_token          = CASE WHEN w.stage = m.stage THEN w.entered_token ELSE w.claim_token + 1 END,
		attempt                = m.attempt,
		run_at                 = now() + m.delay,
		lease_expires_at       = NULL,
		node                   = NULL,
		pid                    = NULL,
		worker                 = NULL,
		retry                  = m.retry,
		needs_admin_review     = m.review,
		note                   = m.note,
		outcome                = coalesce(m.item_outcome, w.outcome),
		error_code             = m.code,
		intellectual_object_id = coalesce(m.object, w.intellectual_object_id),
		storage_option         = coalesce(m.storage_option, w.storage_option),
		memory_need            = coalesce(nullif(m.memory_need, 0), w.memory_need),
		updated_at             = now()
	FROM (
		SELECT id, token, stage, note, topic, in_hand, 'Pending' AS status, 0 AS attempt, interval '0' AS delay, true AS retry, false AS review,
			NULL::text AS item_outcome, '' AS code, NULL::bigint AS object, NULL::text AS storage_option, 'done' AS ended, '' AS error, '' AS service,
			0::bigint AS memory_need
		FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[]) AS d (id, token, stage, note, topic, in_hand)
	) m
	WHERE w.id = m.id AND w.claim_token = m.token
	RETURNING w.id, m.token, m.ended, m.code, m.error, m.in_hand, m.topic, m.service
), ended AS (
	UPDATE work_item_attempts a SET
		ended_at = now(), heard_at = now(), outcome = m.ended, error_code = m.code, error = m.error, file_in_hand = m.in_hand, service = m.service
	FROM moved m
	WHERE a.work_item_id = m.id AND a.claim_token = m.token
), said AS (
	INSERT INTO topic_messages (topic, body, work_item_id)
	SELECT m.topic, m.id::text, m.id FROM moved m WHERE m.topic <> ''
)
SELECT id, token FROM moved
