-- Approved deletions: how long they wait, and how they are stopped.

-- deletion_wait_of is how long an approved deletion of an institution waits before anything is removed.
CREATE OR REPLACE FUNCTION deletion_wait_of(institution bigint) RETURNS interval LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN coalesce((SELECT i.deletion_wait FROM institutions i WHERE i.id = institution), (SELECT s.deletion_wait FROM request_settings s));

-- deletion_waits says when an approved deletion begins, and how it is stopped; NULL: it does
-- not wait. All who name the wait use this sentence.
CREATE OR REPLACE FUNCTION deletion_waits(request bigint) RETURNS text LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN (SELECT format('Deletion request %s begins in %s, at %s. Nothing is removed before, and cancelling the request stops it.', d.id,
		CASE WHEN d.begins_at < now() + interval '1 minute' THEN 'less than a minute'
			ELSE to_char(date_trunc('minute', justify_days(d.begins_at - now() + interval '59.999 s')), 'FMDDD" d "FMHH24" h "FMMI" min"') END,
		to_char(d.begins_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"'))
	FROM deletion_requests d WHERE d.id = request AND d.begins_at > now() AND d.cancelled_at IS NULL);

-- deletion_item_waits says what an item of an approved deletion waits for: the time at which the request
-- begins, or a store that keeps copies. Its note has the latter, and how it is stopped. NULL: it does not wait.
CREATE OR REPLACE FUNCTION deletion_item_waits(w work_items) RETURNS text LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT coalesce(deletion_waits(w.deletion_request_id), CASE WHEN w.status = 'Pending' AND w.error_code = 'kept-by-store' THEN w.note END)
$$;

-- must_stop_deletion refuses a person who may not stop an approved deletion. To stop is
-- the safe direction: any active admin of the institution may, and any of the archive.
CREATE OR REPLACE FUNCTION must_stop_deletion(person bigint, institution bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	u users;
BEGIN
	SELECT * INTO u FROM users WHERE id = person;
	IF u.role = 'admin' AND u.deactivated_at IS NULL THEN
		PERFORM must_be_signed_in(u.email);
	ELSE
		PERFORM must_be_admin_of(person, institution);
	END IF;
END
$$;

-- must_be_unfinished refuses to cancel an approved request that has no item left.
CREATE OR REPLACE FUNCTION must_be_unfinished(request bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	called_off boolean;
BEGIN
	IF EXISTS (SELECT FROM work_items w WHERE w.deletion_request_id = request AND w.status IN ('Pending', 'Started', 'Failed', 'Suspended')) THEN
		RETURN; -- work_items_deletion
	END IF;
	called_off := EXISTS (SELECT FROM all_work_items w WHERE w.deletion_request_id = request AND w.status = 'Cancelled');
	RAISE EXCEPTION '%', CASE WHEN called_off THEN 'nothing of it is left to stop: its items are done or cancelled' ELSE 'it has been carried out already' END
		USING ERRCODE = 'check_violation', HINT = 'Its receipts say what was removed.';
END
$$;

-- deletion_request_stopped ends what is left of an approved request that is cancelled, whichever
-- program cancels it, in the same transaction.
CREATE OR REPLACE FUNCTION deletion_request_stopped() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	most text := most_by_hand('1000000'); -- a request names up to 100,000
BEGIN
	UPDATE work_items SET status = 'Cancelled', note = format('Deletion request %s was stopped by %s%s', NEW.id,
		(SELECT u.email FROM users u WHERE u.id = NEW.cancelled_by), coalesce(': ' || NEW.cancel_reason, '.'))
	WHERE deletion_request_id = NEW.id AND status IN ('Pending', 'Started', 'Failed', 'Suspended');
	PERFORM most_by_hand(most);
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER deletion_request_stopped AFTER UPDATE OF cancelled_by ON deletion_requests
	FOR EACH ROW WHEN (NEW.cancelled_by IS NOT NULL AND OLD.cancelled_by IS NULL AND OLD.approved_by IS NOT NULL) EXECUTE FUNCTION deletion_request_stopped();

REVOKE EXECUTE ON FUNCTION deletion_wait_of, must_stop_deletion, must_be_unfinished, deletion_request_stopped FROM PUBLIC;
