-- Pausing stages, fixity checks and recurring jobs. Each pause is a row of pauses: who, why,
-- since when. What claims read, paused of stage_settings, fixity_feed and schedules, follows
-- from these rows in the transaction that changes them. Nobody ends another person's pause except by its ID.

-- pauses_of lists the pauses of a stage, a service or a job that are in force.
CREATE OR REPLACE FUNCTION pauses_of(of_action text, of_stage text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT coalesce(jsonb_agg(jsonb_build_object('id', p.id, 'by', p.paused_by, 'since', p.paused_at, 'reason', p.reason, 'of_all', p.of_all, 'in_nsq', p.in_nsq)
		ORDER BY p.paused_at, p.id), '[]')
	FROM pauses p WHERE p.action = of_action AND p.stage = of_stage AND p.lifted_at IS NULL
$$;

-- stage_pauses is what can be paused, by its topic.
CREATE OR REPLACE VIEW stage_pauses AS
SELECT k.*, pauses_of(k.action, k.stage) AS pauses
FROM (
	SELECT s.topic, s.action::text, s.stage::text, s.paused, s.paused_by, s.paused_at, s.pause_reason, s.paused_in_nsq FROM stage_settings s
	UNION ALL
	SELECT 'fixity_check', 'Fixity Check', 'Fixity Check', f.paused, f.paused_by, f.paused_at, f.pause_reason, f.paused_in_nsq FROM fixity_feed f
) k;
COMMENT ON VIEW stage_pauses IS
	'What can be paused, whether it is, and by whom.';

-- pause_state is what the pauses of a stage, or of a service, come to.
CREATE OR REPLACE FUNCTION pause_state(of_action text, of_stage text,
	OUT paused boolean, OUT paused_by text, OUT paused_at timestamptz, OUT pause_reason text, OUT paused_in_nsq boolean)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT count(*) > 0, string_agg(p.paused_by, ', ' ORDER BY p.first, p.paused_by), min(p.first),
		string_agg(p.reasons, '; ' ORDER BY p.first, p.paused_by), coalesce(bool_and(p.in_nsq), false)
	FROM (
		SELECT k.paused_by, min(k.paused_at) AS first, string_agg(k.reason, '; ' ORDER BY k.paused_at, k.id) AS reasons, bool_and(k.in_nsq) AS in_nsq
		FROM pauses k WHERE k.action = of_action AND k.stage = of_stage AND k.lifted_at IS NULL GROUP BY k.paused_by
	) p
$$;

-- pause_text says who paused something, since when and why, for people.
CREATE OR REPLACE FUNCTION pause_text(p pauses) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN format('by %s since %s%s', p.paused_by, date_trunc('second', p.paused_at), coalesce(': ' || rtrim(p.reason, '.'), ''));

-- others_pauses names the pauses of a stage that other people have to end.
CREATE OR REPLACE FUNCTION others_pauses(of_action text, of_stage text) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT string_agg(format('pause %s, %s', p.id, pause_text(p)), '; ' ORDER BY p.paused_at, p.id)
	FROM pauses p WHERE p.action = of_action AND p.stage = of_stage AND p.lifted_at IS NULL
$$;

-- end_pauses ends the pauses of the person who acts, and those that came from NSQ, where
-- nobody has a name.
CREATE OR REPLACE FUNCTION end_pauses(of_action text, of_stage text, only_nsq boolean DEFAULT false) RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
	UPDATE pauses p SET lifted_at = now(), lifted_by = acting_user()
	WHERE p.lifted_at IS NULL AND p.action = of_action AND p.stage = of_stage AND (p.in_nsq OR p.paused_by = acting_user() AND NOT only_nsq)
$$;

-- begin_pause records a pause of the person who acts, or its new reason.
CREATE OR REPLACE FUNCTION begin_pause(of_action text, of_stage text, why text, pause bigint DEFAULT nextval('pauses_id'), all_stages boolean DEFAULT false, by_nsq boolean DEFAULT false)
RETURNS void LANGUAGE sql SET search_path FROM CURRENT AS $$
	INSERT INTO pauses AS p (id, action, stage, reason, of_all, in_nsq) VALUES (pause, of_action, of_stage, nullif(why, ''), all_stages, by_nsq)
	ON CONFLICT (action, stage, paused_by, of_all, in_nsq) WHERE lifted_at IS NULL DO UPDATE SET reason = coalesce(excluded.reason, p.reason)
$$;

-- paused_by_hand carries out what was typed into paused or pause_reason, by the rules of
-- the functions. Its name makes it fire before the triggers that write what follows.
CREATE OR REPLACE FUNCTION paused_by_hand() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	of_action text := coalesce(to_jsonb(OLD)->>'action', CASE TG_TABLE_NAME WHEN 'schedules' THEN 'Schedule' ELSE 'Fixity Check' END);
	of_stage  text := coalesce(to_jsonb(OLD)->>'stage', to_jsonb(OLD)->>'job', 'Fixity Check');
	left_over text;
BEGIN
	IF NEW.paused IS NULL THEN
		RAISE EXCEPTION 'paused is true or false' USING ERRCODE = 'not_null_violation', HINT = 'Set one of them.';
	ELSIF NEW.paused THEN
		PERFORM begin_pause(of_action, of_stage, CASE WHEN NEW.pause_reason IS DISTINCT FROM OLD.pause_reason THEN NEW.pause_reason END);
	ELSIF OLD.paused THEN
		PERFORM end_pauses(of_action, of_stage);
		left_over := others_pauses(of_action, of_stage);
		IF left_over IS NOT NULL THEN
			RAISE EXCEPTION '% of % was paused by others: %', of_stage, of_action, left_over
				USING ERRCODE = 'check_violation', CONSTRAINT = 'paused-by-others', HINT = 'To end the pause of another: SELECT * FROM lift_pause(ID);';
		END IF;
	END IF;
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER paused_by_hand BEFORE UPDATE OF paused, pause_reason ON stage_settings
	FOR EACH ROW EXECUTE FUNCTION paused_by_hand();
CREATE OR REPLACE TRIGGER by_hand_paused BEFORE UPDATE OF paused, pause_reason ON fixity_feed
	FOR EACH ROW EXECUTE FUNCTION paused_by_hand();
CREATE OR REPLACE TRIGGER paused_by_hand BEFORE UPDATE OF paused, pause_reason ON schedules
	FOR EACH ROW EXECUTE FUNCTION paused_by_hand();

-- As stage_settings_changed does for a stage.
CREATE OR REPLACE FUNCTION schedule_pause_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	SELECT s.paused, s.paused_by, s.paused_at, s.pause_reason INTO NEW.paused, NEW.paused_by, NEW.paused_at, NEW.pause_reason
	FROM pause_state('Schedule', NEW.job) s;
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER schedule_pause_changed BEFORE UPDATE OF paused, paused_by, paused_at, pause_reason ON schedules
	FOR EACH ROW EXECUTE FUNCTION schedule_pause_changed();

-- As stage_settings_changed does for a stage.
CREATE OR REPLACE FUNCTION fixity_pause_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	SELECT * INTO NEW.paused, NEW.paused_by, NEW.paused_at, NEW.pause_reason, NEW.paused_in_nsq FROM pause_state('Fixity Check', 'Fixity Check');
	IF NEW IS DISTINCT FROM OLD THEN
		INSERT INTO stage_settings_audit (action, stage, before, after) VALUES ('Fixity Check', 'Fixity Check', to_jsonb(OLD), to_jsonb(NEW));
	END IF;
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER fixity_pause_changed BEFORE UPDATE OF paused, paused_by, paused_at, pause_reason, paused_in_nsq ON fixity_feed
	FOR EACH ROW EXECUTE FUNCTION fixity_pause_changed();

-- change_pauses pauses or resumes what is named, and returns it as it is then; NULL names
-- all of it. Of all, only pauses of all end. Changes of one stage wait for each other.
CREATE OR REPLACE FUNCTION change_pauses(of_action text, of_stage text, yes boolean, why text DEFAULT NULL, by_nsq boolean DEFAULT false) RETURNS SETOF stage_pause
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	every boolean := of_action IS NULL AND of_stage IS NULL;
	pause bigint;
	s     stage_pauses;
BEGIN
	PERFORM FROM stage_settings k WHERE (of_action IS NULL OR k.action = of_action) AND (of_stage IS NULL OR k.stage = of_stage)
	ORDER BY k.action, k.stage FOR NO KEY UPDATE;
	IF yes THEN
		pause := coalesce((SELECT min(p.id) FROM pauses p WHERE p.lifted_at IS NULL AND p.of_all AND every AND p.paused_by = acting_user()), nextval('pauses_id'));
	END IF;
	FOR s IN SELECT * FROM stage_pauses k WHERE (of_action IS NULL OR k.action = of_action) AND (of_stage IS NULL OR k.stage = of_stage)
		ORDER BY k.action = 'Fixity Check', k.action, k.stage LOOP
		IF yes THEN
			PERFORM begin_pause(s.action, s.stage, why, pause, every, by_nsq);
		ELSIF every THEN
			UPDATE pauses p SET lifted_at = now(), lifted_by = acting_user()
			WHERE p.lifted_at IS NULL AND p.action = s.action AND p.stage = s.stage AND p.of_all AND p.paused_by = acting_user();
		ELSE
			PERFORM end_pauses(s.action, s.stage, by_nsq);
		END IF;
		RETURN QUERY SELECT * FROM pause_applied(s.action, s.stage, NOT yes);
	END LOOP;
END
$$;

-- pause_applied writes what follows from the pauses of a stage, and notifies a session that
-- meant to resume it of pauses that are left.
CREATE OR REPLACE FUNCTION pause_applied(of_action text, of_stage text, resumes boolean) RETURNS SETOF stage_pause
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	left_over text := others_pauses(of_action, of_stage);
BEGIN
	UPDATE stage_settings s SET paused_at = s.paused_at WHERE s.action = of_action AND s.stage = of_stage;
	UPDATE fixity_feed f SET paused_at = f.paused_at WHERE of_action = 'Fixity Check';
	IF resumes AND left_over IS NOT NULL THEN
		RAISE NOTICE '% of % is still paused: %', of_stage, of_action, left_over USING HINT = 'To end the pause of another: SELECT * FROM lift_pause(ID);';
	END IF;
	RETURN QUERY SELECT p.action, p.stage, p.paused, p.paused_by, p.paused_at, p.pause_reason, p.pauses
		FROM stage_pauses p WHERE p.action = of_action AND p.stage = of_stage;
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
$$ SELECT * FROM change_pauses($3, pausable_named($1, $3), true, $2) $$;
COMMENT ON FUNCTION pause_stage IS
	'Stops claims of a stage, of one action or of every action that has it. What runs continues; items that come to the stage wait.';

CREATE OR REPLACE FUNCTION resume_stage(stage text, action text DEFAULT NULL) RETURNS SETOF stage_pause
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS
$$ SELECT * FROM change_pauses($2, pausable_named($1, $2), false) $$;
COMMENT ON FUNCTION resume_stage IS
	'Ends the caller''s pauses of a stage, and those that came from NSQ. Workers claim it again when no pause is left.';

CREATE OR REPLACE FUNCTION pause_all(reason text DEFAULT NULL) RETURNS SETOF stage_pause
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS
$$ SELECT * FROM change_pauses(NULL, NULL, true, $1) $$;
COMMENT ON FUNCTION pause_all IS
	'Stops all claims. What runs continues.';

CREATE OR REPLACE FUNCTION resume_all() RETURNS SETOF stage_pause
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS
$$ SELECT * FROM change_pauses(NULL, NULL, false) $$;
COMMENT ON FUNCTION resume_all IS
	'Ends what the caller paused with pause_all(). Stages that were paused one by one, or by others, stay so.';

-- pause_schedule keeps a job from being run when it is due, or ends the caller's pauses of it.
-- Changes of one job wait for each other.
CREATE OR REPLACE FUNCTION pause_schedule(job text, yes boolean, why text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	PERFORM FROM schedules s WHERE s.job = $1 FOR NO KEY UPDATE;
	IF yes AND FOUND THEN
		PERFORM begin_pause('Schedule', $1, $3);
	ELSE
		PERFORM end_pauses('Schedule', $1);
	END IF;
	UPDATE schedules s SET paused_at = s.paused_at WHERE s.job = $1;
END
$$;
COMMENT ON FUNCTION pause_schedule IS
	'Keeps a recurring job from being run when it is due, or ends the caller''s pauses of it. It is run again when none is left.';

-- lift_pause is the one way to end the pause of another person: by its ID.
CREATE OR REPLACE FUNCTION lift_pause(pause bigint) RETURNS SETOF stage_pause
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	p pauses;
BEGIN
	PERFORM FROM stage_settings k WHERE EXISTS (SELECT FROM pauses o WHERE o.id = pause AND o.lifted_at IS NULL AND o.action = k.action AND o.stage = k.stage)
	ORDER BY k.action, k.stage FOR NO KEY UPDATE;
	FOR p IN UPDATE pauses k SET lifted_at = now(), lifted_by = acting_user() WHERE k.id = pause AND k.lifted_at IS NULL RETURNING * LOOP
		IF p.action IN ('Service', 'Schedule') THEN
			IF p.action = 'Service' THEN
				PERFORM service_held(p.stage);
			END IF;
			UPDATE schedules s SET paused_at = s.paused_at WHERE p.action = 'Schedule' AND s.job = p.stage;
			RETURN QUERY SELECT p.action, p.stage, h.paused, h.paused_by, h.paused_at, h.pause_reason, '[]'::jsonb FROM pause_state(p.action, p.stage) h;
		ELSE
			RETURN QUERY SELECT * FROM pause_applied(p.action, p.stage, true);
		END IF;
	END LOOP;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no pause % in force', coalesce(pause::text, 'NULL')
			USING ERRCODE = 'no_data_found', CONSTRAINT = 'no-pause', HINT = 'SELECT * FROM stage_pauses WHERE paused; lists them.';
	END IF;
END
$$;
COMMENT ON FUNCTION lift_pause IS
	'Ends one pause of stages or of a job, or one hold of a service, no matter who made it.';

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
	FOR p IN SELECT * FROM stage_pauses s WHERE s.topic = of_topic AND s.paused <> yes AND allowed ORDER BY s.action, s.stage LOOP
		PERFORM change_pauses(p.action, p.stage, yes, CASE WHEN yes THEN 'paused in NSQ' END, true);
		IF yes OR p.paused_in_nsq THEN
			changed := changed || format('%s of %s', p.stage, p.action);
		ELSE
			kept := kept || format('%s of %s was paused in Farol, and stays so: %s', p.stage, p.action, others_pauses(p.action, p.stage));
		END IF;
	END LOOP;
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

REVOKE EXECUTE ON FUNCTION others_pauses, end_pauses, begin_pause, paused_by_hand, fixity_pause_changed, schedule_pause_changed, change_pauses,
	pause_applied, pausable_named, pause_stage, resume_stage, pause_all, resume_all, pause_schedule, lift_pause, pause_from_nsq FROM PUBLIC;
