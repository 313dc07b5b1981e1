-- reap_due: lists workers of a host that have not ended as far as is known: the sixteen that follow
-- this one. It says also whether there is anything to reap whatever became of these: a lease that
-- lapsed not longer ago than a time, or a process that is silent. Without any worker it is one row.
-- Each worker looks after some, since a hundred that all read the state of all others would do
-- little else; if it finds them dead, the ones behind them follow it.
-- Index: work_items_lease
-- Parameters: $1 host, or NULL; $2 this worker; $3 the time.
SELECT d.due, coalesce(w.worker, ''), coalesce(w.pid, 0), coalesce(w.pid_started, 0), coalesce(w.cgroup, ''), coalesce(w.oom_kills, 0), coalesce(w.draining, false)
FROM (
	SELECT EXISTS (
		SELECT FROM (SELECT DISTINCT stage FROM stage_settings) st
		CROSS JOIN LATERAL (
			SELECT FROM work_items w
			WHERE w.status = 'Started' AND w.stage = st.stage
			  AND w.lease_expires_at >= now() - $3::interval AND w.lease_expires_at < now()
			LIMIT 1
		) w
	) OR EXISTS (
		SELECT FROM worker_processes WHERE ended_at IS NULL AND heartbeat_at < now() - 6 * heartbeat
	) AS due
) d
LEFT JOIN (
	SELECT * FROM worker_processes WHERE host = $1 AND worker <> $2 AND ended_at IS NULL
	ORDER BY worker < $2, worker
	LIMIT 16
) w ON true
