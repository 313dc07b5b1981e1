-- Institution 1 is test.edu, 2 is other.edu; people 1 to 3 were made before.
INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag, access, storage_option, bag_group_identifier,
	alt_identifier, source_organization, created_at, updated_at)
SELECT i.id, i.identifier || '/bag ' || n, 'Title ' || n, 'bag ' || n, 'https://example.org/profile.json', 'e' || n, 'institution', 'Standard', 'group' || n % 3,
	'alt' || n, 'Source', '2026-01-01Z'::timestamptz + n * interval '1 hour', '2026-02-01Z'::timestamptz - n * interval '1 hour'
FROM institutions i CROSS JOIN generate_series(1, 45) n ORDER BY i.id, n;

-- The first object has more files than three pages; their IDs are not in the order of their names.
INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, state, storage_option, mod_time, last_fixity_check, created_at, updated_at)
SELECT o.institution_id, o.id, o.identifier || CASE WHEN n % 100 = 0 THEN '/tag' ELSE '/data/' END || (7 * n) % 2501, md5(o.id || ' ' || n)::uuid, 'text/plain', n, 'A', 'Standard',
	CASE WHEN n % 2 = 0 THEN '2025-01-01Z'::timestamptz END, '2026-01-05Z', '2026-01-02Z', '2026-01-03Z'::timestamptz + n * interval '1 second'
FROM intellectual_objects o CROSS JOIN generate_series(1, 2500) n WHERE n <= CASE o.id WHEN 1 THEN 2500 ELSE 3 END
ORDER BY o.id, n;
INSERT INTO object_holdings (intellectual_object_id, files, bytes, payload_files, payload_bytes) -- no trigger has counted
SELECT intellectual_object_id, count(*), sum(size), count(*) FILTER (WHERE is_payload(identifier)), coalesce(sum(size) FILTER (WHERE is_payload(identifier)), 0)
FROM generic_files WHERE state = 'A' GROUP BY intellectual_object_id;
INSERT INTO file_digests (generic_file_id, datetime, md5, sha1, sha256)
SELECT f.id, '2026-01-02Z'::timestamptz + v * interval '1 day', decode(md5(f.id || ' ' || v), 'hex'), substr(sha256((f.id || ' ' || v)::bytea), 1, 20), sha256((f.id || ' ' || v)::bytea)
FROM generic_files f CROSS JOIN generate_series(0, 1) v WHERE v = 0 OR f.id = 1;
INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at)
SELECT f.id, 'https://s3.example.org/' || f.uuid, 'aws', 'b', f.uuid::text, now(), now() FROM generic_files f WHERE f.id < 10;

INSERT INTO deletion_requests (institution_id, requested_by, requested_at, approved_by, approved_at)
SELECT i.id, u.id, '2026-01-01Z'::timestamptz + n * interval '1 day', CASE n WHEN 1 THEN u.id END, CASE n WHEN 1 THEN '2026-01-09Z'::timestamptz END
FROM institutions i JOIN users u ON u.institution_id = i.id AND u.role = 'institutional_admin' CROSS JOIN generate_series(1, 2) n ORDER BY i.id, n;
INSERT INTO deletion_requests_generic_files SELECT d.id, f.id FROM deletion_requests d JOIN generic_files f ON f.institution_id = d.institution_id AND f.id < 4;
INSERT INTO alerts (institution_id, type, subject, content, created_at)
SELECT i.id, 'Failed Fixity Check', 'Subject ' || n, 'Content', '2026-01-01Z'::timestamptz + n * interval '1 day' FROM institutions i CROSS JOIN generate_series(1, 3) n ORDER BY i.id, n;
INSERT INTO alert_reads (user_id, alert_id, read_at) VALUES (1, 1, '2026-01-10Z');

-- Of each bag the older items have the later dates of processing; ended items are in the archive.
CREATE TEMPORARY TABLE item (LIKE work_items INCLUDING DEFAULTS);
INSERT INTO item (id, institution_id, size, bag_date, date_processed, created_at, updated_at, retry, action, stage, status, name, etag, bucket, object_identifier,
	intellectual_object_id, storage_option, "user", note)
SELECT row_number() OVER (ORDER BY i.id, v, n), i.id, n, '2026-01-01Z', '2026-03-01Z'::timestamptz - v * interval '1 day' - n * interval '1 minute', '2026-01-01Z'::timestamptz + n * interval '1 hour',
	'2026-02-01Z'::timestamptz + ((n * 7) % 45) * interval '1 hour', v = 3, 'Ingest', CASE WHEN v < 3 THEN 'Cleanup' ELSE 'Receive' END,
	CASE v WHEN 1 THEN 'Success' WHEN 2 THEN 'Cancelled' ELSE 'Pending' END, 'bag ' || n || '.tar', v || 'e' || n, 'receiving', i.identifier || '/bag ' || n,
	CASE WHEN v < 3 THEN (SELECT o.id FROM intellectual_objects o WHERE o.identifier = i.identifier || '/bag ' || n) END,
	CASE WHEN v < 3 THEN 'Standard' END, 'system@aptrust.org', 'Note'
FROM institutions i CROSS JOIN generate_series(1, 3) v CROSS JOIN generate_series(1, 45) n;
INSERT INTO work_items OVERRIDING SYSTEM VALUE SELECT * FROM item WHERE status = 'Pending';
INSERT INTO work_items_archive SELECT * FROM item WHERE status <> 'Pending';
INSERT INTO uploads_in_work SELECT object_identifier, name, etag, id FROM work_items;
