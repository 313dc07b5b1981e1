-- What nobody can type, not even the owner of the tables: a change that would leave an
-- item where no worker, no reaper and no view can deal with it. The triggers fire for
-- changes by hand alone: column lists and conditions keep the engine's statements out.

-- What an item is about never changes.
CREATE OR REPLACE FUNCTION work_item_identity() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	RAISE EXCEPTION 'item % is about one upload: its % cannot be changed', OLD.id, (
			SELECT string_agg(n.key, ', ' ORDER BY n.key) FROM jsonb_each(to_jsonb(NEW)) n JOIN jsonb_each(to_jsonb(OLD)) o USING (key)
			WHERE n.value <> o.value
			  AND n.key IN ('id', 'institution_id', 'action', 'name', 'bucket', 'etag', 'object_identifier', 'bag_date'))
		USING ERRCODE = 'check_violation', HINT = format('End it, SELECT cancel(%s), and upload the bag as it should be.', OLD.id),
			CONSTRAINT = 'item-is-one-upload', DATATYPE = json_object(ARRAY['item', OLD.id::text])::text;
END
$$;
CREATE OR REPLACE TRIGGER work_item_identity
	BEFORE UPDATE OF id, institution_id, action, name, bucket, etag, object_identifier, bag_date ON work_items
	FOR EACH ROW
	WHEN ((OLD.id, OLD.institution_id, OLD.action, OLD.name, OLD.bucket, OLD.etag, OLD.object_identifier, OLD.bag_date)
		IS DISTINCT FROM (NEW.id, NEW.institution_id, NEW.action, NEW.name, NEW.bucket, NEW.etag, NEW.object_identifier, NEW.bag_date))
	EXECUTE FUNCTION work_item_identity();

-- A lower token would let a worker write that has lost its lease. A token that jumps
-- would soon be too large to grow. A token that grows while the item stays Started leaves
-- an attempt without an end: the engine goes from Started to Started only where a worker
-- carries the item on to its next stage, as an end and a claim in one.
CREATE OR REPLACE FUNCTION work_item_token() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF NEW.claim_token BETWEEN OLD.claim_token AND OLD.claim_token + 1000000
		AND NOT (NEW.claim_token > OLD.claim_token AND OLD.status = 'Started' AND NEW.status = 'Started') THEN
		RETURN NEW;
	END IF;
	RAISE EXCEPTION 'only the queue changes claim_token of item %', OLD.id
		USING ERRCODE = 'check_violation', HINT = format('To release it from its worker: SELECT release(%s);', OLD.id),
		CONSTRAINT = 'written-by-queue', DATATYPE = json_object(ARRAY['item', OLD.id::text])::text;
END
$$;
CREATE OR REPLACE TRIGGER work_item_token BEFORE UPDATE OF claim_token ON work_items
	FOR EACH ROW
	WHEN ((NEW.claim_token <> OLD.claim_token + 1 OR NEW.status = OLD.status)
		AND NOT (OLD.status = 'Started' AND NEW.status = 'Started' AND NEW.stage <> OLD.stage
			AND NEW.claim_token = OLD.claim_token + 2 AND NEW.entered_token = OLD.claim_token + 1))
	EXECUTE FUNCTION work_item_token();

-- A heartbeat extends the lease and nothing else, up to the longest lease.
CREATE OR REPLACE FUNCTION work_item_lease() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF OLD.lease_expires_at IS NOT DISTINCT FROM NEW.lease_expires_at
		OR OLD.lease_expires_at IS NOT NULL AND NEW.lease_expires_at <= now() + interval '100 days' THEN
		RETURN NEW;
	END IF;
	RAISE EXCEPTION 'only its worker renews the lease of item %', OLD.id
		USING ERRCODE = 'check_violation', CONSTRAINT = 'written-by-queue', DATATYPE = json_object(ARRAY['item', OLD.id::text])::text,
		HINT = CASE WHEN OLD.status = 'Started' THEN format('To release it from its worker: SELECT release(%s);', OLD.id)
			ELSE 'Only a worker starts an item.' END;
END
$$;
CREATE OR REPLACE TRIGGER work_item_lease BEFORE UPDATE OF lease_expires_at ON work_items
	FOR EACH ROW
	WHEN (OLD.claim_token = NEW.claim_token)
	EXECUTE FUNCTION work_item_lease();

-- The other columns: those that the queue writes are refused, those that a person may
-- change are written to the audit.
CREATE OR REPLACE FUNCTION work_item_columns() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	typed text[] := ARRAY(SELECT n.key FROM jsonb_each(to_jsonb(NEW)) n JOIN jsonb_each(to_jsonb(OLD)) o USING (key)
		WHERE n.value <> o.value ORDER BY n.key);
	queues text := (SELECT min(c) FROM unnest(typed) c WHERE c IN ('attempt', 'entered_token', 'node', 'pid', 'retry', 'size_band',
		'stage_started_at', 'virtual_start', 'waits_for', 'worker'));
