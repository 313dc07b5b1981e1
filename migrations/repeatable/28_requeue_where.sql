-- requeue_where: a plan that is made and applied in one step.

-- requeue_verdict says what a plan would do to an item, before it is applied.
CREATE OR REPLACE FUNCTION requeue_verdict(w work_items, p plans) RETURNS requeue_verdict
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT ROW(w.id, format('%s at %s', w.status, w.stage)
			|| CASE WHEN goes <> w.stage THEN ', to ' || goes ELSE '' END
			|| CASE WHEN goes <> coalesce(p.to_stage, w.stage) THEN ': the bag is read again' ELSE '' END
			|| CASE WHEN w.status = 'Started' THEN ': its worker loses it' ELSE '' END,
		CASE WHEN w.status <> 'Pending' OR w.stage <> goes THEN plan_refusal(w, p) END,
		w.status = 'Pending' AND w.stage = goes)::requeue_verdict
	FROM requeue_stage(w, coalesce(p.to_stage, w.stage)) AS goes
$$;

CREATE OR REPLACE FUNCTION requeue_report(done boolean, verdicts requeue_verdict[])
RETURNS TABLE (what text, count bigint, item bigint, reason text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	WITH v AS MATERIALIZED (SELECT * FROM unnest(verdicts)),
	went AS (SELECT * FROM v WHERE refused IS NULL)
	SELECT CASE WHEN done THEN 'requeued' ELSE 'would requeue' END, count(*), NULL::bigint, NULL FROM went
	UNION ALL
	(SELECT 'change', count(*), min(g.item), CASE WHEN queued THEN change || ': in the queue already, and due at once' ELSE change END
	FROM went g GROUP BY change, queued ORDER BY 2 DESC, 3)
	UNION ALL
	(SELECT 'refused', count(*), min(r.item), kind
	FROM (SELECT v.item, regexp_replace(v.refused, '\mitem ' || v.item || '\M', 'it') AS kind FROM v WHERE v.refused IS NOT NULL) r
	GROUP BY kind ORDER BY 2 DESC, 3 LIMIT 100)
	UNION ALL
	(SELECT 'sample', NULL, w.id, format('%s of %s, %s: %s', w.name, i.identifier, pg_size_pretty(w.size), w.note)
	FROM went g JOIN work_items w ON w.id = g.item JOIN institutions i ON i.id = w.institution_id ORDER BY w.id LIMIT 5)
$$;

-- requeue_where evaluates its condition with the rights of the caller.
CREATE OR REPLACE FUNCTION requeue_where(filter text, to_stage text DEFAULT NULL, dry_run boolean DEFAULT true)
RETURNS TABLE (what text, count bigint, item bigint, reason text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	p        plans;
	f        record;
	verdicts requeue_verdict[];
BEGIN
	p.action := 'requeue';
	p.condition := filter;
	p.to_stage := to_stage;
	IF to_stage IS NOT NULL THEN
		PERFORM stage_named(to_stage);
	END IF;
	SELECT * INTO f FROM items_where(filter);
	verdicts := ARRAY(SELECT requeue_verdict(k, p) FROM work_items k WHERE k.id = ANY (f.ids) ORDER BY k.id);
	IF dry_run IS FALSE AND f.ids <> '{}' THEN
		p := plan_apply_whole(p, f.ids, f.tokens);
		verdicts := ARRAY(
			SELECT ROW(v.item, v.change, CASE WHEN i.state = 'done' OR i.state = 'refused' AND v.queued THEN NULL
				WHEN i.state = 'refused' THEN i.detail ELSE format('item %s has changed since the check', v.item) END, v.queued)::requeue_verdict
			FROM unnest(verdicts) v LEFT JOIN plan_items i ON i.plan_id = p.id AND i.work_item_id = v.item);
	END IF;
	RETURN QUERY SELECT r.* FROM requeue_report(dry_run IS FALSE, verdicts) r;
END
$$;
COMMENT ON FUNCTION requeue_where IS
	'Requeues the items that a condition is true for, as a plan that is made and applied in one step. It only reports what it would do unless dry_run is false; a refused item does not stop the others.';

REVOKE EXECUTE ON FUNCTION requeue_where FROM PUBLIC;
