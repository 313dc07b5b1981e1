-- What waits, runs, failed and was done.

CREATE OR REPLACE VIEW all_work_items AS SELECT * FROM work_items UNION ALL SELECT * FROM work_items_archive;
COMMENT ON VIEW all_work_items IS
	'Every item, the archive included.';

CREATE OR REPLACE VIEW attempts AS SELECT * FROM work_item_attempts UNION ALL SELECT * FROM work_item_attempts_archive;
COMMENT ON VIEW attempts IS
	'The ledger: a row for each claim there ever was, the archive included.';

CREATE OR REPLACE VIEW queue_depth AS
SELECT q.action, q.stage, q.size_band, s.paused,
	count(*) FILTER (WHERE q.run_at <= now())                            AS due,
	count(*) FILTER (WHERE q.run_at > now() AND q.run_at < 'infinity')   AS delayed,
	count(*) FILTER (WHERE q.run_at = 'infinity')                        AS waiting,
	count(*) FILTER (WHERE q.run_at IS NULL)                             AS running,
	count(*) FILTER (WHERE q.run_at <= now() OR q.run_at IS NULL)        AS in_flight,
	now() - min(q.run_at) FILTER (WHERE q.run_at <= now())               AS oldest_due,
	sum(q.size)::bigint                                                  AS bytes,
	s.worker
FROM ( -- each by its index
	SELECT action, stage, size_band, size, run_at FROM work_items WHERE status = 'Pending' AND retry
	UNION ALL
	SELECT action, stage, size_band, size, NULL FROM work_items WHERE status = 'Started'
) q
JOIN stage_settings s ON s.action = q.action AND s.stage = q.stage
GROUP BY q.action, q.stage, q.size_band, s.paused, s.worker;
COMMENT ON VIEW queue_depth IS
	'How many items wait and run at each stage in each size band; in_flight are those that are due or run.';

CREATE OR REPLACE VIEW running AS
SELECT w.id AS item, w.action, w.stage, w.worker, w.node, w.pid, w.attempt,
	w.stage_started_at AS since, w.lease_expires_at - now() AS lease_left, a.heartbeat_at AS last_heartbeat, a.current_file,
	i.identifier AS institution, w.name, w.size
FROM work_items w
JOIN institutions i ON i.id = w.institution_id
LEFT JOIN work_item_attempts a ON a.work_item_id = w.id AND a.claim_token = w.claim_token
WHERE w.status = 'Started';
COMMENT ON VIEW running IS
	'What runs: where, since when, and the current file.';

CREATE OR REPLACE VIEW needs_review AS
SELECT w.id AS item, w.action, w.stage, w.status, i.identifier AS institution, w.name, w.size, w.updated_at AS since,
	w.note, w.error_code, l.outcome AS last_outcome, l.error AS last_error, l.current_file AS last_file,
	(SELECT count(*) FROM work_item_attempts k
		WHERE k.work_item_id = w.id AND k.claim_token > w.entered_token
			AND k.outcome IN ('lease expired', 'killed', 'oom', 'panic')) AS workers_lost
FROM work_items w
JOIN institutions i ON i.id = w.institution_id
LEFT JOIN LATERAL (
	SELECT a.outcome, a.error, a.current_file FROM work_item_attempts a
	WHERE a.work_item_id = w.id ORDER BY a.claim_token DESC LIMIT 1
) l ON true
WHERE w.needs_admin_review;
COMMENT ON VIEW needs_review IS
	'Items that a person has to look at: what went wrong last, with which file, and how many workers it killed.';

-- The archive has none of these: work_item_deleted keeps them in the table.
CREATE OR REPLACE VIEW failed AS
SELECT w.id AS item, w.action, w.stage, w.status, i.identifier AS institution, w.name, w.size, w.updated_at AS since,
	w.note, w.error_code, t.attempts, t.last_outcome, t.last_error, t.last_file
