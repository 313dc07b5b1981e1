-- The records of an archive of five years, part by part. @from and @to are the numbers of the
-- rows that a statement makes; those without these are run once. Record n of a kind has the ID n.

-- name: helpers
-- h is the same random number from 0 to m - 1 for the same n and k.
CREATE FUNCTION pg_temp.h(n bigint, k bigint, m bigint) RETURNS bigint LANGUAGE sql IMMUTABLE
RETURN ((hashint8extended(n, k) % m) + m) % m;
-- Institution k has a share of 1 / k^1.1, so that the largest of 60 has a quarter.
CREATE TEMPORARY TABLE shares AS
SELECT array_agg(i ORDER BY i) AS of FROM (SELECT i, i ^ -1.1 / sum(i ^ -1.1) OVER () AS share FROM generate_series(1, @institutions) i) s,
	LATERAL generate_series(1, greatest(round(4000 * share), 1)::integer);
-- institution_of is the one that object n belongs to, and with it all that is about the object.
CREATE FUNCTION pg_temp.institution_of(shares integer[], object bigint) RETURNS integer LANGUAGE sql IMMUTABLE
RETURN shares[1 + pg_temp.h(object, 1, cardinality(shares))];
CREATE FUNCTION pg_temp.identifier_of(shares integer[], object bigint) RETURNS text LANGUAGE sql IMMUTABLE
RETURN 'inst' || pg_temp.institution_of(shares, object) || '.edu/bag-' || lpad(object::text, 9, '0');
-- moment is the time of record n of so many.
CREATE FUNCTION pg_temp.moment(n bigint, of bigint) RETURNS timestamptz LANGUAGE sql STABLE
RETURN now() - interval '5 years' * (1 - n::float8 / of) - interval '40 days';

-- name: institutions and people
SET session_replication_role = replica;
INSERT INTO institutions (id, name, identifier, receiving_bucket, restore_bucket) OVERRIDING SYSTEM VALUE
SELECT n, 'Institution ' || n, 'inst' || n || '.edu', 'in' || n, 'out' || n FROM generate_series(1, @institutions) n;
INSERT INTO users (id, email, name, institution_id, role) OVERRIDING SYSTEM VALUE
SELECT 2 * n - 1 + r, (ARRAY['admin', 'user'])[1 + r] || '@inst' || n || '.edu', 'Person ' || n, n, (ARRAY['institutional_admin', 'institutional_user'])[1 + r]
FROM generate_series(1, @institutions) n, generate_series(0, 1) r;
INSERT INTO users (id, email, name, role) OVERRIDING SYSTEM VALUE
SELECT 2 * @institutions + n, 'staff' || n || '@archive.org', 'Staff ' || n, (ARRAY['admin', 'operator', 'auditor', 'admin'])[1 + n % 4] FROM generate_series(1, 12) n;
DO $$
DECLARE
	month timestamptz := date_trunc('month', now(), 'UTC');
BEGIN
	FOR n IN 1..63 LOOP
		EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF actions FOR VALUES FROM (%L) TO (%L)',
			'actions_' || to_char((month - n * interval '1 month') AT TIME ZONE 'UTC', 'YYYYMM'), month - n * interval '1 month', month - (n - 1) * interval '1 month');
	END LOOP;
END
$$;

-- name: texts of events
SET session_replication_role = origin; -- a trigger makes the numbers of failures and deletions negative
CREATE TEMPORARY TABLE said AS
SELECT event_number(1, '', 'message digest calculation', 'Calculated a digest', 'Success', 'md5:%h01', 'Calculated', 'Farol', 'https://example.org') AS md5,
	event_number(1, '', 'message digest calculation', 'Calculated a digest', 'Success', 'sha256:%h02', 'Calculated', 'Farol', 'https://example.org') AS sha256,
	event_number(1, '%f', 'identifier assignment', 'Assigned an identifier', 'Success', '%f', 'Assigned', 'Farol', 'https://example.org') AS name,
	event_number(2, '', 'identifier assignment', 'Assigned an address', 'Success', 'https://s3.example.org/preservation/%u', 'Assigned', 'Farol', 'https://example.org') AS address,
	event_number(2, '', 'format identification', 'Identified the format', 'Success', 'PUID fmt/43', 'Identified', 'Farol', 'https://example.org') AS format,
	event_number(3, '', 'replication', 'Stored a copy', 'Success', 'https://s3.example.org/replication/%u', 'Stored', 'Farol', 'https://example.org') AS copy,
	event_number(3, '', 'ingestion', 'Stored the file', 'Success', 'md5:%h01', 'Stored', 'Farol', 'https://example.org') AS ingestion,
	event_number(0, '', 'fixity check', 'Compared with the digest', 'Success', 'sha256:%h01', 'Fixity matches', 'Farol', 'https://example.org') AS same,
	event_number(0, '', 'fixity check', 'Compared with the digest', 'Failure', 'sha256:%h01', 'Fixity does not match', 'Farol', 'https://example.org') AS other,
	event_number(0, '', 'deletion', 'Deleted all copies', 'Success', '%f', 'Deleted', 'Farol', 'https://example.org') AS deletion;
