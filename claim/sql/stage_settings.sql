-- stage_settings: reads how each stage is treated.
-- Index: none; the table has a row for each stage.
SELECT action, stage, ordinal, worker, topic, max_attempts, backoff_first, backoff_factor, backoff_most, overdue,
	coalesce(processing_timeout, '0') AS timeout, heartbeat, lease, cap IS NOT NULL AS capped,
	unrenewed_timeout, unrenewed_lease
FROM stage_settings
