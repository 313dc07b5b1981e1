-- witnesses: asks who has ended an attempt of an item at its stage as held with a code:
-- how often this worker did, how often others did, and whether another live worker takes the
-- item and does not see the service fail. Of all that were held it says how long ago the last was
-- that this service failed, and the first that it failed alone.
-- Index: work_item_attempts_pkey, work_items_pkey
-- Parameters: $1 item; $2, $3 the attempts asked for lie between these tokens; $4 code;
-- $5 this worker; $6 service.
SELECT count(*) FILTER (WHERE a.worker = $5 AND a.error_code = $4), count(*) FILTER (WHERE a.worker <> $5 AND a.error_code = $4), EXISTS (
	SELECT FROM workers l
	WHERE l.worker <> $5 AND NOT l.draining
	  AND NOT EXISTS (SELECT FROM service_reports r WHERE r.worker = l.worker AND r.service = $6 AND r.state <> 'ok')
	  AND EXISTS (SELECT FROM takers((SELECT w FROM work_items w WHERE w.id = $1)) t WHERE t.worker = l.worker AND t.misses IS NULL)),
	now() - max(a.ended_at) FILTER (WHERE a.service = $6),
	now() - min(a.ended_at) FILTER (WHERE a.error_code IN ('serves-others', 'answers-probes'))
FROM work_item_attempts a
WHERE a.work_item_id = $1 AND a.claim_token > $2 AND a.claim_token < $3 AND a.outcome = 'held'
