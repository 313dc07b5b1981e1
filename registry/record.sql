-- The statements of one recording, run in this order in one transaction. Each begins with the
-- relation `recording`, which has a row for each file that was stored: those of a temporary table
-- that COPY has filled, or, of a small bag, rows that the statement itself brings as JSON. Each
-- may run again after a commit whose reply was lost: it then changes nothing.

-- name: columns
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
	size          bigint,
	mod_time      timestamptz,
	digested_at   timestamptz,
	md5           bytea,
	sha1          bytea,
	sha256        bytea,
	sha512        bytea,
	targets       text[],
	buckets       text[],
	keys          text[],
	urls          text[],
	etags         text[],
	stored_at     timestamptz[],
	verified_at   timestamptz[],
	verified_by   text[],
	kind          integer,       -- which events it has, see event_kinds
	times         timestamptz[], -- of these
	facts         bytea[]        -- that these name, behind the four digests

-- name: table
CREATE TEMPORARY TABLE recorded (identifier text, id bigint, is_new boolean) ON COMMIT DROP

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
saved AS (
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

-- name: files of the table
INSERT INTO recorded SELECT identifier, id, is_new FROM saved

-- name: files of the statement
SELECT identifier, id, is_new FROM saved

-- name: moved
SELECT identifier FROM copied EXCEPT SELECT identifier FROM recorded LIMIT 1

-- name: replaced
-- A copy is the object under a key of a bucket, whatever name this worker has for the bucket. A
-- bad copy whose record is about to go is bad no longer: the bytes of this item stand in its
-- place (fixity_failures_open).
replaced AS (
	UPDATE fixity_failures b SET state = 'replaced', closed_at = now()
	FROM storage_records s JOIN recording r ON r.id = s.generic_file_id
	WHERE b.storage_record_id = s.id AND b.state = 'open'
	  AND NOT EXISTS (SELECT FROM unnest(r.targets, r.buckets, r.keys) AS c (target, bucket, key) WHERE (c.target, c.bucket, c.key) = (s.target, s.bucket, s.key))
	RETURNING r.id, b.problem, s.url, coalesce(r.urls[array_position(r.targets, s.target)], r.urls[1]) AS new_url
)
INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time,
	detail, outcome, outcome_detail, outcome_information, object, agent)
SELECT event_identifier(@item, url, 'replication', new_url), @institution_id, @object_id, id, 'replication', now(),
	'Replaced ' || CASE problem WHEN 'missing' THEN 'a missing' ELSE 'a damaged' END || ' copy by the bytes of a new deposit', 'Success', new_url,
	'Work item ' || @item::bigint || ' brought them. The ' || problem || ' copy was at ' || url, @copy_object, @copy_agent
FROM replaced

-- name: retire
-- Before the new digests are on record, since the old ones are what the old copies had.
gone AS (
	DELETE FROM storage_records s USING recording r
	WHERE s.generic_file_id = r.id
	  AND NOT EXISTS (SELECT FROM unnest(r.targets, r.buckets, r.keys) AS c (target, bucket, key) WHERE (c.target, c.bucket, c.key) = (s.target, s.bucket, s.key))
	RETURNING s.id, s.generic_file_id, s.target, s.bucket, s.key, s.url
)
INSERT INTO retired_copies (work_item_id, target, bucket, key, generic_file_id, url, digest, problem)
SELECT @item, target, bucket, key, generic_file_id, url,
	coalesce((SELECT c.algorithm || ':' || c.digest FROM checksums c WHERE c.generic_file_id = gone.generic_file_id AND c.algorithm IN ('sha256', 'md5')
		ORDER BY c.algorithm DESC, c.datetime DESC LIMIT 1), ''),
	coalesce((SELECT b.problem FROM fixity_failures b WHERE b.storage_record_id = gone.id AND b.state = 'replaced' ORDER BY b.id DESC LIMIT 1), '')
FROM gone
ON CONFLICT DO NOTHING

