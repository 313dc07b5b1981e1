-- Attempts: which count, how long an item waits after one, and what a clock that was set changes.

-- backoff_of is how long an item waits after its nth failure in a row.
CREATE OR REPLACE FUNCTION backoff_of(s stage_settings, n integer) RETURNS interval LANGUAGE sql IMMUTABLE
RETURN least(s.backoff_most, make_interval(secs => least(
	extract(epoch FROM s.backoff_first)::float8 * s.backoff_factor::float8 ^ least(n - 1, 20), 4e7)));

-- failed_attempts counts the attempts of an item that failed, from when it came to its
-- stage, or from when the counter was reset, to before a claim. A lease that expired
-- because the worker could not reach the database, because it did not receive the answer
-- to its claim, or because the clock was set, says nothing of the item and does not count.
CREATE OR REPLACE FUNCTION failed_attempts(item bigint, entered bigint, before bigint, ways text[] DEFAULT '{transient,panic,lease expired,killed,oom}')
RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN (SELECT count(*) FROM work_item_attempts a
	WHERE a.work_item_id = item AND a.claim_token > entered AND a.claim_token < before
	  AND a.claim_token >= coalesce((SELECT max(f.claim_token) FROM attempt_resets f WHERE f.work_item_id = item), 0)
	  AND a.outcome = ANY (ways) AND a.error_code NOT IN ('clock-set', 'unreachable', 'claim-lost'));

-- reset_attempts resets the attempt counter to the running attempt, if the claim holds
-- and the counter is higher.
CREATE OR REPLACE FUNCTION reset_attempts() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	SELECT attempt - 1 INTO NEW.attempts FROM work_items
	WHERE id = NEW.work_item_id AND claim_token = NEW.claim_token AND status = 'Started' AND attempt > 1 FOR UPDATE;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	UPDATE work_items SET attempt = 1 WHERE id = NEW.work_item_id;
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER reset_attempts BEFORE INSERT ON attempt_resets FOR EACH ROW EXECUTE FUNCTION reset_attempts();

-- uncount_attempts takes back the cost of attempts that ended as lapsed leases, after their
-- workers have reported that they could not reach the database. An item that was suspended for
-- them is requeued. One that has moved on since is left alone.
CREATE OR REPLACE FUNCTION uncount_attempts(items bigint[], tokens bigint[]) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	w work_items;
	m work_item_move;
BEGIN
	FOR w IN SELECT k.* FROM unnest(items, tokens) ended (item, token) JOIN work_items k ON k.id = ended.item AND k.claim_token = ended.token + 1
		WHERE k.status = 'Suspended' AND k.error_code = 'lease-expired' ORDER BY k.id LOOP
		BEGIN
			PERFORM requeue(w.id);
		EXCEPTION WHEN check_violation THEN -- it may not be, and waits for a person
		END;
	END LOOP;
	FOR w IN SELECT k.* FROM unnest(items, tokens) ended (item, token) JOIN work_items k ON k.id = ended.item AND k.claim_token = ended.token + 1
		WHERE k.status = 'Pending' AND k.error_code = 'lease-expired' AND k.attempt > 0 ORDER BY k.id FOR UPDATE OF k SKIP LOCKED LOOP
		m := unchanged(w);
		m.attempt := w.attempt - 1;
		m.run_at := now();
		m.code := 'unreachable';
		m.note := 'A worker could not reach the database while it worked on this stage.';
		PERFORM move_items(ARRAY[m]);
	END LOOP;
END
$$;

-- clamp_waiting moves run_at of up to most items back that lies too far ahead because the
-- clock was set back; it returns how many. It reads all of work_items_ready, so it is
-- called only when the clock was seen to be set. Like clamp_times it skips locked rows:
-- the transaction that has locked one writes a time of its own.
CREATE OR REPLACE FUNCTION clamp_waiting(most integer) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	w     work_items;
	m     work_item_move;
	moves work_item_move[];
BEGIN
	FOR w IN SELECT * FROM work_items k
		WHERE k.status = 'Pending' AND k.retry AND k.run_at > now() AND k.run_at < 'infinity' AND k.updated_at > now() + interval '5 seconds'
		LIMIT most FOR UPDATE SKIP LOCKED LOOP
		m := unchanged(w);
		m.run_at := w.run_at - (w.updated_at - now());
		moves := moves || m;
	END LOOP;
	PERFORM move_items(moves);
	RETURN coalesce(cardinality(moves), 0);
END
$$;

-- clamp_times moves all other times back that lie further ahead than they can have been
-- set: leases, by the last heartbeat (work_items_lease), heartbeats and deliveries. Of
-- concurrent calls one does it.
CREATE OR REPLACE FUNCTION clamp_times() RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	latest timestamptz := now() + interval '5 seconds'; -- clocks of one database differ by less
	moved  bigint;
