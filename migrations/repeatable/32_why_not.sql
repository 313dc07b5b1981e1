-- Why an item is not claimed.

-- takers lists the pools of live workers, with their free slots, and for those that would
-- not claim the item the first reason. Missing or empty lists mean any.
CREATE OR REPLACE FUNCTION takers(w work_items)
RETURNS TABLE (worker text, pool text, misses text, free bigint)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	WITH pools AS (
		SELECT l.worker, coalesce(p->>'name', '') AS name, l.draining, (p->>'slots')::bigint AS slots,
			coalesce((p->>'min_size')::bigint, 0) AS least, nullif((p->>'max_size')::bigint, 0) AS most,
			nullif(p->'actions', '[]') AS actions, nullif(p->'stages', '[]') AS stages,
			nullif(p->'storage_options', '[]') AS options, nullif(p->'institutions', '[]') AS institutions
		FROM workers l CROSS JOIN LATERAL jsonb_array_elements(l.pools) p
	)
	SELECT p.worker, p.name,
		CASE
			WHEN NOT coalesce(p.stages ? w.stage, true) OR NOT coalesce(p.actions ? w.action, true) THEN '1 stage'
			WHEN w.size < p.least OR w.size >= p.most THEN '2 size'
			WHEN NOT coalesce(p.options ? w.storage_option, true) THEN '3 storage option'
			WHEN NOT coalesce(p.institutions ? (SELECT i.identifier FROM institutions i WHERE i.id = w.institution_id), true) THEN '4 institution'
			WHEN p.draining THEN '5 draining'
		END,
		p.slots - (SELECT count(*) FROM work_items r
			WHERE r.status = 'Started' AND r.worker = p.worker
				AND coalesce(p.stages ? r.stage, true) AND r.size >= p.least AND (p.most IS NULL OR r.size < p.most))
	FROM pools p
$$;