-- name: digests
-- Of files that were on record before. The newest of an algorithm is the current one, so a
-- digest that is recorded is newer than all others of its file, even if two versions came
-- within a second or a clock was set back. A row of other digests may have been written by
-- hand, with some of the algorithms only: what it has is not written twice.
digested AS MATERIALIZED (
	SELECT r.*, greatest(r.digested_at, (
		SELECT max(k.datetime) + interval '1 microsecond' FROM file_digests k WHERE k.generic_file_id = r.id
		  AND (k.md5 <> r.md5 OR k.sha1 <> r.sha1 OR k.sha256 <> r.sha256 OR k.sha512 <> r.sha512))) AS datetime
	FROM recording r WHERE NOT r.is_new
), known AS MATERIALIZED (
	SELECT r.id, bool_or(k.md5 IS NOT NULL) AS md5, bool_or(k.sha1 IS NOT NULL) AS sha1, bool_or(k.sha256 IS NOT NULL) AS sha256, bool_or(k.sha512 IS NOT NULL) AS sha512
	FROM digested r JOIN file_digests k ON k.generic_file_id = r.id
	WHERE (k.md5 <> r.md5 OR k.sha1 <> r.sha1 OR k.sha256 <> r.sha256 OR k.sha512 <> r.sha512) IS NOT TRUE
	GROUP BY r.id
), again AS (
	UPDATE file_digests k SET datetime = r.datetime, updated_at = now() FROM digested r
	WHERE k.generic_file_id = r.id AND k.datetime < r.datetime
	  AND (k.md5 <> r.md5 OR k.sha1 <> r.sha1 OR k.sha256 <> r.sha256 OR k.sha512 <> r.sha512) IS NOT TRUE
)
INSERT INTO file_digests (generic_file_id, datetime, md5, sha1, sha256, sha512)
SELECT r.id, r.datetime, CASE WHEN k.md5 IS NOT TRUE THEN r.md5 END, CASE WHEN k.sha1 IS NOT TRUE THEN r.sha1 END,
	CASE WHEN k.sha256 IS NOT TRUE THEN r.sha256 END, CASE WHEN k.sha512 IS NOT TRUE THEN r.sha512 END
FROM digested r LEFT JOIN known k ON k.id = r.id
WHERE (k.md5 AND k.sha1 AND k.sha256 AND k.sha512) IS NOT TRUE

-- name: copies
-- Of files that were on record before. Nobody has read a copy yet, unless that is how it was
-- verified. A copy that is on record keeps the address that it was given there: another worker
-- may have another name for its bucket.
copy AS (
	INSERT INTO storage_records (generic_file_id, url, target, bucket, key, etag, stored_at, verified_at, verified_by, last_fixity_at)
	SELECT r.id, coalesce((SELECT s.url FROM storage_records s
			WHERE s.generic_file_id = r.id AND (s.target, s.bucket, s.key) = (c.target, c.bucket, c.key)), c.url), c.target, c.bucket, c.key, c.etag, c.stored_at, c.verified_at, c.verified_by, CASE c.verified_by WHEN 'read' THEN c.verified_at END
	FROM recording r
	CROSS JOIN LATERAL unnest(r.urls, r.targets, r.buckets, r.keys, r.etags, r.stored_at, r.verified_at, r.verified_by)
		AS c (url, target, bucket, key, etag, stored_at, verified_at, verified_by)
	WHERE NOT r.is_new
	ON CONFLICT (generic_file_id, (md5(url)::uuid)) DO UPDATE SET
		etag = excluded.etag, stored_at = excluded.stored_at, verified_at = excluded.verified_at, verified_by = excluded.verified_by,
		last_fixity_at = greatest(storage_records.last_fixity_at, excluded.last_fixity_at), updated_at = now()
	WHERE storage_records.verified_at < excluded.verified_at
)
SELECT

-- name: records
-- Behind `events`. A file that is new has no digest and no copy yet, so that nothing conflicts.
digest AS (
	INSERT INTO file_digests (generic_file_id, datetime, md5, sha1, sha256, sha512)
	SELECT id, digested_at, md5, sha1, sha256, sha512 FROM recording WHERE is_new
), copy AS (
	INSERT INTO storage_records (generic_file_id, url, target, bucket, key, etag, stored_at, verified_at, verified_by, last_fixity_at)
	SELECT r.id, c.url, c.target, c.bucket, c.key, c.etag, c.stored_at, c.verified_at, c.verified_by, CASE c.verified_by WHEN 'read' THEN c.verified_at END
	FROM recording r
	CROSS JOIN LATERAL unnest(r.urls, r.targets, r.buckets, r.keys, r.etags, r.stored_at, r.verified_at, r.verified_by)
		AS c (url, target, bucket, key, etag, stored_at, verified_at, verified_by)
	WHERE r.is_new
)
INSERT INTO event_records (key, item, generic_file_id, intellectual_object_id, institution_id, texts, times, facts)
SELECT e.key, @item, e.id, @object_id, @institution_id, e.texts, e.times, e.facts
FROM events e

-- name: once
WHERE e.is_new OR NOT CASE WHEN e.id IS NULL -- of this item, recorded before all had one row
	THEN EXISTS (SELECT FROM premis_events p WHERE p.generic_file_id IS NULL AND p.intellectual_object_id = @object_id
		AND p.event_type = 'ingestion' AND p.identifier = event_identifier(@item, e.identifier, p.event_type, p.outcome_detail))
	ELSE EXISTS (SELECT FROM premis_events p WHERE p.generic_file_id = e.id
		AND p.event_type = 'ingestion' AND p.identifier = event_identifier(@item, e.identifier, p.event_type, p.outcome_detail)) END
