WITH target AS MATERIALIZED (
	SELECT p.target, p.mode = 'read' AS reads, now() - make_interval(days => coalesce(p.interval_days, @days::int)) AS due,
		CASE WHEN p.failures < @few::int THEN @most::int ELSE 1 END AS most
	FROM fixity_policies p
	WHERE p.target = ANY (@targets) AND p.paused_until <= now() AND NOT (SELECT paused FROM fixity_feed)
), waiting AS MATERIALIZED (
	SELECT w.*, t.target, t.most FROM target t CROSS JOIN LATERAL (
		SELECT c.storage_record_id AS id, c.requested, c.run_at, c.token IS NULL AS is_new
		FROM fixity_checks c JOIN storage_records s ON s.id = c.storage_record_id
		WHERE c.target = t.target AND c.run_at <= now() AND (c.requested OR t.reads) AND s.active
		ORDER BY c.requested DESC, c.run_at
		LIMIT t.most
		FOR NO KEY UPDATE OF s SKIP LOCKED
	) w
), overdue AS MATERIALIZED (
	SELECT d.*, t.target, t.most FROM target t CROSS JOIN LATERAL (
		SELECT s.id, t.due - s.fixity_from AS late
		FROM storage_records s
		WHERE s.target = t.target AND s.active AND s.fixity_from <= t.due AND t.reads
		  AND (SELECT c.run_at FROM fixity_checks c WHERE c.storage_record_id = s.id) IS NULL
		ORDER BY s.fixity_from, s.id
		LIMIT least(t.most, (SELECT allowance FROM fixity_feed))
		FOR NO KEY UPDATE OF s SKIP LOCKED
	) d
), allowed AS MATERIALIZED (
	SELECT * FROM overdue ORDER BY late DESC, id LIMIT (SELECT allowance FROM fixity_feed)
), found AS MATERIALIZED (
	SELECT *, row_number() OVER (PARTITION BY target ORDER BY rank, late DESC, run_at, id) AS nth FROM (
		SELECT id, target, most, CASE WHEN requested THEN 0 ELSE 1 END AS rank, interval '0' AS late, run_at, is_new FROM waiting
		UNION ALL
		SELECT id, target, most, 2, late, NULL, true FROM allowed
	) f
), chosen AS MATERIALIZED (
	SELECT * FROM found WHERE nth <= most ORDER BY rank, late DESC, run_at, id LIMIT @most
), taken AS (
	INSERT INTO fixity_checks AS c (storage_record_id, target, token, worker, run_at)
	SELECT id, target, nextval('fixity_tokens'), @worker, now() + @lease::interval FROM chosen
	ON CONFLICT (storage_record_id) DO UPDATE SET token = excluded.token, worker = excluded.worker, run_at = excluded.run_at
		WHERE c.run_at <= now()
	RETURNING c.storage_record_id AS id, c.target, c.token, c.attempts, xmax = 0 AS counts
), tried AS (
	UPDATE fixity_policies p SET paused_until = now() + @pause::interval
	WHERE p.failures >= @few AND p.target IN (SELECT target FROM taken)
), spent AS (
	UPDATE fixity_feed SET
		allowance  = greatest(allowance - (SELECT count(*) FROM taken WHERE counts), 0),
		drained_at = CASE WHEN drained THEN now() ELSE drained_at END
	FROM (SELECT (SELECT count(*) FROM overdue) < least(@most, (SELECT allowance FROM fixity_feed)) AND NOT (SELECT paused FROM fixity_feed) AS drained) d
	WHERE EXISTS (SELECT FROM taken WHERE counts)
	   OR drained AND coalesce(drained_at, '-infinity') < now() - interval '10 seconds'
), announced AS (
	INSERT INTO topic_messages (topic, body)
	SELECT DISTINCT 'fixity_check', s.generic_file_id::text
	FROM taken t JOIN chosen c USING (id) JOIN storage_records s USING (id) WHERE c.is_new
)
SELECT t.id, t.token, t.attempts, c.rank = 0 AS requested, f.id AS file_id, f.identifier, s.target, s.bucket, s.key, s.url, f.size,
	coalesce((SELECT k.digest FROM checksums k WHERE k.generic_file_id = f.id AND k.algorithm = 'sha256'
		ORDER BY k.datetime DESC LIMIT 1), '') AS sha256
FROM taken t
JOIN chosen c USING (id)
JOIN storage_records s USING (id)
JOIN generic_files f ON f.id = s.generic_file_id
ORDER BY c.rank, c.late DESC, c.run_at, t.id
