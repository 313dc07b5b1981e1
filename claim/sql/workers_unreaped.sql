-- workers_unreaped: leaves a dead worker to the next round if one of its items is locked.
-- The server may still be executing its last heartbeat, and its current files are known by
-- its name only.
-- Index: work_items_lease
-- Parameter: $1 workers.
UPDATE worker_processes p SET ended_at = NULL, ending = NULL
WHERE p.worker = ANY ($1) AND EXISTS (SELECT FROM work_items w WHERE w.status = 'Started' AND w.worker = p.worker)
