-- peek_ingest: lists the ingests that claim_ingest would take, in its order,
-- and takes none.
-- Index: work_items_ready, work_items_lease
-- The parameters are those of claim_ingest, up to $15.
SELECT ready.id
FROM (
	SELECT c.stage, s.lease, s.topic,
		greatest(CASE WHEN s.cap IS NULL THEN c.most
			ELSE least(c.most, s.cap - (
				SELECT count(*) FROM work_items r
				WHERE r.status = 'Started' AND r.stage = s.stage AND r.action = s.action AND r.lease_expires_at > now() - s.lease))
		END, 0) AS allowed
	FROM unnest($1::text[], $2::int[]) WITH ORDINALITY AS c (stage, most, ord)
	JOIN stage_settings s ON s.action = $7 AND s.stage = c.stage AND NOT s.paused
	ORDER BY c.ord
	OFFSET 0
) stage
CROSS JOIN LATERAL (
	SELECT first.place, first.id
	FROM unnest($3::text[], $4::smallint[], $5::smallint[], $6::bigint[]) AS cursor (stage, band, priority, virtual_start)
	CROSS JOIN LATERAL (
		SELECT w.ctid AS place, w.id FROM work_items w
		WHERE w.status = 'Pending' AND w.retry
		  AND w.stage = stage.stage AND w.size_band = cursor.band
		  AND (w.priority, w.virtual_start) >= (cursor.priority, cursor.virtual_start)
		  AND w.run_at <= now() AND w.action = $7 AND w.size >= $8 AND w.size < $9
		  AND w.memory_need <= $11
		  AND ($12::interval = '0' OR w.created_at <= now() - $12)
		  AND (cardinality($13::text[]) = 0 OR w.institution_id IN (SELECT id FROM institutions WHERE identifier = ANY ($13)))
		  AND (cardinality($14::text[]) = 0 OR w.storage_option IS NULL OR w.storage_option = ANY ($14))
		  AND ($15::jsonb IS NULL OR NOT EXISTS (
		      SELECT FROM jsonb_to_recordset($15) AS without (steps text[], storage_options text[], institutions text[])
		      WHERE w.stage = ANY (without.steps)
		        AND (without.storage_options IS NULL OR w.storage_option = ANY (without.storage_options))
		        AND (without.institutions IS NULL OR w.institution_id IN (SELECT id FROM institutions WHERE identifier = ANY (without.institutions)))))
		ORDER BY w.priority, w.virtual_start, w.run_at, w.id
		LIMIT stage.allowed
	) first
	WHERE cursor.stage = stage.stage
	LIMIT stage.allowed
) ready
LIMIT $10
