-- Records: events, formats and fixity.

-- event_identifier derives an event's UUID (version 8, RFC 9562) from the item
-- that it belongs to and what it says.
CREATE OR REPLACE FUNCTION event_identifier(item bigint, about text, event_type text, outcome_detail text) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN overlay(overlay(
	md5(item::text || E'\x1f' || about || E'\x1f' || event_type || E'\x1f' || outcome_detail) PLACING '8' FROM 13) PLACING '8' FROM 17)::uuid;

-- format_outcome is what a `format identification` event says of a file's format.
CREATE OR REPLACE FUNCTION format_outcome(puid text, mime_type text, name text, method text, signature_version text, reason text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 'PUID ' || coalesce(nullif(puid, ''), 'unknown') || ', ' || mime_type || coalesce(', ' || nullif(name, ''), '')
	|| coalesce(', by ' || nullif(method, ''), '') || coalesce(', ' || nullif(split_part(reason, ':', 1), ''), '')
	|| coalesce(', ' || nullif(signature_version, ''), '');

-- identification_failed says whether the identifier failed on a file; an unknown format is
-- no failure.
CREATE OR REPLACE FUNCTION identification_failed(reason text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN split_part(reason, ':', 1) IN ('crashed', 'timed out', 'refused');

CREATE OR REPLACE VIEW bad_copies AS
SELECT b.id AS failure, f.identifier AS file, i.identifier AS institution, b.target, b.provider, b.url, b.problem, b.algorithm, b.expected, b.found,
	b.found_at, b.seen_at, b.noted_at, b.quarantined_as, b.storage_record_id, b.generic_file_id
FROM fixity_failures b
JOIN storage_records s ON s.id = b.storage_record_id AND s.active
JOIN generic_files f ON f.id = b.generic_file_id
JOIN institutions i ON i.id = f.institution_id
WHERE b.state = 'open';
COMMENT ON VIEW bad_copies IS
	'Copies that are bad now.';

-- An earlier last_fixity_check of a file makes its copies due at once. Copies of files that
-- are deleted, and those whose removal by a deletion has begun, are not checked: they are meant
-- to be missing. The other copies of a file that is being deleted are.
CREATE OR REPLACE FUNCTION file_changes_its_fixity() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	UPDATE storage_records s SET
		active       = NEW.state = 'A' AND NOT EXISTS (SELECT FROM deletion_receipts r WHERE r.work_item_id = NEW.deleted_by_item
			AND r.generic_file_id = s.generic_file_id AND r.target = s.target AND r.key = s.key AND r.begun_at IS NOT NULL),
		fixity_since = CASE WHEN NEW.last_fixity_check < OLD.last_fixity_check
			THEN least(s.fixity_since, NEW.last_fixity_check) ELSE s.fixity_since END
	WHERE s.generic_file_id = NEW.id;
	IF NEW.last_fixity_check < OLD.last_fixity_check THEN
		UPDATE fixity_checks c SET run_at = now()
		FROM storage_records s
		WHERE s.generic_file_id = NEW.id AND c.storage_record_id = s.id AND c.worker = '' AND c.run_at > now();
	END IF;
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER file_changes_its_fixity AFTER UPDATE OF state, deleted_by_item, last_fixity_check ON generic_files
	FOR EACH ROW WHEN (NEW.state <> OLD.state OR num_nulls(NEW.deleted_by_item, OLD.deleted_by_item) < 2
		OR NEW.last_fixity_check < OLD.last_fixity_check)
	EXECUTE FUNCTION file_changes_its_fixity();

CREATE OR REPLACE FUNCTION time_is_set() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.set_at := now();
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER time_is_set BEFORE UPDATE OF run_at ON fixity_checks FOR EACH ROW EXECUTE FUNCTION time_is_set();
CREATE OR REPLACE TRIGGER time_is_set BEFORE UPDATE OF paused_until ON fixity_policies FOR EACH ROW EXECUTE FUNCTION time_is_set();

-- fixity_due returns the files with a copy that would be claimed now, by the rules of
-- the claim: what waits, and what is due in targets that are read, as far as the
-- allowance goes, up to 10,000 copies: the depth of a topic is read every few seconds. Files
-- with a check in progress are left out. days is the interval of targets whose policy leaves
-- it open; of a target that has failed few times in a row one copy is tried.
CREATE OR REPLACE FUNCTION fixity_due(days integer, few integer) RETURNS SETOF bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
SET plan_cache_mode = force_generic_plan AS $$ -- planned once; LANGUAGE sql would be each time
BEGIN
	RETURN QUERY WITH target AS MATERIALIZED (
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
			LIMIT least(t.most, (SELECT allowance FROM fixity_feed), 10000)
		) d
	), allowed AS (
		SELECT generic_file_id FROM overdue ORDER BY late DESC, id LIMIT least((SELECT allowance FROM fixity_feed), 10000)
	)
	SELECT generic_file_id FROM (SELECT generic_file_id FROM waiting UNION SELECT generic_file_id FROM allowed) f
	WHERE NOT EXISTS (SELECT FROM storage_records s JOIN fixity_checks c ON c.storage_record_id = s.id
		WHERE s.generic_file_id = f.generic_file_id AND c.worker <> '' AND c.run_at > now());
END
$$;

REVOKE EXECUTE ON FUNCTION file_changes_its_fixity, time_is_set, fixity_due FROM
	PUBLIC;

-- is_payload reports whether a file is in the folder data of its bag.
CREATE OR REPLACE FUNCTION is_payload(identifier text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN identifier ~ '^[^/]+/[^/]+/data/';

-- count_files adds to what an object has.
CREATE OR REPLACE FUNCTION count_files(object bigint, more_files bigint, more_bytes numeric, more_payload_files bigint, more_payload_bytes numeric) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	INSERT INTO object_holdings (intellectual_object_id, files, bytes) VALUES (object, 0, 0) ON CONFLICT (intellectual_object_id) DO NOTHING;
	UPDATE object_holdings SET files = files + more_files, bytes = bytes + more_bytes,
		payload_files = payload_files + more_payload_files, payload_bytes = payload_bytes + more_payload_bytes
	WHERE intellectual_object_id = object;
END
$$;

-- files_are_counted counts the files that a statement has added, changed or removed. A
-- statement that changes something else of files changes no count and locks none. Objects come
-- in the order of their IDs, so that no two statements wait for each other.
CREATE OR REPLACE FUNCTION files_are_counted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF TG_OP = 'INSERT' THEN
		PERFORM count_files(object, count(*), sum(size), sum(payload), sum(payload * size))
		FROM (SELECT intellectual_object_id AS object, size, is_payload(identifier)::integer AS payload FROM added WHERE state = 'A') f
		GROUP BY object ORDER BY object;
	ELSIF TG_OP = 'DELETE' THEN
		PERFORM count_files(object, -count(*), -sum(size), -sum(payload), -sum(payload * size))
		FROM (SELECT intellectual_object_id AS object, size, is_payload(identifier)::integer AS payload FROM removed WHERE state = 'A') f
		GROUP BY object ORDER BY object;
	ELSE
		PERFORM count_files(object, sum(n), sum(n * size), sum(n * payload), sum(n * payload * size))
		FROM (
			SELECT intellectual_object_id AS object, size, is_payload(identifier)::integer AS payload, 1 AS n FROM added WHERE state = 'A'
			UNION ALL
			SELECT intellectual_object_id, size, is_payload(identifier)::integer, -1 FROM removed WHERE state = 'A'
		) f
		GROUP BY object
		HAVING (sum(n), sum(n * size), sum(n * payload), sum(n * payload * size)) <> (0, 0, 0, 0)
		ORDER BY object;
	END IF;
	RETURN NULL;
END
$$;
REVOKE EXECUTE ON FUNCTION is_payload, count_files, files_are_counted FROM PUBLIC;
CREATE OR REPLACE TRIGGER added_files_are_counted AFTER INSERT ON generic_files
	REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION files_are_counted();
CREATE OR REPLACE TRIGGER changed_files_are_counted AFTER UPDATE ON generic_files
	REFERENCING OLD TABLE AS removed NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION files_are_counted();
CREATE OR REPLACE TRIGGER removed_files_are_counted AFTER DELETE ON generic_files
	REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION files_are_counted();
