-- workers_died: ends the rows of processes that are known to be dead.
-- Index: none of the queue's.
-- Parameters: $1, $2 workers and causes of death.
UPDATE worker_processes p SET ended_at = now(), ending = d.ending
FROM unnest($1::text[], $2::text[]) AS d (worker, ending)
WHERE p.worker = d.worker AND p.ended_at IS NULL
