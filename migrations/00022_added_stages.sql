-- Stages that are put into the order of an ingest while it runs, and are worked by
-- programs of any kind over HTTP.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- Every name that a stage ever had. A row stays when its stage is removed: the
-- ledger and items that have ended name it. stage is no work_stage, whose check
-- reads this table.
CREATE TABLE stage_names (
	stage       text COLLATE "C" PRIMARY KEY,
	followed_by text COLLATE "C" REFERENCES stage_names -- of a stage that was removed: where its items go on
);
INSERT INTO stage_names (stage) SELECT unnest('{Receive,Validate,Reingest Check,Copy To Staging,Format Identification,Store,Storage Validation,
	Record,Cleanup,Requested,Fetch,Unpack,Restoring,Package,Available in S3,Resolve}'::text[]);
CREATE UNIQUE INDEX stage_names_alike ON stage_names (lower(stage)); -- names that differ by case only would be mistaken for each other
COMMENT ON TABLE stage_names IS 'Every name that a stage has or had. A stage that was removed names the one that its items go on to.';

-- is_stage_name tells whether somebody has added a stage of this name, or says
-- what the stages are. While the table is empty a dump is being restored, in
-- whatever order, and all that is in it was checked when it was written.
-- +goose StatementBegin
CREATE FUNCTION is_stage_name(typed text) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF EXISTS (SELECT FROM stage_names n WHERE n.stage = typed) OR NOT EXISTS (SELECT FROM stage_names) THEN
		RETURN true;
	END IF;
	RETURN no_such('stage', typed,
		ARRAY(SELECT s.stage::text FROM stage_settings s WHERE s.action = 'Ingest' ORDER BY s.ordinal)
			|| '{Requested,Fetch,Unpack,Restoring,Package,Available in S3,Resolve}'::text[]);
END
$$;
-- +goose StatementEnd

-- What is there has been checked, so it is not read again.
ALTER DOMAIN work_stage DROP CONSTRAINT work_stage_check;
ALTER DOMAIN work_stage ADD CONSTRAINT work_stage_check
	CHECK (VALUE IN ('Receive', 'Validate', 'Reingest Check', 'Copy To Staging', 'Format Identification', 'Store', 'Storage Validation',
			'Record', 'Cleanup', 'Requested', 'Fetch', 'Unpack', 'Restoring', 'Package', 'Available in S3', 'Resolve')
		OR is_stage_name(VALUE)) NOT VALID;

ALTER TABLE stage_settings
	ADD COLUMN worker text NOT NULL DEFAULT 'farol' CHECK (worker IN ('farol', 'http')),
	ADD CONSTRAINT farol_works_its_own_stages CHECK ((worker = 'farol') = (stage IN ('Receive', 'Validate', 'Reingest Check',
		'Copy To Staging', 'Format Identification', 'Store', 'Storage Validation', 'Record', 'Cleanup', 'Requested')));
COMMENT ON COLUMN stage_settings.worker IS 'Who works the stage: farol work, or programs that ask over HTTP.';