FROM work_items w
JOIN institutions i ON i.id = w.institution_id
CROSS JOIN LATERAL (
	SELECT count(*) AS attempts,
		(array_agg(a.outcome ORDER BY a.claim_token DESC))[1]      AS last_outcome,
		(array_agg(a.error ORDER BY a.claim_token DESC))[1]        AS last_error,
		(array_agg(a.current_file ORDER BY a.claim_token DESC))[1] AS last_file
	FROM work_item_attempts a WHERE a.work_item_id = w.id
) t
WHERE w.status IN ('Failed', 'Suspended');
COMMENT ON VIEW failed IS
	'The items that did not succeed and were not cancelled, have no running attempt, and will get none.';

-- A success with a failed attempt before it is one after retries. Attempts that were
-- released, snoozed or held did not fail.
CREATE OR REPLACE VIEW outcomes AS
WITH at_stage AS (
	SELECT work_item_id AS item, stage, bool_or(outcome = 'done') AS done,
		bool_or(outcome NOT IN ('done', 'released', 'snoozed', 'held')) AS retried
	FROM attempts GROUP BY work_item_id, stage
), whole AS (
	SELECT item, bool_or(retried) AS retried FROM at_stage GROUP BY item
), came AS (
	SELECT w.action, w.stage AS place, w.status, true AS ended, false AS done, false AS retried
	FROM all_work_items w
	WHERE w.status IN ('Failed', 'Suspended', 'Cancelled')
	UNION ALL
	SELECT w.action, s.stage, w.status, false, s.done, s.retried
	FROM at_stage s JOIN all_work_items w ON w.id = s.item
	WHERE NOT (w.status IN ('Failed', 'Suspended', 'Cancelled') AND s.stage = w.stage)
	UNION ALL
	SELECT w.action, 'all', w.status, w.status IN ('Failed', 'Suspended', 'Cancelled'), w.status = 'Success', coalesce(t.retried, false)
	FROM all_work_items w LEFT JOIN whole t ON t.item = w.id
)
SELECT coalesce(action, 'all') AS action, place AS stage,
	count(*) FILTER (WHERE done AND NOT retried)                          AS succeeded_at_once,
	count(*) FILTER (WHERE done AND retried)                              AS succeeded_after_retries,
	count(*) FILTER (WHERE ended AND status IN ('Failed', 'Suspended'))   AS failed_completely,
	count(*) FILTER (WHERE ended AND status = 'Cancelled')                AS cancelled
FROM came
GROUP BY GROUPING SETS ((action, place), (place))
HAVING action IS NOT NULL OR place = 'all';
COMMENT ON VIEW outcomes IS
	'How items ended, the archive included: by action and stage; stage all is the item as a whole, action all is every action.';

CREATE OR REPLACE VIEW workers AS
SELECT p.worker, p.node, p.pid, p.pools,
	(SELECT sum((pool->>'slots')::int) FROM jsonb_array_elements(p.pools) pool)::int AS slots,
	coalesce(r.items, 0) AS running, now() - p.heartbeat_at AS heartbeat_ago, p.draining, p.started_at AS started
FROM worker_processes p
LEFT JOIN (SELECT worker, count(*) AS items FROM work_items WHERE status = 'Started' GROUP BY worker) r ON r.worker = p.worker
WHERE p.ended_at IS NULL AND p.heartbeat_at > now() - 3 * p.heartbeat;
COMMENT ON VIEW workers IS
	'Live worker processes: what they claim, how many items they run, and whether they were asked to stop.';

CREATE OR REPLACE FUNCTION drain_worker(worker text) RETURNS SETOF workers
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM workers w WHERE w.worker = $1) THEN
		RAISE EXCEPTION 'there is no live worker %', quote_nullable($1) USING ERRCODE = 'no_data_found',
			HINT = coalesce('Live workers: ' || (SELECT string_agg(w.worker, ', ' ORDER BY w.worker) FROM workers w), 'There is none.');
	END IF;
	UPDATE worker_processes p SET draining = true WHERE p.worker = $1;
	PERFORM pg_notify('farol_settings', '');
	RETURN QUERY SELECT * FROM workers w WHERE w.worker = $1;
END
$$;
COMMENT ON FUNCTION drain_worker IS
	'Asks a worker to claim nothing more, finish what it can within its grace period, release the rest, and stop.';

REVOKE EXECUTE ON FUNCTION drain_worker FROM PUBLIC;
