-- held_by_dead: locks and lists items of workers that are known to be dead, however long
-- their leases would last.
-- Index: work_items_lease
-- Parameters: $1 how many; $2 the workers.
SELECT w.id
FROM (SELECT DISTINCT stage FROM stage_settings) st
CROSS JOIN LATERAL (
	SELECT w.id FROM work_items w
	WHERE w.status = 'Started' AND w.stage = st.stage
	  AND w.worker = ANY ($2::text[])
	ORDER BY w.lease_expires_at
	LIMIT $1
	FOR UPDATE SKIP LOCKED
) w
LIMIT $1
