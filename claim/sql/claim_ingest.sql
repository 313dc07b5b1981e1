-- claim_ingest: takes ingests that are due, each for the time of a lease.
-- Index: work_items_ready, work_items_lease
-- It scans one partition (stage and size band) after the other in the order of the
-- index, from the partition's scan cursor. It stops as soon as it has enough, of each
-- stage and of all. Live leases of a stage with a cap are counted by work_items_lease;
-- the caller then holds the stage's advisory lock. An item that changed since the
-- statement began fails the check of its status, and stays for the next claim.
-- Parameters: $1, $2 stages and how many items of each; $3 to $6 the scan cursors, by
-- stage and size band; $7 action; $8, $9 sizes from and below; $10 items in all; $11
-- memory in bytes; $12 least age; $13 institutions; $14 storage options; $15 scopes to
-- leave alone, as JSON. Empty lists, no age and no scopes do not narrow.
-- $16 to $18 node, process and worker; $19, $20 leases that differ from the settings,
-- and their stages.
WITH claimed AS (
	UPDATE work_items w SET
		status           = 'Started',
		claim_token      = claim_token + 1,
		attempt          = attempt + 1,
		node             = $16,
		pid              = $17,
		worker           = $18,
		stage_started_at = now(),
		lease_expires_at = now() + found.lease,
		note             = found.note,
		updated_at       = now()
	FROM (
		SELECT ready.place, coalesce(($19::interval[])[array_position($20::text[], stage.stage)], stage.lease) AS lease,
			'Item has started stage ' || stage.topic AS note
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
				FOR UPDATE SKIP LOCKED
			) first
			WHERE cursor.stage = stage.stage
			LIMIT stage.allowed
		) ready
		LIMIT $10
	) found
	WHERE w.ctid = found.place AND w.status = 'Pending' AND w.retry
	RETURNING w.id, w.claim_token, w.entered_token, w.stage, w.attempt, w.name, w.bucket, w.etag, w.size, w.bag_date,
		w.object_identifier, w.institution_id, w.size_band, w.priority, w.virtual_start, w.lease_expires_at - w.updated_at AS lease,
		coalesce(w.storage_option::text, '') AS storage_option, w.created_at
), ledger AS (
	INSERT INTO work_item_attempts (work_item_id, claim_token, stage, attempt, node, pid, worker)
	SELECT id, claim_token, stage, attempt, $16, $17, $18 FROM claimed
)
SELECT * FROM claimed
