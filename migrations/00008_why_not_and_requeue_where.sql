-- What keeps one item from being claimed, and requeueing many.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- takers are the pools of live workers that would take an item, with the slots
-- that are free, and for those that would not the first thing that they miss.
-- Missing or empty lists mean any.
-- +goose StatementBegin
CREATE FUNCTION takers(w work_items)
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
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION why_no_worker(w work_items) RETURNS TABLE (reason text, detail text, remedy text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	WITH t AS MATERIALIZED (SELECT * FROM takers(w)),
	best AS (SELECT count(DISTINCT worker) AS workers, max(misses) AS misses, bool_or(misses IS NULL) AS any_takes, max(free) FILTER (WHERE misses IS NULL) AS free FROM t)
	SELECT CASE WHEN any_takes THEN 'busy' ELSE 'no worker' END,
		CASE
			WHEN any_takes THEN 'The workers that take it have no free slot: '
				|| (SELECT string_agg(DISTINCT t.worker, ', ') FROM t WHERE t.misses IS NULL) || '.'
			WHEN workers = 0 THEN 'No worker lives.'
			WHEN misses = '1 stage' THEN format('No live worker takes %s of %s.', w.stage, w.action)
			WHEN misses = '2 size' THEN format('No live worker that takes %s takes an item of %s bytes.', w.stage, w.size)
			WHEN misses = '3 storage option' THEN format('No live worker that takes %s takes the storage option %s.', w.stage, w.storage_option)
			WHEN misses = '4 institution' THEN format('No live worker that takes %s takes items of its institution.', w.stage)
			ELSE 'The workers that would take it were asked to stop: ' || (SELECT string_agg(DISTINCT t.worker, ', ') FROM t WHERE t.misses = '5 draining') || '.'
		END,
		CASE WHEN any_takes THEN 'Wait, or start more: farol work. SELECT * FROM running; says what they do.'
			ELSE format('farol work --stages %L on a machine that can have it. SELECT * FROM workers; says who takes what.', w.stage) END
	FROM best WHERE any_takes IS NOT TRUE OR free <= 0
$$;

CREATE FUNCTION why_pending(w work_items) RETURNS TABLE (reason text, detail text, remedy text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT 'waiting', format('It waits until item %s of the same object has ended, which is %s at %s.', o.id, o.status, o.stage),
		format('SELECT * FROM why_not(%s);', o.id)
	FROM work_items o WHERE o.id = w.waits_for
	UNION ALL
	SELECT 'delayed', format('It is due in %s, at %s. %s', date_trunc('second', w.run_at - now()), date_trunc('second', w.run_at),
			CASE WHEN l.outcome = 'snoozed' THEN 'The stage asked for it later: ' || l.error ELSE coalesce('The last attempt ended as ' || l.outcome || ': ' || l.error, 'No attempt was made yet.') END),
		format('Wait, or SELECT requeue(%s);', w.id)
	FROM (VALUES (1)) one
	LEFT JOIN LATERAL (SELECT a.outcome, a.error FROM work_item_attempts a WHERE a.work_item_id = w.id ORDER BY a.claim_token DESC LIMIT 1) l ON true
	WHERE w.waits_for IS NULL AND w.run_at > now()
	UNION ALL
	SELECT 'paused', format('%s of %s is paused, by %s since %s%s.', s.stage, s.action, s.paused_by, date_trunc('second', s.paused_at), coalesce(': ' || rtrim(s.pause_reason, '.'), '')),
		format('SELECT resume_stage(%L);', s.stage)
	FROM stage_settings s WHERE s.action = w.action AND s.stage = w.stage AND s.paused
	UNION ALL
	SELECT 'cap', format('%s at %s, and no more than %s may be at once.', CASE r.items WHEN 1 THEN '1 item is' ELSE r.items || ' items are' END, s.stage, s.cap),
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
			AND (b.priority, b.turn, b.run_at, b.id) < (w.priority, w.turn, w.run_at, w.id)
		LIMIT 10001) b) n
	WHERE n.items > 0
$$;

CREATE FUNCTION why_not(item bigint) RETURNS TABLE (reason text, detail text, remedy text)
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
		seen := (SELECT a.heard_at FROM work_item_attempts a WHERE a.work_item_id = w.id AND a.claim_token = w.claim_token);
		RETURN QUERY SELECT 'running',
			format('The worker %s on %s, process %s, has it %s; it was heard of last at %s.', w.worker, w.node, w.pid,
				CASE WHEN w.lease_expires_at < now() THEN 'although its lease lapsed at ' || date_trunc('second', w.lease_expires_at)
					ELSE 'until ' || date_trunc('second', w.lease_expires_at) || ' unless it renews that' END,
				date_trunc('second', coalesce(seen, w.stage_started_at))),
			CASE WHEN w.lease_expires_at < now() THEN 'Any live worker gives it back soon: SELECT * FROM workers; says who lives.'
				ELSE format('Wait. If it hangs: SELECT release(%s);', w.id) END;
	WHEN 'Failed', 'Suspended' THEN
		RETURN QUERY SELECT 'parked', format('%s at %s: %s', w.status, w.stage, w.note),
			format('Mend the cause, then SELECT requeue(%s); or end it: SELECT cancel(%1$s);', w.id);
	ELSE
		RETURN QUERY SELECT 'ended', format('%s at %s: %s', w.status, w.stage, w.note), 'None. To ingest the bag again, upload it again.';
	END CASE;
