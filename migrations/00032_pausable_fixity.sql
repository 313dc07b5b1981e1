-- Fixity checks can be paused as a stage can, by the same functions, and follow their
-- topic in NSQ. They have no row in stage_settings: nothing else that is set there
-- has a meaning for them.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

ALTER TABLE fixity_feed
	ADD COLUMN paused        boolean NOT NULL DEFAULT false,
	ADD COLUMN paused_at     timestamptz CHECK (isfinite(paused_at)),
	ADD COLUMN paused_by     text,
	ADD COLUMN pause_reason  text,
	ADD COLUMN paused_in_nsq boolean NOT NULL DEFAULT false; -- as in stage_settings

-- As stage_settings_changed does for a stage.
-- +goose StatementBegin
CREATE FUNCTION fixity_pause_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	keeps boolean := OLD.paused AND OLD.paused_in_nsq = NEW.paused_in_nsq;
BEGIN
	NEW.paused_at := CASE WHEN NEW.paused THEN CASE WHEN keeps THEN coalesce(OLD.paused_at, now()) ELSE now() END END;
	NEW.paused_by := CASE WHEN NEW.paused THEN CASE WHEN keeps THEN coalesce(OLD.paused_by, session_user) ELSE session_user END END;
	IF NOT NEW.paused THEN
		NEW.pause_reason := NULL;
	END IF;
	IF NEW IS DISTINCT FROM OLD THEN
		INSERT INTO stage_settings_audit (action, stage, before, after) VALUES ('Fixity Check', 'Fixity Check', to_jsonb(OLD), to_jsonb(NEW));
	END IF;
	RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER fixity_pause_changed BEFORE UPDATE OF paused, pause_reason ON fixity_feed FOR EACH ROW EXECUTE FUNCTION fixity_pause_changed();
CREATE TRIGGER a_pause_has_an_origin BEFORE UPDATE OF paused ON fixity_feed -- it goes first, by its name
	FOR EACH ROW EXECUTE FUNCTION pause_has_an_origin();

CREATE OR REPLACE VIEW stage_pauses AS
SELECT s.topic, s.action::text, s.stage::text, s.paused, s.paused_by, s.paused_at, s.pause_reason, s.paused_in_nsq FROM stage_settings s
UNION ALL
SELECT 'fixity_check', 'Fixity Check', 'Fixity Check', f.paused, f.paused_by, f.paused_at, f.pause_reason, f.paused_in_nsq FROM fixity_feed f;

-- As in 00004, with fixity checks.
-- +goose StatementBegin
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
CREATE FUNCTION pausable_named(typed text, of_action text) RETURNS text
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

CREATE OR REPLACE FUNCTION resume_stage(stage text, action text DEFAULT NULL) RETURNS SETOF stage_pause
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS
$$ SELECT * FROM set_paused($2, pausable_named($1, $2), false, NULL) $$;

-- fixity_due returns the files of which a copy would be claimed now, by the rules of
-- the claim: what waits, and what is due in targets that are read, as far as the
-- allowance goes. A file of which a copy is being checked is none. days is the
-- interval of targets whose policy leaves it open; of a target that has failed few
-- times in a row one copy is tried.
CREATE FUNCTION fixity_due(days integer, few integer) RETURNS SETOF bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
	WITH target AS MATERIALIZED (
		SELECT p.target, p.mode = 'read' AS reads, now() - make_interval(days => coalesce(p.interval_days, fixity_due.days)) AS due,
			CASE WHEN p.failures >= fixity_due.few THEN 1 END AS most
		FROM fixity_policies p WHERE p.paused_until <= now()
	), waiting AS (
		SELECT w.generic_file_id FROM target t CROSS JOIN LATERAL (
			SELECT s.generic_file_id FROM fixity_checks c JOIN storage_records s ON s.id = c.storage_record_id
			WHERE c.target = t.target AND c.run_at <= now() AND (c.requested OR t.reads) AND s.active
			ORDER BY c.requested DESC, c.run_at LIMIT t.most
		) w
	), overdue AS (
		SELECT d.* FROM target t CROSS JOIN LATERAL (
			SELECT s.id, s.generic_file_id, t.due - s.fixity_from AS late FROM storage_records s
			WHERE s.target = t.target AND s.active AND s.fixity_from <= t.due AND t.reads
			  AND NOT EXISTS (SELECT FROM fixity_checks c WHERE c.storage_record_id = s.id)
			ORDER BY s.fixity_from, s.id
			LIMIT least(t.most, (SELECT allowance FROM fixity_feed))
		) d
	), allowed AS (
		SELECT generic_file_id FROM overdue ORDER BY late DESC, id LIMIT (SELECT allowance FROM fixity_feed)
	)
	SELECT generic_file_id FROM (SELECT generic_file_id FROM waiting UNION SELECT generic_file_id FROM allowed) f
	WHERE NOT EXISTS (SELECT FROM storage_records s JOIN fixity_checks c ON c.storage_record_id = s.id
		WHERE s.generic_file_id = f.generic_file_id AND c.worker <> '' AND c.run_at > now())
$$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION fixity_pause_changed(), fixity_due(integer, integer), pausable_named(text, text) FROM PUBLIC;

-- +goose Down
DROP FUNCTION fixity_due(integer, integer);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION resume_stage(stage text, action text DEFAULT NULL) RETURNS SETOF stage_pause
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS
$$ SELECT * FROM set_paused($2, stage_named($1, $2), false, NULL) $$;

CREATE OR REPLACE FUNCTION pause_stage(stage text, reason text DEFAULT NULL, action text DEFAULT NULL) RETURNS SETOF stage_pause
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS
$$ SELECT * FROM set_paused($3, stage_named($1, $3), true, $2) $$;

CREATE OR REPLACE FUNCTION set_paused(of_action text, of_stage text, yes boolean, reason text) RETURNS SETOF stage_pause
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	RETURN QUERY
	UPDATE stage_settings s SET paused = yes, pause_reason = CASE WHEN yes THEN coalesce(reason, s.pause_reason) END
	WHERE (of_action IS NULL OR s.action = of_action) AND (of_stage IS NULL OR s.stage = of_stage)
	RETURNING s.action::text, s.stage::text, s.paused, s.paused_by, s.paused_at, s.pause_reason;
END
$$;
-- +goose StatementEnd
DROP FUNCTION pausable_named(text, text);
CREATE OR REPLACE VIEW stage_pauses AS
SELECT s.topic, s.action::text, s.stage::text, s.paused, s.paused_by, s.paused_at, s.pause_reason, s.paused_in_nsq FROM stage_settings s;
DROP TRIGGER a_pause_has_an_origin ON fixity_feed;
DROP TRIGGER fixity_pause_changed ON fixity_feed;
DROP FUNCTION fixity_pause_changed();
ALTER TABLE fixity_feed DROP COLUMN paused, DROP COLUMN paused_at, DROP COLUMN paused_by, DROP COLUMN pause_reason, DROP COLUMN paused_in_nsq;
