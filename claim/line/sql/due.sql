-- due: lists the partitions of the queue in which a claim may find something, so that pools need not
-- claim in vain: of each the place of the first item that is due.
-- Index: work_items_ready
-- It goes from one partition to the next by one probe of the index each.
-- Parameter: $1 how many waiting items it reads of each; with as many that are not due the place
-- is not known.
WITH RECURSIVE places AS (
	(SELECT stage, size_band FROM work_items
	WHERE status = 'Pending' AND retry
	ORDER BY stage, size_band
	LIMIT 1)
	UNION ALL
	SELECT next.stage, next.size_band
	FROM places p
	CROSS JOIN LATERAL (
		SELECT w.stage, w.size_band FROM work_items w
		WHERE w.status = 'Pending' AND w.retry AND (w.stage, w.size_band) > (p.stage, p.size_band)
		ORDER BY w.stage, w.size_band
		LIMIT 1
	) next
)
SELECT p.stage, p.size_band, first.priority, first.virtual_start
FROM places p
LEFT JOIN LATERAL (
	SELECT priority, virtual_start
	FROM (
		SELECT run_at, priority, virtual_start FROM work_items w
		WHERE w.status = 'Pending' AND w.retry AND w.stage = p.stage AND w.size_band = p.size_band
		ORDER BY w.priority, w.virtual_start, w.run_at, w.id
		LIMIT $1
	) waiting
	WHERE run_at <= now()
	LIMIT 1
) first ON true
WHERE first.priority IS NOT NULL OR (
	SELECT count(*) = $1 FROM (
		SELECT FROM work_items w
		WHERE w.status = 'Pending' AND w.retry AND w.stage = p.stage AND w.size_band = p.size_band
		LIMIT $1
	) waiting)
