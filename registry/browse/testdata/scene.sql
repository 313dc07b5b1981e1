-- h is the same random number from 0 to m - 1 for the same n and k.
CREATE FUNCTION h(n bigint, k integer, m integer) RETURNS integer LANGUAGE sql IMMUTABLE
RETURN ((hashint8extended(n, k) % m) + m) % m;

INSERT INTO users (email, name, institution_id, role) VALUES
	('ann@test.edu', 'Ann', 1, 'institutional_admin'), ('bob@test.edu.org', 'Bob', 2, 'institutional_admin'), ('staff@example.org', 'Staff', NULL, 'admin');
INSERT INTO deletion_requests (institution_id, requested_by, approved_by, approved_at, cancelled_by, cancelled_at)
SELECT 1 + n % 2, 1 + n % 2, CASE h(n, 1, 3) WHEN 0 THEN 1 END, CASE h(n, 1, 3) WHEN 0 THEN now() END,
	CASE h(n, 1, 3) WHEN 1 THEN 2 END, CASE h(n, 1, 3) WHEN 1 THEN now() END
FROM generate_series(1, 200) n;
UPDATE deletion_requests SET requested_at = '2026-01-01Z'::timestamptz + h(id, 4, 300) * interval '1 hour';
INSERT INTO alerts (institution_id, type, subject, content, created_at)
SELECT CASE h(n, 1, 3) WHEN 0 THEN NULL ELSE h(n, 1, 3) END, CASE h(n, 2, 2) WHEN 0 THEN 'Failed Fixity Check' ELSE 'Service Held' END, 's' || n, 'c',
	'2026-01-01Z'::timestamptz + h(n, 3, 100) * interval '1 hour'
FROM generate_series(1, 400) n;

INSERT INTO intellectual_objects (institution_id, identifier, title, bag_name, bagit_profile_identifier, etag, state, access, storage_option,
	bag_group_identifier, alt_identifier, updated_at)
SELECT i.id, i.identifier || '/bag' || CASE h(n, 2, 4) WHEN 0 THEN '-' WHEN 1 THEN 'é' ELSE '' END || n, 'T', 'bag' || n, 'p', 'e',
	CASE h(n, 3, 4) WHEN 0 THEN 'D' ELSE 'A' END, CASE h(n, 4, 2) WHEN 0 THEN 'consortia' ELSE 'institution' END,
	CASE h(n, 5, 2) WHEN 0 THEN 'Standard' ELSE 'Glacier-OH' END, 'group' || h(n, 6, 5), 'alt' || h(n, 7, 12),
	'2026-01-01Z'::timestamptz + h(n, 8, 200) * interval '1 hour'
FROM generate_series(1, 900) n JOIN institutions i ON i.id = 1 + h(n, 1, 2);
UPDATE intellectual_objects SET etag = 'e' || h(id, 20, 5), bagit_profile_identifier = 'p' || h(id, 21, 3), source_organization = 's' || h(id, 22, 3),
	internal_sender_identifier = 'i' || h(id, 23, 3), internal_sender_description = 'd' || h(id, 24, 3), created_at = '2026-01-01Z'::timestamptz + h(id, 25, 300) * interval '1 hour';

INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, format_puid, format_name, size, state, storage_option, last_fixity_check)
SELECT o.institution_id, o.id, o.identifier || '/data/' || n, md5(n::text)::uuid, 'text/plain', 'fmt/' || h(n, 2, 4), 'Format ' || h(n, 3, 3), h(n, 4, 1000),
	CASE h(n, 5, 4) WHEN 0 THEN 'D' ELSE 'A' END, o.storage_option, now()
FROM generate_series(1, 3000) n JOIN intellectual_objects o ON o.id = 1 + h(n, 1, 300) * 3;
UPDATE generic_files SET created_at = '2026-01-01Z'::timestamptz + h(id, 20, 300) * interval '1 hour', updated_at = '2026-01-01Z'::timestamptz + h(id, 21, 300) * interval '1 hour',
	last_fixity_check = '2026-01-01Z'::timestamptz + h(id, 22, 300) * interval '1 hour';
INSERT INTO file_digests (generic_file_id, datetime, md5, sha1, sha256, sha512)
SELECT f.id, '2026-01-01Z'::timestamptz + h(f.id, 8, 3) * interval '1 day', decode(md5(h(f.id + v, 1, 40)::text), 'hex'), substr(sha256(h(f.id + v, 1, 40)::text::bytea), 1, 20),
	CASE h(f.id, 3, 9) WHEN 0 THEN NULL ELSE sha256(h(f.id + v, 1, 40)::text::bytea) END, sha512(h(f.id + v, 1, 40)::text::bytea)