SET session_replication_role = replica;

-- name: objects
INSERT INTO intellectual_objects (id, institution_id, identifier, title, description, alt_identifier, bag_name, bag_group_identifier,
	bagit_profile_identifier, source_organization, etag, state, access, created_at, updated_at) OVERRIDING SYSTEM VALUE
SELECT n, pg_temp.institution_of(s.of, n), pg_temp.identifier_of(s.of, n), 'Papers and photographs, box ' || n, 'Letters, diaries and photographs', 'local-' || n,
	'bag-' || lpad(n::text, 9, '0'), 'group-' || pg_temp.h(n, 2, 1000), 'https://example.org/profile.json', 'Institution', md5(n::text),
	CASE pg_temp.h(n, 3, 200) WHEN 0 THEN 'D' ELSE 'A' END, (ARRAY['consortia', 'institution', 'restricted'])[1 + pg_temp.h(n, 4, 3)],
	pg_temp.moment(n, @count), pg_temp.moment(n + pg_temp.h(n, 5, @count - n + 1), @count)
FROM (SELECT of || '{}'::integer[] AS of FROM shares OFFSET 0) s, generate_series(@from::bigint, @to::bigint) n;

-- name: events of objects
INSERT INTO event_records (id, intellectual_object_id, institution_id, item, key, created_at, texts, times, facts)
SELECT 64 * (@files::bigint + n), n, pg_temp.institution_of(s.of, n), n, md5('o' || n)::uuid, pg_temp.moment(n, @count), ARRAY[t.ingestion],
	array_fill(pg_temp.moment(n, @count), ARRAY[3]), ARRAY[decode(md5(n::text), 'hex')]
FROM (SELECT of || '{}'::integer[] AS of FROM shares OFFSET 0) s, said t, generate_series(@from::bigint, @to::bigint) n;

-- name: files
-- One of fifty belongs to one of twenty large objects.
INSERT INTO generic_files (id, institution_id, intellectual_object_id, identifier, uuid, file_format, format_puid, format_identified_by, size, state, storage_option,
	mod_time, last_fixity_check, created_at, updated_at, format_name, format_method, format_signature_version, format_identified_at) OVERRIDING SYSTEM VALUE
SELECT n, pg_temp.institution_of(s.of, o.id), o.id, pg_temp.identifier_of(s.of, o.id) || '/data/images/page-' || lpad(n::text, 9, '0') || '.tif', md5(n::text)::uuid,
	'image/tiff', 'fmt/353', 'siegfried', pg_temp.h(n, 11, 100000000), CASE pg_temp.h(n, 12, 200) WHEN 0 THEN 'D' ELSE 'A' END, 'Standard',
	pg_temp.moment(n, @count), pg_temp.moment(n, @count), pg_temp.moment(n, @count), pg_temp.moment(n, @count),
	'Tagged Image File Format', 'signature', 'siegfried 1.11.1, DROID_SignatureFile_V120.xml', pg_temp.moment(n, @count)
FROM (SELECT of || '{}'::integer[] AS of FROM shares OFFSET 0) s, generate_series(@from::bigint, @to::bigint) n,
	LATERAL (SELECT CASE WHEN n % 50 = 0 THEN 1 + pg_temp.h(n, 13, least(20, @objects::bigint)) ELSE 1 + (n - 1) * @objects::bigint / @count::bigint END AS id) o;

-- name: digests
-- One of ten has one of a thousand contents that are often kept.
INSERT INTO file_digests (id, generic_file_id, datetime, created_at, md5, sha1, sha256, sha512)
SELECT 4 * n, n, pg_temp.moment(n, @count), pg_temp.moment(n, @count), decode(md5(c.t), 'hex'), substr(sha256(c.t::bytea), 3, 20), sha256(c.t::bytea), sha512(c.t::bytea)
FROM generate_series(@from::bigint, @to::bigint) n, LATERAL (SELECT (CASE pg_temp.h(n, 21, 10) WHEN 0 THEN pg_temp.h(n, 22, 1000) ELSE n + 1000 END)::text AS t) c;