BEGIN
	IF typed = '{}' THEN
		RETURN NEW;
	END IF;
	IF queues IS NOT NULL THEN
		RAISE EXCEPTION 'only the queue writes % of item %', queues, OLD.id
			USING ERRCODE = 'check_violation', CONSTRAINT = 'written-by-queue', DATATYPE = json_object(ARRAY['item', OLD.id::text])::text, HINT = CASE
				WHEN queues = 'attempt' THEN format('To give it all its attempts again: SELECT requeue(%s);', OLD.id)
				WHEN queues = 'retry' THEN format('To park it, set status = ''Suspended''; to end it: SELECT cancel(%s); to have it tried: SELECT requeue(%1$s);', OLD.id)
				WHEN queues = 'waits_for' THEN 'Live items of one object go one after the other. To let it go on, end the one before it.'
				WHEN OLD.status = 'Started' THEN format('To release it from its worker: SELECT release(%s);', OLD.id)
				ELSE format('SELECT * FROM why_not(%s); says what it waits for.', OLD.id) END;
	END IF;
	IF 'run_at' = ANY (typed) AND OLD.waits_for IS NOT NULL THEN
		RAISE EXCEPTION 'item % waits for item %, not for a time', OLD.id, OLD.waits_for
			USING ERRCODE = 'check_violation', HINT = format('SELECT * FROM why_not(%s); says what that one waits for.', OLD.waits_for),
			CONSTRAINT = 'item-waits', DATATYPE = json_object(ARRAY['item', OLD.waits_for::text])::text;
	ELSIF 'run_at' = ANY (typed) AND NOT isfinite(NEW.run_at) THEN
		RAISE EXCEPTION 'item % would never be claimed: run_at is a point in time', OLD.id
			USING ERRCODE = 'check_violation', HINT = 'To park it, set status = ''Suspended''.';
	END IF;
	IF 'priority' = ANY (typed) AND OLD.status IN ('Success', 'Cancelled') THEN
		RAISE EXCEPTION 'item % has ended (%): it cannot be changed', OLD.id, OLD.status
			USING ERRCODE = 'check_violation', HINT = 'It is not in the queue any more.';
	END IF;
	IF typed && ARRAY['note', 'priority', 'needs_admin_review'] THEN
		PERFORM bound_by_hand();
	END IF;
	NEW.note := coalesce(NEW.note, '');
	NEW.updated_at := now();
	IF 'priority' = ANY (typed) THEN -- items that overtake do not advance virtual time
		NEW.virtual_start := (SELECT b.virtual_time FROM size_bands b WHERE b.band = NEW.size_band);
	END IF;
	INSERT INTO work_item_audit (work_item_id, before, after) VALUES (OLD.id, to_jsonb(OLD), to_jsonb(NEW));
	IF NEW.status = 'Pending' AND typed && ARRAY['priority', 'run_at', 'size'] THEN
		PERFORM pg_notify('farol_work', E'\n' || NEW.stage);
	END IF;
	RETURN NEW;
END
$$;

-- It fires before work_item_resized, which writes the band and the virtual start time, and
-- not for what other triggers write. Conditions are short, here and below: each statement
-- of the queue parses them again, which costs more than the rows.
CREATE OR REPLACE TRIGGER work_item_columns
	BEFORE UPDATE OF entered_token, run_at, stage_started_at, size, virtual_start, waits_for, attempt, pid, size_band, priority, retry,
		needs_admin_review, node, worker, storage_option, intellectual_object_id, generic_file_id, "user", inst_approver,
		aptrust_approver, note, outcome, error_code, date_processed, queued_at, created_at
	ON work_items
	FOR EACH ROW
	WHEN (OLD.claim_token = NEW.claim_token AND pg_trigger_depth() = 0)
	EXECUTE FUNCTION work_item_columns();

-- The tables of the queue cannot be truncated.
CREATE OR REPLACE FUNCTION queue_truncated() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF TG_TABLE_NAME IN ('stage_settings', 'size_bands') OR EXISTS (SELECT FROM work_items) THEN
		RAISE EXCEPTION '% cannot be truncated: its rows are permanent records', TG_TABLE_NAME
			USING ERRCODE = 'check_violation', HINT = 'To end an item: SELECT cancel(7); to stop work on all: SELECT pause_all();',
			CONSTRAINT = 'permanent-records';
	END IF;
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER queue_truncated BEFORE TRUNCATE ON work_items FOR EACH STATEMENT EXECUTE FUNCTION queue_truncated();
CREATE OR REPLACE TRIGGER queue_truncated BEFORE TRUNCATE ON work_item_attempts FOR EACH STATEMENT EXECUTE FUNCTION queue_truncated();
CREATE OR REPLACE TRIGGER queue_truncated BEFORE TRUNCATE ON uploads_in_work FOR EACH STATEMENT EXECUTE FUNCTION queue_truncated();
CREATE OR REPLACE TRIGGER queue_truncated BEFORE TRUNCATE ON stage_settings FOR EACH STATEMENT EXECUTE FUNCTION queue_truncated();
CREATE OR REPLACE TRIGGER queue_truncated BEFORE TRUNCATE ON size_bands FOR EACH STATEMENT EXECUTE FUNCTION queue_truncated();

