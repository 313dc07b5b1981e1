-- witnesses: asks who has ended an attempt of an item at its stage as held with a code:
-- how often this worker did, how often others did, and whether another live worker takes the
-- item and does not see the service fail. Of all that were held it says how long ago the last was
-- that this service failed, and for how long it has failed alone. From one such attempt to the
-- next counts for ten minutes at most, or a clock that is set forward would make an hour of a second.
-- Index: work_item_attempts_pkey, work_items_pkey
-- Parameters: $1 item; $2, $3 the attempts asked for lie between these tokens; $4 code;
-- $5 this worker; $6 service.
WITH held AS MATERIALIZED (
	SELECT * FROM work_item_attempts a
	WHERE a.work_item_id = $1 AND a.claim_token > $2 AND a.claim_token < $3 AND a.outcome = 'held'
), alone AS (
	SELECT lead(h.ended_at, 1, now()) OVER (ORDER BY h.claim_token) - h.ended_at AS until
	FROM held h WHERE h.error_code IN ('serves-others', 'answers-probes')
)
SELECT count(*) FILTER (WHERE h.worker = $5 AND h.error_code = $4), count(*) FILTER (WHERE h.worker <> $5 AND h.error_code = $4), EXISTS (
	SELECT FROM workers l
	WHERE l.worker <> $5 AND NOT l.draining
	  AND NOT EXISTS (SELECT FROM service_reports r WHERE r.worker = l.worker AND r.service = $6 AND r.state <> 'ok')
	  AND EXISTS (SELECT FROM takers((SELECT w FROM work_items w WHERE w.id = $1)) t WHERE t.worker = l.worker AND t.misses IS NULL)),
	now() - max(h.ended_at) FILTER (WHERE h.service = $6),
	(SELECT sum(least(greatest(until, '0'), interval '10 minutes')) FROM alone)
FROM held h