-- name: copies
INSERT INTO storage_records (id, generic_file_id, url, target, bucket, key, etag, stored_at, verified_at, created_at, updated_at, last_fixity_at, active, verified_by)
OVERRIDING SYSTEM VALUE
SELECT (n - 1) * @copies::bigint + c, n, 'https://s3.example.org/preservation-' || c || '/' || f.uuid, 'Standard-' || c, 'preservation-' || c, f.uuid, md5(n::text),
	m.at, m.at, m.at, m.at, CASE WHEN pg_temp.h(n, 31, 3) > 0 THEN now() - pg_temp.h(n, 32, 90) * interval '1 day' END, pg_temp.h(n, 12, 200) > 0, 'sha256'
FROM generate_series(@from::bigint, @to::bigint) n, generate_series(1, @copies::bigint) c,
	LATERAL (SELECT md5(n::text)::uuid::text AS uuid) f, LATERAL (SELECT pg_temp.moment(n, @count) AS at) m;

-- name: events of ingests
INSERT INTO event_records (id, generic_file_id, intellectual_object_id, institution_id, item, key, created_at, texts, times, facts)
SELECT 64 * n, n, o.id, pg_temp.institution_of(s.of, o.id), o.id, md5('i' || o.id)::uuid, m.at,
	ARRAY[t.md5, t.sha256, t.name, t.address, t.format, t.copy, t.ingestion], array_fill(m.at, ARRAY[3]),
	ARRAY[decode(md5(n::text), 'hex'), sha256(n::text::bytea)]
FROM (SELECT of || '{}'::integer[] AS of FROM shares OFFSET 0) s, said t, generate_series(@from::bigint, @to::bigint) n,
	LATERAL (SELECT CASE WHEN n % 50 = 0 THEN 1 + pg_temp.h(n, 13, least(20, @objects::bigint)) ELSE 1 + (n - 1) * @objects::bigint / @count::bigint END AS id) o,
	LATERAL (SELECT pg_temp.moment(n, @count) AS at) m;

-- name: later events
-- Checks of copies, a few that found another digest, and deletions.
INSERT INTO event_records (id, generic_file_id, intellectual_object_id, institution_id, key, created_at, texts, times, facts)
SELECT 64 * (@files::bigint + @objects::bigint + n), f.id, f.intellectual_object_id, f.institution_id, md5('l' || n)::uuid, pg_temp.moment(n, @count),
	ARRAY[CASE pg_temp.h(n, 41, 100) WHEN 0 THEN t.other WHEN 1 THEN t.deletion ELSE t.same END], ARRAY[pg_temp.moment(n, @count)], ARRAY[sha256(n::text::bytea)]
FROM said t, generate_series(@from::bigint, @to::bigint) n JOIN generic_files f ON f.id = 1 + pg_temp.h(n, 42, @files::bigint);

-- name: ended items
INSERT INTO work_items_archive (id, institution_id, size, virtual_start, bag_date, date_processed, created_at, size_band, priority, attempt, claim_token, entered_token,
	run_at, updated_at, retry, needs_admin_review, stage, status, note, outcome, error_code, intellectual_object_id, queued_at, name, etag, bucket, action,
	object_identifier, storage_option, "user", deletion_request_id, memory_need)
SELECT n, pg_temp.institution_of(s.of, o.id), pg_temp.h(n, 52, 1000000000), n << 20, m.at, m.at, m.at, 0, 0, 0, 20, 18, m.at, m.at, false, pg_temp.h(n, 53, 1000) = 0,
	CASE WHEN k.action = 'Ingest' THEN 'Cleanup' ELSE 'Resolve' END, CASE WHEN pg_temp.h(n, 54, 20) = 0 THEN 'Cancelled' ELSE 'Success' END,
	'Item was processed', 'Bag is stored', CASE pg_temp.h(n, 54, 20) WHEN 0 THEN 'cancelled' ELSE '' END, o.id, m.at, 'bag-' || lpad(o.id::text, 9, '0') || '.tar',
	md5(n::text), 'in' || pg_temp.institution_of(s.of, o.id), k.action, pg_temp.identifier_of(s.of, o.id), 'Standard', 'system@aptrust.org',
	CASE WHEN k.action = 'Delete' THEN 1 + n * @requests::bigint / (@count::bigint + 1) END, 0
