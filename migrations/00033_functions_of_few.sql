-- What runs with the rights of the owner is for those who were given it. PostgreSQL
-- lets everybody execute a new function, and put a trigger function on a table of
-- their own, with rows that they have made up.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- +goose StatementBegin
DO $$
DECLARE
	f regprocedure;
BEGIN
	FOR f IN SELECT p.oid FROM pg_proc p
		WHERE p.pronamespace = current_schema()::regnamespace AND p.prokind = 'f' AND (p.prosecdef OR p.prorettype = 'trigger'::regtype)
		  AND p.proname <> 'is_stage_name' -- a domain's, which whoever writes the name of a stage has to execute
	LOOP
		EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', f);
	END LOOP;
END
$$;

-- As in 00025, but that who makes a plan must be able to do by hand what it does, as
-- who applies it.
CREATE OR REPLACE FUNCTION plan_store(p plans, ids bigint[], tokens bigint[]) RETURNS plans
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF NOT has_column_privilege(session_user, 'work_items', 'status', 'UPDATE') THEN
		RAISE EXCEPTION '% may not change work items', session_user USING ERRCODE = 'insufficient_privilege';
	END IF;
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
-- +goose StatementEnd

ALTER FUNCTION grant_administration(regrole) RENAME TO grant_before_functions;
-- +goose StatementBegin
CREATE FUNCTION grant_administration(to_role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	PERFORM grant_before_functions(to_role);
	EXECUTE format('GRANT EXECUTE ON FUNCTION plan_store, plan_begin, plan_apply, plan_undo, requeue_refusal, requeue_stage TO %s', to_role);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION grant_administration IS 'Gives a role the rights that farol_admin has. Only the owner of the schema can.';
REVOKE EXECUTE ON FUNCTION grant_administration(regrole) FROM PUBLIC;
SELECT grant_to_administrators();

-- +goose Down
DROP FUNCTION grant_administration(regrole);
ALTER FUNCTION grant_before_functions(regrole) RENAME TO grant_administration;
-- +goose StatementBegin
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
-- +goose StatementEnd
GRANT EXECUTE ON FUNCTION plan_store, plan_begin, plan_apply, plan_undo, requeue_refusal, requeue_stage TO PUBLIC;
