-- tidy: deletes virtual start times that institutions have passed, retries that no mirror
-- has taken for a day, and the rows of processes that ended a week ago.
-- Index: none of the queue's.
WITH untaken AS (
	DELETE FROM topic_retries WHERE id IN (
		SELECT id FROM topic_retries WHERE created_at < now() - interval '1 day' ORDER BY created_at LIMIT 10000 FOR UPDATE SKIP LOCKED)
), passed AS (
	DELETE FROM institution_virtual_times t
	WHERE virtual_finish < (SELECT max(l.virtual_finish) FROM institution_virtual_times l
		WHERE l.institution_id = t.institution_id AND l.size_band = t.size_band)
)
DELETE FROM worker_processes WHERE ended_at < now() - interval '7 days'