FROM (SELECT of || '{}'::integer[] AS of FROM shares OFFSET 0) s, generate_series(@from::bigint, @to::bigint) n,
	LATERAL (SELECT 1 + pg_temp.h(n, 51, @objects::bigint) AS id) o, LATERAL (SELECT pg_temp.moment(n, @count) AS at) m,
	LATERAL (SELECT CASE pg_temp.h(n, 55, 1000) / 5 WHEN 0 THEN 'Restore Object' WHEN 1 THEN 'Restore Object' WHEN 2 THEN 'Restore File' WHEN 3 THEN 'Glacier Restore'
		WHEN 4 THEN 'Delete' ELSE 'Ingest' END AS action) k;

-- name: live items
-- Of 1,000: 620 ended a few days ago, 40 wait for a person, 2 run, and the others wait for a
-- worker, most of them at the first stage.
INSERT INTO work_items (id, institution_id, size, virtual_start, bag_date, date_processed, created_at, size_band, attempt, claim_token, entered_token, run_at,
	updated_at, retry, needs_admin_review, stage, status, lease_expires_at, stage_started_at, pid, node, worker, note, outcome, error_code, queued_at, name, etag, bucket,
	action, object_identifier, storage_option) OVERRIDING SYSTEM VALUE
SELECT @ended::bigint + n, pg_temp.institution_of(s.of, o.id), z.size, n << 20, m.at, m.at, m.at, (SELECT max(band) FROM size_bands WHERE min_size <= z.size),
	CASE k.status WHEN 'Started' THEN 1 ELSE 0 END, 20, 18, m.at, m.at, k.status IN ('Pending', 'Started'), k.status IN ('Failed', 'Suspended'),
	CASE WHEN k.status IN ('Success', 'Cancelled') THEN 'Cleanup' ELSE (ARRAY['Receive', 'Receive', 'Receive', 'Receive', 'Receive', 'Receive', 'Receive', 'Validate',
		'Reingest Check', 'Copy To Staging', 'Format Identification', 'Store', 'Storage Validation', 'Record', 'Cleanup'])[1 + pg_temp.h(n, 64, 15)] END,
	k.status, w.lease, w.at, w.pid, w.node, w.worker, 'Item is in work', '', CASE k.status WHEN 'Failed' THEN 'invalid-bag' ELSE '' END, m.at,
	'bag-' || lpad(o.id::text, 9, '0') || '.tar', md5('live' || n), 'in' || pg_temp.institution_of(s.of, o.id), 'Ingest', pg_temp.identifier_of(s.of, o.id), 'Standard'
FROM (SELECT of || '{}'::integer[] AS of FROM shares OFFSET 0) s, generate_series(@from::bigint, @to::bigint) n,
	LATERAL (SELECT 1 + pg_temp.h(n, 61, @objects::bigint) AS id) o, LATERAL (SELECT now() - interval '30 days' * (1 - n::float8 / @count::bigint) AS at) m,
	LATERAL (SELECT (ARRAY[1000, 1000, 100 << 20, 1500 << 20])[1 + pg_temp.h(n, 62, 4)] AS size) z,
	LATERAL (SELECT pg_temp.h(n, 63, 1000) AS k) r,
	LATERAL (SELECT CASE WHEN r.k < 600 THEN 'Success' WHEN r.k < 620 THEN 'Cancelled' WHEN r.k < 650 THEN 'Failed' WHEN r.k < 660 THEN 'Suspended'
		WHEN r.k < 662 THEN 'Started' ELSE 'Pending' END AS status) k
LEFT JOIN LATERAL (SELECT now() + interval '30 days' AS lease, now() AS at, 1 AS pid, 'node' AS node, 'worker-' || n % 20 AS worker) w ON k.status = 'Started';

-- name: what items need
INSERT INTO uploads_in_work SELECT object_identifier, name, etag, id FROM work_items WHERE retry;
INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker)
SELECT id, claim_token, stage, 1, node, pid, worker FROM work_items WHERE status = 'Started';
-- A plan has up to ten thousand items.
INSERT INTO plans (id, action, priority, condition, items, created_by) OVERRIDING SYSTEM VALUE
SELECT n, 'set priority', 1, 'true', 10000, 'staff1@archive.org' FROM generate_series(1, 300) n;
INSERT INTO plan_items (plan_id, work_item_id, claim_token, stage, status, priority, size)
SELECT n, id, claim_token, stage, status, priority, size FROM generate_series(1, 10) n,
	LATERAL (SELECT * FROM work_items WHERE id >= (SELECT min(id) FROM work_items) + n * 100 ORDER BY id LIMIT 10000) w;

