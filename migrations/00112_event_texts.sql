-- Events and digests in a third of the space. An event's sentences are in a dictionary, and
-- one row has all events that an ingest records of a file: the numbers of their sentences,
-- their times, and the facts that the sentences leave places for. One row has the four
-- digests of a content. premis_events and checksums become views of them, with the same
-- rows (repeatable/41_events.sql).

-- +goose Up

SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true);

-- event_number() finds or adds rows, so that each has a number for good.
CREATE TABLE event_texts (
	id                  integer  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	digest              bytea    NOT NULL UNIQUE,
	at                  smallint NOT NULL CHECK (at >= 0),
	about               text     NOT NULL,
	event_type          text     NOT NULL,
	detail              text     NOT NULL CHECK (detail <> ''),
	outcome             text     NOT NULL,
	outcome_detail      text     NOT NULL,
	outcome_information text     NOT NULL,
	object              text     NOT NULL,
	agent               text     NOT NULL,
	event_type_uri      text     GENERATED ALWAYS AS (event_type_uri(event_type)) STORED,
	CONSTRAINT premis_events_outcome_check CHECK (outcome IN ('Success', 'Failure')),
	CONSTRAINT premis_events_event_type_check CHECK (event_type_uri(event_type) IS NOT NULL)
);

-- No foreign keys: a look-up for each row was a third of a recording. Instead each statement
-- looks once whether all files are there (files_are_there), and a file with records cannot be
-- deleted (file_has_records).
CREATE TABLE event_records (
	id                     bigint      NOT NULL,
	generic_file_id        bigint,
	intellectual_object_id bigint      NOT NULL,
	institution_id         bigint      NOT NULL,
	item                   bigint,
	key                    uuid        NOT NULL,
	created_at             timestamptz NOT NULL DEFAULT now(),
	updated_at             timestamptz,
	file_uuid              uuid,
	file_identifier        text,
	texts                  integer[]   NOT NULL CHECK (cardinality(texts) BETWEEN 1 AND 64),
	times                  timestamptz[] NOT NULL,
	facts                  bytea[]     NOT NULL,
	UNIQUE NULLS NOT DISTINCT (generic_file_id, key)
) PARTITION BY HASH (generic_file_id);
CREATE INDEX event_records_object ON event_records (intellectual_object_id) WHERE generic_file_id IS NULL;

-- +goose StatementBegin
DO $$
BEGIN
	FOR n IN 0..15 LOOP
		EXECUTE format('CREATE TABLE event_records_%s PARTITION OF event_records FOR VALUES WITH (MODULUS 16, REMAINDER %s)', n, n);
	END LOOP;
END
$$;
-- +goose StatementEnd

-- A digest has the id of its row, and 0 to 3 more by its algorithm.
CREATE TABLE file_digests (
	id              bigint      NOT NULL,
	generic_file_id bigint      NOT NULL,
	datetime        timestamptz NOT NULL,
	created_at      timestamptz NOT NULL DEFAULT now(),
	updated_at      timestamptz,
	md5             bytea       CHECK (length(md5) = 16),
	sha1            bytea       CHECK (length(sha1) = 20),
	sha256          bytea       CHECK (length(sha256) = 32),
	sha512          bytea       CHECK (length(sha512) = 64)
);
CREATE INDEX file_digests_file ON file_digests (generic_file_id);

-- +goose StatementBegin
-- event_number returns the number of what an event says, which it adds to the dictionary
-- if it is new. A recording that adds the same at this moment is waited for.
CREATE FUNCTION event_number(at integer, about text, event_type text, detail text, outcome text, outcome_detail text, outcome_information text,
	object text, agent text) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	of   bytea := sha256(convert_to(jsonb_build_array($1, $2, $3, $4, $5, $6, $7, $8, $9)::text, 'UTF8'));
	n    integer;
