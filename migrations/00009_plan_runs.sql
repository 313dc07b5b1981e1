-- How plans are applied and undone: in batches, each in a transaction of its own,
-- item by item in the order of their IDs. Each item is a subtransaction; from 64
-- in one transaction on they would slow everybody down, so a batch has fewer.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00005

-- plan_lock returns a plan that nobody else applies or undoes until the caller's
-- transaction ends. Plans are carried out with the rights of their owner; so
-- here is seen to it that the caller might do the same by hand.
-- +goose StatementBegin
CREATE FUNCTION plan_lock(plan bigint) RETURNS plans LANGUAGE plpgsql AS $$
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
-- +goose StatementEnd

-- plan_begin lets a plan be applied, or go on, unless more than a tolerance of
-- its items has changed: then it is no longer what was looked at. Each run of a
-- program begins with it; in psql, plan_apply does it once.
-- +goose StatementBegin
CREATE FUNCTION plan_begin(plan bigint, tolerance numeric DEFAULT 5) RETURNS plans
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
		RAISE EXCEPTION 'plan % is not what it was when it was made', p.id
			USING ERRCODE = 'check_violation', HINT = 'Somebody has written to plan_items. Make a new one.';
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
	UPDATE plans SET state = 'applying', tolerance = plan_begin.tolerance, begun_at = coalesce(begun_at, now()), begun_by = session_user
	WHERE id = p.id RETURNING * INTO p;
	RETURN p;
END
$$;
-- +goose StatementEnd

-- plan_batch returns the next items of a plan that are in a state, locked, and
-- notes in the plan that it has come to the last of them, or to its end.
-- +goose StatementBegin
CREATE FUNCTION plan_batch(p plans, in_state text, most integer) RETURNS SETOF plan_items LANGUAGE plpgsql AS $$
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
-- +goose StatementEnd

-- plan_apply_item does to an item what the plan says, or finds why not. The
-- caller has locked the item.
-- +goose StatementBegin
CREATE FUNCTION plan_apply_item(p plans, i plan_items) RETURNS plan_items LANGUAGE plpgsql AS $$
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
EXCEPTION WHEN integrity_constraint_violation THEN -- a rule that plan_refusal does not know
	i.state := 'refused';
	i.detail := SQLERRM;
	RETURN i;
END
$$;
-- +goose StatementEnd

-- plan_apply applies a plan to its next items, as many as are named, and returns
-- to how many; 0 means that all is done. Begin it with a tolerance, as above.
-- +goose StatementBegin
CREATE FUNCTION plan_apply(plan bigint, most integer DEFAULT 50, tolerance numeric DEFAULT 5) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	p plans := plan_lock(plan);
	n integer := 0;
	i plan_items;
	bound text;
BEGIN
	IF p.state <> 'applying' THEN
		p := plan_begin(plan, tolerance);
	END IF;
	IF p.state = 'applied' THEN
		RETURN 0;
	END IF;
	bound := most_by_hand('2000000000'); -- a plan was looked at
	FOR i IN SELECT * FROM plan_batch(p, 'planned', most) LOOP
		i := plan_apply_item(p, i);
		UPDATE plan_items SET (state, detail, before, token_after) = (i.state, i.detail, i.before, i.token_after)
		WHERE plan_id = p.id AND work_item_id = i.work_item_id;
		n := n + 1;
	END LOOP;
	PERFORM most_by_hand(bound);
	RETURN n;
END
$$;
-- +goose StatementEnd

-- plan_undo_item puts an item back to how it stood before the plan, if nobody has
-- had it since. It moves the token itself, as the engine does, since the rules
-- for changes by hand know no way back from Cancelled.
-- +goose StatementBegin
CREATE FUNCTION plan_undo_item(p plans, i plan_items) RETURNS plan_items LANGUAGE plpgsql AS $$
DECLARE
	w work_items;
	b work_items;
	after work_items;
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
		i.detail := format('it went on: it is %s at %s now', w.status, w.stage);
	ELSIF NOT w.retry AND (i.before->>'retry')::boolean AND rival_of(w) IS NOT NULL THEN
		i.detail := rival_of(w);
	END IF;
	IF i.detail <> '' THEN
		RETURN i;
	END IF;

	b := jsonb_populate_record(w, i.before); -- as it is now where the plan did not touch it
	IF p.action <> 'set priority' THEN
		b.claim_token := w.claim_token + 1;
		IF b.status = 'Started' THEN -- its worker has lost it; it goes on as after a lapsed lease
			b.status := 'Pending';
			b.note := format('The plan %s that took it from its worker was undone', p.id);
			i.detail := 'it is Pending, since its worker has lost it';
		END IF;
		b.waits_for := CASE WHEN NOT b.retry THEN NULL WHEN w.retry THEN w.waits_for -- its place in the line
			WHEN w.action = 'Ingest' THEN last_in_work(w.object_identifier, w.id) END;
		b.run_at := CASE WHEN b.waits_for IS NOT NULL THEN 'infinity' WHEN isfinite(b.run_at) THEN b.run_at ELSE now() END;
	END IF;
	UPDATE work_items SET (stage, status, claim_token, entered_token, retry, needs_admin_review, attempt, run_at, waits_for,
		note, outcome, error_code, priority, updated_at)
		= (b.stage, b.status, b.claim_token, b.entered_token, b.retry, b.needs_admin_review, b.attempt, b.run_at, b.waits_for,
		b.note, b.outcome, b.error_code, b.priority, now())
	WHERE id = w.id RETURNING * INTO after;
	IF p.action <> 'set priority' THEN -- which is put on record as any change of a priority
		INSERT INTO work_item_audit (work_item_id, before, after) VALUES (w.id, to_jsonb(w), to_jsonb(after));
		IF after.status = 'Pending' THEN
			PERFORM append_topic_message(after.action, after.stage, after.id);
			PERFORM pg_notify('farol_work', E'\n' || after.stage);
		END IF;
	END IF;
	i.state := 'undone';
	RETURN i;
EXCEPTION WHEN integrity_constraint_violation THEN
	i.state := 'not undone';
	i.detail := SQLERRM;
	RETURN i;
END
$$;
-- +goose StatementEnd

-- plan_undo takes a plan back from its next items, as many as are named, and
-- returns from how many; 0 means that all is done. What was not applied by then
-- never will be.
-- +goose StatementBegin
CREATE FUNCTION plan_undo(plan bigint, most integer DEFAULT 50) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	p plans := plan_lock(plan);
	n integer := 0;
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
	UPDATE plans SET undone_by = session_user WHERE id = p.id;
	bound := most_by_hand('2000000000');
	FOR i IN SELECT * FROM plan_batch(p, 'done', most) LOOP
		i := plan_undo_item(p, i);
		UPDATE plan_items SET state = i.state, detail = i.detail WHERE plan_id = p.id AND work_item_id = i.work_item_id;
		n := n + 1;
	END LOOP;
	PERFORM most_by_hand(bound);
	RETURN n;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION plan_undo(bigint, integer);
DROP FUNCTION plan_undo_item(plans, plan_items);
DROP FUNCTION plan_apply(bigint, integer, numeric);
DROP FUNCTION plan_apply_item(plans, plan_items);
DROP FUNCTION plan_batch(plans, text, integer);
DROP FUNCTION plan_begin(bigint, numeric);
DROP FUNCTION plan_lock(bigint);
