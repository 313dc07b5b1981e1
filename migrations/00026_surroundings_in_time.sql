-- What an item does not pay for: a database whose clock is set, and a fault that
-- lasts for some minutes.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- The wait between attempts is 1 s, 1 min, 5 min: three attempts within three
-- seconds are one try. What somebody has set is waited for as before.
ALTER TABLE stage_settings DISABLE TRIGGER stage_settings_changed;
ALTER TABLE stage_settings
	ADD COLUMN backoff_factor integer NOT NULL DEFAULT 60 CHECK (backoff_factor BETWEEN 1 AND 1000), -- each wait is so many times the one before
	ALTER COLUMN backoff_most SET DEFAULT '5 minutes';
UPDATE stage_settings SET backoff_factor = 2 WHERE (backoff_first, backoff_most) IS DISTINCT FROM ('1 second', '10 minutes');
UPDATE stage_settings SET backoff_most = '5 minutes' WHERE backoff_factor = 60;
ALTER TABLE stage_settings ENABLE TRIGGER stage_settings_changed;
INSERT INTO administration_rights (privilege, on_table) VALUES ('UPDATE (backoff_factor)', 'stage_settings');
SELECT grant_to_administrators();

-- +goose StatementBegin
-- backoff_of is how long an item waits after its nth failure in a row.
CREATE FUNCTION backoff_of(s stage_settings, n integer) RETURNS interval LANGUAGE sql IMMUTABLE
RETURN least(s.backoff_most, make_interval(secs => least(
	extract(epoch FROM s.backoff_first)::float8 * s.backoff_factor::float8 ^ least(n - 1, 20), 4e7)));

-- failed_attempts counts the attempts of an item that ended in a way that spends
-- one, from when it came to its stage, or from when those before were forgiven, to
-- before a claim. A claim that was lost to a clock that was set is none.
CREATE FUNCTION failed_attempts(item bigint, entered bigint, before bigint, ways text[] DEFAULT '{transient,panic,lease expired,killed,oom}')
RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN (SELECT count(*) FROM work_item_attempts a
	WHERE a.work_item_id = item AND a.claim_token > entered AND a.claim_token < before
	  AND a.claim_token >= coalesce((SELECT max(f.claim_token) FROM attempts_forgiven f WHERE f.work_item_id = item), 0)
	  AND a.outcome = ANY (ways) AND a.error_code <> 'clock-set');
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION backoff_of(stage_settings, integer), failed_attempts(bigint, bigint, bigint, text[]) FROM PUBLIC;

-- When the database's clock is set back, what was to be done soon lies far ahead,
-- and the leases of the dead last. A time that was written in the future tells by
-- how much: the times that were reckoned from it are moved as far. Fixity checks and
-- pauses have no such time yet.
ALTER TABLE fixity_checks   ADD COLUMN set_at timestamptz NOT NULL DEFAULT now(); -- run_at was reckoned from it
ALTER TABLE fixity_policies ADD COLUMN set_at timestamptz NOT NULL DEFAULT now(); -- paused_until was
-- +goose StatementBegin
CREATE FUNCTION time_is_set() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.set_at := now();
	RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER time_is_set BEFORE UPDATE OF run_at ON fixity_checks FOR EACH ROW EXECUTE FUNCTION time_is_set();
CREATE TRIGGER time_is_set BEFORE UPDATE OF paused_until ON fixity_policies FOR EACH ROW EXECUTE FUNCTION time_is_set();

-- clamp_waiting makes up to so many items due that wait only because the clock was
-- set back, and moves backoffs and snoozes by as much; it returns how many. It reads
-- work_items_ready to its end, so it is for when the clock was seen to be set. It
-- goes by the engine's way, with the token. Like clamp_times it passes over what
-- others have locked, who have their own time to write there.
-- +goose StatementBegin
CREATE FUNCTION clamp_waiting(most integer) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	found text[];
BEGIN
	WITH ahead AS MATERIALIZED (
		SELECT w.id FROM work_items w
		WHERE w.status = 'Pending' AND w.retry AND w.run_at > now() AND w.run_at < 'infinity' AND w.updated_at > now() + interval '5 seconds'
		LIMIT most FOR UPDATE SKIP LOCKED
	), moved AS (
		UPDATE work_items w SET claim_token = w.claim_token + 1, run_at = w.run_at - (w.updated_at - now()), updated_at = now()
		FROM ahead WHERE w.id = ahead.id
		RETURNING w.stage
	)
	SELECT array_agg(stage) INTO found FROM moved;
	PERFORM pg_notify('farol_work', E'\n' || s.stage) FROM (SELECT DISTINCT unnest(found) AS stage) s;
	RETURN coalesce(cardinality(found), 0);
END
$$;

-- clamp_times moves all else back that lies further ahead than it can have been set:
-- leases by the last sign of life (work_items_lease), and what says when somebody was
-- heard of or given something. Calls that meet do it once.
CREATE FUNCTION clamp_times() RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	latest timestamptz := now() + interval '5 seconds'; -- clocks of one database differ by less
	moved  bigint;