-- why_no_worker says why no live worker claims an item: none has the memory, its stage is
-- processed over HTTP, no pool takes it, or those that do have no free slot.
CREATE OR REPLACE FUNCTION why_no_worker(w work_items) RETURNS TABLE (reason text, detail text, remedy text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	WITH kind AS MATERIALIZED (
		SELECT why_no_memory(w) AS no_memory,
			EXISTS (SELECT FROM stage_settings s WHERE s.action = w.action AND s.stage = w.stage AND s.worker = 'http') AS over_http
	), t AS MATERIALIZED (
		SELECT t.* FROM kind CROSS JOIN LATERAL takers(w) t WHERE no_memory IS NULL AND NOT over_http
	), best AS (
		SELECT count(DISTINCT worker) AS workers, max(misses) AS misses, bool_or(misses IS NULL) AS any_takes, max(free) FILTER (WHERE misses IS NULL) AS free FROM t
	)
	SELECT 'memory', upper(left(no_memory, 1)) || substr(no_memory, 2) || '.', 'Run a worker with a larger memory limit. SELECT * FROM workers; lists the live workers.'
	FROM kind WHERE no_memory IS NOT NULL
	UNION ALL
	SELECT 'http worker', format('It waits for an HTTP worker of %s%s.', w.stage,
			coalesce('; at work there: ' || (SELECT string_agg(DISTINCT r.worker, ', ') FROM work_items r WHERE r.status = 'Started' AND r.stage = w.stage), '')),
		format('Start one that asks for %L: docs/workers.md. SELECT * FROM running; shows what the running workers have.', w.stage)
	FROM kind WHERE no_memory IS NULL AND over_http
	UNION ALL
	SELECT CASE WHEN any_takes THEN 'busy' ELSE 'no worker' END,
		CASE
			WHEN any_takes THEN 'The workers that take it have no free slot: '
				|| (SELECT string_agg(DISTINCT t.worker, ', ') FROM t WHERE t.misses IS NULL) || '.'
			WHEN workers = 0 THEN 'There is no live worker.'
			WHEN misses = '1 stage' THEN format('No live worker takes %s of %s.', w.stage, w.action)
			WHEN misses = '2 size' THEN format('No live worker that takes %s takes an item of %s bytes.', w.stage, w.size)
			WHEN misses = '3 storage option' THEN format('No live worker that takes %s takes the storage option %s.', w.stage, w.storage_option)
			WHEN misses = '4 institution' THEN format('No live worker that takes %s takes items of its institution.', w.stage)
			ELSE 'The workers that would take it were asked to stop: ' || (SELECT string_agg(DISTINCT t.worker, ', ') FROM t WHERE t.misses = '5 draining') || '.'
		END,
		CASE WHEN any_takes THEN 'Wait, or start more workers. SELECT * FROM running; says what they do.'
			ELSE format('Start a worker that claims %L. SELECT * FROM workers; shows what each claims.',
				CASE w.action WHEN 'Ingest' THEN w.stage::text ELSE w.action::text END) END
	FROM best CROSS JOIN kind WHERE no_memory IS NULL AND NOT over_http AND (any_takes IS NOT TRUE OR free <= 0)
$$;

-- why_pending says why a Pending item is not claimed.
CREATE OR REPLACE FUNCTION why_pending(w work_items) RETURNS TABLE (reason text, detail text, remedy text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT 'held', service_text(s),
		CASE WHEN s.held_by IS NOT NULL THEN format('SELECT release_service(%L);', s.service)
			ELSE 'Repair the service; work goes on by itself. SELECT * FROM services; says who sees what.' END
	FROM services s WHERE s.state = 'held' AND needs_service(w, s.scopes)
	UNION ALL
	SELECT 'waiting', format('It waits until item %s of the same object has ended, which is %s at %s.', o.id, o.status, o.stage),
		format('SELECT * FROM why_not(%s);', o.id)
	FROM work_items o WHERE o.id = w.waits_for
	UNION ALL
	SELECT 'cooling off', deletion_waits(w.deletion_request_id), 'Wait, or have an admin of the institution stop it.'
	WHERE deletion_waits(w.deletion_request_id) IS NOT NULL
	UNION ALL
	SELECT 'kept by the store', format('%s It is checked again at %s.', w.note, date_trunc('second', w.run_at)), 'Wait, or have an admin of the institution stop it.'
	WHERE w.run_at > now() AND w.error_code = 'kept-by-store' AND deletion_waits(w.deletion_request_id) IS NULL
	UNION ALL
	SELECT 'delayed', format('It is due in %s, at %s. %s', date_trunc('second', w.run_at - now()), date_trunc('second', w.run_at),
			CASE WHEN l.outcome = 'snoozed' THEN 'The stage postponed it: ' || l.error ELSE coalesce('The last attempt ended as ' || l.outcome || ': ' || l.error, 'No attempt was made yet.') END),
		format('Wait, or SELECT requeue(%s);', w.id)
	FROM (VALUES (1)) one
	LEFT JOIN LATERAL (SELECT a.outcome, a.error FROM work_item_attempts a WHERE a.work_item_id = w.id ORDER BY a.claim_token DESC LIMIT 1) l ON true
	WHERE w.waits_for IS NULL AND w.run_at > now() AND deletion_item_waits(w) IS NULL
	UNION ALL
	SELECT 'paused', format('%s of %s is paused, %s.', p.stage, p.action, pause_text(p)),
		CASE WHEN p.in_nsq OR p.paused_by = acting_user() THEN format('SELECT resume_stage(%L);', p.stage) ELSE format('SELECT lift_pause(%s);', p.id) END
	FROM pauses p WHERE p.action = w.action AND p.stage = w.stage AND p.lifted_at IS NULL
	UNION ALL
	SELECT 'cap', format('%s at %s; the cap is %s.', CASE r.items WHEN 1 THEN '1 item is' ELSE r.items || ' items are' END, s.stage, s.cap),
		format('Wait, or UPDATE stage_settings SET cap = %s WHERE action = %L AND stage = %L;', s.cap * 2, s.action, s.stage)
	FROM stage_settings s CROSS JOIN LATERAL (SELECT count(*) AS items FROM work_items c WHERE c.status = 'Started' AND c.stage = s.stage) r
	WHERE s.action = w.action AND s.stage = w.stage AND r.items >= s.cap
	UNION ALL
	SELECT * FROM why_no_worker(w)
	UNION ALL
	SELECT 'behind others', CASE WHEN n.items > 10000 THEN 'more than 10000 items go' WHEN n.items = 1 THEN '1 item goes' ELSE n.items || ' items go' END || ' before it.',
		format('Wait, or SELECT set_priority(%s, %s);', w.id, greatest(w.priority - 10, -100))
	FROM (SELECT count(*) AS items FROM (
		SELECT FROM work_items b
		WHERE b.status = 'Pending' AND b.retry AND b.stage = w.stage AND b.size_band = w.size_band AND b.run_at <= now()
			AND (b.priority, b.virtual_start, b.run_at, b.id) < (w.priority, w.virtual_start, w.run_at, w.id)
		LIMIT 10001) b) n
	WHERE n.items > 0
$$;

CREATE OR REPLACE FUNCTION why_not(item bigint) RETURNS TABLE (reason text, detail text, remedy text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
	w    work_items;
	seen timestamptz;
BEGIN
	SELECT * INTO w FROM all_work_items WHERE id = item;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no item %', coalesce(item::text, 'NULL') USING ERRCODE = 'no_data_found';
	END IF;
	CASE w.status
	WHEN 'Pending' THEN
		RETURN QUERY SELECT * FROM why_pending(w);
	WHEN 'Started' THEN
		seen := (SELECT a.heartbeat_at FROM work_item_attempts a WHERE a.work_item_id = w.id AND a.claim_token = w.claim_token);
		RETURN QUERY SELECT CASE WHEN w.lease_expires_at < now() THEN 'worker gone' ELSE 'running' END,
			format('The worker %s on %s, process %s, has it %s; its last heartbeat was at %s.', w.worker, w.node, w.pid,
				CASE WHEN w.lease_expires_at < now() THEN 'although its lease expired at ' || date_trunc('second', w.lease_expires_at)
					ELSE 'until ' || date_trunc('second', w.lease_expires_at) || ' unless it renews that' END,
				date_trunc('second', coalesce(seen, w.stage_started_at))),
			CASE WHEN w.lease_expires_at < now() - interval '1 minute' THEN 'Its worker is gone, and no process that would give it back is running. Start a worker, or the scheduler.'
				WHEN w.lease_expires_at < now() THEN 'Its worker is gone. Any worker, scheduler, server or mirror that runs gives it back within a minute.'
				ELSE format('Wait. If it hangs: SELECT release(%s);', w.id) END;
	WHEN 'Failed', 'Suspended' THEN
		RETURN QUERY SELECT 'parked', format('%s at %s: %s', w.status, w.stage, w.note),
			format('Fix the cause, then SELECT requeue(%s); or end it: SELECT cancel(%1$s);', w.id);
	ELSE
		RETURN QUERY SELECT 'ended', format('%s at %s: %s', w.status, w.stage, w.note), CASE WHEN w.action = 'Ingest' THEN 'None. To ingest the bag again, upload it again.' WHEN w.status = 'Success' THEN 'None: it was done.' ELSE 'None. It can be asked for again.' END;
	END CASE;
END
$$;
COMMENT ON FUNCTION why_not IS
	'Explains why an item is not running: a row for each reason, with what to do. No row: nothing keeps it from being claimed.';
