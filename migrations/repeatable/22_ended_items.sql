-- What follows from the end of an item, and from its revival.

-- request_rival names the live item that keeps a request for an object, or for a file of
-- it, from being queued; NULL: none does. The caller holds the object's lock.
CREATE OR REPLACE FUNCTION request_rival(object text, file bigint, item bigint) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT SET enable_seqscan = off
RETURN (
	SELECT format('item %s is in the queue for the same %s: %s', o.id, CASE WHEN o.same THEN 'file' ELSE 'object' END, o.action)
		|| coalesce('. ' || rtrim(o.waits, '.'), '') FROM (
		SELECT u.work_item_id AS id, 'Ingest' AS action, false AS same, NULL AS waits FROM uploads_in_work u WHERE u.object_identifier = object
		UNION ALL
		SELECT w.id, w.action, w.generic_file_id = file, deletion_item_waits(w) FROM work_items w
		WHERE w.object_identifier = object AND w.action <> 'Ingest' AND w.retry AND w.stage = 'Requested' AND w.id <> item
			AND (file IS NULL OR w.generic_file_id IS NULL OR w.generic_file_id = file)
	) o ORDER BY o.id LIMIT 1);

-- request_begin checks a request that is new, or revived: no other item works on the same
-- object or file, and a deletion was approved.
CREATE OR REPLACE FUNCTION request_begin(w work_items) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	rival text;
BEGIN
	PERFORM lock_object(w.object_identifier);
	rival := request_rival(w.object_identifier, w.generic_file_id, w.id);
	IF rival IS NOT NULL THEN
		RAISE EXCEPTION '% of % cannot be queued: %', w.action, w.object_identifier, rival
			USING ERRCODE = 'unique_violation', CONSTRAINT = 'one_live_request', HINT = 'Ask again when that has ended.';
	END IF;
	IF w.action = 'Delete' AND NOT EXISTS (
		SELECT FROM deletion_requests d
		WHERE d.id = w.deletion_request_id AND d.approved_at IS NOT NULL AND d.cancelled_at IS NULL AND d.institution_id = w.institution_id
			AND CASE WHEN w.generic_file_id IS NULL
				THEN EXISTS (SELECT FROM deletion_requests_intellectual_objects o
					WHERE o.deletion_request_id = d.id AND o.intellectual_object_id = w.intellectual_object_id)
				ELSE EXISTS (SELECT FROM deletion_requests_generic_files f
					WHERE f.deletion_request_id = d.id AND f.generic_file_id = w.generic_file_id) END)
	THEN
		RAISE EXCEPTION 'the deletion of % was not approved, or was stopped', w.object_identifier
			USING ERRCODE = 'check_violation', CONSTRAINT = 'deletion-not-approved',
			HINT = 'A person requests the deletion, and another approves it; that makes its items.';
	END IF;
END
$$;

CREATE OR REPLACE FUNCTION request_created() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF pg_trigger_depth() = 1 THEN -- or else it replaces one that ends: see request_ended
		PERFORM request_begin(NEW);
	END IF;
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER request_created AFTER INSERT ON work_items
	FOR EACH ROW WHEN (NEW.retry AND NEW.stage = 'Requested') EXECUTE FUNCTION request_created();

-- spot_restore_ended records the result of a spot restoration and alerts people; it
-- returns false for other items. One that failed and was requeued is reported again.
CREATE OR REPLACE FUNCTION spot_restore_ended(item work_items) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	days integer;
BEGIN
	UPDATE spot_restores SET ended_at = now(), outcome = CASE item.status WHEN 'Success' THEN 'restored' WHEN 'Cancelled' THEN 'cancelled' ELSE 'failed' END
	WHERE work_item_id = item.id;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	SELECT spot_restore_days INTO days FROM institutions WHERE id = item.institution_id;
	IF item.status = 'Success' THEN
		INSERT INTO alerts (institution_id, type, subject, content, work_item_id)
		VALUES (item.institution_id, 'Spot Restoration Completed', 'Spot restoration is completed: ' || item.object_identifier,
			format('Every %s days one of your objects is chosen at random, restored and validated as a test. This time it was %s. %s',
				days, item.object_identifier, item.note), item.id);
	ELSIF item.status <> 'Cancelled' THEN -- the archive's own staff get the alert, too
		INSERT INTO alerts (institution_id, type, subject, content, work_item_id)
		SELECT i.id, 'Spot Restoration Failed', 'Spot restoration failed: ' || item.object_identifier,
			format('The test restoration of %s failed: item %s is %s. %s', item.object_identifier, item.id, item.status, item.note),
			item.id
		FROM (VALUES (item.institution_id), (NULL)) i (id);
	END IF;
	RETURN true;
END
$$;

-- restoration_ended alerts people to restored bags and files.
CREATE OR REPLACE FUNCTION restoration_ended(w work_items) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF NOT spot_restore_ended(w) AND w.status = 'Success' THEN
		INSERT INTO alerts (institution_id, type, subject, content, work_item_id)
		VALUES (w.institution_id, 'Restoration Completed', w.action || ' is completed: ' || w.object_identifier, w.note, w.id);
	END IF;
