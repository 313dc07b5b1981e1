-- NSQ has no credential: who reaches nsqd or nsqadmin may be a web page in a person's
-- browser. A pause is therefore known by where it came from, and NSQ ends only its own.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

ALTER TABLE stage_settings
	ADD COLUMN paused_in_nsq boolean NOT NULL DEFAULT false; -- the pause came from NSQ, and no person has paused it in Farol since
COMMENT ON COLUMN stage_settings.paused_in_nsq IS 'The pause came from NSQ, which may end it; one that was made in Farol ends in Farol.';
ALTER TABLE stage_settings DISABLE TRIGGER stage_settings_changed;
UPDATE stage_settings s SET paused_in_nsq = true
WHERE s.paused AND 'nsq' = (SELECT a.application_name FROM stage_settings_audit a
	WHERE a.action = s.action AND a.stage = s.stage AND a.before->>'paused' IS DISTINCT FROM a.after->>'paused' ORDER BY a.id DESC LIMIT 1);
ALTER TABLE stage_settings ENABLE TRIGGER stage_settings_changed;

-- Whoever writes paused in any other way than pause_from_nsq() makes the pause a
-- person's, also one that NSQ has made before. It goes before stage_settings_changed,
-- by its name.
-- +goose StatementBegin
CREATE FUNCTION pause_has_an_origin() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	NEW.paused_in_nsq := NEW.paused AND (OLD.paused_in_nsq OR NOT OLD.paused)
		AND current_setting('farol.pauses_from_nsq', true) IS NOT DISTINCT FROM 'yes';
	IF OLD.paused_in_nsq AND NEW.paused AND NOT NEW.paused_in_nsq AND NEW.pause_reason IS NOT DISTINCT FROM OLD.pause_reason THEN
		NEW.pause_reason := NULL; -- it was NSQ's
	END IF;
	RETURN NEW;
END
$$;

-- As in 00022, but that a pause which a person takes over from NSQ is the person's.
CREATE OR REPLACE FUNCTION stage_settings_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	keeps boolean := OLD.paused AND OLD.paused_in_nsq = NEW.paused_in_nsq;
BEGIN
	IF (OLD.action, OLD.stage) IS DISTINCT FROM (NEW.action, NEW.stage)
		OR OLD.ordinal <> NEW.ordinal AND current_setting('farol.adds_stage', true) IS DISTINCT FROM 'yes' THEN
		RAISE EXCEPTION 'the stage % of % has its name and its place for good', OLD.stage, OLD.action
			USING ERRCODE = 'check_violation', HINT = 'Items are at it, and workers know it by its name.';
	END IF;
	NEW.paused_at := CASE WHEN NEW.paused THEN CASE WHEN keeps THEN coalesce(OLD.paused_at, now()) ELSE now() END END;
	NEW.paused_by := CASE WHEN NEW.paused THEN CASE WHEN keeps THEN coalesce(OLD.paused_by, session_user) ELSE session_user END END;
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
-- +goose StatementEnd
CREATE TRIGGER pause_has_an_origin BEFORE UPDATE OF paused ON stage_settings FOR EACH ROW EXECUTE FUNCTION pause_has_an_origin();

-- stage_pauses is what can be paused, by its topic.
CREATE VIEW stage_pauses AS
SELECT s.topic, s.action::text, s.stage::text, s.paused, s.paused_by, s.paused_at, s.pause_reason, s.paused_in_nsq FROM stage_settings s;
COMMENT ON VIEW stage_pauses IS 'What can be paused, whether it is, and by whom.';

-- pause_from_nsq carries an order from NSQ out, and answers it. An unpause ends what
-- NSQ has paused; with allowed = false nothing is changed. An order that is given
-- again, by its id, is answered again and put on record once. still_paused is what
-- the topic is to be in nsqd.
-- +goose StatementBegin
CREATE FUNCTION pause_from_nsq(of_topic text, order_id text, yes boolean, allowed boolean,
	OUT accepted boolean, OUT answer text, OUT still_paused boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	p       stage_pauses;
	changed text[] := '{}';
	kept    text[] := '{}';
BEGIN
	PERFORM set_config('farol.pauses_from_nsq', 'yes', true);
	FOR p IN SELECT * FROM stage_pauses s WHERE s.topic = of_topic AND s.paused <> yes ORDER BY s.action, s.stage LOOP
		IF NOT allowed THEN
			EXIT;
		ELSIF yes OR p.paused_in_nsq THEN
			PERFORM set_paused(p.action, p.stage, yes, CASE WHEN yes THEN 'paused in NSQ' END);
			changed := changed || format('%s of %s', p.stage, p.action);
		ELSE
			kept := kept || format('%s of %s was paused in Farol, by %s since %s%s, and stays so: farol resume %L', p.stage, p.action,
				p.paused_by, date_trunc('second', p.paused_at), coalesce(': ' || rtrim(p.pause_reason, '.')), p.stage);
		END IF;
	END LOOP;
	PERFORM set_config('farol.pauses_from_nsq', '', true);
	SELECT coalesce(bool_and(s.paused), false) INTO still_paused FROM stage_pauses s WHERE s.topic = of_topic;
	accepted := allowed AND (cardinality(changed) > 0 OR cardinality(kept) = 0);
	answer := CASE
		WHEN NOT allowed THEN 'orders from NSQ are off (FAROL_NSQ_ORDERS): nothing was changed'
		WHEN cardinality(changed) + cardinality(kept) = 0 THEN 'it was so already'
		ELSE concat_ws('; ', array_to_string(changed, ', ') || CASE WHEN cardinality(changed) = 0 THEN NULL WHEN yes THEN ' is paused' ELSE ' goes on' END,
			nullif(array_to_string(kept, '; '), ''))
	END;
	INSERT INTO topic_requests (topic, message, body, accepted, answer)
	VALUES (of_topic, order_id, CASE WHEN yes THEN 'pause' ELSE 'unpause' END, accepted, answer)
	ON CONFLICT (topic, message) DO NOTHING;
END
$$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION pause_from_nsq(text, text, boolean, boolean), pause_has_an_origin() FROM PUBLIC;
COMMENT ON TABLE topic_requests IS 'Orders that came by NSQ, and what became of each: what others published on the pipeline''s topics, '
	'pauses, and topics that were emptied.';
INSERT INTO administration_rights (privilege, on_table) VALUES ('SELECT', 'stage_pauses');
SELECT grant_to_administrators();

-- +goose Down
COMMENT ON TABLE topic_requests IS 'What others have published on the pipeline''s topics, which asks for a requeue or a fixity check, and what became of it.';
DELETE FROM administration_rights WHERE on_table = 'stage_pauses';
DROP FUNCTION pause_from_nsq(text, text, boolean, boolean);
DROP VIEW stage_pauses;
DROP TRIGGER pause_has_an_origin ON stage_settings;
DROP FUNCTION pause_has_an_origin();
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
-- +goose StatementEnd
ALTER TABLE stage_settings DROP COLUMN paused_in_nsq;