-- An added stage behind Store is late, too. The others cost no look.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION is_late_stage(stage text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE
	WHEN stage IN ('Store', 'Storage Validation', 'Record', 'Cleanup') THEN true
	WHEN stage IN ('Receive', 'Validate', 'Reingest Check', 'Copy To Staging', 'Format Identification') THEN false
	ELSE EXISTS (SELECT FROM stage_settings s JOIN stage_settings store ON store.action = s.action AND store.stage = 'Store'
		WHERE s.action = 'Ingest' AND s.stage = is_late_stage.stage AND s.ordinal > store.ordinal)
END;
-- +goose StatementEnd

-- stage_place is where a stage stands in the order of an action. One that was
-- removed stands where its items go on.
-- +goose StatementBegin
CREATE FUNCTION stage_place(of_action text, of_stage text) RETURNS smallint
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	WITH RECURSIVE way AS (
		SELECT n.stage, n.followed_by FROM stage_names n WHERE n.stage = of_stage
		UNION
		SELECT n.stage, n.followed_by FROM way JOIN stage_names n ON n.stage = way.followed_by
	)
	SELECT s.ordinal FROM way JOIN stage_settings s ON s.action = of_action AND s.stage = way.stage
$$;
-- +goose StatementEnd

-- As in 00004, but that an item may be parked at a stage that was removed.
-- +goose StatementBegin
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

-- As in 00006, but that adding a stage moves those behind it on.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION stage_settings_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF (OLD.action, OLD.stage) IS DISTINCT FROM (NEW.action, NEW.stage)
		OR OLD.ordinal <> NEW.ordinal AND current_setting('farol.adds_stage', true) IS DISTINCT FROM 'yes' THEN
		RAISE EXCEPTION 'the stage % of % has its name and its place for good', OLD.stage, OLD.action
			USING ERRCODE = 'check_violation', HINT = 'Items are at it, and workers know it by its name.';
	END IF;
	NEW.paused_at := CASE WHEN NEW.paused THEN coalesce(OLD.paused_at, now()) END;
	NEW.paused_by := CASE WHEN NEW.paused THEN coalesce(OLD.paused_by, session_user) END;
	IF NOT NEW.paused THEN
		NEW.pause_reason := NULL;
	END IF;
	IF NEW IS DISTINCT FROM OLD THEN
		INSERT INTO stage_settings_audit (action, stage, before, after) VALUES (OLD.action, OLD.stage, to_jsonb(OLD), to_jsonb(NEW));
	END IF;
	PERFORM pg_notify('farol_settings', '');
	PERFORM pg_notify('farol_work', E'\n' || NEW.stage);
	RETURN NEW;
END
$$;

CREATE FUNCTION stage_settings_added() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	UPDATE stage_names SET followed_by = NULL WHERE stage = NEW.stage AND followed_by IS NOT NULL;
	INSERT INTO stage_settings_audit (action, stage, before, after) VALUES (NEW.action, NEW.stage, 'null', to_jsonb(NEW));
	PERFORM pg_notify('farol_settings', '');
	RETURN NULL;
END
$$;

-- As in 00006. Items that are parked at a stage that was added may stay there when
-- it goes: a person can requeue them to where its items go on.
CREATE OR REPLACE FUNCTION stage_settings_deleted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF EXISTS (SELECT FROM work_items WHERE action = OLD.action AND stage = OLD.stage AND status NOT IN ('Success', 'Cancelled')
			AND (retry OR OLD.worker = 'farol')) THEN
		RAISE EXCEPTION 'items are at the stage % of %: it cannot be deleted', OLD.stage, OLD.action
			USING ERRCODE = 'check_violation', HINT = format('To hold it up: SELECT pause_stage(%L);', OLD.stage);
	END IF;
	IF OLD.worker = 'http' THEN
		UPDATE stage_names SET followed_by = (
			SELECT s.stage FROM stage_settings s WHERE s.action = OLD.action AND s.ordinal > OLD.ordinal ORDER BY s.ordinal LIMIT 1)
		WHERE stage = OLD.stage;
	END IF;
	INSERT INTO stage_settings_audit (action, stage, before, after) VALUES (OLD.action, OLD.stage, to_jsonb(OLD), 'null');
	PERFORM pg_notify('farol_settings', '');
	RETURN NULL;
END
$$;

CREATE FUNCTION stage_names_by_hand() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	RAISE EXCEPTION 'stage_names is written by add_stage() and remove_stage() alone'
		USING ERRCODE = 'check_violation', HINT = 'SELECT add_stage(''Virus Scan'', ''Validate''); adds a stage behind another.';
END
$$;
-- +goose StatementEnd
CREATE TRIGGER stage_settings_added AFTER INSERT ON stage_settings FOR EACH ROW EXECUTE FUNCTION stage_settings_added();
CREATE TRIGGER stage_names_by_hand BEFORE UPDATE OR DELETE ON stage_names
	FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION stage_names_by_hand();
CREATE TRIGGER stage_names_truncated BEFORE TRUNCATE ON stage_names FOR EACH STATEMENT EXECUTE FUNCTION stage_names_by_hand();

-- move_stranded lets items go on that were moved to a stage at the moment at which
-- it was removed, by a worker that had not heard of it yet. It returns how many.
-- +goose StatementBegin
CREATE FUNCTION move_stranded() RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	w     work_items;
	goes  stage_settings;
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
		UPDATE work_item_attempts SET ended_at = clock_timestamp(), outcome = 'cancelled', error_code = 'stage-removed',
			error = format('The stage %s was removed.', w.stage)
		WHERE work_item_id = w.id AND claim_token = w.claim_token AND ended_at IS NULL;
		UPDATE work_items SET
			stage = goes.stage, status = 'Pending', claim_token = claim_token + 1, entered_token = claim_token + 1, attempt = 0,
			lease_expires_at = NULL, node = NULL, pid = NULL, worker = NULL, error_code = '', updated_at = now(),
			note = format('The stage %s was removed.', w.stage)
		WHERE id = w.id;
		INSERT INTO topic_messages (topic, body, work_item_id) VALUES (goes.topic, w.id::text, w.id);
		PERFORM pg_notify('farol_work', E'\n' || goes.stage);
		moved := moved + 1;
	END LOOP;
	RETURN moved;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION add_stage(stage text, after text, topic text DEFAULT NULL, max_attempts integer DEFAULT 3,
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
		PERFORM refused(format('no stage can be called %s', quote_nullable(add_stage.stage)),
			'Write 1 to 50 letters and digits, with single spaces between words, beginning with a capital.');
	END IF;
	LOCK TABLE stage_settings IN SHARE ROW EXCLUSIVE MODE; -- who adds or removes stages takes turns; claims go on
	other := (SELECT n.stage FROM stage_names n WHERE lower(n.stage) = lower(add_stage.stage));
	IF other <> add_stage.stage OR EXISTS (SELECT FROM stage_settings k WHERE k.stage = add_stage.stage)
		OR other IN ('Requested', 'Fetch', 'Unpack', 'Restoring', 'Package', 'Available in S3', 'Resolve') THEN
		PERFORM refused(format('there is a stage %s already', quote_literal(other)), 'Choose another name.');
	ELSIF lower(add_stage.stage) IN ('all', 'ingest', 'delete', 'restore file', 'restore object', 'glacier restore') THEN
		PERFORM refused(format('no stage can be called %s', quote_literal(add_stage.stage)), 'That is what an action is called. Choose another name.');
	END IF;
	SELECT k.* INTO behind FROM stage_settings k WHERE k.action = 'Ingest' AND k.stage = stage_named(add_stage.after, 'Ingest');
	IF behind.ordinal = (SELECT max(k.ordinal) FROM stage_settings k WHERE k.action = 'Ingest') THEN
		PERFORM refused(format('no stage can come after %s, with which an ingest ends', behind.stage), 'Name an earlier one.');
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
	RETURN s;
END
$$;
COMMENT ON FUNCTION add_stage IS
	'Puts a stage into the order of an ingest, behind another. Programs work it over HTTP; workers hear of it within seconds.';

CREATE FUNCTION remove_stage(stage text) RETURNS stage_settings
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
	s    stage_settings;
	live bigint;
BEGIN
	LOCK TABLE stage_settings IN SHARE ROW EXCLUSIVE MODE;
	SELECT k.* INTO s FROM stage_settings k WHERE k.stage = stage_named(remove_stage.stage) LIMIT 1;
	IF s.worker = 'farol' THEN
		PERFORM refused(format('the stage %s is Farol''s own: it cannot be removed', s.stage), format('To hold it up: SELECT pause_stage(%L);', s.stage));
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
	'Takes an added stage out of the order again, if no live item is at it. Items that are parked at it can be requeued to another.';
-- +goose StatementEnd

-- As in 00017, but that no worker of Farol's takes a stage that others work.
ALTER FUNCTION why_no_worker(work_items) RENAME TO why_no_farol_worker;
-- +goose StatementBegin
CREATE FUNCTION why_no_worker(w work_items) RETURNS TABLE (reason text, detail text, remedy text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT k.* FROM why_no_farol_worker(w) k
	WHERE NOT EXISTS (SELECT FROM stage_settings s WHERE s.action = w.action AND s.stage = w.stage AND s.worker = 'http')
	UNION ALL
	SELECT 'http worker', format('It waits for an HTTP worker of %s%s.', w.stage,
			coalesce('; at work there: ' || (SELECT string_agg(DISTINCT r.worker, ', ') FROM work_items r WHERE r.status = 'Started' AND r.stage = w.stage), '')),
		format('Start one that asks for %L: docs/workers.md. SELECT * FROM running; says what those have that work.', w.stage)
	FROM stage_settings s WHERE s.action = w.action AND s.stage = w.stage AND s.worker = 'http'
$$;
-- +goose StatementEnd

-- As in 00007, with who works the stage: an autoscaler of farol work counts none of
-- the others.
CREATE OR REPLACE VIEW queue_depth AS
SELECT q.action, q.stage, q.size_band, s.paused,
	count(*) FILTER (WHERE q.run_at <= now())                            AS due,
	count(*) FILTER (WHERE q.run_at > now() AND q.run_at < 'infinity')   AS delayed,
	count(*) FILTER (WHERE q.run_at = 'infinity')                        AS waiting,
	count(*) FILTER (WHERE q.run_at IS NULL)                             AS running,
	count(*) FILTER (WHERE q.run_at <= now() OR q.run_at IS NULL)        AS in_flight,
	now() - min(q.run_at) FILTER (WHERE q.run_at <= now())               AS oldest_due,
	sum(q.size)::bigint                                                  AS bytes,
	s.worker
FROM ( -- each by its index
	SELECT action, stage, size_band, size, run_at FROM work_items WHERE status = 'Pending' AND retry
	UNION ALL
	SELECT action, stage, size_band, size, NULL FROM work_items WHERE status = 'Started'
) q
JOIN stage_settings s ON s.action = q.action AND s.stage = q.stage
GROUP BY q.action, q.stage, q.size_band, s.paused, s.worker;

INSERT INTO administration_rights (privilege, on_table) VALUES ('SELECT', 'stage_names');
ALTER FUNCTION grant_administration(regrole) RENAME TO grant_before_stages;
-- +goose StatementBegin
CREATE FUNCTION grant_administration(to_role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	PERFORM grant_before_stages(to_role);
	EXECUTE format('GRANT EXECUTE ON FUNCTION add_stage, remove_stage TO %s', to_role);
END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION grant_administration IS 'Gives a role the rights that farol_admin has. Only the owner of the schema can.';
REVOKE EXECUTE ON FUNCTION add_stage, remove_stage, move_stranded, grant_administration FROM PUBLIC;
SELECT grant_to_administrators();

-- +goose Down
-- +goose StatementBegin
DO $$
BEGIN
	IF EXISTS (SELECT FROM stage_settings WHERE worker = 'http') THEN
		RAISE EXCEPTION 'stages were added: %', (SELECT string_agg(stage, ', ') FROM stage_settings WHERE worker = 'http')
			USING HINT = 'Remove them first: farol stage remove.';
	END IF;
	IF EXISTS (SELECT FROM all_work_items w JOIN stage_names n ON n.stage = w.stage WHERE n.followed_by IS NOT NULL) THEN
		RAISE EXCEPTION 'items have ended at stages that were added and removed: the older version could not read them'
			USING HINT = 'Requeue or cancel those that are parked; of those that have ended for good there is no way back.';
	END IF;
END
$$;
-- +goose StatementEnd
DROP FUNCTION grant_administration(regrole);
ALTER FUNCTION grant_before_stages(regrole) RENAME TO grant_administration;
DELETE FROM administration_rights WHERE on_table = 'stage_names';
DROP FUNCTION why_no_worker(work_items);
ALTER FUNCTION why_no_farol_worker(work_items) RENAME TO why_no_worker;
DROP FUNCTION remove_stage(text);
DROP FUNCTION add_stage(text, text, text, integer, interval, interval, interval);
DROP FUNCTION move_stranded();
DROP TRIGGER stage_settings_added ON stage_settings;
DROP FUNCTION stage_settings_added();
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION stage_settings_deleted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF EXISTS (SELECT FROM work_items WHERE action = OLD.action AND stage = OLD.stage AND status NOT IN ('Success', 'Cancelled')) THEN
		RAISE EXCEPTION 'items are at the stage % of %: it cannot be deleted', OLD.stage, OLD.action
			USING ERRCODE = 'check_violation', HINT = format('To hold it up: SELECT pause_stage(%L);', OLD.stage);
	END IF;
	RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION stage_settings_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF (OLD.action, OLD.stage, OLD.ordinal) IS DISTINCT FROM (NEW.action, NEW.stage, NEW.ordinal) THEN
		RAISE EXCEPTION 'the stage % of % has its name and its place for good', OLD.stage, OLD.action
			USING ERRCODE = 'check_violation', HINT = 'Items are at it, and workers know it by its name.';
	END IF;
	NEW.paused_at := CASE WHEN NEW.paused THEN coalesce(OLD.paused_at, now()) END;
	NEW.paused_by := CASE WHEN NEW.paused THEN coalesce(OLD.paused_by, session_user) END;
	IF NOT NEW.paused THEN
		NEW.pause_reason := NULL;
	END IF;
	IF NEW IS DISTINCT FROM OLD THEN
		INSERT INTO stage_settings_audit (action, stage, before, after) VALUES (OLD.action, OLD.stage, to_jsonb(OLD), to_jsonb(NEW));
	END IF;
	PERFORM pg_notify('farol_settings', '');
	PERFORM pg_notify('farol_work', E'\n' || NEW.stage);
	RETURN NEW;
END
$$;

CREATE OR REPLACE FUNCTION requeue_refusal(w work_items, to_stage text, OUT reason text, OUT hint text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	come_to smallint := (SELECT ordinal FROM stage_settings WHERE action = w.action AND stage = w.stage);
	goes_to smallint := (SELECT ordinal FROM stage_settings WHERE action = w.action AND stage = to_stage);
BEGIN
	IF w.status IN ('Success', 'Cancelled') THEN
		reason := format('item %s has ended (%s): it cannot be changed', w.id, w.status);
		hint := 'Upload the bag again to ingest it again.';
	ELSIF goes_to IS NULL OR goes_to > come_to THEN
		reason := format('item %s cannot be requeued to %s: it has only come to %s', w.id, to_stage, w.stage);
		hint := 'Name the stage that it has reached, or an earlier one.';
	ELSE
		reason := format('item %s cannot be requeued: ', w.id) || rival_of(w);
		hint := format('End this one: SELECT cancel(%s);', w.id);
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION is_late_stage(stage text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN stage IN ('Store', 'Storage Validation', 'Record', 'Cleanup');
-- +goose StatementEnd
DROP FUNCTION stage_place(text, text);
-- The places of the stages are as they were before any was added.
ALTER TABLE stage_settings DISABLE TRIGGER stage_settings_changed;
UPDATE stage_settings s SET ordinal = p.place FROM (
	SELECT action, stage, row_number() OVER (PARTITION BY action ORDER BY ordinal) AS place FROM stage_settings) p
WHERE p.action = s.action AND p.stage = s.stage AND p.place <> s.ordinal;
ALTER TABLE stage_settings ENABLE TRIGGER stage_settings_changed;
DROP VIEW queue_depth;
CREATE VIEW queue_depth AS
SELECT q.action, q.stage, q.size_band, s.paused,
	count(*) FILTER (WHERE q.run_at <= now())                            AS due,
	count(*) FILTER (WHERE q.run_at > now() AND q.run_at < 'infinity')   AS delayed,
	count(*) FILTER (WHERE q.run_at = 'infinity')                        AS waiting,
	count(*) FILTER (WHERE q.run_at IS NULL)                             AS running,
	count(*) FILTER (WHERE q.run_at <= now() OR q.run_at IS NULL)        AS in_flight,
	now() - min(q.run_at) FILTER (WHERE q.run_at <= now())               AS oldest_due,
	sum(q.size)::bigint                                                  AS bytes
FROM ( -- each by its index
	SELECT action, stage, size_band, size, run_at FROM work_items WHERE status = 'Pending' AND retry
	UNION ALL
	SELECT action, stage, size_band, size, NULL FROM work_items WHERE status = 'Started'
) q
JOIN stage_settings s ON s.action = q.action AND s.stage = q.stage
GROUP BY q.action, q.stage, q.size_band, s.paused;
COMMENT ON VIEW queue_depth IS 'How many items wait and run at each stage in each size band; in_flight is for autoscalers.';
ALTER TABLE stage_settings DROP CONSTRAINT farol_works_its_own_stages, DROP COLUMN worker;
ALTER DOMAIN work_stage DROP CONSTRAINT work_stage_check;
ALTER DOMAIN work_stage ADD CONSTRAINT work_stage_check
	CHECK (VALUE IN ('Receive', 'Validate', 'Reingest Check', 'Copy To Staging', 'Format Identification', 'Store', 'Storage Validation',
			'Record', 'Cleanup', 'Requested', 'Fetch', 'Unpack', 'Restoring', 'Package', 'Available in S3', 'Resolve')
		OR no_such('stage', VALUE, '{Receive,Validate,Reingest Check,Copy To Staging,Format Identification,Store,Storage Validation,'
			'Record,Cleanup,Requested,Fetch,Unpack,Restoring,Package,Available in S3,Resolve}')) NOT VALID;
DROP FUNCTION is_stage_name(text);
DROP TABLE stage_names;
DROP FUNCTION stage_names_by_hand();
SELECT grant_to_administrators();
