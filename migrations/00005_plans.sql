-- Bulk actions as objects. A plan keeps which items it is about and how each of
-- them stood, so that what is done is what was looked at. It is applied and
-- undone in batches, and what is noted of an item commits with the change of the
-- item: whoever dies meanwhile leaves each item done once or not at all, and
-- anybody goes on from there. People call plan_make, plan_apply and plan_undo.

-- +goose Up
-- Functions that run with their owner's rights look for names in this schema, and
-- in what a session has made for itself only after that.
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true);

CREATE TABLE plans (
	id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	action     text        NOT NULL CHECK (action IN ('requeue', 'cancel', 'set priority')),
	to_stage   text, -- where to requeue to; NULL: where each item has come to
	priority   smallint    CHECK (priority BETWEEN -100 AND 100),
	reason     text, -- the note of cancelled items; NULL: who cancelled them
	condition  text        NOT NULL, -- as it was typed; it is run once only
	items      bigint      NOT NULL DEFAULT 0, -- that met the condition
	refused    bigint      NOT NULL DEFAULT 0, -- of these: known from the start to be refused
	bytes      bigint      NOT NULL DEFAULT 0, -- of the others
	set_hash   text        NOT NULL DEFAULT '', -- plan_hash of what was looked at
	state      text        NOT NULL DEFAULT 'ready' CHECK (state IN ('ready', 'applying', 'applied', 'undoing', 'undone')),
	upto       bigint      NOT NULL DEFAULT 0, -- applying and undoing go by ID and have come to here
	tolerance  numeric, -- per cent of the items that might have changed when it was last begun
	created_at timestamptz NOT NULL DEFAULT now(),
	created_by text        NOT NULL DEFAULT session_user,
	begun_at   timestamptz, -- first
	begun_by   text, -- last
	applied_at timestamptz,
	undone_at  timestamptz,
	undone_by  text,
	CHECK (to_stage IS NULL OR action = 'requeue'),
	CHECK (reason IS NULL OR action = 'cancel'),
	CONSTRAINT priority_is_named CHECK ((priority IS NOT NULL) = (action = 'set priority'))
);

CREATE TABLE plan_items (
	plan_id      bigint   NOT NULL REFERENCES plans ON DELETE CASCADE,
	work_item_id bigint   NOT NULL, -- stays when the item is archived
	-- How the item stood when the plan was made.
	claim_token  bigint   NOT NULL,
	stage        text     NOT NULL,
	status       text     NOT NULL,
	priority     smallint NOT NULL,
	size         bigint   NOT NULL,
	-- What has become of it.
	state        text     NOT NULL DEFAULT 'planned'
		CHECK (state IN ('planned', 'done', 'refused', 'changed', 'undone', 'not undone')),
	detail       text     NOT NULL DEFAULT '', -- why, unless it is as planned
	before       jsonb, -- the columns that undoing puts back, as they were when it was done
	token_after  bigint,
	PRIMARY KEY (plan_id, work_item_id),
	CONSTRAINT done_can_be_undone CHECK (
		(state IN ('planned', 'refused', 'changed')) = (before IS NULL) AND (before IS NULL) = (token_after IS NULL))
) WITH (fillfactor = 60); -- each row is written again once or twice

-- condition_alone returns a condition on work_items in brackets. Between CASE and
-- END it must stand by itself, so it cannot close them; and the cursor that FOR
-- opens takes one statement and no more.
-- +goose StatementBegin
CREATE FUNCTION condition_alone(condition text) RETURNS text
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
	EXCEPTION WHEN OTHERS THEN -- which leaves out that somebody cancelled it
		RAISE EXCEPTION 'the condition % cannot be used: %', quote_literal(condition),
			CASE SQLSTATE WHEN '42P11' THEN 'it has a second statement in it' ELSE SQLERRM END
			USING ERRCODE = 'invalid_parameter_value', HINT = example;
	END;
	RETURN '(' || condition || CASE WHEN condition LIKE '%--%' THEN E'\n' ELSE '' END || ')'; -- it may end in a comment
END
$$;
-- +goose StatementEnd

-- items_where finds the items that a condition is true for, with the rights of the
-- caller and as by a SELECT that is typed: the transaction is read-only meanwhile,
-- and what a function in the condition has done nevertheless is undone.
-- +goose StatementBegin
CREATE FUNCTION items_where(condition text, OUT ids bigint[], OUT tokens bigint[]) LANGUAGE plpgsql AS $$
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
			HINT = 'Try it: SELECT id FROM work_items WHERE ' || alone || ';';
	END IF;
END
$$;
-- +goose StatementEnd

-- plan_hash tells whether two sets of items, as they stood, are the same.
-- +goose StatementBegin
CREATE FUNCTION plan_hash(plan bigint) RETURNS text LANGUAGE sql STABLE AS $$
	SELECT encode(sha256(convert_to(coalesce(string_agg(
		concat_ws(' ', work_item_id, claim_token, stage, status, priority), E'\n' ORDER BY work_item_id), ''), 'UTF8')), 'hex')
	FROM plan_items WHERE plan_id = plan
$$;
-- +goose StatementEnd

-- plan_refusal says why a plan cannot change an item as it stands, or need not;
-- NULL: it can. It knows the rules of requeue, cancel and set_priority without
-- trying them, so that a preview changes nothing and holds nobody up.
-- +goose StatementBegin
CREATE FUNCTION plan_refusal(w work_items, p plans) RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
	to_stage text := coalesce(p.to_stage, w.stage);
BEGIN
	RETURN CASE
		WHEN p.action = 'requeue' AND w.status = 'Pending' AND w.stage = to_stage THEN format('item %s is queued at %s already', w.id, w.stage)
		WHEN p.action = 'requeue' THEN (requeue_refusal(w, to_stage)).reason
		WHEN p.action = 'cancel' AND w.status = 'Cancelled' THEN format('item %s is cancelled already', w.id)
		WHEN w.status IN ('Success', 'Cancelled') THEN format('item %s has ended (%s): it cannot be changed', w.id, w.status)
		WHEN p.action = 'set priority' AND w.priority = p.priority THEN format('item %s has that priority already', w.id)
	END;
END
$$;
-- +goose StatementEnd

-- plan_store makes a plan of items that the caller has found. One that has
-- moved since is left out: the condition may not be true for it any more.
-- +goose StatementBegin
CREATE FUNCTION plan_store(p plans, ids bigint[], tokens bigint[]) RETURNS plans
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
-- +goose StatementEnd

-- plan_make stores what an action would do to the items that a condition is true
-- for, and changes none of them.
-- +goose StatementBegin
CREATE FUNCTION plan_make(
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
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION plan_make(text, text, text, integer, text);
DROP FUNCTION plan_store(plans, bigint[], bigint[]);
DROP FUNCTION plan_refusal(work_items, plans);
DROP FUNCTION plan_hash(bigint);
DROP FUNCTION items_where(text);
DROP FUNCTION condition_alone(text);
DROP TABLE plan_items, plans;
