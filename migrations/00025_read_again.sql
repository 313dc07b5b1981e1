-- +goose Up

-- A bag that was found invalid is read again when its item is requeued, whatever
-- stage was named: Validate judges what Receive has left, and would find the same.
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true);

-- requeue_stage is the stage at which an item begins that is requeued to a stage. It
-- is the one place where that is decided. Once Receive has read the bag again, the
-- verdict before that is of no account.
-- +goose StatementBegin
CREATE FUNCTION requeue_stage(w work_items, to_stage text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	IF w.action = 'Ingest' AND to_stage <> 'Receive' AND EXISTS (
		SELECT FROM work_item_attempts a
		WHERE a.work_item_id = w.id AND a.stage = 'Validate' AND a.outcome = 'fatal' AND NOT EXISTS (
			SELECT FROM work_item_attempts r
			WHERE r.work_item_id = w.id AND r.stage = 'Receive' AND r.outcome = 'done' AND r.claim_token > a.claim_token)) THEN
		RETURN 'Receive';
	END IF;
	RETURN to_stage;
END
$$;
-- +goose StatementEnd

-- All ways to requeue an item come by here.
ALTER FUNCTION requeued_by_hand(work_items, work_items) RENAME TO requeued_to_stage;
-- +goose StatementBegin
CREATE FUNCTION requeued_by_hand(was work_items, w work_items) RETURNS work_items
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF (requeue_refusal(was, w.stage)).reason IS NULL THEN -- or else what was named is refused
		w.stage := requeue_stage(was, w.stage);
	END IF;
	RETURN requeued_to_stage(was, w);
END
$$;

-- As in 00008, 00005 and 00021, but that they tell where the item goes.
CREATE OR REPLACE FUNCTION requeue_verdict(w work_items, to_stage text) RETURNS requeue_verdict
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT ROW(w.id, format('%s at %s', w.status, w.stage)
			|| CASE WHEN goes <> w.stage THEN ', to ' || goes ELSE '' END
			|| CASE WHEN goes <> to_stage THEN ': the bag is read again' ELSE '' END
			|| CASE WHEN w.status = 'Started' THEN ': its worker loses it' ELSE '' END,
		(requeue_refusal(w, to_stage)).reason,
		w.status = 'Pending' AND w.stage = goes)::requeue_verdict
	FROM requeue_stage(w, to_stage) AS goes
$$;

CREATE OR REPLACE FUNCTION plan_store(p plans, ids bigint[], tokens bigint[]) RETURNS plans
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	INSERT INTO plans (action, to_stage, priority, reason, condition)
	VALUES (p.action, p.to_stage, p.priority, p.reason, p.condition)
	RETURNING * INTO p;
	INSERT INTO plan_items (plan_id, work_item_id, claim_token, stage, status, priority, size, state, detail)
	SELECT p.id, w.id, w.claim_token, w.stage, w.status, w.priority, w.size,
		CASE WHEN refusal IS NULL THEN 'planned' ELSE 'refused' END, coalesce(refusal,
			CASE WHEN p.action = 'requeue' AND requeue_stage(w, coalesce(p.to_stage, w.stage)) <> coalesce(p.to_stage, w.stage)
				THEN 'to Receive: the bag is read again' ELSE '' END)
	FROM unnest(ids, tokens) AS found (item, token)
	JOIN work_items w ON w.id = found.item AND w.claim_token = found.token
	CROSS JOIN LATERAL plan_refusal(w, p) AS refusal
	ORDER BY w.id;
	UPDATE plans SET (items, refused, bytes) = (
		SELECT count(*), count(*) FILTER (WHERE i.state = 'refused'), coalesce(sum(i.size) FILTER (WHERE i.state = 'planned'), 0)
		FROM plan_items i WHERE i.plan_id = p.id
	), set_hash = plan_hash(p.id)
	WHERE id = p.id
	RETURNING * INTO p;
	RETURN p;
END
$$;

CREATE OR REPLACE FUNCTION topic_request(of_topic text, message_id text, body_is text, item bigint, sure boolean) RETURNS SETOF topic_requests
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	w      work_items;
	goes   stage_settings;
	reason text;
	hint   text;
	said   text;
BEGIN
	IF EXISTS (SELECT FROM topic_requests r WHERE r.topic = of_topic AND r.message = message_id) THEN
		RETURN QUERY SELECT * FROM topic_requests r WHERE r.topic = of_topic AND r.message = message_id;
		RETURN;
	END IF;
	SELECT * INTO w FROM all_work_items k WHERE k.id = item;
	SELECT * INTO goes FROM stage_settings s WHERE s.topic = of_topic AND s.action = w.action ORDER BY s.ordinal LIMIT 1;
	IF item IS NULL THEN
		reason := 'the message is no id of a work item';
	ELSIF w.id IS NULL THEN
		reason := format('there is no item %s', item);
	ELSIF goes.stage IS NULL THEN
		reason := format('item %s is of %s, which has nothing to do with this topic', item, w.action);
	ELSIF NOT sure AND w.status NOT IN ('Failed', 'Suspended') THEN
		RETURN;
	ELSIF NOT sure THEN
		reason := 'it came while the mirror was away, and may be an old message of its own: publish it again';
	ELSIF w.status = 'Started' AND w.stage = goes.stage THEN
		said := format('item %s is at %s already, and runs', item, w.stage);
	ELSE
		BEGIN
			said := format('item %s is in the queue for %s', item, (requeue(item, goes.stage)).stage);
		EXCEPTION WHEN integrity_constraint_violation OR no_data_found OR invalid_parameter_value OR program_limit_exceeded THEN
			GET STACKED DIAGNOSTICS reason = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
			reason := reason || coalesce('. ' || nullif(hint, ''), '');
		END;
	END IF;
	IF reason IS NOT NULL AND w.id IS NOT NULL THEN
		INSERT INTO work_item_audit (work_item_id, before, after, refused)
		VALUES (w.id, to_jsonb(w), to_jsonb(w), format('requeue asked for on the topic %s: %s', of_topic, reason));
	END IF;
	RETURN QUERY INSERT INTO topic_requests (topic, message, body, work_item_id, accepted, answer)
		VALUES (of_topic, message_id, body_is, w.id, reason IS NULL, coalesce(reason, said)) RETURNING *;
END
$$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION requeued_by_hand(work_items, work_items) FROM PUBLIC;
COMMENT ON FUNCTION requeue IS
	'Makes an item claimable again, at once: at the stage that it came to last, or an earlier one; at Receive if its bag was found invalid. A worker that has it loses it.';

-- +goose Down
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION requeue_verdict(w work_items, to_stage text) RETURNS requeue_verdict
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT ROW(w.id, format('%s at %s', w.status, w.stage)
			|| CASE WHEN to_stage <> w.stage THEN ', to ' || to_stage ELSE '' END
			|| CASE WHEN w.status = 'Started' THEN ': its worker loses it' ELSE '' END,
		(requeue_refusal(w, to_stage)).reason,
		w.status = 'Pending' AND w.stage = to_stage)::requeue_verdict
$$;

CREATE OR REPLACE FUNCTION plan_store(p plans, ids bigint[], tokens bigint[]) RETURNS plans
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	INSERT INTO plans (action, to_stage, priority, reason, condition)
	VALUES (p.action, p.to_stage, p.priority, p.reason, p.condition)
	RETURNING * INTO p;
	INSERT INTO plan_items (plan_id, work_item_id, claim_token, stage, status, priority, size, state, detail)
	SELECT p.id, w.id, w.claim_token, w.stage, w.status, w.priority, w.size,
		CASE WHEN refusal IS NULL THEN 'planned' ELSE 'refused' END, coalesce(refusal, '')
	FROM unnest(ids, tokens) AS found (item, token)
	JOIN work_items w ON w.id = found.item AND w.claim_token = found.token
	CROSS JOIN LATERAL plan_refusal(w, p) AS refusal
	ORDER BY w.id;
	UPDATE plans SET (items, refused, bytes) = (
		SELECT count(*), count(*) FILTER (WHERE i.state = 'refused'), coalesce(sum(i.size) FILTER (WHERE i.state = 'planned'), 0)
		FROM plan_items i WHERE i.plan_id = p.id
	), set_hash = plan_hash(p.id)
	WHERE id = p.id
	RETURNING * INTO p;
	RETURN p;
END
$$;

CREATE OR REPLACE FUNCTION topic_request(of_topic text, message_id text, body_is text, item bigint, sure boolean) RETURNS SETOF topic_requests
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	w      work_items;
	goes   stage_settings;
	reason text;
	hint   text;
	said   text;
BEGIN
	IF EXISTS (SELECT FROM topic_requests r WHERE r.topic = of_topic AND r.message = message_id) THEN
		RETURN QUERY SELECT * FROM topic_requests r WHERE r.topic = of_topic AND r.message = message_id;
		RETURN;
	END IF;
	SELECT * INTO w FROM all_work_items k WHERE k.id = item;
	SELECT * INTO goes FROM stage_settings s WHERE s.topic = of_topic AND s.action = w.action ORDER BY s.ordinal LIMIT 1;
	IF item IS NULL THEN
		reason := 'the message is no id of a work item';
	ELSIF w.id IS NULL THEN
		reason := format('there is no item %s', item);
	ELSIF goes.stage IS NULL THEN
		reason := format('item %s is of %s, which has nothing to do with this topic', item, w.action);
	ELSIF NOT sure AND w.status NOT IN ('Failed', 'Suspended') THEN
		RETURN;
	ELSIF NOT sure THEN
		reason := 'it came while the mirror was away, and may be an old message of its own: publish it again';
	ELSIF w.status = 'Started' AND w.stage = goes.stage THEN
		said := format('item %s is at %s already, and runs', item, w.stage);
	ELSE
		BEGIN
			PERFORM requeue(item, goes.stage);
			said := format('item %s is in the queue for %s', item, goes.stage);
		EXCEPTION WHEN integrity_constraint_violation OR no_data_found OR invalid_parameter_value OR program_limit_exceeded THEN
			GET STACKED DIAGNOSTICS reason = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
			reason := reason || coalesce('. ' || nullif(hint, ''), '');
		END;
	END IF;
	IF reason IS NOT NULL AND w.id IS NOT NULL THEN
		INSERT INTO work_item_audit (work_item_id, before, after, refused)
		VALUES (w.id, to_jsonb(w), to_jsonb(w), format('requeue asked for on the topic %s: %s', of_topic, reason));
	END IF;
	RETURN QUERY INSERT INTO topic_requests (topic, message, body, work_item_id, accepted, answer)
		VALUES (of_topic, message_id, body_is, w.id, reason IS NULL, coalesce(reason, said)) RETURNING *;
END
$$;
-- +goose StatementEnd
DROP FUNCTION requeued_by_hand(work_items, work_items);
ALTER FUNCTION requeued_to_stage(work_items, work_items) RENAME TO requeued_by_hand;
DROP FUNCTION requeue_stage(work_items, text);
COMMENT ON FUNCTION requeue IS
	'Makes an item claimable again, at once: at the stage that it came to last, or an earlier one. A worker that has it loses it.';
