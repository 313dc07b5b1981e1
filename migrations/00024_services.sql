-- The services that work needs: which of them fail, who sees it, and what is held
-- back for it. An item whose service fails is given back as `held`, and no claim
-- takes items that need a held service.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

ALTER DOMAIN attempt_outcome DROP CONSTRAINT "how an attempt ends";
ALTER DOMAIN attempt_outcome ADD CONSTRAINT "how an attempt ends" CHECK (VALUE IN
	('done', 'transient', 'fatal', 'released', 'snoozed', 'sent back', 'held', 'lease expired', 'killed', 'oom', 'panic', 'cancelled')) NOT VALID;

-- Added to both, so that the archive keeps the order of the columns.
ALTER TABLE work_item_attempts ADD COLUMN service text NOT NULL DEFAULT '';
ALTER TABLE work_item_attempts_archive ADD COLUMN service text NOT NULL DEFAULT '';
COMMENT ON COLUMN work_item_attempts.service IS 'The service that failed, of an attempt that ended as held.';
CREATE OR REPLACE VIEW attempts AS SELECT * FROM work_item_attempts UNION ALL SELECT * FROM work_item_attempts_archive;

-- As in 00007. An attempt that was held says nothing against the item.
CREATE OR REPLACE VIEW outcomes AS
WITH at_stage AS (
	SELECT work_item_id AS item, stage, bool_or(outcome = 'done') AS done,
		bool_or(outcome NOT IN ('done', 'released', 'snoozed', 'held')) AS mended
	FROM attempts GROUP BY work_item_id, stage
), whole AS (
	SELECT item, bool_or(mended) AS mended FROM at_stage GROUP BY item
), came AS (
	SELECT w.action, w.stage AS place, w.status, true AS ended, false AS done, false AS mended
	FROM all_work_items w
	WHERE w.status IN ('Failed', 'Suspended', 'Cancelled')
	UNION ALL
	SELECT w.action, s.stage, w.status, false, s.done, s.mended
	FROM at_stage s JOIN all_work_items w ON w.id = s.item
	WHERE NOT (w.status IN ('Failed', 'Suspended', 'Cancelled') AND s.stage = w.stage)
	UNION ALL
	SELECT w.action, 'all', w.status, w.status IN ('Failed', 'Suspended', 'Cancelled'), w.status = 'Success', coalesce(t.mended, false)
	FROM all_work_items w LEFT JOIN whole t ON t.item = w.id
)
SELECT coalesce(action, 'all') AS action, place AS stage,
	count(*) FILTER (WHERE done AND NOT mended)                           AS succeeded_at_once,
	count(*) FILTER (WHERE done AND mended)                               AS succeeded_after_retries,
	count(*) FILTER (WHERE ended AND status IN ('Failed', 'Suspended'))   AS failed_completely,
	count(*) FILTER (WHERE ended AND status = 'Cancelled')                AS cancelled
FROM came
GROUP BY GROUPING SETS ((action, place), (place))
HAVING action IS NOT NULL OR place = 'all';

-- Each service that a worker has told of, and what a person decided about it.
-- scopes says which work needs it: a list of objects with "steps" (stages of an
-- ingest, actions of requests), and optionally "storage_options" and
-- "institutions"; a missing list means any.
CREATE TABLE known_services (
	service     text        PRIMARY KEY CHECK (service <> ''),
	of_process  boolean     NOT NULL DEFAULT false, -- each process has its own: it is never held for all
	scopes      jsonb       NOT NULL DEFAULT '[]',
	held_at     timestamptz, -- by a person
	held_by     text,
	held_reason text,
	released_at timestamptz, -- by a person, the last time
	released_by text,
	alerted_for timestamptz, -- the beginning of the failure that the last alert was about
	CHECK ((held_at IS NULL) = (held_by IS NULL))
);
COMMENT ON TABLE known_services IS 'The services that workers use, the work that needs each, and what a person decided about it. See the view services.';

-- How each process sees a service. Only what has changed is written; a process
-- that has died is not counted, so nothing has to be taken back.
CREATE TABLE service_reports (
	service  text        NOT NULL REFERENCES known_services ON DELETE CASCADE,
	worker   text        NOT NULL,
	state    text        NOT NULL CHECK (state IN ('ok', 'failing', 'trying')),
	since    timestamptz NOT NULL DEFAULT now(), -- it is ok, or is not
	code     text        NOT NULL DEFAULT '',
	said     text        NOT NULL DEFAULT '', -- by the service, in a few words
	detail   text        NOT NULL DEFAULT '', -- the error that was seen last
	probe_at timestamptz, -- when the process looks again
	place    text        NOT NULL DEFAULT '', -- what the process takes for the service, such as the bucket of a target
	PRIMARY KEY (service, worker)
);
COMMENT ON TABLE service_reports IS 'How each worker sees each service: ok, failing, or trying one item at a time.';