-- name: what objects have
INSERT INTO object_holdings (intellectual_object_id, files, bytes, payload_files, payload_bytes) -- a trigger would have counted
SELECT intellectual_object_id, count(*), sum(size), count(*), sum(size) FROM generic_files WHERE state = 'A' GROUP BY intellectual_object_id;

-- name: deletion requests
INSERT INTO deletion_requests (id, institution_id, requested_by, requested_at, approved_by, approved_at, cancelled_by, cancelled_at) OVERRIDING SYSTEM VALUE
SELECT n, i.id, 2 * i.id - 1, m.at, CASE WHEN k.state > 1 THEN 2 * i.id - 1 END, CASE WHEN k.state > 1 THEN m.at END,
	CASE k.state WHEN 1 THEN 2 * i.id - 1 END, CASE k.state WHEN 1 THEN m.at END
FROM (SELECT of || '{}'::integer[] AS of FROM shares OFFSET 0) s, generate_series(@from::bigint, @to::bigint) n, LATERAL (SELECT pg_temp.institution_of(s.of, n) AS id) i,
	LATERAL (SELECT pg_temp.moment(n, @count) AS at) m, LATERAL (SELECT pg_temp.h(n, 71, 20) AS state) k;

-- name: alerts
INSERT INTO alerts (id, institution_id, type, subject, content, created_at) OVERRIDING SYSTEM VALUE
SELECT n, CASE WHEN pg_temp.h(n, 81, 10) > 0 THEN pg_temp.institution_of(s.of, n) END,
	(ARRAY['Failed Fixity Check', 'Restoration Completed', 'Item Failed', 'Deletion Requested'])[1 + pg_temp.h(n, 82, 4)], 'Something happened to bag ' || n,
	repeat('What happened, and what to do. ', 5), pg_temp.moment(n, @count)
FROM (SELECT of || '{}'::integer[] AS of FROM shares OFFSET 0) s, generate_series(@from::bigint, @to::bigint) n;

-- name: actions
INSERT INTO actions (id, at, actor, user_id, operation, subject_type, subject_id, institution_id, actor_institution_id, outcome)
SELECT n, pg_temp.moment(n, @count), p.email, p.id, (ARRAY['items.requeue', 'users.set', 'restorations.request'])[1 + pg_temp.h(n, 91, 3)], 'item',
	(1 + pg_temp.h(n, 92, @ended::bigint))::text, pg_temp.institution_of(s.of, n), p.institution_id, CASE pg_temp.h(n, 93, 20) WHEN 0 THEN 'refused' ELSE 'done' END
FROM (SELECT of || '{}'::integer[] AS of FROM shares OFFSET 0) s, generate_series(@from::bigint, @to::bigint) n,
	LATERAL (SELECT CASE pg_temp.h(n, 94, 2) WHEN 0 THEN 2 * pg_temp.institution_of(s.of, n) - 1 ELSE (SELECT max(id) FROM users) - pg_temp.h(n, 95, 12) END AS id) w
JOIN users p ON p.id = w.id;

-- name: sequences
SET session_replication_role = origin;
SELECT setval(pg_get_serial_sequence(t::text, 'id'), m) FROM (
	SELECT 'institutions'::regclass, (SELECT max(id) FROM institutions) UNION ALL SELECT 'users', (SELECT max(id) FROM users)
	UNION ALL SELECT 'intellectual_objects', (SELECT max(id) FROM intellectual_objects) UNION ALL SELECT 'generic_files', (SELECT max(id) FROM generic_files)
	UNION ALL SELECT 'storage_records', (SELECT max(id) FROM storage_records) UNION ALL SELECT 'work_items', (SELECT max(id) FROM work_items)
	UNION ALL SELECT 'deletion_requests', (SELECT max(id) FROM deletion_requests) UNION ALL SELECT 'alerts', (SELECT max(id) FROM alerts)
	UNION ALL SELECT 'actions', (SELECT max(id) FROM actions) UNION ALL SELECT 'plans', (SELECT max(id) FROM plans)) s (t, m);
SELECT setval('premis_events_id_seq', (SELECT max(id) + 64 FROM event_records)), setval('checksums_id_seq', (SELECT max(id) + 4 FROM file_digests));
UPDATE stage_settings SET cap = NULL; -- there are no files behind the items, and two at a time would be all that is measured