BEGIN
	IF NOT pg_try_advisory_xact_lock(hashtextextended('farol clamp times', 0)) THEN
		RETURN 0;
	END IF;
	WITH ahead AS MATERIALIZED (
		SELECT w.id, w.claim_token, a.heartbeat_at - now() AS by
		FROM (SELECT stage, min(lease) AS lease FROM stage_settings GROUP BY stage) s
		CROSS JOIN LATERAL (SELECT * FROM work_items i
			WHERE i.status = 'Started' AND i.stage = s.stage AND i.lease_expires_at > now() + s.lease
			FOR UPDATE SKIP LOCKED) w
		JOIN work_item_attempts a ON a.work_item_id = w.id AND a.claim_token = w.claim_token
		WHERE a.heartbeat_at > latest
	), heard AS (
		UPDATE work_item_attempts a SET heartbeat_at = now() FROM ahead WHERE a.work_item_id = ahead.id AND a.claim_token = ahead.claim_token
	)
	UPDATE work_items w SET lease_expires_at = w.lease_expires_at - ahead.by FROM ahead WHERE w.id = ahead.id AND w.claim_token = ahead.claim_token;
	GET DIAGNOSTICS moved = ROW_COUNT;
	UPDATE worker_processes SET heartbeat_at = now()
	WHERE worker IN (SELECT worker FROM worker_processes WHERE heartbeat_at > latest FOR UPDATE SKIP LOCKED);
	UPDATE fixity_checks SET run_at = run_at - (set_at - now())
	WHERE storage_record_id IN (SELECT storage_record_id FROM fixity_checks WHERE set_at > latest FOR UPDATE SKIP LOCKED);
	UPDATE fixity_policies SET paused_until = paused_until - (set_at - now())
	WHERE target IN (SELECT target FROM fixity_policies WHERE set_at > latest AND isfinite(paused_until) FOR UPDATE SKIP LOCKED);
	UPDATE fixity_feed SET fed_at = least(fed_at, now()), drained_at = least(drained_at, now())
	WHERE only_one IN (SELECT only_one FROM fixity_feed WHERE fed_at > latest OR drained_at > latest FOR UPDATE SKIP LOCKED);
	UPDATE retrievals SET woken_at = now()
	WHERE work_item_id IN (SELECT work_item_id FROM retrievals WHERE woken_at > latest FOR UPDATE SKIP LOCKED);
	UPDATE topic_deliveries d SET updated_at = now()
	FROM (SELECT o.receiver_id, o.message FROM topic_receivers r JOIN topic_deliveries o ON o.receiver_id = r.id
		WHERE o.status = 'processing' AND o.updated_at > latest FOR UPDATE OF o SKIP LOCKED) ahead
	WHERE d.receiver_id = ahead.receiver_id AND d.message = ahead.message;
	UPDATE topic_receivers SET pulled_at = now()
	WHERE id IN (SELECT id FROM topic_receivers WHERE pulled_at > latest FOR UPDATE SKIP LOCKED);
	UPDATE topic_readers SET updated_at = now()
	WHERE name IN (SELECT name FROM topic_readers WHERE updated_at > latest FOR UPDATE SKIP LOCKED);
	UPDATE topic_partitions SET opened_at = least(opened_at, now()), closed_at = least(closed_at, now())
	WHERE (parent, number) IN (SELECT parent, number FROM topic_partitions WHERE opened_at > latest OR closed_at > latest FOR UPDATE SKIP LOCKED);
	RETURN moved;
END
$$;

-- most_memory is the most memory that a live worker has which claims the item's stage;
-- NULL: there is none.
CREATE OR REPLACE FUNCTION most_memory(w work_items) RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN (SELECT max(coalesce((pool->>'memory')::bigint, 9223372036854775807))
	FROM worker_processes p CROSS JOIN LATERAL jsonb_array_elements(p.pools) pool
	WHERE p.ended_at IS NULL AND p.heartbeat_at > now() - 3 * p.heartbeat AND pool->'stages' ? w.stage AND pool->'actions' ? w.action);

CREATE OR REPLACE FUNCTION why_no_memory(w work_items) RETURNS text LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN (SELECT format('no live worker has the memory: it needs %s MiB, the largest has %s MiB', ceil(w.memory_need / 1048576.0), m / 1048576)
	FROM most_memory(w) m WHERE m < w.memory_need);

-- park_memory_needs suspends items that have waited for a minute and need more memory
-- than any live worker of their stage has.
CREATE OR REPLACE FUNCTION park_memory_needs() RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	w      work_items;
	m      work_item_move;
	why    text;
	parked bigint := 0;
BEGIN
	FOR w IN SELECT * FROM work_items k
		WHERE k.memory_need > 0 AND k.status = 'Pending' AND k.retry AND k.waits_for IS NULL AND k.updated_at < now() - interval '1 minute'
		FOR UPDATE SKIP LOCKED LOOP
		why := why_no_memory(w);
		CONTINUE WHEN why IS NULL;
		m := unchanged(w);
		m.status := 'Suspended';
		m.code := 'memory-need';
		m.note := upper(left(why, 1)) || substr(why, 2) || '. Requeue it when a larger worker runs.';
		m.review := true;
		PERFORM move_items(ARRAY[m]);
		parked := parked + 1;
	END LOOP;
	RETURN parked;
END
$$;

-- wake_retrieval makes an item due now that waits for a later time, if its token is still
-- the one that the caller saw.
CREATE OR REPLACE FUNCTION wake_retrieval(item bigint, token bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	w work_items;
	m work_item_move;
BEGIN
	SELECT * INTO w FROM work_items
	WHERE id = item AND claim_token = token AND status = 'Pending' AND waits_for IS NULL AND run_at > now() FOR UPDATE;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	m := unchanged(w);
	m.run_at := now();
	PERFORM move_items(ARRAY[m]);
	UPDATE retrievals SET woken_at = now() WHERE work_item_id = item;
	RETURN true;
END
$$;

REVOKE EXECUTE ON FUNCTION backoff_of, failed_attempts, reset_attempts, uncount_attempts, clamp_waiting, clamp_times,
	park_memory_needs, wake_retrieval FROM PUBLIC;
