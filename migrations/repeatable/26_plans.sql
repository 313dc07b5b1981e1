-- Plans: bulk changes that are looked at, applied and undone.

-- condition_alone returns a condition on work_items in brackets. Between CASE and
-- END it must stand by itself, so it cannot close them; and the cursor that FOR
-- opens takes one statement and no more.
CREATE OR REPLACE FUNCTION condition_alone(condition text) RETURNS text
LANGUAGE plpgsql SET transaction_read_only = on AS $$
DECLARE
	example CONSTANT text := 'Write what could stand behind WHERE in a query of work_items, such as: stage = ''Store'' AND error_code = ''timeout''';
	ignored record;
BEGIN
	IF coalesce(condition, '') !~ '\S' THEN
		RAISE EXCEPTION 'the condition is empty' USING ERRCODE = 'invalid_parameter_value', HINT = example || '. All items are: true';
	END IF;
	BEGIN
		FOR ignored IN EXECUTE E'EXPLAIN SELECT FROM work_items WHERE CASE WHEN\n' || condition || E'\nTHEN true END' LOOP
			EXIT;
		END LOOP;
	EXCEPTION WHEN OTHERS THEN -- except a cancel
		RAISE EXCEPTION 'the condition % cannot be used: %', quote_literal(condition),
			CASE SQLSTATE WHEN '42P11' THEN 'it has a second statement in it' ELSE SQLERRM END
			USING ERRCODE = 'invalid_parameter_value', HINT = example;
	END;
	RETURN '(' || condition || CASE WHEN condition LIKE '%--%' THEN E'\n' ELSE '' END || ')'; -- it may end in a comment
END
$$;

-- items_where finds the items that a condition is true for, with the rights of the
-- caller and as by a SELECT that is typed: the transaction is read-only
-- until then, and what a function in the condition writes all the same is undone.
CREATE OR REPLACE FUNCTION items_where(condition text, OUT ids bigint[], OUT tokens bigint[]) LANGUAGE plpgsql AS $$
DECLARE
	alone   text := condition_alone(condition);
	trouble text;
BEGIN
	BEGIN
		SET LOCAL transaction_read_only = on;
		EXECUTE 'SELECT coalesce(array_agg(id ORDER BY id), ''{}''), coalesce(array_agg(claim_token ORDER BY id), ''{}'') FROM work_items WHERE ' || alone
		INTO ids, tokens;
		RAISE EXCEPTION 'enough' USING ERRCODE = 'FAROL'; -- variables outlive what is undone
	EXCEPTION
		WHEN SQLSTATE 'FAROL' THEN NULL;
		WHEN OTHERS THEN trouble := SQLERRM;
	END;
	IF trouble IS NOT NULL THEN
		RAISE EXCEPTION 'the condition % failed: %', quote_literal(condition), trouble USING ERRCODE = 'invalid_parameter_value',
			CONSTRAINT = 'condition-failed', HINT = 'Try it: SELECT id FROM work_items WHERE ' || alone || ';';
	END IF;
END
$$;

-- plan_hash is a digest of the items of a plan, as they were when it was made.
CREATE OR REPLACE FUNCTION plan_hash(plan bigint) RETURNS text LANGUAGE sql STABLE AS $$
	SELECT encode(sha256(convert_to(coalesce(string_agg(
		concat_ws(' ', work_item_id, claim_token, stage, status, priority), E'\n' ORDER BY work_item_id), ''), 'UTF8')), 'hex')
	FROM plan_items WHERE plan_id = plan
$$;

-- plan_refusal says why a plan cannot change an item, or need not; NULL: it can. It knows
-- the rules of requeue, cancel and set_priority without calling them, so that a preview
-- changes and locks nothing.
CREATE OR REPLACE FUNCTION plan_refusal(w work_items, p plans) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
	to_stage text := coalesce(p.to_stage, w.stage);
BEGIN
	RETURN CASE
		WHEN p.action = 'requeue' AND w.status = 'Pending' AND w.stage = to_stage THEN -- it may get its attempts again, or be due at once
			CASE WHEN w.attempt = 0 AND (w.waits_for IS NOT NULL OR w.run_at <= now()) THEN format('item %s is queued at %s already', w.id, w.stage) END
		WHEN p.action = 'requeue' THEN (requeue_refusal(w, to_stage)).reason
		WHEN p.action = 'cancel' AND w.status = 'Cancelled' THEN format('item %s is cancelled already', w.id)
		WHEN w.status IN ('Success', 'Cancelled') THEN format('item %s has ended (%s): it cannot be changed', w.id, w.status)
		WHEN p.action = 'set priority' AND w.priority = p.priority THEN format('item %s has that priority already', w.id)
	END;
