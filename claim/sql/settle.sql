-- settle: ends claims with what their work came to. It moves the items, ends their attempts
-- in the ledger, and appends the topic messages of those that go on to a stage.
-- Index: work_items_pkey, work_item_attempts_pkey
-- A move whose token is not the item's changes nothing and harms none of the others. The
-- trigger work_item_ended frees what waited for an item that has ended. The mirror learns of
-- attempts after which the item is tried at the same stage again: no count of the queue says
-- how many there were.
-- Parameters: $1 to $19 the moves, column by column.
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
	FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
		$8::int[], $9::interval[], $10::bool[], $11::bool[], $12::text[], $13::text[], $14::bigint[], $15::text[], $16::text[], $17::text[],
		$18::text[], $19::bigint[])
		AS m (id, token, stage, note, topic, in_hand, status,
			attempt, delay, retry, review, item_outcome, code, object, storage_option, ended, error, service, memory_need)
	WHERE w.id = m.id AND w.claim_token = m.token
	RETURNING w.id, m.token, m.ended, m.code, m.error, m.in_hand, m.topic, m.service, w.action, w.stage, w.status
), ended AS (
	UPDATE work_item_attempts a SET
		ended_at = now(), heard_at = now(), outcome = m.ended, error_code = m.code, error = m.error, file_in_hand = m.in_hand, service = m.service
	FROM moved m
	WHERE a.work_item_id = m.id AND a.claim_token = m.token
), said AS (
	INSERT INTO topic_messages (topic, body, work_item_id)
	SELECT m.topic, m.id::text, m.id FROM moved m WHERE m.topic <> ''
), retried AS (
	INSERT INTO topic_retries (topic, work_item_id)
	SELECT s.topic, m.id FROM moved m JOIN stage_settings s ON s.action = m.action AND s.stage = m.stage
	WHERE m.status = 'Pending' AND m.ended IN ('transient', 'panic')
)
SELECT id, token FROM moved