ON CONFLICT (generic_file_id, key) DO NOTHING

-- name: events
-- All events of a file are a row, and those of the object: the numbers of their texts, by the
-- kind that Go has counted. The first text of a file says that it was given its identifier,
-- and the second that it was given an address; the first two of an object, that it was created and given its identifier.
text AS MATERIALIZED (
	SELECT array_agg(t.id ORDER BY t.n) AS ids FROM (
		SELECT s.n, event_number(s.at, s.about, s.event_type, s.detail, s.outcome, s.outcome_detail, s.outcome_information, s.object, s.agent) AS id
		FROM (SELECT * FROM json_to_recordset(@texts::json) AS s (n integer, at integer, about text, event_type text, detail text, outcome text,
			outcome_detail text, outcome_information text, object text, agent text) ORDER BY event_type, detail, outcome_detail, object) s) t
), kind AS MATERIALIZED (
	SELECT k.kind, (SELECT array_agg(t.ids[u.n] ORDER BY u.place) FROM unnest(k.texts) WITH ORDINALITY u (n, place)) AS texts,
		event_identifier(@item, @identifier, 'ingestion', '') AS key
	FROM text t CROSS JOIN json_to_recordset(@kinds::json) AS k (kind integer, texts integer[])
), events AS MATERIALIZED (
	SELECT r.id, r.identifier, r.uuid, r.is_new, CASE WHEN r.is_new THEN k.texts ELSE k.texts[2:] END AS texts, r.times,
		ARRAY[r.md5, r.sha1, r.sha256, r.sha512] || r.facts AS facts, k.key
	FROM recording r JOIN kind k ON k.kind = r.kind
	UNION ALL
	SELECT NULL, @identifier, NULL, @is_new, CASE WHEN @is_new THEN k.texts ELSE k.texts[3:] END, ARRAY[@validated_at::timestamptz], @object_facts::bytea[], k.key
	FROM kind k WHERE k.kind = 0
)

-- name: added
-- A recording that is repeated may say what the first has not: that a file was stored again
-- under another key, or that another version has identified a format. An item ingests
-- its object once, however many files it stores again. An event that names an address is about
-- a copy that is on record under it: a copy is given its address once, by the
-- recording that puts it on record, whatever name a later worker has for the bucket.
said AS MATERIALIZED (
	SELECT e.id, e.key, e.times, e.facts, s.text, t.event_type,
		event_words(t.id = s.text, t.outcome_detail, e.identifier, e.uuid, e.facts) AS outcome_detail,
		event_identifier(@item, e.identifier, t.event_type, event_words(t.id = s.text, t.outcome_detail, e.identifier, e.uuid, e.facts)) AS identifier
	FROM events e CROSS JOIN LATERAL unnest(e.texts) AS s (text) JOIN event_texts t ON t.id = s.text
	WHERE NOT e.is_new AND NOT CASE WHEN e.id IS NULL
		THEN EXISTS (SELECT FROM event_records o WHERE o.generic_file_id IS NULL AND o.intellectual_object_id = @object_id
			AND o.key = e.key AND o.texts @> e.texts AND o.facts = e.facts)
		ELSE EXISTS (SELECT FROM event_records o WHERE o.generic_file_id = e.id
			AND o.key = e.key AND o.texts @> e.texts AND o.facts = e.facts) END
)
INSERT INTO event_records (key, generic_file_id, intellectual_object_id, institution_id, texts, times, facts)
SELECT s.identifier, s.id, @object_id, @institution_id, ARRAY[s.text], s.times, s.facts
FROM said s
WHERE NOT CASE WHEN s.id IS NULL
	THEN EXISTS (SELECT FROM premis_events p WHERE p.generic_file_id IS NULL AND p.intellectual_object_id = @object_id AND p.identifier = s.identifier)
		OR s.event_type = 'ingestion'
			AND EXISTS (SELECT FROM event_records o WHERE o.generic_file_id IS NULL AND o.intellectual_object_id = @object_id AND o.key = s.key)
	ELSE EXISTS (SELECT FROM premis_events p WHERE p.generic_file_id = s.id AND p.identifier = s.identifier)
		OR s.event_type IN ('identifier assignment', 'replication')
			AND NOT EXISTS (SELECT FROM storage_records c WHERE c.generic_file_id = s.id AND c.url = s.outcome_detail) END
ON CONFLICT (generic_file_id, key) DO NOTHING
