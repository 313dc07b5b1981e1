-- The statements of one recording, run in this order in one transaction over
-- the temporary table `recording`, which holds a row for each file that was
-- stored. Each may run again after a commit whose reply was lost: it then
-- changes nothing.

-- name: table
CREATE TEMPORARY TABLE recording (
	identifier    text,
	uuid          uuid,
	file_format   text,
	format_puid   text,
	identified_by text,
	format_name   text,
	format_method text,
	signature_version text,
	format_reason text,
	identified_at timestamptz,
	virus_scanner text,        -- what looked for viruses; NULL: nothing did
	not_scanned   text,        -- why it did not look at this file; '': it did, and found none
	scanned_at    timestamptz,
	size          bigint,
	mod_time      timestamptz,
	md5           text,
	sha1          text,
	sha256        text,
	sha512        text,
	digested_at   timestamptz,
	manifests     text[], -- algorithm:digest of each payload manifest that lists the file
	targets       text[],
	buckets       text[],
	keys          text[],
	urls          text[],
	etags         text[],
	stored_at     timestamptz[],
	verified_at   timestamptz[],
	verified_by   text[],
	id            bigint,
	is_new        boolean
) ON COMMIT DROP

-- name: object
INSERT INTO intellectual_objects AS o (institution_id, identifier, title, description, access, alt_identifier, bag_name,
	bag_group_identifier, bagit_profile_identifier, source_organization, internal_sender_identifier,
	internal_sender_description, etag, storage_option, tag_encoding, state)
VALUES (@institution_id, @identifier, @title, @description, @access, @alt_identifier, @bag_name,
	@bag_group_identifier, @bagit_profile_identifier, @source_organization, @internal_sender_identifier,
	@internal_sender_description, @etag, @storage_option, @tag_encoding, 'A')
ON CONFLICT (identifier) DO UPDATE SET
	title                       = excluded.title,
	description                 = excluded.description,
	access                      = excluded.access,
	alt_identifier              = excluded.alt_identifier,
	bag_name                    = excluded.bag_name,
	bag_group_identifier        = excluded.bag_group_identifier,
	bagit_profile_identifier    = excluded.bagit_profile_identifier,
	source_organization         = excluded.source_organization,
	internal_sender_identifier  = excluded.internal_sender_identifier,
	internal_sender_description = excluded.internal_sender_description,
	etag                        = excluded.etag,
	tag_encoding                = excluded.tag_encoding,
	state                       = 'A',
	created_at                  = CASE o.state WHEN 'D' THEN now() ELSE o.created_at END, -- its retention begins again
	deleted_by_item             = NULL,
	updated_at                  = now()
WHERE o.institution_id = excluded.institution_id AND o.storage_option = excluded.storage_option AND o.deletions = @deletions
RETURNING o.id, o.xmax = 0 AS is_new

-- name: files
WITH saved AS (
	INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, format_puid,
		format_identified_by, format_name, format_method, format_signature_version, format_reason, format_identified_at,
		size, state, storage_option, mod_time, last_fixity_check)
	SELECT @institution_id, @object_id, identifier, uuid, file_format, format_puid,
		identified_by, format_name, format_method, signature_version, format_reason, identified_at,
		size, 'A', @storage_option, mod_time, digested_at
	FROM recording
	ON CONFLICT (identifier) DO UPDATE SET
		file_format              = excluded.file_format,
		format_puid              = excluded.format_puid,
		format_identified_by     = excluded.format_identified_by,
		format_name              = excluded.format_name,
		format_method            = excluded.format_method,
		format_signature_version = excluded.format_signature_version,
		format_reason            = excluded.format_reason,
		format_identified_at     = excluded.format_identified_at,
		size                     = excluded.size,
		state                    = 'A',
		created_at               = CASE generic_files.state WHEN 'D' THEN now() ELSE generic_files.created_at END,
		deleted_by_item          = NULL,
		mod_time                 = excluded.mod_time,
		last_fixity_check        = excluded.last_fixity_check,
		updated_at               = now()
	WHERE generic_files.uuid = excluded.uuid AND generic_files.intellectual_object_id = excluded.intellectual_object_id
	RETURNING id, identifier, xmax = 0 AS is_new
)
UPDATE recording r SET id = saved.id, is_new = saved.is_new FROM saved WHERE saved.identifier = r.identifier

-- name: renamed
-- Another worker may have another name for the same bucket. The copy stays the same, with
-- all that is known of it (storage_records_generic_file_id_url_key).
UPDATE storage_records s SET url = c.url, updated_at = now()
FROM recording r CROSS JOIN LATERAL unnest(r.targets, r.keys, r.urls) AS c (target, key, url)
WHERE s.generic_file_id = r.id AND s.target = c.target AND s.key = c.key AND s.url <> c.url

-- name: replaced
-- A bad copy whose record is about to go is bad no longer: the bytes of this
-- item stand in its place (storage_records_generic_file_id_url_key, fixity_failures_open).
WITH replaced AS (
	UPDATE fixity_failures b SET state = 'replaced', closed_at = now()
	FROM storage_records s JOIN recording r ON r.id = s.generic_file_id
	WHERE b.storage_record_id = s.id AND b.state = 'open' AND NOT s.url = ANY (r.urls)
	RETURNING r.id, b.problem, s.url, coalesce(r.urls[array_position(r.targets, s.target)], r.urls[1]) AS new_url
)
INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time,
	detail, outcome, outcome_detail, outcome_information, object, agent)