CREATE OR REPLACE FUNCTION uploads_in_work_by_hand() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	RAISE EXCEPTION 'only the queue writes uploads_in_work'
		USING ERRCODE = 'check_violation', HINT = 'It goes with the items: SELECT cancel(7) ends one.',
		CONSTRAINT = 'permanent-records';
END
$$;
CREATE OR REPLACE TRIGGER uploads_in_work_by_hand BEFORE INSERT OR UPDATE OR DELETE ON uploads_in_work
	FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION uploads_in_work_by_hand();

-- Only items that succeeded or were cancelled leave the table, and only once they are in
-- the archive.
CREATE OR REPLACE FUNCTION work_item_deleted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF OLD.status NOT IN ('Success', 'Cancelled') OR NOT EXISTS (SELECT FROM work_items_archive WHERE id = OLD.id) THEN
		RAISE EXCEPTION 'item % cannot be deleted: items are permanent records', OLD.id
			USING ERRCODE = 'check_violation', HINT = format('To end it: SELECT cancel(%s); the archive takes it later.', OLD.id),
			CONSTRAINT = 'permanent-item', DATATYPE = json_object(ARRAY['item', OLD.id::text])::text;
	END IF;
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER work_item_deleted AFTER DELETE ON work_items FOR EACH ROW EXECUTE FUNCTION work_item_deleted();

CREATE OR REPLACE FUNCTION work_item_attempt_deleted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF NOT EXISTS (SELECT FROM work_item_attempts_archive WHERE work_item_id = OLD.work_item_id AND claim_token = OLD.claim_token) THEN
		RAISE EXCEPTION 'attempts of item % cannot be deleted: they are permanent records', OLD.work_item_id
			USING ERRCODE = 'check_violation', HINT = 'The archive takes them together with their item.';
	END IF;
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER work_item_attempt_deleted AFTER DELETE ON work_item_attempts
	FOR EACH ROW EXECUTE FUNCTION work_item_attempt_deleted();

-- An attempt that has ended does not change. While its claim is still the item's, or was
-- until this transaction, its end may be written again: the worker itself writes it,
-- whatever was typed before. These are AFTER triggers: a BEFORE trigger would lock the row
-- once more, and log that, at every transition.
CREATE OR REPLACE FUNCTION work_item_attempt_ended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF (OLD.ended_at, OLD.outcome) IS DISTINCT FROM (NEW.ended_at, NEW.outcome) AND (NEW.ended_at IS NULL
		OR NOT EXISTS (SELECT FROM work_items WHERE id = OLD.work_item_id AND (claim_token = OLD.claim_token AND status = 'Started'
			OR claim_token BETWEEN OLD.claim_token + 1 AND OLD.claim_token + 2 AND xmin = pg_current_xact_id()::xid))) THEN
		RAISE EXCEPTION 'this attempt at item % has ended (%): attempts are permanent records', OLD.work_item_id, OLD.outcome
			USING ERRCODE = 'check_violation', HINT = format('To have the item tried again: SELECT requeue(%s);', OLD.work_item_id),
			CONSTRAINT = 'permanent-attempt', DATATYPE = json_object(ARRAY['item', OLD.work_item_id::text])::text;
	END IF;
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER work_item_attempt_ended AFTER UPDATE OF ended_at, outcome ON work_item_attempts
	FOR EACH ROW WHEN (OLD.ended_at IS NOT NULL)
	EXECUTE FUNCTION work_item_attempt_ended();

CREATE OR REPLACE FUNCTION work_item_attempt_identity() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	RAISE EXCEPTION 'the claim of an attempt at item % cannot be changed', OLD.work_item_id
		USING ERRCODE = 'check_violation', HINT = 'Write remarks into the note of the item.';
END
$$;
CREATE OR REPLACE TRIGGER work_item_attempt_identity
	AFTER UPDATE OF work_item_id, claim_token, stage, attempt, node, pid, worker, claimed_at ON work_item_attempts
	FOR EACH ROW
	WHEN ((OLD.work_item_id, OLD.claim_token, OLD.stage, OLD.attempt, OLD.node, OLD.pid, OLD.worker, OLD.claimed_at)
		IS DISTINCT FROM (NEW.work_item_id, NEW.claim_token, NEW.stage, NEW.attempt, NEW.node, NEW.pid, NEW.worker, NEW.claimed_at))
	EXECUTE FUNCTION work_item_attempt_identity();

REVOKE EXECUTE ON FUNCTION work_item_identity, work_item_token, work_item_lease, work_item_columns,
	queue_truncated, uploads_in_work_by_hand, work_item_deleted, work_item_attempt_deleted,
	work_item_attempt_ended, work_item_attempt_identity FROM PUBLIC;
