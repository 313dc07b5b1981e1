-- renew: extends all leases of this process at once, writes its current files into the
-- ledger, and records the heartbeat of the process. A token that does not come back is lost.
-- Index: work_items_pkey, work_item_attempts_pkey
-- It waits for no transaction that has locked an item or the row of the process, such as
-- that of a person: else all leases of the process would lapse. Such an item comes back as
-- not renewed, and such a process is recorded by the next heartbeat.
-- A late heartbeat does not shorten a lease that a newer one extended, unless the clock
-- was set back since the last heartbeat: then the lease would be too long. A process that
-- was declared dead and is alive is so no longer. Claims that this process gave up and
-- that were ended as lapsed get the reason that only it knows.
-- Parameters: $1 to $4 items, tokens, leases and current files; $5 to $12 the process;
-- $13 seconds between heartbeats; $14 to $17 items, tokens, files and codes of claims that
-- were given up; $18 codes for those of $1 that are found to be lost;
-- $19 whether the process was asked to stop.
WITH mine AS MATERIALIZED (
	SELECT held.* FROM unnest($1::bigint[], $2::bigint[], $3::interval[], $4::text[]) AS held (id, token, lease, file)
	JOIN work_items w ON w.id = held.id AND w.claim_token = held.token
	FOR NO KEY UPDATE OF w SKIP LOCKED
), renewed AS (
	UPDATE work_items w SET lease_expires_at = CASE WHEN a.heartbeat_at > now() + interval '5 seconds' THEN now() + mine.lease
		ELSE greatest(w.lease_expires_at, now() + mine.lease) END
	FROM mine
	LEFT JOIN work_item_attempts a ON a.work_item_id = mine.id AND a.claim_token = mine.token
	WHERE w.id = mine.id
	RETURNING w.id, mine.token, mine.file
), noted AS (
	UPDATE work_item_attempts a SET heartbeat_at = now(), current_file = renewed.file
	FROM renewed
	WHERE a.work_item_id = renewed.id AND a.claim_token = renewed.token
), late AS (
	UPDATE work_item_attempts a SET heartbeat_at = now(), error_code = gone.code, current_file = coalesce(nullif(gone.file, ''), a.current_file)
	FROM (
		SELECT * FROM unnest($1::bigint[], $2::bigint[], $4::text[], $18::text[]) AS held (id, token, file, code)
		UNION ALL
		SELECT * FROM unnest($14::bigint[], $15::bigint[], $16::text[], $17::text[]) AS given_up (id, token, file, code)
	) gone
	WHERE a.work_item_id = gone.id AND a.claim_token = gone.token AND a.outcome = 'lease expired'
), known AS MATERIALIZED (
	SELECT FROM worker_processes WHERE worker = $5 FOR NO KEY UPDATE SKIP LOCKED
), me AS (
	INSERT INTO worker_processes (worker, node, pid, host, pid_started, cgroup, oom_kills, pools, heartbeat, draining)
	SELECT $5, $6, $7, $8, $9, $10, $11, $12, make_interval(secs => $13), $19
	WHERE EXISTS (SELECT FROM known) OR NOT EXISTS (SELECT FROM worker_processes WHERE worker = $5)
	ON CONFLICT (worker) DO UPDATE SET
		heartbeat_at = now(), oom_kills = excluded.oom_kills, pools = excluded.pools, heartbeat = excluded.heartbeat,
		draining = worker_processes.draining OR excluded.draining, ended_at = NULL, ending = NULL
	RETURNING draining
)
SELECT kept.id, kept.renewed, coalesce((SELECT draining FROM me), process.draining, false), now() - process.heartbeat_at
FROM (VALUES (1)) one
LEFT JOIN worker_processes process ON process.worker = $5
LEFT JOIN (
	SELECT id, true AS renewed FROM renewed
	UNION ALL
	SELECT w.id, false FROM unnest($1::bigint[], $2::bigint[]) AS held (id, token)
	JOIN work_items w ON w.id = held.id AND w.claim_token = held.token
) kept ON true