END
$$;

-- plan_store makes a plan of items that the caller has found. One that has moved since
-- is left out: the condition may no longer be true for it.
CREATE OR REPLACE FUNCTION plan_store(p plans, ids bigint[], tokens bigint[]) RETURNS plans
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF NOT has_column_privilege(session_user, 'work_items', 'status', 'UPDATE') THEN
		RAISE EXCEPTION '% may not change work items', session_user USING ERRCODE = 'insufficient_privilege';
	END IF;
	INSERT INTO plans (action, to_stage, priority, reason, condition, created_by_user)
	VALUES (p.action, p.to_stage, p.priority, p.reason, p.condition,
		coalesce(acting_user_id(), (SELECT u.id FROM users u WHERE lower(u.email) = lower(acting_person()))))
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
	UPDATE plans SET (items, refused, bytes, in_work) = (
		SELECT count(*), count(*) FILTER (WHERE i.state = 'refused'), coalesce(sum(i.size) FILTER (WHERE i.state = 'planned'), 0),
			count(*) FILTER (WHERE i.state = 'planned' AND i.status = 'Started')
		FROM plan_items i WHERE i.plan_id = p.id
	), set_hash = plan_hash(p.id)
	WHERE id = p.id
	RETURNING * INTO p;
	UPDATE plans SET counts = jsonb_strip_nulls(jsonb_build_object('planned', nullif(p.items - p.refused, 0), 'refused', nullif(p.refused, 0)))
	WHERE id = p.id
	RETURNING * INTO p;
	RETURN p;
END
$$;

-- plan_make stores what an action would do to the items that a condition is true
-- for, and changes none of them.
CREATE OR REPLACE FUNCTION plan_make(
	action text, condition text, to_stage text DEFAULT NULL, priority integer DEFAULT NULL, reason text DEFAULT NULL
) RETURNS plans
LANGUAGE plpgsql AS $$
DECLARE
	p plans;
	ids bigint[];
	tokens bigint[];
BEGIN
	SELECT * INTO ids, tokens FROM items_where(condition);
	IF ids = '{}' THEN
		RAISE EXCEPTION 'there is no item with %', condition USING ERRCODE = 'no_data_found';
	END IF;
	p.action := action;
	p.condition := condition;
	p.to_stage := to_stage;
	p.priority := priority;
	p.reason := reason;
	RETURN plan_store(p, ids, tokens);
END
$$;

-- plan_lock returns a plan that nobody else applies or undoes until the caller's
-- transaction ends. Plans are carried out with the rights of their owner, so
-- this checks that the caller has the rights to do the same by hand.
CREATE OR REPLACE FUNCTION plan_lock(plan bigint) RETURNS plans LANGUAGE plpgsql AS $$
DECLARE
	p plans;
BEGIN
	IF NOT has_column_privilege(session_user, 'work_items', 'status', 'UPDATE') THEN
		RAISE EXCEPTION '% may not change work items', session_user USING ERRCODE = 'insufficient_privilege';
	END IF;
	SELECT * INTO p FROM plans WHERE id = plan FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no plan %', plan USING ERRCODE = 'no_data_found';
	END IF;
	RETURN p;
END
$$;

-- plan_begin lets a plan be applied, or go on, unless more than a tolerance of
-- its items has changed: then it is no longer what was looked at. Each run of a
-- program begins with it; in psql, plan_apply does it once.
CREATE OR REPLACE FUNCTION plan_begin(plan bigint, tolerance numeric DEFAULT 5) RETURNS plans
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	p plans := plan_lock(plan);
	moved bigint;
	whole bigint;