BEGIN
	IF NOT pg_try_advisory_xact_lock(hashtextextended('farol clamp times', 0)) THEN
		RETURN 0;
	END IF;
	WITH ahead AS MATERIALIZED (
		SELECT w.id, w.claim_token, a.heard_at - now() AS by
		FROM (SELECT stage, min(lease) AS lease FROM stage_settings GROUP BY stage) s
		CROSS JOIN LATERAL (SELECT * FROM work_items i
			WHERE i.status = 'Started' AND i.stage = s.stage AND i.lease_expires_at > now() + s.lease
			FOR UPDATE SKIP LOCKED) w
		JOIN work_item_attempts a ON a.work_item_id = w.id AND a.claim_token = w.claim_token
		WHERE a.heard_at > latest
	), heard AS (
		UPDATE work_item_attempts a SET heard_at = now() FROM ahead WHERE a.work_item_id = ahead.id AND a.claim_token = ahead.claim_token
	)
	UPDATE work_items w SET lease_expires_at = w.lease_expires_at - ahead.by FROM ahead WHERE w.id = ahead.id AND w.claim_token = ahead.claim_token;
	GET DIAGNOSTICS moved = ROW_COUNT;
	UPDATE worker_processes SET heard_at = now()
	WHERE worker IN (SELECT worker FROM worker_processes WHERE heard_at > latest FOR UPDATE SKIP LOCKED);
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
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION clamp_waiting(integer), clamp_times(), time_is_set() FROM PUBLIC;

-- What a bag needs of a worker's memory: claims know it as they know the size. A
-- process says in its pools how much it has; where it says nothing, all fits.
ALTER TABLE work_items         ADD COLUMN IF NOT EXISTS memory_need bigint NOT NULL DEFAULT 0;
ALTER TABLE work_items_archive ADD COLUMN IF NOT EXISTS memory_need bigint NOT NULL DEFAULT 0;
CREATE OR REPLACE VIEW all_work_items AS SELECT * FROM work_items UNION ALL SELECT * FROM work_items_archive;
CREATE INDEX work_items_memory_need ON work_items (memory_need) WHERE memory_need > 0 AND status = 'Pending' AND retry;

-- most_memory is what the live worker has that has the most, of those that take an
-- item's stage; NULL if there is none.
-- +goose StatementBegin
CREATE FUNCTION most_memory(w work_items) RETURNS bigint LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN (SELECT max(coalesce((pool->>'memory')::bigint, 9223372036854775807))
	FROM worker_processes p CROSS JOIN LATERAL jsonb_array_elements(p.pools) pool
	WHERE p.ended_at IS NULL AND p.heard_at > now() - 3 * p.heartbeat AND pool->'stages' ? w.stage AND pool->'actions' ? w.action);

CREATE FUNCTION why_no_memory(w work_items) RETURNS text LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN (SELECT format('no live worker has the memory: it needs %s MiB, the largest has %s MiB', ceil(w.memory_need / 1048576.0), m / 1048576)
	FROM most_memory(w) m WHERE m < w.memory_need);

-- park_memory_needs parks what has waited for a minute and needs more memory than
-- any live worker of its stage has.
CREATE FUNCTION park_memory_needs() RETURNS bigint LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	parked bigint;
BEGIN
	UPDATE work_items w SET status = 'Suspended', retry = false, needs_admin_review = true, claim_token = w.claim_token + 1,
		error_code = 'memory-need', note = upper(left(n.why, 1)) || substr(n.why, 2) || '. Requeue it when a larger worker runs.', updated_at = now()
	FROM (SELECT i.id, why_no_memory(i) AS why FROM work_items i
		WHERE i.memory_need > 0 AND i.status = 'Pending' AND i.retry AND i.waits_for IS NULL AND i.updated_at < now() - interval '1 minute'
		FOR UPDATE SKIP LOCKED) n
	WHERE w.id = n.id AND n.why IS NOT NULL;
	GET DIAGNOSTICS parked = ROW_COUNT;
	RETURN parked;
END
$$;
-- +goose StatementEnd

ALTER FUNCTION why_no_worker(work_items) RENAME TO why_no_worker_by_pools;
-- +goose StatementBegin
CREATE FUNCTION why_no_worker(w work_items) RETURNS TABLE (reason text, detail text, remedy text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT 'memory', upper(left(m.why, 1)) || substr(m.why, 2) || '.', 'Run farol work with a larger memory limit. SELECT * FROM workers; says who lives.'
	FROM (SELECT why_no_memory(w) AS why) m WHERE m.why IS NOT NULL
	UNION ALL
	SELECT k.* FROM why_no_worker_by_pools(w) k WHERE why_no_memory(w) IS NULL
$$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION park_memory_needs() FROM PUBLIC;

-- +goose Down
DROP FUNCTION why_no_worker(work_items);
ALTER FUNCTION why_no_worker_by_pools(work_items) RENAME TO why_no_worker;
DROP FUNCTION park_memory_needs();
DROP FUNCTION why_no_memory(work_items);
DROP FUNCTION most_memory(work_items);
DROP INDEX work_items_memory_need; -- the column stays, as no view has to be made anew without it
DROP FUNCTION clamp_times();
DROP FUNCTION clamp_waiting(integer);
DROP TRIGGER time_is_set ON fixity_policies;
DROP TRIGGER time_is_set ON fixity_checks;
DROP FUNCTION time_is_set();
ALTER TABLE fixity_policies DROP COLUMN set_at;
ALTER TABLE fixity_checks DROP COLUMN set_at;
DROP FUNCTION failed_attempts(bigint, bigint, bigint, text[]);
DROP FUNCTION backoff_of(stage_settings, integer);
DELETE FROM administration_rights WHERE (privilege, on_table) = ('UPDATE (backoff_factor)', 'stage_settings');
ALTER TABLE stage_settings DISABLE TRIGGER stage_settings_changed;
UPDATE stage_settings SET backoff_most = '10 minutes' WHERE (backoff_first, backoff_factor, backoff_most) = ('1 second', 60, '5 minutes');
ALTER TABLE stage_settings DROP COLUMN backoff_factor, ALTER COLUMN backoff_most SET DEFAULT '10 minutes';
ALTER TABLE stage_settings ENABLE TRIGGER stage_settings_changed;
SELECT grant_to_administrators();
