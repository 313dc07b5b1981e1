-- same_host: lists the other workers of a host that have not ended as far as is known.
-- Index: none of the queue's.
-- Parameters: $1 host; $2 this worker.
SELECT worker, pid, pid_started, cgroup, oom_kills
FROM worker_processes
WHERE host = $1 AND worker <> $2 AND ended_at IS NULL
