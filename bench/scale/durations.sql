-- durations: how long each stage of an ingest lasts, by the size of the bag, from the ledger of a
-- registry. A size stands for bags from it up to four times it, in bytes. Times are in seconds, at
-- the percentiles that the columns name. The simulation draws from them.
SELECT stage, size, bags, p[1] AS p0, p[2] AS p10, p[3] AS p25, p[4] AS p50, p[5] AS p75, p[6] AS p90, p[7] AS p99, p[8] AS p100
FROM (
	SELECT a.stage, (4 ^ floor(log(4, greatest(w.size, 1))))::bigint AS size, count(*) AS bags,
		percentile_cont(ARRAY[0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1])
			WITHIN GROUP (ORDER BY extract(epoch FROM a.ended_at - a.claimed_at)::float8)::numeric(12, 4)[] AS p
	FROM attempts a JOIN all_work_items w ON w.id = a.work_item_id
	WHERE a.outcome = 'done' AND w.action = 'Ingest'
	GROUP BY 1, 2
) stages JOIN stage_settings s USING (stage)
WHERE s.action = 'Ingest'
ORDER BY size, s.ordinal