BEGIN
	IF p.state = 'applied' THEN
		RETURN p;
	ELSIF p.state IN ('undoing', 'undone') THEN
		RAISE EXCEPTION 'plan % has been undone', p.id
			USING ERRCODE = 'check_violation', HINT = 'Make a new one.';
	ELSIF plan_hash(p.id) <> p.set_hash THEN
		RAISE EXCEPTION 'plan % was changed after it was made', p.id
			USING ERRCODE = 'check_violation', HINT = 'Its rows of plan_items were changed by hand. Make a new one.';
	END IF;
	SELECT count(*) FILTER (WHERE i.state = 'changed' OR i.state = 'planned' AND (w.claim_token, w.stage, w.status, w.priority)
			IS DISTINCT FROM (i.claim_token, i.stage, i.status, i.priority)), count(*)
	INTO moved, whole
	FROM plan_items i LEFT JOIN work_items w ON w.id = i.work_item_id
	WHERE i.plan_id = p.id AND i.state <> 'refused';
	IF moved * 100 > whole * tolerance THEN
		RAISE EXCEPTION '% of the % items of plan % have changed since it was made: more than % %%', moved, whole, p.id, tolerance
			USING ERRCODE = 'check_violation', HINT = 'Make a new one.';
	END IF;
	UPDATE plans SET state = 'applying', tolerance = plan_begin.tolerance, begun_at = coalesce(begun_at, now()), begun_by = acting_user()
	WHERE id = p.id RETURNING * INTO p;
	RETURN p;
END
$$;

-- plan_batch returns the next items of a plan that are in a state, locked, and
-- notes in the plan that it has come to the last of them, or to its end.
CREATE OR REPLACE FUNCTION plan_batch(p plans, in_state text, most integer) RETURNS SETOF plan_items LANGUAGE plpgsql AS $$
DECLARE
	ids bigint[] := ARRAY(SELECT work_item_id FROM plan_items
		WHERE plan_id = p.id AND state = in_state AND work_item_id > p.upto ORDER BY work_item_id LIMIT greatest(most, 1));
	last_one bigint := ids[cardinality(ids)];
BEGIN
	PERFORM lock_items(ids);
	IF last_one IS NOT NULL THEN
		UPDATE plans SET upto = last_one WHERE id = p.id;
	ELSIF in_state = 'planned' THEN
		UPDATE plans SET state = 'applied', applied_at = now() WHERE id = p.id;
	ELSE
		UPDATE plans SET state = 'undone', undone_at = now() WHERE id = p.id;
	END IF;
	RETURN QUERY SELECT * FROM plan_items
		WHERE plan_id = p.id AND state = in_state AND work_item_id > p.upto AND work_item_id <= last_one
		ORDER BY work_item_id;
END
$$;

-- plan_change_item does to an item what the plan says, or finds why not. The caller has
-- locked the item.
CREATE OR REPLACE FUNCTION plan_change_item(p plans, i plan_items) RETURNS plan_items LANGUAGE plpgsql AS $$
DECLARE
	w work_items;
	after work_items;
BEGIN
	SELECT * INTO w FROM work_items WHERE id = i.work_item_id;
	i.state := 'changed';
	IF NOT FOUND THEN
		i.detail := 'it has left the queue';
		RETURN i;
	ELSIF (w.claim_token, w.stage, w.status, w.priority) IS DISTINCT FROM (i.claim_token, i.stage, i.status, i.priority) THEN
		i.detail := format('it is %s at %s now', w.status, w.stage);
		RETURN i;
	END IF;
	i.state := 'refused';
	i.detail := coalesce(plan_refusal(w, p), '');
	IF i.detail <> '' THEN
		RETURN i;
	END IF;

	IF p.action = 'requeue' THEN
		SELECT * INTO after FROM requeue(w.id, p.to_stage);
	ELSIF p.action = 'cancel' THEN
		SELECT * INTO after FROM cancel(w.id, p.reason);
	ELSE
		SELECT * INTO after FROM set_priority(w.id, p.priority);
	END IF;
	i.state := 'done';
	i.token_after := after.claim_token;
	i.before := CASE WHEN p.action = 'set priority' THEN jsonb_build_object('priority', w.priority)
		ELSE jsonb_build_object('stage', w.stage, 'status', w.status, 'retry', w.retry, 'needs_admin_review', w.needs_admin_review,
			'attempt', w.attempt, 'entered_token', w.entered_token, 'run_at', w.run_at,
			'note', w.note, 'outcome', w.outcome, 'error_code', w.error_code) END;
	RETURN i;
END
$$;

