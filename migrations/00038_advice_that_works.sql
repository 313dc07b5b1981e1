-- What a refusal advises can be done as it is printed.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- typed_in_shell is a word as a shell takes it for one.
CREATE FUNCTION typed_in_shell(word text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN CASE WHEN word ~ '^[A-Za-z0-9_./:@%+,=-]+$' THEN word ELSE '''' || replace(word, '''', '''\''''') || '''' END;

-- have_again says how what an ended item was about is had again: by an upload, or by
-- the command that asks for it, if it can be asked for.
-- +goose StatementBegin
CREATE FUNCTION have_again(item bigint) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	w       all_work_items;
	about   record;
	rival   text;
	command text;
BEGIN
	SELECT * INTO w FROM all_work_items WHERE id = item;
	IF w.action = 'Ingest' THEN
		RETURN 'Upload the bag again to ingest it again.';
	END IF;
	SELECT coalesce(f.identifier, o.identifier) AS name, CASE WHEN f.id IS NULL THEN 'object' ELSE 'file' END AS kind,
		'D' IN (o.state, f.state) AS gone, coalesce(f.deleted_by_item, o.deleted_by_item) IS NOT NULL AS going
	INTO about
	FROM intellectual_objects o LEFT JOIN generic_files f ON f.id = w.generic_file_id
	WHERE o.id = w.intellectual_object_id;
	IF NOT FOUND THEN
		RETURN 'It is not on record any more.';
	ELSIF about.gone THEN
		RETURN format('Nothing is left to do: the %s %s is deleted.', about.kind, about.name);
	ELSIF w.action = 'Delete' THEN
		command := format('farol delete request %s --by %s', typed_in_shell(about.name), typed_in_shell(w."user"));
	ELSIF about.going THEN
		RETURN format('A deletion of the %s %s has begun: it cannot be given back.', about.kind, about.name);
	ELSE
		command := format('farol restore %s %s', about.kind, typed_in_shell(about.name))
			|| CASE WHEN w."user" IN ('', 'system@aptrust.org') THEN '' ELSE ' --by ' || typed_in_shell(w."user") END;
	END IF;
	rival := request_rival(w.object_identifier, w.generic_file_id, w.id);
	RETURN CASE WHEN rival IS NULL THEN 'To ask' ELSE upper(left(rival, 1)) || substr(rival, 2) || '. When that has ended, to ask' END
		|| format(' for it again: `%s`.', command);
END
$$;

-- As in 00022, but that each hint can be followed: a request is not uploaded, and the
-- stage is named.
CREATE OR REPLACE FUNCTION requeue_refusal(w work_items, to_stage text, OUT reason text, OUT hint text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	come_to smallint := stage_place(w.action, w.stage);
	goes_to smallint := (SELECT ordinal FROM stage_settings WHERE action = w.action AND stage = to_stage);
	reached text := (SELECT s.stage FROM stage_settings s WHERE s.action = w.action AND s.ordinal = come_to);
BEGIN
	IF w.status IN ('Success', 'Cancelled') THEN
		reason := format('item %s has ended (%s): it cannot be changed', w.id, w.status);
		hint := have_again(w.id);
	ELSIF goes_to IS NULL AND to_stage = w.stage AND come_to IS NOT NULL THEN
		reason := format('item %s cannot be requeued to %s: that stage was removed', w.id, to_stage);
		hint := format('Name another stage: SELECT requeue(%s, %L);', w.id, reached);
	ELSIF goes_to IS NULL OR goes_to > come_to THEN
		reason := format('item %s cannot be requeued to %s: it has only come to %s', w.id, to_stage, w.stage);
		hint := format('Name the stage that it has reached, or an earlier one: SELECT requeue(%s, %L);', w.id, reached);
	ELSE
		reason := format('item %s cannot be requeued: ', w.id) || rival_of(w);
		hint := format('End this one: SELECT cancel(%s);', w.id);
	END IF;
END
$$;

DO $$
BEGIN
	EXECUTE replace(pg_get_functiondef('work_item_by_hand()'::regprocedure),
		'HINT = ''Upload the bag again to ingest it again.''', 'HINT = have_again(OLD.id)');
	EXECUTE replace(pg_get_functiondef('item_to_change(bigint)'::regprocedure),
		'HINT = ''Upload the bag again to ingest it again.''', 'HINT = have_again(item)');
	EXECUTE replace(pg_get_functiondef('why_not(bigint)'::regprocedure),
		'''None. To ingest the bag again, upload it again.''',
		'CASE WHEN w.action = ''Ingest'' THEN ''None. To ingest the bag again, upload it again.'''
		' WHEN w.status = ''Success'' THEN ''None: it was done.'' ELSE ''None. It can be asked for again.'' END');
END
$$;
-- +goose StatementEnd

REVOKE EXECUTE ON FUNCTION have_again, typed_in_shell FROM PUBLIC;
ALTER FUNCTION grant_administration(regrole) RENAME TO grant_before_advice;
-- +goose StatementBegin
CREATE FUNCTION grant_administration(to_role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	PERFORM grant_before_advice(to_role);
	EXECUTE format('GRANT EXECUTE ON FUNCTION have_again TO %s', to_role);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION grant_administration IS 'Gives a role the rights that farol_admin has. Only the owner of the schema can.';
COMMENT ON FUNCTION have_again IS 'How what an ended item was about is had again: an upload, or the command that asks for it.';
REVOKE EXECUTE ON FUNCTION grant_administration(regrole), grant_before_advice(regrole) FROM PUBLIC;
SELECT grant_roles();

-- +goose Down
DROP FUNCTION grant_administration(regrole);
ALTER FUNCTION grant_before_advice(regrole) RENAME TO grant_administration;
-- +goose StatementBegin
DO $$
BEGIN
	EXECUTE replace(pg_get_functiondef('work_item_by_hand()'::regprocedure),
		'HINT = have_again(OLD.id)', 'HINT = ''Upload the bag again to ingest it again.''');
	EXECUTE replace(pg_get_functiondef('item_to_change(bigint)'::regprocedure),
		'HINT = have_again(item)', 'HINT = ''Upload the bag again to ingest it again.''');
	EXECUTE replace(pg_get_functiondef('why_not(bigint)'::regprocedure),
		'CASE WHEN w.action = ''Ingest'' THEN ''None. To ingest the bag again, upload it again.'''
		' WHEN w.status = ''Success'' THEN ''None: it was done.'' ELSE ''None. It can be asked for again.'' END',
		'''None. To ingest the bag again, upload it again.''');
END
$$;
CREATE OR REPLACE FUNCTION requeue_refusal(w work_items, to_stage text, OUT reason text, OUT hint text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	come_to smallint := stage_place(w.action, w.stage);
	goes_to smallint := (SELECT ordinal FROM stage_settings WHERE action = w.action AND stage = to_stage);
BEGIN
	IF w.status IN ('Success', 'Cancelled') THEN
		reason := format('item %s has ended (%s): it cannot be changed', w.id, w.status);
		hint := 'Upload the bag again to ingest it again.';
	ELSIF goes_to IS NULL AND to_stage = w.stage AND come_to IS NOT NULL THEN
		reason := format('item %s cannot be requeued to %s: that stage was removed', w.id, to_stage);
		hint := format('Name another stage: SELECT requeue(%s, %L);', w.id,
			(SELECT s.stage FROM stage_settings s WHERE s.action = w.action AND s.ordinal = come_to));
	ELSIF goes_to IS NULL OR goes_to > come_to THEN
		reason := format('item %s cannot be requeued to %s: it has only come to %s', w.id, to_stage, w.stage);
		hint := 'Name the stage that it has reached, or an earlier one.';
	ELSE
		reason := format('item %s cannot be requeued: ', w.id) || rival_of(w);
		hint := format('End this one: SELECT cancel(%s);', w.id);
	END IF;
END
$$;
-- +goose StatementEnd
DROP FUNCTION have_again(bigint);
DROP FUNCTION typed_in_shell(text);
