-- lapsed: locks and lists items whose lease lapsed not longer ago than a time, so that the
-- dead entries of leases long over are not read.
-- Index: work_items_lease
-- Parameters: $1 how many; $2 the time.
SELECT w.id
FROM (SELECT DISTINCT stage FROM stage_settings) st
CROSS JOIN LATERAL (
	SELECT w.id FROM work_items w
	WHERE w.status = 'Started' AND w.stage = st.stage
	  AND w.lease_expires_at >= now() - $2::interval AND w.lease_expires_at < now()
	ORDER BY w.lease_expires_at
	LIMIT $1
	FOR UPDATE SKIP LOCKED
) w
LIMIT $1
