-- settle: ends claims with the result of their work, by the schema's transition: it moves the
-- items, ends their attempts in the ledger, and appends the topic messages of items that go on
-- to a stage.
-- Index: none of its own; move_items goes by work_items_pkey and work_item_attempts_pkey.
-- A move whose token is not the item's changes nothing and harms none of the others.
-- Parameters: $1 to $17 the moves, column by column. The last column of the answer is for
-- settle_done, which may begin the next stage.
SELECT id, token, NULL::interval AS lease
FROM move_items(ARRAY(
	SELECT ROW(m.id, m.token, m.stage, m.status, m.attempt, now() + m.delay, m.note, m.code, m.item_outcome, m.topic,
		m.ended, m.error, m.file, m.service, NULL,
		m.object, m.storage_option, m.memory_need,
		NULL, NULL, NULL, NULL)::work_item_move
	FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::bigint[],
		$10::text[], $11::int[], $12::interval[], $13::text[], $14::text[], $15::bigint[], $16::text[], $17::text[])
		AS m (id, token, stage, note, topic, file, error, storage_option, memory_need,
			status, attempt, delay, item_outcome, code, object, ended, service)
), true, false)