-- uses_service tells whether pools, as in worker_processes, take work that needs a
-- service.
-- +goose StatementBegin
CREATE FUNCTION uses_service(pools jsonb, scopes jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
	SELECT EXISTS (
		SELECT FROM jsonb_array_elements(pools) p CROSS JOIN jsonb_array_elements(scopes) s
		WHERE p->'stages' ?| ARRAY(SELECT jsonb_array_elements_text(s->'steps')) OR p->'actions' ?| ARRAY(SELECT jsonb_array_elements_text(s->'steps')))
$$;
-- +goose StatementEnd

-- A worker that uses a service and has told nothing of it has not seen it fail.
CREATE VIEW services AS
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
	WHERE p.ended_at IS NULL AND p.heard_at > now() - 3 * p.heartbeat -- as in the view workers
	  AND (r.state IS NOT NULL OR uses_service(p.pools, k.scopes))
) v;
COMMENT ON VIEW services IS
	'Every service that work needs: ok; failing for the workers named, which claim nothing that needs it; or held, and then no worker does.';

-- needs_service tells whether an item at its stage needs a service.
-- +goose StatementBegin
CREATE FUNCTION needs_service(w work_items, scopes jsonb) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT EXISTS (
		SELECT FROM jsonb_array_elements(scopes) s
		WHERE s->'steps' ? CASE w.action WHEN 'Ingest' THEN w.stage::text ELSE w.action::text END
			AND coalesce(s->'storage_options' ? w.storage_option::text, s->'storage_options' IS NULL)
			AND (s->'institutions' IS NULL OR s->'institutions' ? (SELECT i.identifier FROM institutions i WHERE i.id = w.institution_id)))
$$;

-- service_text says what is wrong with a service, for people.
CREATE FUNCTION service_text(s services) RETURNS text
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
-- +goose StatementEnd