END
$$;

-- request_ended does what follows from the end of a request, in the same transaction:
-- archived copies that can be read now get an item that restores them, and people are
-- alerted to what is done.
CREATE OR REPLACE FUNCTION request_ended(w work_items) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	follows bigint;
BEGIN
	IF w.action IN ('Restore Object', 'Restore File') THEN
		PERFORM restoration_ended(w);
	ELSIF w.action = 'Glacier Restore' AND w.status = 'Success' THEN
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, date_processed, priority, object_identifier,
			intellectual_object_id, generic_file_id, storage_option, "user", note, outcome)
		VALUES (w.institution_id, CASE WHEN w.generic_file_id IS NULL THEN 'Restore Object' ELSE 'Restore File' END, 'Requested',
			w.name, w.bucket, w.etag, w.size, w.bag_date, w.date_processed, w.priority, w.object_identifier,
			w.intellectual_object_id, w.generic_file_id, w.storage_option, w."user",
			format('Requested by %s. Item %s had the archived copies restored by the provider.', w."user", w.id), 'Item is pending restoration')
		RETURNING id INTO follows;
		UPDATE retrievals SET next_item = follows WHERE work_item_id = w.id;
	ELSIF w.action = 'Delete' AND w.status = 'Success' THEN
		PERFORM FROM deletion_requests WHERE id = w.deletion_request_id FOR UPDATE; -- of several that end at once the last one alerts
		IF EXISTS (SELECT FROM work_items o WHERE o.deletion_request_id = w.deletion_request_id
				AND o.status IN ('Pending', 'Started', 'Failed', 'Suspended', 'Cancelled')) THEN -- work_items_deletion
			RETURN; -- the archive is asked at the end alone
		END IF;
		INSERT INTO alerts (institution_id, type, subject, content, deletion_request_id)
		SELECT d.institution_id, 'Deletion Completed', format('Deletion request %s is completed', d.id),
			format('Everything that the request names was deleted. It was requested by %s and approved by %s.', r.email, a.email), d.id
		FROM deletion_requests d JOIN users r ON r.id = d.requested_by JOIN users a ON a.id = d.approved_by
		WHERE d.id = w.deletion_request_id AND NOT EXISTS (
			SELECT FROM work_items_archive o WHERE o.deletion_request_id = d.id AND o.status <> 'Success')
			AND NOT EXISTS (SELECT FROM alerts k WHERE k.deletion_request_id = d.id AND k.type = 'Deletion Completed');
	END IF;
END
$$;

-- When an item has ended, the items that waited for it become due. If it was waiting
-- itself, they now wait for the item that it waited for. This is a statement of its own,
-- after the one that ended the item: it also sees items that began to wait while that
-- statement waited for the item's lock.
CREATE OR REPLACE FUNCTION work_item_ended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	IF NEW.action = 'Delete' AND NEW.status <> 'Success' THEN
		NEW.note := deletion_ended(NEW, OLD.lease_expires_at);
	END IF;
	IF NOT OLD.retry THEN -- it was parked, and is cancelled
		RETURN NULL;
	END IF;
	UPDATE work_items SET
		waits_for  = OLD.waits_for,
		run_at     = CASE WHEN OLD.waits_for IS NULL THEN now() ELSE 'infinity' END,
		updated_at = now()
	WHERE waits_for = OLD.id;
	DELETE FROM uploads_in_work WHERE object_identifier = OLD.object_identifier AND name = OLD.name AND etag = OLD.etag
		AND work_item_id = OLD.id;
	DELETE FROM objects_in_work WHERE object_identifier IN ( -- a locked row is left to the next item
		SELECT object_identifier FROM objects_in_work WHERE object_identifier = OLD.object_identifier FOR UPDATE SKIP LOCKED);
	IF OLD.action <> 'Ingest' THEN
		PERFORM request_ended(NEW);
	END IF;
	IF NEW.status IN ('Failed', 'Suspended') THEN
		PERFORM alert_of_parked(NEW);
	END IF;
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER work_item_ended AFTER UPDATE OF status ON work_items
	FOR EACH ROW WHEN (NOT NEW.retry AND (OLD.retry OR NEW.status = 'Cancelled')) EXECUTE FUNCTION work_item_ended();

CREATE OR REPLACE FUNCTION work_item_revived() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	IF NEW.action = 'Ingest' THEN
		PERFORM uploads_begin(NEW);
	ELSE
		PERFORM request_begin(NEW);
	END IF;
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER work_item_revived AFTER UPDATE OF status ON work_items
	FOR EACH ROW WHEN (NEW.retry AND NOT OLD.retry) EXECUTE FUNCTION work_item_revived();

REVOKE EXECUTE ON FUNCTION request_rival, request_begin, request_created,
	spot_restore_ended, restoration_ended, request_ended, work_item_ended, work_item_revived FROM PUBLIC;
