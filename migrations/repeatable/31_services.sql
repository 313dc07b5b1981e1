-- Services that work needs: which of them fail, and what is held because of it.

-- uses_service says whether pools, as in worker_processes, claim work that needs a
-- service.
CREATE OR REPLACE FUNCTION uses_service(pools jsonb, scopes jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT EXISTS (
		SELECT FROM jsonb_array_elements(pools) p CROSS JOIN jsonb_array_elements(scopes) s
		WHERE p->'stages' ?| ARRAY(SELECT jsonb_array_elements_text(s->'steps')) OR p->'actions' ?| ARRAY(SELECT jsonb_array_elements_text(s->'steps')))
$$;

-- A worker that uses a service and has not reported it has not seen it fail.
CREATE OR REPLACE VIEW services AS
SELECT k.service,
	CASE WHEN k.held_at IS NOT NULL OR v.most THEN 'held' WHEN v.failing > 0 THEN 'failing' ELSE 'ok' END AS state,
	CASE WHEN k.held_at IS NOT NULL THEN k.held_at WHEN v.failing > 0 THEN v.since END AS since,
	CASE WHEN v.failing > 0 THEN v.code ELSE '' END   AS code,
	CASE WHEN v.failing > 0 THEN v.said ELSE '' END   AS said,
	CASE WHEN v.failing > 0 THEN v.detail ELSE '' END AS detail,
	v.failing AS workers_failing, v.workers, v.names AS failing_workers,
	CASE WHEN v.failing > 0 THEN v.probe_at END AS next_probe_at,
	k.held_by, k.held_reason, k.released_at, k.of_process, k.scopes, v.place
FROM known_services k
CROSS JOIN LATERAL (
	SELECT count(*) AS workers, count(*) FILTER (WHERE r.state <> 'ok') AS failing,
		NOT k.of_process AND count(*) FILTER (WHERE r.state <> 'ok') * 2 > count(*) AS most,
		min(r.since) FILTER (WHERE r.state <> 'ok') AS since,
		min(r.probe_at) FILTER (WHERE r.state <> 'ok') AS probe_at,
		array_agg(p.worker ORDER BY p.worker) FILTER (WHERE r.state <> 'ok') AS names,
		coalesce(mode() WITHIN GROUP (ORDER BY r.place) FILTER (WHERE r.place <> ''), '') AS place,
		(array_agg(r.code ORDER BY r.since, r.worker) FILTER (WHERE r.state <> 'ok'))[1] AS code,
		(array_agg(r.said ORDER BY r.since, r.worker) FILTER (WHERE r.state <> 'ok'))[1] AS said,
		(array_agg(r.detail ORDER BY r.since, r.worker) FILTER (WHERE r.state <> 'ok'))[1] AS detail
	FROM worker_processes p
	LEFT JOIN service_reports r ON r.worker = p.worker AND r.service = k.service
	WHERE p.ended_at IS NULL AND p.heartbeat_at > now() - 3 * p.heartbeat -- as in the view workers
	  AND (r.state IS NOT NULL OR uses_service(p.pools, k.scopes))
) v;
COMMENT ON VIEW services IS
	'Every service that work needs: ok; failing for the workers named, which claim nothing that needs it; or held, and then no worker does.';

-- needs_service says whether an item at its stage needs a service.
CREATE OR REPLACE FUNCTION needs_service(w work_items, scopes jsonb) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT EXISTS (
		SELECT FROM jsonb_array_elements(scopes) s
		WHERE s->'steps' ? CASE w.action WHEN 'Ingest' THEN w.stage::text ELSE w.action::text END
			AND coalesce(s->'storage_options' ? w.storage_option::text, s->'storage_options' IS NULL)
			AND (s->'institutions' IS NULL OR s->'institutions' ? (SELECT i.identifier FROM institutions i WHERE i.id = w.institution_id)))
$$;

-- service_text says what is wrong with a service, for people.
CREATE OR REPLACE FUNCTION service_text(s services) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT CASE
			WHEN s.service LIKE 's3:%' THEN 'S3 target ' || substr(s.service, 4)
			WHEN s.service = 'redis' THEN 'Redis'
			ELSE 'The service ' || s.service
		END || ' is ' || s.state || ' since ' || to_char(s.since, 'HH24:MI')
		|| CASE
			WHEN s.held_by IS NOT NULL THEN ', by ' || s.held_by || coalesce(': ' || rtrim(s.held_reason, '.'), '')
			ELSE ': ' || coalesce(nullif(s.said, ''), nullif(s.code, ''), 'no answer') || ' seen by ' || s.workers_failing || ' of ' || s.workers
				|| CASE s.workers WHEN 1 THEN ' worker' ELSE ' workers' END
				|| CASE WHEN s.next_probe_at > now() THEN '; next probe in ' || ceil(extract(epoch FROM s.next_probe_at - now())) || ' s' ELSE '' END
		END || '.'
$$;

CREATE OR REPLACE FUNCTION service_named(typed text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
BEGIN
	IF EXISTS (SELECT FROM known_services k WHERE k.service = typed) THEN
		RETURN typed;
	END IF;
	RAISE EXCEPTION 'there is no service %; the services are: %', quote_nullable(typed),
		coalesce((SELECT string_agg(k.service, ', ' ORDER BY k.service) FROM known_services k), 'none, since no worker has run yet')
		USING ERRCODE = 'check_violation', HINT = 'Write one of them as it is written here.';
END
$$;

-- report_service records how a process sees a service, and notifies the others of a
-- change.
CREATE OR REPLACE FUNCTION report_service(worker text, service text, state text, code text, said text, detail text, next_probe interval,
	of_process boolean, scopes jsonb, place text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	before text := (SELECT r.state FROM service_reports r WHERE r.service = $2 AND r.worker = $1);
BEGIN
	INSERT INTO known_services AS k (service, of_process, scopes) VALUES ($2, $8, $9)
	ON CONFLICT ON CONSTRAINT known_services_pkey DO UPDATE SET scopes = excluded.scopes, of_process = excluded.of_process
		WHERE (k.scopes, k.of_process) IS DISTINCT FROM (excluded.scopes, excluded.of_process);
	INSERT INTO service_reports AS r (service, worker, state, code, said, detail, probe_at, place) VALUES ($2, $1, $3, $4, $5, $6, now() + $7, $10)
	ON CONFLICT ON CONSTRAINT service_reports_pkey DO UPDATE SET
		since = CASE WHEN (r.state = 'ok') = (excluded.state = 'ok') THEN r.since ELSE now() END,
		state = excluded.state, code = excluded.code, said = excluded.said, detail = excluded.detail, probe_at = excluded.probe_at, place = excluded.place;
	IF coalesce(before, 'ok') IS DISTINCT FROM $3 THEN
		PERFORM pg_notify('farol_settings', '');
	END IF;
END
$$;

-- service_held writes what follows from the holds of a service: see pauses.
CREATE OR REPLACE FUNCTION service_held(service text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	PERFORM FROM known_services k WHERE k.service = $1 FOR NO KEY UPDATE; -- the holds are read when nobody else changes them
	UPDATE known_services k SET (held_at, held_by, held_reason) = (SELECT h.paused_at, h.paused_by, h.pause_reason FROM pause_state('Service', $1) h)
	WHERE k.service = $1;
	UPDATE known_services k SET released_at = clock_timestamp(), released_by = acting_user() WHERE k.service = $1 AND k.held_at IS NULL;
	PERFORM pg_notify('farol_settings', '');
	PERFORM pg_notify('farol_work', E'\n');
END
$$;

CREATE OR REPLACE FUNCTION hold_service(service text, reason text DEFAULT NULL) RETURNS SETOF services
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	PERFORM begin_pause('Service', service_named($1), $2);
	PERFORM service_held($1);
	RETURN QUERY SELECT * FROM services s WHERE s.service = $1;
END
$$;
COMMENT ON FUNCTION hold_service IS
	'Stops all claims of items that need a service until release_service(). What runs continues.';

CREATE OR REPLACE FUNCTION release_service(service text) RETURNS SETOF services
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	left_over text;
BEGIN
	PERFORM end_pauses('Service', service_named($1));
	PERFORM service_held($1);
	left_over := others_pauses('Service', $1);
	IF left_over IS NOT NULL THEN
		RAISE NOTICE '% is still held: %', $1, left_over USING HINT = 'To end the hold of another: SELECT * FROM lift_pause(ID);';
	END IF;
	RETURN QUERY SELECT * FROM services s WHERE s.service = $1;
END
$$;
COMMENT ON FUNCTION release_service IS
	'Ends the caller''s hold. Workers that see the service fail try one item at once, without waiting for their next probe. A hold of another ends by lift_pause().';

-- tell_of_services alerts people to services that have failed for five minutes, once for
-- each failure, and deletes reports of processes that ended. A failure that began in the
-- future, because the clock was set back, began now.
CREATE OR REPLACE FUNCTION tell_of_services() RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
	UPDATE service_reports SET since = now() WHERE since > now() + interval '5 seconds';
	WITH due AS (
		UPDATE known_services k SET alerted_for = s.since
		FROM services s
		WHERE s.service = k.service AND s.state <> 'ok' AND s.since < now() - interval '5 minutes' AND k.alerted_for IS DISTINCT FROM s.since
		RETURNING k.service
	)
	INSERT INTO alerts (type, subject, content)
	SELECT 'Service Held', CASE WHEN s.state = 'held' THEN 'Held: ' ELSE 'Failing: ' END || s.service,
		service_text(s) || CASE WHEN s.detail <> '' THEN E'\n\n' || s.detail ELSE '' END
		|| CASE WHEN s.failing_workers IS NOT NULL THEN E'\n\nSeen by: ' || array_to_string(s.failing_workers, ', ') || '.' ELSE '' END
		|| E'\n\nItems that need it wait and cost no attempt. docs/runbook.md#service-held says what to do.'
	FROM due JOIN services s ON s.service = due.service;
	DELETE FROM service_reports r WHERE r.since < now() - interval '1 hour' AND NOT EXISTS (SELECT FROM worker_processes p WHERE p.worker = r.worker);
$$;

-- scaling_items says what autoscalers count: by stage the items of some sizes that run, those that a worker
-- could claim now, and those that a held service keeps from it. A stage that is paused has neither, one with a
-- cap has no more than fit. What waits is counted up to 10,000 at a stage. It reads work_items_ready and
-- work_items_running.
CREATE OR REPLACE FUNCTION scaling_items(min_size bigint DEFAULT 0, max_size bigint DEFAULT NULL)
RETURNS TABLE (action text, stage text, running bigint, claimable bigint, held bigint)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	WITH unavailable AS MATERIALIZED (SELECT k.scopes FROM services k WHERE k.state = 'held')
	SELECT s.action, s.stage, coalesce(r.of_size, 0), CASE WHEN s.cap IS NULL THEN d.free ELSE least(d.free, greatest(s.cap - coalesce(r.whole, 0), 0)) END, d.held
	FROM stage_settings s
	LEFT JOIN (
		SELECT w.action, w.stage, count(*) AS whole, count(*) FILTER (WHERE w.size >= min_size AND (max_size IS NULL OR w.size < max_size)) AS of_size
		FROM work_items w WHERE w.status = 'Started' GROUP BY w.action, w.stage
	) r ON r.action = s.action AND r.stage = s.stage
	CROSS JOIN LATERAL (
		SELECT count(*) FILTER (WHERE NOT needs AND due) AS free, count(*) FILTER (WHERE needs) AS held
		FROM (
			SELECT w.run_at <= now() AS due, EXISTS (SELECT FROM unavailable u WHERE needs_service(w, u.scopes)) AS needs
			FROM work_items w
			WHERE w.status = 'Pending' AND w.retry AND w.stage = s.stage AND w.action = s.action AND NOT s.paused
			  AND w.run_at < 'infinity' AND w.size >= min_size AND (max_size IS NULL OR w.size < max_size)
			LIMIT 10000
		) one
	) d
	WHERE s.worker = 'farol'
$$;
COMMENT ON FUNCTION scaling_items IS
	'What autoscalers count, by stage: items of some sizes that run, that could be claimed now, and that a held service keeps from being claimed.';

CREATE OR REPLACE FUNCTION scaling_signal(steps text[] DEFAULT NULL, min_size bigint DEFAULT 0, max_size bigint DEFAULT NULL) RETURNS bigint
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT greatest(sum(i.running + i.claimable), least(sum(i.held), 1), 0)::bigint
	FROM scaling_items(min_size, max_size) i
	WHERE steps IS NULL OR CASE i.action WHEN 'Ingest' THEN i.stage ELSE i.action END = ANY (steps)
$$;
COMMENT ON FUNCTION scaling_signal IS
	'How many items the workers of some steps and sizes process or could claim; 1 if there are only some that need a held service, so that one worker finds out when it answers.';

COMMENT ON FUNCTION needs_service IS 'Whether an item at its stage needs a service.';
COMMENT ON FUNCTION service_text IS 'What is wrong with a service, for people.';

REVOKE EXECUTE ON FUNCTION report_service, service_held, hold_service, release_service, tell_of_services FROM PUBLIC;

-- newest_of joins two objects whose members have a time, at: of each member the newer counts.
CREATE OR REPLACE FUNCTION newest_of(a jsonb, b jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT coalesce(jsonb_object_agg(key, value), '{}')
	FROM (SELECT DISTINCT ON (key) key, value FROM (SELECT * FROM jsonb_each(a) UNION ALL SELECT * FROM jsonb_each(b)) e
		ORDER BY key, (value->>'at')::timestamptz DESC NULLS LAST) n
$$;