SELECT event_identifier(@item, url, 'replication', new_url), @institution_id, @object_id, id, 'replication', now(),
	'Replaced ' || CASE problem WHEN 'missing' THEN 'a missing' ELSE 'a damaged' END || ' copy by the bytes of a new deposit', 'Success', new_url,
	'Work item ' || @item::bigint || ' brought them. The ' || problem || ' copy was at ' || url, @copy_object, @copy_agent
FROM replaced
ON CONFLICT (identifier) DO NOTHING

-- name: retire
-- Before the new digests are on record, since the old ones are what the old copies had.
WITH gone AS (
	DELETE FROM storage_records s USING recording r
	WHERE s.generic_file_id = r.id AND NOT s.url = ANY (r.urls)
	RETURNING s.id, s.generic_file_id, s.target, s.bucket, s.key, s.url
)
INSERT INTO retired_copies (work_item_id, target, bucket, key, generic_file_id, url, digest, problem)
SELECT @item, target, bucket, key, generic_file_id, url,
	coalesce((SELECT c.algorithm || ':' || c.digest FROM checksums c WHERE c.generic_file_id = gone.generic_file_id AND c.algorithm IN ('sha256', 'md5')
		ORDER BY c.algorithm DESC, c.datetime DESC LIMIT 1), ''),
	coalesce((SELECT b.problem FROM fixity_failures b WHERE b.storage_record_id = gone.id AND b.state = 'replaced' ORDER BY b.id DESC LIMIT 1), '')
FROM gone
ON CONFLICT DO NOTHING

-- name: checksums
-- The newest of an algorithm is the current one, so a digest that is recorded is newer
-- than all others of its file, even if two versions came within a second or a clock
-- was set back.
INSERT INTO checksums (generic_file_id, algorithm, digest, datetime)
SELECT r.id, c.algorithm, c.digest, CASE WHEN r.is_new THEN r.digested_at ELSE greatest(r.digested_at, (
	SELECT max(k.datetime) + interval '1 microsecond' FROM checksums k
	WHERE k.generic_file_id = r.id AND k.algorithm = c.algorithm AND k.digest <> c.digest)) END
FROM recording r
CROSS JOIN LATERAL (VALUES ('md5', r.md5), ('sha1', r.sha1), ('sha256', r.sha256), ('sha512', r.sha512)) AS c (algorithm, digest)
ON CONFLICT (generic_file_id, algorithm, digest) DO UPDATE SET
	datetime = greatest(checksums.datetime, excluded.datetime), updated_at = now()
WHERE checksums.datetime < excluded.datetime

-- name: copies
-- Nobody has read a copy yet, unless that is how it was verified.
INSERT INTO storage_records (generic_file_id, url, target, bucket, key, etag, stored_at, verified_at, verified_by, last_fixity_at)
SELECT r.id, c.url, c.target, c.bucket, c.key, c.etag, c.stored_at, c.verified_at, c.verified_by, CASE c.verified_by WHEN 'read' THEN c.verified_at END
FROM recording r
CROSS JOIN LATERAL unnest(r.urls, r.targets, r.buckets, r.keys, r.etags, r.stored_at, r.verified_at, r.verified_by)
	AS c (url, target, bucket, key, etag, stored_at, verified_at, verified_by)
ON CONFLICT (generic_file_id, url) DO UPDATE SET
	etag = excluded.etag, stored_at = excluded.stored_at, verified_at = excluded.verified_at, verified_by = excluded.verified_by,
	last_fixity_at = greatest(storage_records.last_fixity_at, excluded.last_fixity_at), updated_at = now()
WHERE storage_records.verified_at < excluded.verified_at

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
		SELECT FROM premis_events e WHERE e.generic_file_id = r.id AND e.event_type = 'replication'
		  AND e.identifier = event_identifier(@item, r.identifier, e.event_type, e.outcome_detail))
	UNION ALL
	SELECT r.id, r.identifier, 'identifier assignment', now(), 'Success',
		'Assigned new institution.bag/path identifier', r.identifier, 'Assigned bag/filepath identifier', @name_object, @name_agent
	FROM recording r WHERE r.is_new
	UNION ALL
	SELECT r.id, r.identifier, 'identifier assignment', now(), 'Success',
		'Assigned new storage URL identifier', r.urls[1], 'Assigned url identifier', @copy_object, @copy_agent
	FROM recording r
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
INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time,
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
INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, event_type, date_time,
	detail, outcome, outcome_detail, outcome_information, object, agent)
SELECT event_identifier(@item, @identifier, event_type, outcome_detail), @institution_id, @object_id, event_type, date_time,
	detail, 'Success', outcome_detail, outcome_information, object, agent
FROM event WHERE @is_new OR NOT first_only
ON CONFLICT (identifier) DO NOTHING
