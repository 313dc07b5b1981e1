-- due: reports whether a claim may find anything, so that idle pools need not claim.
-- Index: work_items_ready
-- Parameter: $1 how many waiting items it reads; with as many waiting the answer is yes.
SELECT coalesce(bool_or(run_at <= now()), false) OR count(*) = $1
FROM (
	SELECT run_at FROM work_items
	WHERE status = 'Pending' AND retry
	ORDER BY stage, size_band, priority, virtual_start, run_at, id
	LIMIT $1
) w