-- plan_apply_item is plan_change_item in a subtransaction of its own: an item that a rule
-- refuses which plan_refusal does not know stops no other.
CREATE OR REPLACE FUNCTION plan_apply_item(p plans, i plan_items) RETURNS plan_items LANGUAGE plpgsql AS $$
BEGIN
	RETURN plan_change_item(p, i);
EXCEPTION WHEN integrity_constraint_violation THEN
	i.state := 'refused';
	i.detail := SQLERRM;
	RETURN i;
END
$$;

-- plan_count keeps how many items of a plan are in each state, after some that were in one
-- have come to others.
CREATE OR REPLACE FUNCTION plan_count(plan bigint, was text, became text[]) RETURNS void LANGUAGE sql AS $$
	UPDATE plans SET counts = (
		SELECT coalesce(jsonb_object_agg(c.state, c.n), '{}') FROM (
			SELECT x.state, sum(x.n) AS n FROM (
				SELECT key AS state, value::bigint AS n FROM jsonb_each_text(counts)
				UNION ALL SELECT was, -cardinality(became)
				UNION ALL SELECT unnest(became), 1
			) x GROUP BY x.state HAVING sum(x.n) <> 0
		) c
	) WHERE id = plan
$$;

-- plan_apply_batch applies a plan to its next items, and returns to how many. One that
-- is applied at once goes without subtransactions: more than 64 in a transaction slow
-- down all others.
CREATE OR REPLACE FUNCTION plan_apply_batch(p plans, most integer, at_once boolean) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
	became text[] := '{}';
	i      plan_items;
	bound  text := most_by_hand('2000000000'); -- the items of a plan were looked at
BEGIN
	FOR i IN SELECT * FROM plan_batch(p, 'planned', most) LOOP
		i := CASE WHEN at_once THEN plan_change_item(p, i) ELSE plan_apply_item(p, i) END;
		UPDATE plan_items SET (state, detail, before, token_after) = (i.state, i.detail, i.before, i.token_after)
		WHERE plan_id = p.id AND work_item_id = i.work_item_id;
		became := became || i.state;
	END LOOP;
	PERFORM most_by_hand(bound), plan_count(p.id, 'planned', became);
	RETURN cardinality(became);
END
$$;

-- plan_apply applies a plan to its next items, up to most, and returns to how many; 0
-- means that it is applied to all. It refuses to begin if more than tolerance per cent
-- of the items have changed.
CREATE OR REPLACE FUNCTION plan_apply(plan bigint, most integer DEFAULT 50, tolerance numeric DEFAULT 5) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	p plans := plan_lock(plan);
BEGIN
	IF p.state <> 'applying' THEN
		p := plan_begin(plan, tolerance);
	END IF;
	RETURN CASE WHEN p.state = 'applied' THEN 0 ELSE plan_apply_batch(p, most, false) END;
END
$$;

-- plan_apply_whole makes a plan of items that the caller has found, and applies it in
-- one transaction.
CREATE OR REPLACE FUNCTION plan_apply_whole(p plans, ids bigint[], tokens bigint[]) RETURNS plans
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	p := plan_begin((plan_store(p, ids, tokens)).id, 100);
	PERFORM plan_apply_batch(p, cardinality(ids), true);
	PERFORM plan_batch(k, 'planned', 1) FROM plans k WHERE k.id = p.id; -- notes that all is applied
	SELECT * INTO p FROM plans WHERE id = p.id;
	RETURN p;
END
$$;

-- undone is the move of an item back to how it was before a plan: the rules for changes
-- by hand know no way back from Cancelled.
CREATE OR REPLACE FUNCTION undone(w work_items, b work_items) RETURNS work_item_move
LANGUAGE plpgsql AS $$
DECLARE
	m work_item_move := unchanged(b);
BEGIN
	m.token := w.claim_token;
	m.status := b.status;
	m.run_at := CASE WHEN isfinite(b.run_at) THEN b.run_at ELSE now() END;
	m.note := b.note;
	m.outcome := b.outcome;
	m.topic := CASE WHEN b.status = 'Pending' THEN topic_of(b.action, b.stage) END;
	m.entered_token := b.entered_token;
	m.waits_for := CASE WHEN NOT b.retry THEN NULL WHEN w.retry THEN w.waits_for -- its place among the items of its object
		WHEN w.action = 'Ingest' THEN last_in_work(w.object_identifier, w.id) END;
	RETURN m;
