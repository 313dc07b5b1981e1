-- What recordings wrote before an ingest had one row for all events of a file: the table, and
-- the statements that filled it. TestEventsAreThoseOfBefore compares both.

-- name: table
CREATE TABLE plain_events (
	id                     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	identifier             uuid        NOT NULL UNIQUE,
	institution_id         bigint      NOT NULL,
	intellectual_object_id bigint      NOT NULL,
	generic_file_id        bigint      REFERENCES generic_files,
	event_type             text        NOT NULL,
	date_time              timestamptz NOT NULL,
	detail                 text        NOT NULL CHECK (detail <> ''),
	outcome                text        NOT NULL CHECK (outcome IN ('Success', 'Failure')),
	outcome_detail         text        NOT NULL,
	outcome_information    text        NOT NULL,
	object                 text        NOT NULL,
	agent                  text        NOT NULL,
	created_at             timestamptz NOT NULL DEFAULT now(),
	updated_at             timestamptz NOT NULL DEFAULT now(),
	event_type_uri         text        GENERATED ALWAYS AS (event_type_uri(event_type)) STORED
)

-- name: table of checksums
CREATE TABLE plain_checksums (
	id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	generic_file_id bigint      NOT NULL REFERENCES generic_files,
	algorithm       text        NOT NULL CHECK (algorithm IN ('md5', 'sha1', 'sha256', 'sha512')),
	digest          text        NOT NULL,
	datetime        timestamptz NOT NULL,
	created_at      timestamptz NOT NULL DEFAULT now(),
	updated_at      timestamptz NOT NULL DEFAULT now(),
	UNIQUE (generic_file_id, algorithm, digest)
)

-- name: table of files
CREATE TABLE recording (
	identifier text, uuid uuid, file_format text, format_puid text, identified_by text, format_name text, format_method text, signature_version text,
	format_reason text, identified_at timestamptz, virus_scanner text, not_scanned text, scanned_at timestamptz,
	md5 text, sha1 text, sha256 text, sha512 text, digested_at timestamptz, manifests text[],
	urls text[], stored_at timestamptz[], verified_by text[], id bigint, is_new boolean
)

-- name: checksums
-- The newest of an algorithm is the current one, so a digest that is recorded is newer
-- than all others of its file, even if two versions came within a second or a clock
-- was set back.
INSERT INTO plain_checksums (generic_file_id, algorithm, digest, datetime)
SELECT r.id, c.algorithm, c.digest, CASE WHEN r.is_new THEN r.digested_at ELSE greatest(r.digested_at, (
	SELECT max(k.datetime) + interval '1 microsecond' FROM plain_checksums k
	WHERE k.generic_file_id = r.id AND k.algorithm = c.algorithm AND k.digest <> c.digest)) END
FROM recording r
CROSS JOIN LATERAL (VALUES ('md5', r.md5), ('sha1', r.sha1), ('sha256', r.sha256), ('sha512', r.sha512)) AS c (algorithm, digest)
ON CONFLICT (generic_file_id, algorithm, digest) DO UPDATE SET
	datetime = greatest(plain_checksums.datetime, excluded.datetime), updated_at = now()
WHERE plain_checksums.datetime < excluded.datetime

