-- behind_cursor_ingest: finds the first of the ingests that is due and lies
-- before a scan cursor, in each partition: it committed late, or was locked.
-- Index: work_items_ready
-- It reads the dead index entries that claims skip.
-- Parameters: $1 to $4 the scan cursors, by stage and size band; $5 action; $6, $7
-- sizes from and below; $8 to $12 as $11 to $15 of claim_ingest.
SELECT cursor.stage, cursor.band, first.priority, first.virtual_start
FROM unnest($1::text[], $2::smallint[], $3::smallint[], $4::bigint[]) AS cursor (stage, band, priority, virtual_start)
CROSS JOIN LATERAL (
	SELECT w.priority, w.virtual_start FROM work_items w
	WHERE w.status = 'Pending' AND w.retry
	  AND w.stage = cursor.stage AND w.size_band = cursor.band
	  AND (w.priority, w.virtual_start) < (cursor.priority, cursor.virtual_start)
	  AND w.run_at <= now() AND w.action = $5 AND w.size >= $6 AND w.size < $7
	  AND w.memory_need <= $8
	  AND ($9::interval = '0' OR w.created_at <= now() - $9)
	  AND (cardinality($10::text[]) = 0 OR w.institution_id IN (SELECT id FROM institutions WHERE identifier = ANY ($10)))
	  AND (cardinality($11::text[]) = 0 OR w.storage_option IS NULL OR w.storage_option = ANY ($11))
	  AND ($12::jsonb IS NULL OR NOT EXISTS (
	      SELECT FROM jsonb_to_recordset($12) AS without (steps text[], storage_options text[], institutions text[])
	      WHERE w.stage = ANY (without.steps)
	        AND (without.storage_options IS NULL OR w.storage_option = ANY (without.storage_options))
	        AND (without.institutions IS NULL OR w.institution_id IN (SELECT id FROM institutions WHERE identifier = ANY (without.institutions)))))
	ORDER BY w.priority, w.virtual_start, w.run_at, w.id
	LIMIT 1
) first