FROM generic_files f CROSS JOIN generate_series(0, 1) v WHERE v = 0 OR h(f.id, 2, 3) = 0;
INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at)
SELECT f.id, 'https://x/' || f.id || '/' || c, 't' || c, 'b', 'k', now(), now() FROM generic_files f CROSS JOIN generate_series(1, 3) c WHERE c <= 1 + h(f.id, 6, 3);

CREATE TEMPORARY TABLE made AS
SELECT n AS id, h(n, 1, 6) AS kind, -- 0 and 1 wait, 2 runs, 3 is parked, 4 and 5 have ended
	CASE WHEN h(n, 2, CASE WHEN n > 2400 THEN 100 ELSE 2 END) = 0 THEN 2 ELSE 1 END AS institution, h(n, 3, 4) > 0 AS ingest, 'bag' || h(n, 4, 900) AS bag
FROM generate_series(1, 8500) n;
CREATE TEMPORARY TABLE item (LIKE work_items INCLUDING DEFAULTS);
INSERT INTO item (id, institution_id, size, bag_date, run_at, created_at, updated_at, retry, needs_admin_review, action, stage, status,
	attempt, claim_token, lease_expires_at, node, pid, worker, error_code, name, etag, bucket, object_identifier, storage_option, deletion_request_id)
SELECT m.id, m.institution, h(m.id, 5, 100), now(), now(), '2026-01-01Z'::timestamptz + h(m.id, 6, 300) * interval '1 hour',
	'2026-01-01Z'::timestamptz + h(m.id, 7, 300) * interval '1 hour', m.kind < 3, h(m.id, 8, 7) = 0,
	CASE WHEN m.ingest THEN 'Ingest' ELSE 'Delete' END,
	CASE WHEN m.ingest THEN CASE WHEN m.kind = 5 THEN 'Cleanup' ELSE (ARRAY['Receive', 'Validate', 'Store'])[1 + h(m.id, 9, 3)] END
		ELSE CASE WHEN m.kind = 5 THEN 'Resolve' ELSE (ARRAY['Requested', 'Package'])[1 + h(m.id, 9, 2)] END END,
	(ARRAY['Pending', 'Pending', 'Started', CASE h(m.id, 10, 2) WHEN 0 THEN 'Failed' ELSE 'Suspended' END, 'Cancelled', 'Success'])[1 + m.kind],
	1, 1, CASE m.kind WHEN 2 THEN now() END, CASE m.kind WHEN 2 THEN 'n' END, CASE m.kind WHEN 2 THEN 1 END, CASE m.kind WHEN 2 THEN 'w' || h(m.id, 11, 5) END,
	CASE h(m.id, 12, 5) WHEN 0 THEN 'invalid-bag' ELSE '' END, m.bag || CASE h(m.id, 13, 3) WHEN 0 THEN '.b1.of2.tar' ELSE '.tar' END, m.id::text, 'b',
	i.identifier || '/' || m.bag, CASE h(m.id, 14, 2) WHEN 0 THEN 'Standard' END, CASE WHEN NOT m.ingest THEN 1 + h(m.id, 15, 200) END
FROM made m JOIN institutions i ON i.id = m.institution;
UPDATE item SET intellectual_object_id = CASE h(id, 20, 2) WHEN 0 THEN 1 + h(id, 21, 900) END, generic_file_id = CASE h(id, 22, 3) WHEN 0 THEN 1 + h(id, 23, 300) END,
	queued_at = CASE h(id, 24, 2) WHEN 0 THEN now() END, bag_date = '2026-01-01Z'::timestamptz + h(id, 25, 300) * interval '1 hour',
	date_processed = '2026-01-01Z'::timestamptz + h(id, 26, 300) * interval '1 hour', bucket = 'b' || h(id, 27, 3), "user" = 'u' || h(id, 28, 3) || '@test.edu';
INSERT INTO work_items OVERRIDING SYSTEM VALUE SELECT * FROM item WHERE NOT (status IN ('Success', 'Cancelled') AND h(id, 16, 3) > 0);
INSERT INTO work_items_archive SELECT * FROM item WHERE status IN ('Success', 'Cancelled') AND h(id, 16, 3) > 0;
INSERT INTO uploads_in_work SELECT object_identifier, name, etag, id FROM work_items WHERE retry AND action = 'Ingest';
INSERT INTO plans (action, priority, condition) SELECT 'set priority', 1, 'true' FROM generate_series(1, 3);
INSERT INTO plan_items (plan_id, work_item_id, claim_token, stage, status, priority, size)
SELECT 1 + h(id, 17, 3), id, 1, stage, status, 0, 1 FROM item WHERE h(id, 18, 10) = 0;
