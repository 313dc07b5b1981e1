-- Stages: their names, their order, adding and removing them.

-- An added stage after Store is late, too. The others need no query.
CREATE OR REPLACE FUNCTION is_late_stage(stage text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
	WHEN stage IN ('Store', 'Storage Validation', 'Record', 'Cleanup') THEN true
	WHEN stage IN ('Receive', 'Validate', 'Reingest Check', 'Copy To Staging', 'Format Identification') THEN false
	ELSE EXISTS (SELECT FROM stage_settings s JOIN stage_settings store ON store.action = s.action AND store.stage = 'Store'
		WHERE s.action = 'Ingest' AND s.stage = is_late_stage.stage AND s.ordinal > store.ordinal)
END;

-- stage_named returns the name of a stage, or raises an error that lists the stages of
-- one action, or of all.
CREATE OR REPLACE FUNCTION stage_named(typed text, of_action text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
	actions text[];
	stages  text[];
BEGIN
	IF EXISTS (SELECT FROM stage_settings s WHERE s.stage = typed AND (of_action IS NULL OR s.action = of_action)) THEN
		RETURN typed;
	END IF;
	actions := ARRAY(SELECT DISTINCT s.action FROM stage_settings s ORDER BY s.action);
	stages := ARRAY(SELECT s.stage FROM stage_settings s WHERE of_action IS NULL OR s.action = of_action
		GROUP BY s.stage ORDER BY min((s.action <> 'Ingest')::int * 100 + s.ordinal));
	IF of_action <> ALL (actions) THEN
		PERFORM no_such('action', of_action, actions);
	END IF;
	PERFORM no_such('stage', typed, stages, coalesce(' of ' || of_action, ''));
END
$$;

-- stage_place is the position of a stage among the stages of an action. A removed stage
-- has the position at which its items continue.
CREATE OR REPLACE FUNCTION stage_place(of_action text, of_stage text) RETURNS smallint
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	WITH RECURSIVE way AS (
		SELECT n.stage, n.followed_by FROM stage_names n WHERE n.stage = of_stage
		UNION
		SELECT n.stage, n.followed_by FROM way JOIN stage_names n ON n.stage = way.followed_by
	)
	SELECT s.ordinal FROM way JOIN stage_settings s ON s.action = of_action AND s.stage = way.stage
$$;

-- Writes what follows from the pauses of a stage, and each change to the audit, and notifies
-- workers.
CREATE OR REPLACE FUNCTION stage_settings_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF (OLD.action, OLD.stage) IS DISTINCT FROM (NEW.action, NEW.stage)
		OR OLD.ordinal <> NEW.ordinal AND current_setting('farol.adds_stage', true) IS DISTINCT FROM 'yes' THEN
		RAISE EXCEPTION 'stage % of % cannot be renamed or moved', OLD.stage, OLD.action
			USING ERRCODE = 'check_violation', HINT = 'Items and workers refer to it by its name.';
	END IF;
	SELECT * INTO NEW.paused, NEW.paused_by, NEW.paused_at, NEW.pause_reason, NEW.paused_in_nsq FROM pause_state(NEW.action, NEW.stage);
	IF NEW IS DISTINCT FROM OLD THEN
		INSERT INTO stage_settings_audit (action, stage, before, after) VALUES (OLD.action, OLD.stage, to_jsonb(OLD), to_jsonb(NEW));
	END IF;
	PERFORM pg_notify('farol_settings', '');
	PERFORM pg_notify('farol_work', E'\n' || NEW.stage);
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER stage_settings_changed BEFORE UPDATE ON stage_settings
	FOR EACH ROW EXECUTE FUNCTION stage_settings_changed();

CREATE OR REPLACE FUNCTION stage_settings_added() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	UPDATE stage_names SET followed_by = NULL WHERE stage = NEW.stage AND followed_by IS NOT NULL;
	INSERT INTO stage_settings_audit (action, stage, before, after) VALUES (NEW.action, NEW.stage, 'null', to_jsonb(NEW));
	INSERT INTO pauses (id, action, stage, paused_by, paused_at, reason, of_all)
	SELECT DISTINCT ON (p.id) p.id, NEW.action, NEW.stage, p.paused_by, p.paused_at, p.reason, true FROM pauses p WHERE p.of_all AND p.lifted_at IS NULL;
	IF FOUND THEN -- all stages are paused, so this one is
		UPDATE stage_settings SET paused_at = paused_at WHERE action = NEW.action AND stage = NEW.stage;
	END IF;
	PERFORM pg_notify('farol_settings', '');
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER stage_settings_added AFTER INSERT ON stage_settings FOR EACH ROW EXECUTE FUNCTION stage_settings_added();

CREATE OR REPLACE FUNCTION stage_settings_deleted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF EXISTS (SELECT FROM work_items WHERE action = OLD.action AND stage = OLD.stage AND status NOT IN ('Success', 'Cancelled')
			AND (retry OR OLD.worker = 'farol')) THEN
		RAISE EXCEPTION 'items are at the stage % of %: it cannot be deleted', OLD.stage, OLD.action
			USING ERRCODE = 'check_violation', HINT = format('To pause it: SELECT pause_stage(%L);', OLD.stage),
			CONSTRAINT = 'stage-kept', DATATYPE = json_object(ARRAY['stage', OLD.stage]::text[])::text;
	END IF;
	IF OLD.worker = 'http' THEN
		UPDATE stage_names SET followed_by = (
			SELECT s.stage FROM stage_settings s WHERE s.action = OLD.action AND s.ordinal > OLD.ordinal ORDER BY s.ordinal LIMIT 1)
		WHERE stage = OLD.stage;
	END IF;
	INSERT INTO stage_settings_audit (action, stage, before, after) VALUES (OLD.action, OLD.stage, to_jsonb(OLD), 'null');
	UPDATE pauses SET lifted_at = now(), lifted_by = acting_user() WHERE action = OLD.action AND stage = OLD.stage AND lifted_at IS NULL;
	PERFORM pg_notify('farol_settings', '');
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER stage_settings_deleted AFTER DELETE ON stage_settings
	FOR EACH ROW EXECUTE FUNCTION stage_settings_deleted();

CREATE OR REPLACE FUNCTION stage_names_by_hand() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	RAISE EXCEPTION 'only add_stage() and remove_stage() write stage_names'
		USING ERRCODE = 'check_violation', HINT = 'SELECT add_stage(''Virus Scan'', ''Validate''); adds a stage after another.',
		CONSTRAINT = 'stages-by-function';
END
$$;
CREATE OR REPLACE TRIGGER stage_names_by_hand BEFORE UPDATE OR DELETE ON stage_names
	FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION stage_names_by_hand();
CREATE OR REPLACE TRIGGER stage_names_truncated BEFORE TRUNCATE ON stage_names FOR EACH STATEMENT EXECUTE FUNCTION stage_names_by_hand();

CREATE OR REPLACE FUNCTION add_stage(stage text, after text, topic text DEFAULT NULL, max_attempts integer DEFAULT 3,
	lease interval DEFAULT '30 seconds', heartbeat interval DEFAULT NULL, processing_timeout interval DEFAULT NULL) RETURNS stage_settings
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
	behind stage_settings;
	other  text;
	goes_by text := coalesce(add_stage.topic, 'ingest_' || regexp_replace(lower(add_stage.stage), '[^a-z0-9]+', '_', 'g'));
	s      stage_settings;
BEGIN
	IF (add_stage.stage ~ '^[A-Z][A-Za-z0-9]*( [A-Za-z0-9]+)*$' AND length(add_stage.stage) <= 50) IS NOT TRUE THEN
		PERFORM refused(format('invalid stage name: %s', quote_nullable(add_stage.stage)),
			'Write 1 to 50 letters and digits, with single spaces between words, beginning with a capital.');
	END IF;
	LOCK TABLE stage_settings IN SHARE ROW EXCLUSIVE MODE; -- adding and removing stages wait for each other; claims continue
	other := (SELECT n.stage FROM stage_names n WHERE lower(n.stage) = lower(add_stage.stage));
	IF other <> add_stage.stage OR EXISTS (SELECT FROM stage_settings k WHERE k.stage = add_stage.stage)
		OR other IN ('Requested', 'Fetch', 'Unpack', 'Restoring', 'Package', 'Available in S3', 'Resolve') THEN
		PERFORM refused(format('there is a stage %s already', quote_literal(other)), 'Choose another name.');
	ELSIF lower(add_stage.stage) IN ('all', 'ingest', 'delete', 'restore file', 'restore object', 'glacier restore') THEN
		PERFORM refused(format('invalid stage name: %s', quote_literal(add_stage.stage)), 'It is the name of an action. Choose another name.');
	END IF;
	SELECT k.* INTO behind FROM stage_settings k WHERE k.action = 'Ingest' AND k.stage = stage_named(add_stage.after, 'Ingest');
	IF behind.ordinal = (SELECT max(k.ordinal) FROM stage_settings k WHERE k.action = 'Ingest') THEN
		PERFORM refused(format('no stage can come after %s, the last stage of an ingest', behind.stage), 'Name an earlier one.');
	END IF;
	other := (SELECT k.action || ', ' || k.stage FROM stage_settings k WHERE k.topic = goes_by LIMIT 1);
	IF other IS NOT NULL THEN
		PERFORM refused(format('the topic %s is that of %s', quote_literal(goes_by), other), 'Name another topic.');
	ELSIF is_pipeline_topic(goes_by) OR EXISTS (SELECT FROM queues q WHERE q.name = goes_by) THEN
		PERFORM refused(format('%s is %s', quote_literal(goes_by), CASE WHEN is_pipeline_topic(goes_by) THEN 'the topic of fixity checks' ELSE 'a queue that people post to' END),
			'Name another topic.');
	ELSIF (goes_by ~ '^[A-Za-z0-9._-]{1,64}$') IS NOT TRUE THEN
		PERFORM refused(format('NSQ has no topic %s', quote_nullable(goes_by)), 'Write 1 to 64 letters, digits, dots, underscores and hyphens.');
	END IF;
	INSERT INTO stage_names (stage) VALUES (add_stage.stage) ON CONFLICT DO NOTHING;
	PERFORM set_config('farol.adds_stage', 'yes', true);
	UPDATE stage_settings SET ordinal = ordinal + 1 WHERE action = 'Ingest' AND ordinal > behind.ordinal;
	PERFORM set_config('farol.adds_stage', '', true);
	INSERT INTO stage_settings (action, stage, ordinal, topic, worker, max_attempts, lease, heartbeat, processing_timeout, unrenewed_timeout, unrenewed_lease)
	VALUES ('Ingest', add_stage.stage, behind.ordinal + 1, goes_by, 'http', add_stage.max_attempts, add_stage.lease,
		coalesce(add_stage.heartbeat, least(interval '10 seconds', add_stage.lease / 3)), add_stage.processing_timeout, '15 minutes', '45 minutes')
	RETURNING * INTO s;
	SELECT * INTO s FROM stage_settings k WHERE k.action = s.action AND k.stage = s.stage; -- it may be paused with all others
	RETURN s;
END
$$;
COMMENT ON FUNCTION add_stage IS
	'Adds a stage to the order of an ingest, after another. Programs process it over HTTP; workers learn of it within seconds.';

CREATE OR REPLACE FUNCTION remove_stage(stage text) RETURNS stage_settings
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
	s    stage_settings;
	live bigint;
BEGIN
	LOCK TABLE stage_settings IN SHARE ROW EXCLUSIVE MODE;
	SELECT k.* INTO s FROM stage_settings k WHERE k.stage = stage_named(remove_stage.stage) LIMIT 1;
	IF s.worker = 'farol' THEN
		RAISE EXCEPTION 'the stage % is Farol''s own: it cannot be removed', s.stage
			USING ERRCODE = 'check_violation', HINT = format('To pause it: SELECT pause_stage(%L);', s.stage),
			CONSTRAINT = 'stage-kept', DATATYPE = json_object(ARRAY['stage', s.stage]::text[])::text;
	END IF;
	live := (SELECT count(*) FROM work_items w WHERE w.action = s.action AND w.stage = s.stage AND w.status IN ('Pending', 'Started'));
	IF live > 0 THEN
		PERFORM refused(format('%s at the stage %s: it cannot be removed', CASE live WHEN 1 THEN '1 item is' ELSE live || ' items are' END, s.stage),
			'Let workers finish them, or requeue them to an earlier stage while it is paused.');
	END IF;
	DELETE FROM stage_settings k WHERE k.action = s.action AND k.stage = s.stage;
	RETURN s;
END
$$;
COMMENT ON FUNCTION remove_stage IS
	'Removes an added stage from the order, if no live item is at it. Items that are suspended at it can be requeued to another stage.';

-- move_stranded moves items on that a worker moved to a stage just after it was removed,
-- before the worker was notified. It returns how many.
CREATE OR REPLACE FUNCTION move_stranded() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	w     work_items;
	goes  stage_settings;
	m     work_item_move;
	moved bigint := 0;
BEGIN
	FOR w IN -- by work_items_ready and work_items_lease
		SELECT i.* FROM stage_names n JOIN work_items i ON i.stage = n.stage
			AND (i.status = 'Pending' AND i.retry OR i.status = 'Started')
		WHERE n.followed_by IS NOT NULL
		ORDER BY i.id LIMIT 1000
		FOR UPDATE OF i SKIP LOCKED
	LOOP
		SELECT * INTO goes FROM stage_settings s WHERE s.action = w.action AND s.ordinal = stage_place(w.action, w.stage);
		CONTINUE WHEN NOT FOUND;
		m := unchanged(w);
		m.stage := goes.stage;
		m.attempt := 0;
		m.note := format('The stage %s was removed.', w.stage);
		m.code := '';
		m.topic := goes.topic;
		IF w.status = 'Started' THEN
			m.ended := 'cancelled';
			m.end_code := 'stage-removed';
			m.error := m.note;
		END IF;
		PERFORM move_items(ARRAY[m]);
		moved := moved + 1;
	END LOOP;
	RETURN moved;
END
$$;

REVOKE EXECUTE ON FUNCTION stage_settings_changed, stage_settings_added, stage_settings_deleted,
	stage_names_by_hand, add_stage, remove_stage, move_stranded FROM PUBLIC;