-- As in 00008, but that an item may wait for a service.
ALTER FUNCTION why_pending(work_items) RENAME TO why_unclaimed;
-- +goose StatementBegin
CREATE FUNCTION why_pending(w work_items) RETURNS TABLE (reason text, detail text, remedy text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT 'held', service_text(s),
		CASE WHEN s.held_by IS NOT NULL THEN format('SELECT release_service(%L);', s.service)
			ELSE 'Repair the service; work goes on by itself. SELECT * FROM services; says who sees what.' END
	FROM services s WHERE s.state = 'held' AND needs_service(w, s.scopes)
	UNION ALL
	SELECT * FROM why_unclaimed(w)
$$;

-- report_service writes how a process sees a service, and notifies the others if
-- that has changed.
CREATE FUNCTION report_service(worker text, service text, state text, code text, said text, detail text, next_probe interval,
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

CREATE FUNCTION service_named(typed text) RETURNS text
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

CREATE FUNCTION hold_service(service text, reason text DEFAULT NULL) RETURNS SETOF services
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	UPDATE known_services k SET held_at = coalesce(k.held_at, now()), held_by = coalesce(k.held_by, session_user), held_reason = nullif($2, '')
	WHERE k.service = service_named($1);
	PERFORM pg_notify('farol_settings', '');
	RETURN QUERY SELECT * FROM services s WHERE s.service = $1;
END
$$;
COMMENT ON FUNCTION hold_service IS 'Stops all claims of items that need a service until release_service. What runs goes on.';

CREATE FUNCTION release_service(service text) RETURNS SETOF services
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	UPDATE known_services k SET held_at = NULL, held_by = NULL, held_reason = NULL, released_at = clock_timestamp(), released_by = session_user
	WHERE k.service = service_named($1);
	PERFORM pg_notify('farol_settings', '');
	PERFORM pg_notify('farol_work', E'\n');
	RETURN QUERY SELECT * FROM services s WHERE s.service = $1;
END
$$;
COMMENT ON FUNCTION release_service IS
	'Ends a hold. Workers that see the service fail do not wait for their next probe, but try one item at once.';

-- tell_of_services alerts people to services that have failed for five minutes,
-- once for each failure, and forgets processes that are gone. A failure that began in
-- the future, since the clock was set back, began now.
CREATE FUNCTION tell_of_services() RETURNS void
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
-- +goose StatementEnd

ALTER TABLE alerts DROP CONSTRAINT alerts_type_check, ADD CONSTRAINT alerts_type_check
	CHECK (type IN ('Deletion Cancelled', 'Deletion Completed', 'Deletion Confirmed', 'Deletion Requested', 'Failed Fixity Check',
		'Restoration Completed', 'Spot Restoration Completed', 'Spot Restoration Failed', 'Repair Stopped', 'Service Held'));

REVOKE EXECUTE ON FUNCTION report_service, hold_service, release_service, tell_of_services FROM PUBLIC;
INSERT INTO administration_rights (privilege, on_table) VALUES
	('SELECT', 'services'), ('SELECT', 'known_services'), ('SELECT', 'service_reports');
ALTER FUNCTION grant_administration(regrole) RENAME TO grant_requests;
-- +goose StatementBegin
CREATE FUNCTION grant_administration(to_role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	PERFORM grant_requests(to_role);
	EXECUTE format('GRANT EXECUTE ON FUNCTION hold_service, release_service, needs_service, service_text TO %s', to_role);
END
$$;
COMMENT ON FUNCTION grant_administration IS 'Gives a role the rights that farol_admin has. Only the owner of the schema can.';
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION grant_administration(regrole), grant_requests(regrole) FROM PUBLIC;
SELECT grant_to_administrators();

-- As in 00017, but that a request whose last items end in one statement is completed
-- once.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION request_ended(w work_items) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	IF w.action IN ('Restore Object', 'Restore File') THEN
		PERFORM restoration_ended(w);
	ELSIF w.action = 'Glacier Restore' AND w.status = 'Success' THEN
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, date_processed, priority, object_identifier,
			intellectual_object_id, generic_file_id, storage_option, "user", note, outcome)
		VALUES (w.institution_id, CASE WHEN w.generic_file_id IS NULL THEN 'Restore Object' ELSE 'Restore File' END, 'Requested',
			w.name, w.bucket, w.etag, w.size, w.bag_date, w.date_processed, w.priority, w.object_identifier,
			w.intellectual_object_id, w.generic_file_id, w.storage_option, w."user",
			'Moved from Glacier to S3, awaiting restoration', 'Moved from Glacier to S3, awaiting restoration');
	ELSIF w.action = 'Delete' AND w.status = 'Success' THEN
		PERFORM FROM deletion_requests WHERE id = w.deletion_request_id FOR UPDATE; -- the last of several that end at once says so
		INSERT INTO alerts (institution_id, type, subject, content, deletion_request_id)
		SELECT d.institution_id, 'Deletion Completed', format('Deletion request %s is completed', d.id),
			format('All that the request names is deleted. It was requested by %s and approved by %s.', r.email, a.email), d.id
		FROM deletion_requests d JOIN users r ON r.id = d.requested_by JOIN users a ON a.id = d.approved_by
		WHERE d.id = w.deletion_request_id AND NOT EXISTS (
			SELECT FROM work_items o WHERE o.deletion_request_id = d.id AND o.status <> 'Success')
			AND NOT EXISTS (SELECT FROM alerts k WHERE k.deletion_request_id = d.id AND k.type = 'Deletion Completed');
	END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION request_ended(w work_items) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	IF w.action IN ('Restore Object', 'Restore File') THEN
		PERFORM restoration_ended(w);
	ELSIF w.action = 'Glacier Restore' AND w.status = 'Success' THEN
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, date_processed, priority, object_identifier,
			intellectual_object_id, generic_file_id, storage_option, "user", note, outcome)
		VALUES (w.institution_id, CASE WHEN w.generic_file_id IS NULL THEN 'Restore Object' ELSE 'Restore File' END, 'Requested',
			w.name, w.bucket, w.etag, w.size, w.bag_date, w.date_processed, w.priority, w.object_identifier,
			w.intellectual_object_id, w.generic_file_id, w.storage_option, w."user",
			'Moved from Glacier to S3, awaiting restoration', 'Moved from Glacier to S3, awaiting restoration');
	ELSIF w.action = 'Delete' AND w.status = 'Success' THEN
		PERFORM FROM deletion_requests WHERE id = w.deletion_request_id FOR UPDATE; -- the last of several that end at once says so
		INSERT INTO alerts (institution_id, type, subject, content, deletion_request_id)
		SELECT d.institution_id, 'Deletion Completed', format('Deletion request %s is completed', d.id),
			format('All that the request names is deleted. It was requested by %s and approved by %s.', r.email, a.email), d.id
		FROM deletion_requests d JOIN users r ON r.id = d.requested_by JOIN users a ON a.id = d.approved_by
		WHERE d.id = w.deletion_request_id AND NOT EXISTS (
			SELECT FROM work_items o WHERE o.deletion_request_id = d.id AND o.status <> 'Success');
	END IF;
END
$$;
-- +goose StatementEnd
DROP FUNCTION grant_administration(regrole);
ALTER FUNCTION grant_requests(regrole) RENAME TO grant_administration;
DELETE FROM administration_rights WHERE on_table IN ('services', 'known_services', 'service_reports');
DELETE FROM alerts WHERE type = 'Service Held';
ALTER TABLE alerts DROP CONSTRAINT alerts_type_check, ADD CONSTRAINT alerts_type_check
	CHECK (type IN ('Deletion Cancelled', 'Deletion Completed', 'Deletion Confirmed', 'Deletion Requested', 'Failed Fixity Check',
		'Restoration Completed', 'Spot Restoration Completed', 'Spot Restoration Failed', 'Repair Stopped'));
DROP FUNCTION tell_of_services(), release_service(text), hold_service(text, text), service_named(text),
	report_service(text, text, text, text, text, text, interval, boolean, jsonb, text), why_pending(work_items);
ALTER FUNCTION why_unclaimed(work_items) RENAME TO why_pending;
DROP FUNCTION service_text(services), needs_service(work_items, jsonb);
DROP VIEW services;
DROP FUNCTION uses_service(jsonb, jsonb);
DROP TABLE service_reports, known_services;
UPDATE work_item_attempts SET outcome = 'released' WHERE outcome = 'held';
UPDATE work_item_attempts_archive SET outcome = 'released' WHERE outcome = 'held';
DROP VIEW outcomes, attempts;
ALTER TABLE work_item_attempts DROP COLUMN service;
ALTER TABLE work_item_attempts_archive DROP COLUMN service;
CREATE VIEW attempts AS SELECT * FROM work_item_attempts UNION ALL SELECT * FROM work_item_attempts_archive;
CREATE VIEW outcomes AS
WITH at_stage AS (
	SELECT work_item_id AS item, stage, bool_or(outcome = 'done') AS done, bool_or(outcome NOT IN ('done', 'released', 'snoozed')) AS mended
	FROM attempts GROUP BY work_item_id, stage
), whole AS (
	SELECT item, bool_or(mended) AS mended FROM at_stage GROUP BY item
), came AS (
	SELECT w.action, w.stage AS place, w.status, true AS ended, false AS done, false AS mended
	FROM all_work_items w
	WHERE w.status IN ('Failed', 'Suspended', 'Cancelled')
	UNION ALL
	SELECT w.action, s.stage, w.status, false, s.done, s.mended
	FROM at_stage s JOIN all_work_items w ON w.id = s.item
	WHERE NOT (w.status IN ('Failed', 'Suspended', 'Cancelled') AND s.stage = w.stage)
	UNION ALL
	SELECT w.action, 'all', w.status, w.status IN ('Failed', 'Suspended', 'Cancelled'), w.status = 'Success', coalesce(t.mended, false)
	FROM all_work_items w LEFT JOIN whole t ON t.item = w.id
)
SELECT coalesce(action, 'all') AS action, place AS stage,
	count(*) FILTER (WHERE done AND NOT mended)                           AS succeeded_at_once,
	count(*) FILTER (WHERE done AND mended)                               AS succeeded_after_retries,
	count(*) FILTER (WHERE ended AND status IN ('Failed', 'Suspended'))   AS failed_completely,
	count(*) FILTER (WHERE ended AND status = 'Cancelled')                AS cancelled
FROM came
GROUP BY GROUPING SETS ((action, place), (place))
HAVING action IS NOT NULL OR place = 'all';
COMMENT ON VIEW outcomes IS
	'How items came out, the archive included: by action and stage; stage all is the item as a whole, action all is every action.';
COMMENT ON VIEW attempts IS 'The ledger: a row for each claim there ever was, the archive included.';
ALTER DOMAIN attempt_outcome DROP CONSTRAINT "how an attempt ends";
ALTER DOMAIN attempt_outcome ADD CONSTRAINT "how an attempt ends" CHECK (VALUE IN
	('done', 'transient', 'fatal', 'released', 'snoozed', 'sent back', 'lease expired', 'killed', 'oom', 'panic', 'cancelled')) NOT VALID;
SELECT grant_to_administrators();