-- name: file events
-- A file is replicated once by an item, whatever name the worker that records it has
-- for the bucket: one that records again, since the answer was lost, may have another.
WITH event AS (
	SELECT r.id, r.identifier, 'fixity check' AS event_type, r.digested_at AS date_time, 'Success' AS outcome,
		'Fixity check against registered hash' AS detail, m.entry AS outcome_detail, 'Fixity matches' AS outcome_information,
		'Go language crypto/' || split_part(m.entry, ':', 1) AS object,
		'http://golang.org/pkg/crypto/' || split_part(m.entry, ':', 1) || '/' AS agent
	FROM recording r CROSS JOIN LATERAL unnest(r.manifests) AS m (entry)
	UNION ALL
	SELECT r.id, r.identifier, 'message digest calculation', r.digested_at, 'Success',
		'Calculated fixity value', c.algorithm || ':' || c.digest, 'Calculated fixity value',
		'Go language crypto/' || c.algorithm, 'http://golang.org/pkg/crypto/' || c.algorithm || '/'
	FROM recording r
	CROSS JOIN LATERAL (VALUES ('md5', r.md5), ('sha1', r.sha1), ('sha256', r.sha256), ('sha512', r.sha512)) AS c (algorithm, digest)
	UNION ALL
	SELECT r.id, r.identifier, 'ingestion', r.stored_at[1], 'Success',
		'Completed copy to preservation storage (' || r.uuid || ')', 'md5:' || r.md5,
		coalesce(nullif(@put_how, ''), CASE r.verified_by[1] WHEN 'sha256' THEN 'Stored and verified by its SHA-256' WHEN 'etag' THEN 'Stored and verified by its MD5'
			ELSE 'Stored, read back and verified by its SHA-256' END), @put_object, @put_agent
	FROM recording r
	UNION ALL
	SELECT r.id, r.identifier, 'replication', c.stored_at, 'Success',
		'Copied to replication storage and assigned replication URL identifier', c.url, 'Replicated to secondary storage', @copy_object, @copy_agent
	FROM recording r CROSS JOIN LATERAL unnest(r.urls[2:], r.stored_at[2:]) AS c (url, stored_at)
	WHERE r.is_new OR NOT EXISTS ( -- by premis_events_file
		SELECT FROM plain_events e WHERE e.generic_file_id = r.id AND e.event_type = 'replication'
		  AND e.identifier = event_identifier(@item, r.identifier, e.event_type, e.outcome_detail))
	UNION ALL
	SELECT r.id, r.identifier, 'identifier assignment', now(), 'Success',
		'Assigned new institution.bag/path identifier', r.identifier, 'Assigned bag/filepath identifier', @name_object, @name_agent
	FROM recording r WHERE r.is_new
	UNION ALL
	SELECT r.id, r.identifier, 'identifier assignment', now(), 'Success',
		'Assigned new storage URL identifier', r.urls[1], 'Assigned url identifier', @copy_object, @copy_agent
	FROM recording r
	WHERE NOT EXISTS ( -- a copy is given its address once, whatever name another worker has for the bucket
		SELECT FROM plain_events e WHERE e.generic_file_id = r.id AND e.detail = 'Assigned new storage URL identifier'
		  AND e.identifier = event_identifier(@item, r.identifier, e.event_type, e.outcome_detail))
	UNION ALL
	SELECT r.id, r.identifier, 'format identification', coalesce(r.identified_at, now()),
		CASE WHEN identification_failed(r.format_reason) THEN 'Failure' ELSE 'Success' END, 'Identified file format',
		format_outcome(r.format_puid, r.file_format, r.format_name, r.format_method, r.signature_version, r.format_reason),
		coalesce(nullif(r.format_reason, ''), 'Identified by ' || r.identified_by), coalesce(nullif(r.signature_version, ''), 'Farol'),
		CASE r.signature_version WHEN '' THEN 'https://github.com/farol-preservation/farol' ELSE 'https://github.com/richardlehane/siegfried' END
	FROM recording r
	UNION ALL
	SELECT r.id, r.identifier, 'virus check', r.scanned_at, CASE r.not_scanned WHEN '' THEN 'Success' ELSE 'Failure' END,
		'Checked file for viruses', CASE r.not_scanned WHEN '' THEN 'No virus found' ELSE 'Not checked' END,
		coalesce(nullif(r.not_scanned, ''), 'Whole content scanned'), r.virus_scanner, 'https://www.clamav.net'
	FROM recording r WHERE r.virus_scanner IS NOT NULL
)
INSERT INTO plain_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time,
	detail, outcome, outcome_detail, outcome_information, object, agent)
SELECT event_identifier(@item, identifier, event_type, outcome_detail), @institution_id, @object_id, id, event_type, date_time,
	detail, outcome, outcome_detail, outcome_information, object, agent
FROM event
ON CONFLICT (identifier) DO NOTHING

-- name: object events
WITH event (event_type, date_time, detail, outcome_detail, outcome_information, object, agent, first_only) AS (VALUES
	('creation', now(), 'Object created', 'Intellectual object created',
		'Object created, files copied to preservation storage', @record_object, @record_agent, true),
	('identifier assignment', now(), 'Assigned object identifier ' || @identifier, @identifier::text,
		'Institution domain + tar file name', @record_object, @record_agent, true),
	('validation', @validated_at::timestamptz, 'Validated bag by its profile', @validated_by::text,
		CASE WHEN @warnings::bigint = 0 THEN 'Bag is valid' WHEN @found::text = '' THEN 'Bag is valid, warnings: ' || @warnings
			ELSE 'Bag is valid. ' || @found END,
		@validator::text, 'https://github.com/farol-preservation/farol', false),
	('ingestion', now(), @upload_what, (SELECT count(*) FROM recording) || ' files copied', @upload_how, @upload_object, @upload_agent, false),
	('access assignment', now(), 'Assigned object access rights', @access::text, 'Set access to ' || @access, @record_object, @record_agent, false)
)
INSERT INTO plain_events (identifier, institution_id, intellectual_object_id, event_type, date_time,
	detail, outcome, outcome_detail, outcome_information, object, agent)
SELECT event_identifier(@item, @identifier, event_type, outcome_detail), @institution_id, @object_id, event_type, date_time,
	detail, 'Success', outcome_detail, outcome_information, object, agent
FROM event WHERE @is_new OR NOT first_only
ON CONFLICT (identifier) DO NOTHING
