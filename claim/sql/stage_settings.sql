-- stage_settings: reads how each stage is treated, and next to each the size bands.
-- Index: none; the table has a row for each stage.
SELECT action, stage, ordinal, worker, topic, max_attempts, backoff_first, backoff_factor, backoff_most, overdue,
	coalesce(processing_timeout, '0') AS timeout, heartbeat, lease, cap IS NOT NULL AS capped,
	unrenewed_timeout, unrenewed_lease, b.bands, b.min_sizes
FROM stage_settings CROSS JOIN (SELECT array_agg(band) AS bands, array_agg(min_size) AS min_sizes FROM size_bands) b
