-- overdue_requests: lists the priorities of requests of one action whose first item has waited
-- longer than its stage allows, behind better ones, in each partition.
-- Index: work_items_requested
-- It goes from one priority to the next, beginning where the next claim would, and
-- reads the first item of each.
-- Parameters: $1, $2, $4, $5 the scan cursors, by stage and size band; $3 action.
SELECT cursor.stage, cursor.band, level.priority
FROM unnest($1::text[], $2::smallint[], $4::smallint[], $5::bigint[]) AS cursor (stage, band, priority, virtual_start)
JOIN stage_settings s ON s.action = $3 AND s.stage = cursor.stage
CROSS JOIN LATERAL (
	WITH RECURSIVE level AS (
		(SELECT w.priority, w.run_at FROM work_items w
		WHERE w.status = 'Pending' AND w.retry AND w.stage = 'Requested' AND w.action = $3 AND w.size_band = cursor.band AND w.run_at <= now()
		  AND (w.priority, w.virtual_start) >= (cursor.priority, cursor.virtual_start)
		ORDER BY w.priority, w.virtual_start, w.run_at, w.id LIMIT 1)
		UNION ALL
		SELECT worse.priority, worse.run_at FROM level CROSS JOIN LATERAL (
			SELECT w.priority, w.run_at FROM work_items w
			WHERE w.status = 'Pending' AND w.retry AND w.stage = 'Requested' AND w.action = $3 AND w.size_band = cursor.band AND w.run_at <= now()
			  AND w.priority > level.priority
			ORDER BY w.priority, w.virtual_start, w.run_at, w.id LIMIT 1) worse
	)
	SELECT priority, run_at, row_number() OVER (ORDER BY priority) AS place FROM level
) level
WHERE level.place > 1 AND level.run_at < now() - s.overdue