END
$$;
COMMENT ON FUNCTION why_not IS 'What keeps an item from being claimed now: a row for each reason, with what to do about it. No row: nothing does.';
-- +goose StatementEnd

CREATE TYPE requeue_verdict AS (item bigint, change text, refused text, queued boolean);

-- +goose StatementBegin
CREATE FUNCTION requeue_verdict(w work_items, to_stage text) RETURNS requeue_verdict
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT ROW(w.id, format('%s at %s', w.status, w.stage)
			|| CASE WHEN to_stage <> w.stage THEN ', to ' || to_stage ELSE '' END
			|| CASE WHEN w.status = 'Started' THEN ': its worker loses it' ELSE '' END,
		(requeue_refusal(w, to_stage)).reason,
		w.status = 'Pending' AND w.stage = to_stage)::requeue_verdict
$$;

CREATE FUNCTION requeue_report(done boolean, verdicts requeue_verdict[])
RETURNS TABLE (what text, count bigint, item bigint, reason text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	WITH v AS MATERIALIZED (SELECT * FROM unnest(verdicts)),
	went AS (SELECT * FROM v WHERE refused IS NULL)
	SELECT CASE WHEN done THEN 'requeued' ELSE 'would requeue' END, count(*), NULL::bigint, NULL FROM went
	UNION ALL
	(SELECT 'of which', count(*), min(g.item), CASE WHEN queued THEN change || ': in the queue already, and due at once' ELSE change END
	FROM went g GROUP BY change, queued ORDER BY 2 DESC, 3)
	UNION ALL
	(SELECT 'refused', count(*), min(r.item), kind
	FROM (SELECT v.item, regexp_replace(v.refused, '\mitem ' || v.item || '\M', 'it') AS kind FROM v WHERE v.refused IS NOT NULL) r
	GROUP BY kind ORDER BY 2 DESC, 3 LIMIT 100)
	UNION ALL
	(SELECT 'sample', NULL, w.id, format('%s of %s, %s: %s', w.name, i.identifier, pg_size_pretty(w.size), w.note)
	FROM went g JOIN work_items w ON w.id = g.item JOIN institutions i ON i.id = w.institution_id ORDER BY w.id LIMIT 5)
$$;
-- +goose StatementEnd

-- requeue_found requeues items that were found, and passes over those that somebody
-- has changed since.
-- +goose StatementBegin
CREATE FUNCTION requeue_found(ids bigint[], tokens bigint[], to_stage text) RETURNS requeue_verdict[]
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	w        work_items;
	v        requeue_verdict;
	verdicts requeue_verdict[] := '{}';
	bound    text := most_by_hand('2000000000'); -- whoever calls this means many
BEGIN
	PERFORM lock_items(ids);
	FOR n IN 1 .. cardinality(ids) LOOP
		SELECT * INTO w FROM work_items k WHERE k.id = ids[n];
		CONTINUE WHEN NOT FOUND;
		v := requeue_verdict(w, coalesce(to_stage, w.stage));
		IF w.claim_token <> tokens[n] THEN
			v.refused := format('item %s has changed meanwhile', w.id);
		END IF;
		IF v.refused IS NULL THEN
			PERFORM requeue(w.id, to_stage);
		END IF;
		verdicts := verdicts || v;
	END LOOP;
	PERFORM most_by_hand(bound);
	RETURN verdicts;
END
$$;

CREATE FUNCTION requeue_where(filter text, to_stage text DEFAULT NULL, dry_run boolean DEFAULT true)
RETURNS TABLE (what text, count bigint, item bigint, reason text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	f        record;
	verdicts requeue_verdict[];
BEGIN
	IF to_stage IS NOT NULL THEN
		PERFORM stage_named(to_stage);
	END IF;
	SELECT * INTO f FROM items_where(filter);
	IF dry_run IS NOT FALSE THEN
		verdicts := ARRAY(SELECT requeue_verdict(k, coalesce(to_stage, k.stage)) FROM work_items k WHERE k.id = ANY (f.ids) ORDER BY k.id);
	ELSE
		verdicts := requeue_found(f.ids, f.tokens, to_stage);
	END IF;
	RETURN QUERY SELECT r.* FROM requeue_report(dry_run IS FALSE, verdicts) r;
END
$$;
COMMENT ON FUNCTION requeue_where IS
	'Requeues the items that a condition holds for. It only tells what it would do unless dry_run is false; what is refused does not stop the rest.';
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION requeue_where(text, text, boolean);
DROP FUNCTION requeue_found(bigint[], bigint[], text);
DROP FUNCTION requeue_report(boolean, requeue_verdict[]);
DROP FUNCTION requeue_verdict(work_items, text);
DROP TYPE requeue_verdict;
DROP FUNCTION why_not(bigint);
DROP FUNCTION why_pending(work_items);
DROP FUNCTION why_no_worker(work_items);
DROP FUNCTION takers(work_items);
