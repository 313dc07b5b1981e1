INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time, detail, outcome, outcome_detail,
	outcome_information, object, agent, created_at)
SELECT md5('e' || n)::uuid, o.institution_id, o.id, f.id, (ARRAY['fixity check', 'deletion', 'replication'])[1 + h(n, 1, 3)],
	'2026-01-01Z'::timestamptz + h(n, 2, 2000) * interval '1 hour', 'd', CASE h(n, 3, 6) WHEN 0 THEN 'Failure' ELSE 'Success' END, 'o' || n, 'i', 'ob', 'ag',
	'2026-01-01Z'::timestamptz + h(n, 4, 100) * interval '1 day'
FROM generate_series(1, 1500) n
LEFT JOIN generic_files f ON f.id = 1 + h(n, 5, 200) AND h(n, 6, 3) > 0
JOIN intellectual_objects o ON o.id = coalesce(f.intellectual_object_id, 1 + h(n, 5, 50));

WITH texts AS MATERIALIZED (
	SELECT event_number(0, 'o', 'ingestion', 'd', 'Success', 'md5:%h01', 'i', 'ob', 'ag') AS a, event_number(1, '%f', 'identifier assignment', 'd', 'Success', '%u', 'i', 'ob', 'ag') AS b,
		event_number(2, 'o', 'format identification', 'd', 'Failure', '%t02', 'i', 'ob', 'ag') AS c
), record AS (
	SELECT n, CASE h(n, 1, 9) WHEN 0 THEN NULL ELSE 201 + n END AS file FROM generate_series(1, 1200) n
)
INSERT INTO event_records (key, item, generic_file_id, intellectual_object_id, institution_id, texts, times, facts, created_at)
SELECT md5('r' || r.n)::uuid, r.n, f.id, o.id, o.institution_id,
	CASE h(r.n, 2, 4) WHEN 0 THEN ARRAY[t.a, 0, t.c] WHEN 1 THEN ARRAY[t.c] WHEN 2 THEN ARRAY[t.a] ELSE CASE WHEN f.id IS NULL THEN ARRAY[t.a] ELSE ARRAY[t.a, t.b] END END,
	ARRAY['2026-01-01Z'::timestamptz + h(r.n, 3, 2000) * interval '1 hour', '2026-02-01Z'], ARRAY['\x0102'::bytea, 'why'],
	'2026-01-01Z'::timestamptz + h(r.n, 4, 100) * interval '1 day'
FROM record r CROSS JOIN texts t
LEFT JOIN generic_files f ON f.id = r.file
JOIN intellectual_objects o ON o.id = coalesce(f.intellectual_object_id, 51 + r.n % 800)
