-- workers_silent: ends the rows of processes whose heartbeats stopped for longer than any
-- of their leases. A process that is alive takes it back with its next heartbeat. One that was
-- asked to stop has stopped.
-- Index: none of the queue's.
UPDATE worker_processes SET ended_at = now(), ending = CASE WHEN draining THEN 'stopped' ELSE 'silent' END
WHERE ended_at IS NULL AND heartbeat_at < now() - 6 * heartbeat
