-- Pausing stages and fixity checks.

-- stage_pauses is what can be paused, by its topic.
CREATE OR REPLACE VIEW stage_pauses AS
SELECT s.topic, s.action::text, s.stage::text, s.paused, s.paused_by, s.paused_at, s.pause_reason, s.paused_in_nsq FROM stage_settings s
UNION ALL
SELECT 'fixity_check', 'Fixity Check', 'Fixity Check', f.paused, f.paused_by, f.paused_at, f.pause_reason, f.paused_in_nsq FROM fixity_feed f;
COMMENT ON VIEW stage_pauses IS
	'What can be paused, whether it is, and by whom.';

-- Any other write of paused than by pause_from_nsq() makes the pause a person's, also one
-- that NSQ made before. Its name makes it fire before stage_settings_changed.
CREATE OR REPLACE FUNCTION pause_has_an_origin() RETURNS trigger
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
CREATE OR REPLACE TRIGGER pause_has_an_origin BEFORE UPDATE OF paused ON stage_settings FOR EACH ROW EXECUTE FUNCTION pause_has_an_origin();
CREATE OR REPLACE TRIGGER a_pause_has_an_origin BEFORE UPDATE OF paused ON fixity_feed -- its name makes it fire first
	FOR EACH ROW EXECUTE FUNCTION pause_has_an_origin();

-- As stage_settings_changed does for a stage.
CREATE OR REPLACE FUNCTION fixity_pause_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	keeps boolean := OLD.paused AND OLD.paused_in_nsq = NEW.paused_in_nsq;
BEGIN
	NEW.paused_at := CASE WHEN NEW.paused THEN CASE WHEN keeps THEN coalesce(OLD.paused_at, now()) ELSE now() END END;
	NEW.paused_by := CASE WHEN NEW.paused THEN CASE WHEN keeps THEN coalesce(OLD.paused_by, acting_user()) ELSE acting_user() END END;
	IF NOT NEW.paused THEN
		NEW.pause_reason := NULL;
	END IF;
	IF NEW IS DISTINCT FROM OLD THEN
		INSERT INTO stage_settings_audit (action, stage, before, after) VALUES ('Fixity Check', 'Fixity Check', to_jsonb(OLD), to_jsonb(NEW));
	END IF;
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER fixity_pause_changed BEFORE UPDATE OF paused, pause_reason ON fixity_feed FOR EACH ROW EXECUTE FUNCTION fixity_pause_changed();

-- set_paused pauses or resumes what is named; NULL names all of them.
CREATE OR REPLACE FUNCTION set_paused(of_action text, of_stage text, yes boolean, reason text) RETURNS SETOF stage_pause
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	RETURN QUERY
	UPDATE stage_settings s SET paused = yes, pause_reason = CASE WHEN yes THEN coalesce(reason, s.pause_reason) END
	WHERE (of_action IS NULL OR s.action = of_action) AND (of_stage IS NULL OR s.stage = of_stage)
	RETURNING s.action::text, s.stage::text, s.paused, s.paused_by, s.paused_at, s.pause_reason;
	RETURN QUERY
	UPDATE fixity_feed f SET paused = yes, pause_reason = CASE WHEN yes THEN coalesce(reason, f.pause_reason) END
	WHERE (of_action IS NULL OR of_action = 'Fixity Check') AND (of_stage IS NULL OR of_stage = 'Fixity Check')
	RETURNING 'Fixity Check', 'Fixity Check', f.paused, f.paused_by, f.paused_at, f.pause_reason;
END
$$;

-- pausable_named is stage_named, with fixity checks.
CREATE OR REPLACE FUNCTION pausable_named(typed text, of_action text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
	IF typed = 'Fixity Check' AND coalesce(of_action, 'Fixity Check') = 'Fixity Check' THEN
		RETURN typed;
	ELSIF of_action IS NULL AND NOT EXISTS (SELECT FROM stage_settings s WHERE s.stage = typed) THEN
		PERFORM no_such('stage', typed, ARRAY(SELECT s.stage::text FROM stage_settings s
			GROUP BY s.stage ORDER BY min((s.action <> 'Ingest')::int * 100 + s.ordinal)) || 'Fixity Check'::text);
	END IF;
	RETURN stage_named(typed, of_action);
END
$$;

CREATE OR REPLACE FUNCTION pause_stage(stage text, reason text DEFAULT NULL, action text DEFAULT NULL) RETURNS SETOF stage_pause
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS
$$ SELECT * FROM set_paused($3, pausable_named($1, $3), true, $2) $$;
COMMENT ON FUNCTION pause_stage IS
	'Stops claims of a stage, of one action or of every action that has it. What runs continues; items that come to the stage wait.';

CREATE OR REPLACE FUNCTION resume_stage(stage text, action text DEFAULT NULL) RETURNS SETOF stage_pause
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS
$$ SELECT * FROM set_paused($2, pausable_named($1, $2), false, NULL) $$;
COMMENT ON FUNCTION resume_stage IS
	'Lets workers claim a stage again.';

CREATE OR REPLACE FUNCTION pause_all(reason text DEFAULT NULL) RETURNS SETOF stage_pause
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS
$$ SELECT * FROM set_paused(NULL, NULL, true, $1) $$;
COMMENT ON FUNCTION pause_all IS
	'Stops all claims. What runs continues.';

CREATE OR REPLACE FUNCTION resume_all() RETURNS SETOF stage_pause
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS
$$ SELECT * FROM set_paused(NULL, NULL, false, NULL) $$;
COMMENT ON FUNCTION resume_all IS
	'Lets workers claim all stages again, also those that were paused one by one.';

-- pause_from_nsq carries out an order from NSQ, and answers it. An unpause ends what NSQ
-- has paused; with allowed = false nothing changes. An order with the same id is answered
-- again and recorded once. still_paused is what the topic is to be in nsqd.
CREATE OR REPLACE FUNCTION pause_from_nsq(of_topic text, order_id text, yes boolean, allowed boolean,
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
		WHEN NOT allowed THEN 'requests from NSQ are disabled (FAROL_NSQ_ORDERS): nothing was changed'
		WHEN cardinality(changed) + cardinality(kept) = 0 THEN 'it was so already'
		ELSE concat_ws('; ', array_to_string(changed, ', ') || CASE WHEN cardinality(changed) = 0 THEN NULL WHEN yes THEN ' is paused' ELSE ' goes on' END,
			nullif(array_to_string(kept, '; '), ''))
	END;
	INSERT INTO topic_requests (topic, message, body, accepted, answer)
	VALUES (of_topic, order_id, CASE WHEN yes THEN 'pause' ELSE 'unpause' END, accepted, answer)
	ON CONFLICT (topic, message) DO NOTHING;
END
$$;

REVOKE EXECUTE ON FUNCTION pause_has_an_origin, fixity_pause_changed, set_paused, pausable_named, pause_stage,
	resume_stage, pause_all, resume_all, pause_from_nsq FROM PUBLIC;
