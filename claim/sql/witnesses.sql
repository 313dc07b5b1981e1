-- witnesses: asks who has ended an attempt of an item at its stage as held with a code:
-- how often this worker did, whether another did, and whether another live worker takes the
-- item and does not see the service fail.
-- Index: work_item_attempts_pkey, work_items_pkey
-- Parameters: $1 item; $2, $3 the attempts asked for lie between these tokens; $4 code;
-- $5 this worker; $6 service.
SELECT count(*) FILTER (WHERE a.worker = $5), count(*) FILTER (WHERE a.worker <> $5) > 0, EXISTS (
	SELECT FROM workers l
	WHERE l.worker <> $5 AND NOT l.draining
	  AND NOT EXISTS (SELECT FROM service_reports r WHERE r.worker = l.worker AND r.service = $6 AND r.state <> 'ok')
	  AND EXISTS (SELECT FROM takers((SELECT w FROM work_items w WHERE w.id = $1)) t WHERE t.worker = l.worker AND t.misses IS NULL))
FROM work_item_attempts a
WHERE a.work_item_id = $1 AND a.claim_token > $2 AND a.claim_token < $3 AND a.outcome = 'held' AND a.error_code = $4