BEGIN
	SELECT t.id INTO n FROM event_texts t WHERE t.digest = of;
	IF n IS NULL THEN
		INSERT INTO event_texts AS t (digest, at, about, event_type, detail, outcome, outcome_detail, outcome_information, object, agent)
		VALUES (of, $1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (digest) DO NOTHING RETURNING t.id INTO n;
	END IF;
	IF n IS NULL THEN
		SELECT t.id INTO n FROM event_texts t WHERE t.digest = of;
	END IF;
	IF n IS NULL THEN
		RAISE EXCEPTION 'another transaction has just added this text of an event' USING ERRCODE = 'serialization_failure';
	END IF;
	RETURN n;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- event_places divides the texts of an event of a file into sentences and facts: names,
-- addresses, digests and whatever else differs from file to file. Places are %f (the
-- file's identifier), %u (its uuid), %h01 (the first fact, in hexadecimal), %t01 (the
-- first fact, as text) and %p (a percent sign).
CREATE FUNCTION event_places(event_type text, INOUT detail text, INOUT outcome_detail text, INOUT outcome_information text,
	file text, uuid uuid, OUT facts bytea[])
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
	-- What does not differ from file to file, as far as its form tells.
	plain constant text := '^[A-Za-z ,()-]{0,80}$';
	part  text[];
BEGIN
	facts := '{}';
	IF outcome_detail = file THEN
		outcome_detail := '%f';
	ELSIF outcome_detail ~ '^(md5|sha1|sha256|sha512):([0-9a-f]{2})+$' THEN
		facts := facts || decode(split_part(outcome_detail, ':', 2), 'hex');
		outcome_detail := split_part(outcome_detail, ':', 1) || ':%h01';
	ELSIF strpos(outcome_detail, 'https://') = 1 AND right(outcome_detail, 37) = '/' || uuid THEN
		outcome_detail := replace(left(outcome_detail, -36), '%', '%p') || '%u';
	ELSIF event_type <> 'format identification' AND outcome_detail !~ plain THEN
		facts := facts || convert_to(outcome_detail, 'UTF8');
		outcome_detail := '%t01';
	ELSE
		outcome_detail := replace(outcome_detail, '%', '%p');
	END IF;
	part := regexp_match(outcome_information, '^(Fixity matches at https://.*/)' || uuid || ': (.*)$');
	IF outcome_detail = 'sha256:%h01' AND part[2] = encode(facts[1], 'hex') THEN
		outcome_information := replace(part[1], '%', '%p') || '%u: %h01';
	ELSIF outcome_information ~ plain THEN
		NULL;
	ELSE
		facts := facts || convert_to(outcome_information, 'UTF8');
		outcome_information := '%t' || lpad(cardinality(facts)::text, 2, '0');
	END IF;
	IF length(detail) > 200 OR translate(replace(detail, coalesce(uuid::text, '-'), ''), '0123456789/@', '') <> replace(detail, coalesce(uuid::text, '-'), '') THEN
		facts := facts || convert_to(detail, 'UTF8');
		detail := '%t' || lpad(cardinality(facts)::text, 2, '0');
	ELSE
		detail := replace(detail, '%', '%p');
		detail := CASE WHEN uuid IS NULL THEN detail ELSE replace(detail, uuid::text, '%u') END;
	END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- load_records takes in the rows of tables that are as premis_events and checksums were,
-- with their ids and identifiers. Digests of a content that were written together become
-- one row again.
CREATE FUNCTION load_records(events regclass, digests regclass) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	EXECUTE format($sql$
		WITH said AS MATERIALIZED (
			SELECT e.id, e.generic_file_id, e.intellectual_object_id, e.institution_id, e.identifier, e.created_at, nullif(e.updated_at, e.created_at) AS updated_at,
				e.date_time, e.event_type, e.outcome, e.object, e.agent, p.*
			FROM %s e LEFT JOIN generic_files f ON f.id = e.generic_file_id
			CROSS JOIN LATERAL event_places(e.event_type, e.detail, e.outcome_detail, e.outcome_information, f.identifier, f.uuid) p
		), text AS MATERIALIZED (
			SELECT t.*, event_number(1, '', event_type, detail, outcome, outcome_detail, outcome_information, object, agent) AS number
			FROM (SELECT DISTINCT event_type, detail, outcome, outcome_detail, outcome_information, object, agent FROM said) t
		)
		INSERT INTO event_records (id, generic_file_id, intellectual_object_id, institution_id, key, created_at, updated_at, texts, times, facts)
		SELECT s.id, s.generic_file_id, s.intellectual_object_id, s.institution_id, s.identifier, s.created_at, s.updated_at,
			ARRAY[t.number], ARRAY[s.date_time], s.facts
		FROM said s JOIN text t USING (event_type, detail, outcome, outcome_detail, outcome_information, object, agent)
		ORDER BY s.generic_file_id, s.id$sql$, events);
	EXECUTE format($sql$
		INSERT INTO file_digests (id, generic_file_id, datetime, created_at, updated_at, md5, sha1, sha256, sha512)
		SELECT c.id - a.n, generic_file_id, datetime, created_at, nullif(updated_at, created_at),
			decode(max(digest) FILTER (WHERE algorithm = 'md5'), 'hex'), decode(max(digest) FILTER (WHERE algorithm = 'sha1'), 'hex'),
			decode(max(digest) FILTER (WHERE algorithm = 'sha256'), 'hex'), decode(max(digest) FILTER (WHERE algorithm = 'sha512'), 'hex')
		FROM %s c JOIN (VALUES ('md5', 0), ('sha1', 1), ('sha256', 2), ('sha512', 3)) a (of, n) ON a.of = c.algorithm
		GROUP BY 1, 2, 3, 4, 5 ORDER BY 1$sql$, digests);
END
$$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION event_number, event_places, load_records FROM PUBLIC;

SELECT load_records('premis_events', 'checksums');

-- The sequences keep their names and go on from where they are.
CREATE TEMPORARY TABLE ids ON COMMIT DROP AS SELECT
	nextval(pg_get_serial_sequence('premis_events', 'id')) AS event, nextval(pg_get_serial_sequence('checksums', 'id')) AS digest;
DROP TABLE premis_events, checksums;
CREATE SEQUENCE premis_events_id_seq INCREMENT 64 OWNED BY event_records.id;
CREATE SEQUENCE checksums_id_seq INCREMENT 4 OWNED BY file_digests.id;
SELECT setval('premis_events_id_seq', event, false), setval('checksums_id_seq', digest, false) FROM ids;
ALTER TABLE event_records ALTER COLUMN id SET DEFAULT nextval('premis_events_id_seq');
ALTER TABLE file_digests ALTER COLUMN id SET DEFAULT nextval('checksums_id_seq');

ALTER TABLE storage_records DROP CONSTRAINT storage_records_generic_file_id_fkey;

-- A URL has some hundred bytes, its digest 16.
ALTER TABLE storage_records DROP CONSTRAINT storage_records_generic_file_id_url_key;
CREATE UNIQUE INDEX storage_records_generic_file_id_url_key ON storage_records (generic_file_id, (md5(url)::uuid));

-- +goose StatementBegin
-- signature_number has the same result as before. Searching for its pattern took a sixth of the time
-- of a recording, for an index; now only names of another form are searched.
CREATE OR REPLACE FUNCTION signature_number(signature_version text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
	WHEN strpos(signature_version, 'DROID_SignatureFile_V') = 0 THEN 0
	WHEN split_part(split_part(signature_version, 'DROID_SignatureFile_V', 2), '.', 1) IN ('', split_part(signature_version, 'DROID_SignatureFile_V', 2))
		OR length(split_part(split_part(signature_version, 'DROID_SignatureFile_V', 2), '.', 1)) > 6
		OR translate(split_part(split_part(signature_version, 'DROID_SignatureFile_V', 2), '.', 1), '0123456789', '') <> ''
		THEN coalesce(substring(signature_version FROM 'DROID_SignatureFile_V([0-9]{1,6})[.]')::integer, 0)
	ELSE split_part(split_part(signature_version, 'DROID_SignatureFile_V', 2), '.', 1)::integer END;
-- +goose StatementEnd