END
$$;

-- plan_undo_item restores an item to how it was before the plan, if nobody has claimed
-- or changed it since.
CREATE OR REPLACE FUNCTION plan_undo_item(p plans, i plan_items) RETURNS plan_items LANGUAGE plpgsql AS $$
DECLARE
	w work_items;
	b work_items;
BEGIN
	SELECT * INTO w FROM work_items WHERE id = i.work_item_id;
	i.state := 'not undone';
	i.detail := '';
	IF NOT FOUND THEN
		i.detail := 'it has left the queue';
	ELSIF p.action = 'set priority' AND w.status IN ('Success', 'Cancelled') THEN
		i.detail := format('it has ended (%s)', w.status);
	ELSIF p.action = 'set priority' AND w.priority <> p.priority THEN
		i.detail := 'its priority was changed again';
	ELSIF p.action <> 'set priority' AND w.claim_token <> i.token_after THEN
		i.detail := format('it continued: it is %s at %s now', w.status, w.stage);
	ELSIF NOT w.retry AND (i.before->>'retry')::boolean AND rival_of(w) IS NOT NULL THEN
		i.detail := rival_of(w);
	END IF;
	IF i.detail <> '' THEN
		RETURN i;
	END IF;

	b := jsonb_populate_record(w, i.before); -- as it is now where the plan did not touch it
	IF p.action = 'set priority' THEN
		UPDATE work_items SET priority = b.priority, updated_at = now() WHERE id = w.id;
	ELSE
		IF b.status = 'Started' THEN -- its worker has lost it; it goes on as after an expired lease
			b.status := 'Pending';
			b.note := format('The plan %s that took it from its worker was undone', p.id);
			i.detail := 'it is Pending, since its worker has lost it';
		END IF;
		PERFORM move_by_hand(w, undone(w, b));
	END IF;
	i.state := 'undone';
	RETURN i;
EXCEPTION WHEN integrity_constraint_violation THEN
	i.state := 'not undone';
	i.detail := SQLERRM;
	RETURN i;
END
$$;

-- plan_undo undoes a plan for its next items, up to most, and returns for how many; 0
-- means that it is undone for all. Items that it was not applied to by then stay as they
-- are.
CREATE OR REPLACE FUNCTION plan_undo(plan bigint, most integer DEFAULT 50) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	p plans := plan_lock(plan);
	became text[] := '{}';
	i plan_items;
	bound text;
BEGIN
	IF p.state = 'ready' THEN
		RAISE EXCEPTION 'plan % has not been applied', p.id USING ERRCODE = 'check_violation';
	ELSIF p.state = 'undone' THEN
		RETURN 0;
	ELSIF p.state <> 'undoing' THEN
		UPDATE plans SET state = 'undoing', upto = 0 WHERE id = p.id RETURNING * INTO p;
	END IF;
	UPDATE plans SET undone_by = acting_user() WHERE id = p.id;
	bound := most_by_hand('2000000000');
	FOR i IN SELECT * FROM plan_batch(p, 'done', most) LOOP
		i := plan_undo_item(p, i);
		UPDATE plan_items SET state = i.state, detail = i.detail WHERE plan_id = p.id AND work_item_id = i.work_item_id;
		became := became || i.state;
	END LOOP;
	PERFORM most_by_hand(bound), plan_count(p.id, 'done', became);
	RETURN cardinality(became);
END
$$;

COMMENT ON FUNCTION plan_make IS 'Stores what an action would do to the items that a condition is true for, and changes none of them.';
COMMENT ON FUNCTION plan_store IS 'Makes a plan of items that plan_make() has found.';
COMMENT ON FUNCTION plan_begin IS 'Lets a plan be applied, unless more of its items have changed than a percentage.';
COMMENT ON FUNCTION plan_apply IS 'Applies a plan to its next items, and returns to how many; 0: to all.';
COMMENT ON FUNCTION plan_apply_whole IS 'Makes a plan of items that requeue_where() has found, and applies it in one transaction.';
COMMENT ON FUNCTION plan_undo IS 'Undoes a plan for its next items, and returns for how many; 0: for all.';

REVOKE EXECUTE ON FUNCTION plan_store, plan_begin, plan_change_item, plan_apply_batch, plan_apply, plan_apply_whole, undone, plan_undo FROM PUBLIC;
