-- A registry that was restored from a backup. The buckets are ahead of it then, and it does not know
-- what people have decided since: nothing is claimed until a person has brought it up to date.

-- origin_now says which database this is: its cluster, its own number there, and the timeline, which
-- grows when a backup is restored up to a point in time, and when a standby takes over. A
-- server that does not say has an empty part.
CREATE OR REPLACE FUNCTION origin_now(OUT cluster text, OUT timeline text) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
	system text := '';
BEGIN
	timeline := '';
	BEGIN
		system := (SELECT system_identifier FROM pg_control_system())::text;
		timeline := left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
	EXCEPTION WHEN OTHERS THEN
		NULL; -- a hosted database may not have them
	END;
	cluster := format('%s/%s', system, (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()));
END
$$;

-- standby_took_over reports whether this server was a standby that followed its primary to the end
-- and has taken its place: it replayed commits as they were made, after its own start. A
-- backup was made before its server starts.
CREATE OR REPLACE FUNCTION standby_took_over() RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN coalesce(pg_last_xact_replay_timestamp() > greatest(pg_postmaster_start_time(), now() - interval '10 minutes'), false);

-- note_origin is called by each connection of a process before its first statement. It reports
-- whether it has found out that the database was restored, and then has stopped all claims.
CREATE OR REPLACE FUNCTION note_origin() RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	k     record;
	known text := (SELECT o.origin FROM registry_origin o);
BEGIN
	IF pg_is_in_recovery() THEN
		RETURN false;
	END IF;
	k := origin_now();
	IF known = k.cluster || '/' || k.timeline THEN
		RETURN false;
	END IF;
	LOCK TABLE registry_origin IN EXCLUSIVE MODE;
	SELECT o.origin INTO known FROM registry_origin o;
	INSERT INTO registry_origin (origin) VALUES (k.cluster || '/' || k.timeline) ON CONFLICT (only_one) DO UPDATE SET origin = excluded.origin;
	IF known IS NULL OR known = k.cluster || '/' || k.timeline OR known LIKE k.cluster || '/%' AND standby_took_over()
		OR NOT EXISTS (SELECT FROM institutions) THEN -- then it was made of an empty one
		RETURN false;
	END IF;
	PERFORM registry_restored(known);
	RETURN true;
END
$$;

-- registry_restored stops what must not go on in a database that was restored.
--
-- Numbers that were given since the backup are not given again: people, Redis and the staging bucket know
-- them. Tokens grow beyond those that workers and Redis have seen. Approved deletions end, since they
-- may have been stopped since, or carried out and the bag deposited again. So do sessions.
CREATE OR REPLACE FUNCTION registry_restored(known text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	most    text := most_by_hand('10000000');
	why     constant text := 'The registry was restored from a backup: run farol reconcile.';
	restore bigint := (SELECT r.id FROM registry_restores r WHERE r.reconciled_at IS NULL ORDER BY r.id LIMIT 1);
	stopped bigint;
	k       record;
BEGIN
	IF restore IS NULL THEN
		INSERT INTO registry_restores (was, origin, last_change) VALUES (known, (SELECT o.origin FROM registry_origin o),
			(SELECT max(p.heartbeat_at) FROM worker_processes p)) RETURNING id INTO restore;
	END IF;
	FOR k IN SELECT s.schemaname, s.sequencename, s.last_value FROM pg_sequences s
		WHERE s.schemaname = schema_of_farol() AND s.last_value IS NOT NULL AND s.max_value > 1000000000000 LOOP
		PERFORM setval(format('%I.%I', k.schemaname, k.sequencename)::regclass, (k.last_value / 1000000 + 1) * 1000000);
	END LOOP;
	PERFORM release(w.id) FROM work_items w WHERE w.status = 'Started';
	UPDATE work_items SET status = 'Cancelled', note = 'The registry was restored from a backup. Request the deletion again if it is still wanted.'
	WHERE deletion_request_id IS NOT NULL AND status IN ('Pending', 'Failed', 'Suspended');
	GET DIAGNOSTICS stopped = ROW_COUNT;
	UPDATE work_items SET claim_token = claim_token + 100000 WHERE status IN ('Pending', 'Failed', 'Suspended');
	UPDATE unrecorded_copies SET keys = '{}' WHERE keys <> '{}'; -- another item may have made and recorded them since
	DELETE FROM sessions;
	DELETE FROM links;
	PERFORM pause_all(why);
	PERFORM pause_schedule('janitor', true, why);
	UPDATE registry_restores r SET deletions_stopped = r.deletions_stopped + stopped,
		pause = (SELECT min(p.id) FROM pauses p WHERE p.lifted_at IS NULL AND p.of_all AND p.reason = why) WHERE r.id = restore;
	PERFORM most_by_hand(most);
	RETURN restore;
END
$$;

-- registry_reconciled ends what registry_restored has stopped.
CREATE OR REPLACE FUNCTION registry_reconciled() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	r registry_restores;
BEGIN
	UPDATE registry_restores SET reconciled_at = now(), reconciled_by = acting_user() WHERE reconciled_at IS NULL RETURNING * INTO r;
	PERFORM lift_pause(p.id) FROM (SELECT DISTINCT k.id FROM pauses k
		WHERE k.lifted_at IS NULL AND (k.id = r.pause OR k.action = 'Schedule' AND k.stage = 'janitor' AND k.reason = (
			SELECT o.reason FROM pauses o WHERE o.id = r.pause LIMIT 1))) p;
END
$$;

REVOKE EXECUTE ON FUNCTION origin_now, standby_took_over, note_origin, registry_restored, registry_reconciled FROM PUBLIC;
