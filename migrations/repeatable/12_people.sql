-- People: who acts, what is noted of it, and rules that hold whichever program writes.

-- note_action records what a person has done, or was refused. The actor is not a
-- parameter: nobody can act in the name of another. The person and the token are believed of
-- those whom signed_in_actor() believes. What staff and commands do to a record of an
-- institution is on the institution's record, too. Of an actor with an institution that is
-- not looked up: the answer would say whose record is not there for them.
CREATE OR REPLACE FUNCTION note_action(operation text, subject_type text, subject_id text, institution bigint, outcome text,
	on_behalf_of text DEFAULT NULL, user_id bigint DEFAULT NULL, token_id bigint DEFAULT NULL, ip inet DEFAULT NULL, detail jsonb DEFAULT '{}') RETURNS bigint
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
	INSERT INTO actions (on_behalf_of, user_id, token_id, ip, operation, subject_type, subject_id, institution_id, outcome, detail, actor_institution_id)
	SELECT $6, who.person, who.token, $9, $1, $2, $3, coalesce($4, CASE WHEN who.institution IS NULL AND $3 ~ '^\d{1,18}$' THEN CASE $2
			WHEN 'deletion' THEN (SELECT d.institution_id FROM deletion_requests d WHERE d.id = $3::bigint)
			WHEN 'item' THEN coalesce((SELECT w.institution_id FROM work_items w WHERE w.id = $3::bigint),
				(SELECT w.institution_id FROM work_items_archive w WHERE w.id = $3::bigint))
			WHEN 'user' THEN (SELECT u.institution_id FROM users u WHERE u.id = $3::bigint) END END), $5, coalesce($10, '{}'), who.institution
	FROM (
		SELECT s.person, s.token, coalesce((SELECT u.institution_id FROM users u WHERE u.id = s.person), (SELECT t.institution_id FROM api_tokens t WHERE t.id = s.token)) AS institution
		FROM (SELECT CASE WHEN signed_in_actor() IS NOT NULL THEN $7 END AS person, CASE WHEN signed_in_actor() IS NOT NULL THEN $8 END AS token) s
	) who
	RETURNING id;
$$;

COMMENT ON FUNCTION note_action IS
	'Appends to actions what was done or refused, to what, and for whom on paper; the actor is acting_user().';

CREATE OR REPLACE FUNCTION actions_are_kept() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'actions are kept as they were recorded' USING ERRCODE = 'check_violation', HINT = 'Record a new action.';
END
$$;
CREATE OR REPLACE TRIGGER actions_are_kept BEFORE UPDATE OR DELETE ON actions
	FOR EACH ROW EXECUTE FUNCTION actions_are_kept();

-- open_action_partitions creates the partitions of this month and of the two that follow. A
-- month that has rows in the default partition already stays there.
CREATE OR REPLACE FUNCTION open_action_partitions() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET timezone = 'UTC' SET lock_timeout = '200ms' AS $$
DECLARE
	month date;
	name  text;
BEGIN
	FOR month IN SELECT date_trunc('month', now())::date + n * interval '1 month' FROM generate_series(0, 2) n LOOP
		name := 'actions_' || to_char(month, 'YYYYMM');
		CONTINUE WHEN to_regclass(name) IS NOT NULL
			OR EXISTS (SELECT FROM actions_rest WHERE at >= month AND at < month + interval '1 month');
		EXECUTE format('CREATE TABLE %I PARTITION OF actions FOR VALUES FROM (%L) TO (%L)', name, month, month + interval '1 month');
	END LOOP;
EXCEPTION WHEN lock_not_available THEN
	RETURN; -- the next call creates them
END
$$;
SELECT open_action_partitions();

-- user_changes refuses to remove the last admin, and counts the versions of what others
-- see of a person.
CREATE OR REPLACE FUNCTION user_changes() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF (NEW.email, NEW.name, NEW.role, NEW.institution_id, NEW.deactivated_at, NEW.second_factor_required, NEW.time_zone)
		IS DISTINCT FROM (OLD.email, OLD.name, OLD.role, OLD.institution_id, OLD.deactivated_at, OLD.second_factor_required, OLD.time_zone) THEN
		NEW.version := OLD.version + 1;
		NEW.updated_at := now();
	END IF;
	IF OLD.role = 'admin' AND OLD.deactivated_at IS NULL AND (NEW.role <> 'admin' OR NEW.deactivated_at IS NOT NULL) THEN
		PERFORM pg_advisory_xact_lock(hashtextextended('farol admins', 0)); -- or two could go at once
		IF NOT EXISTS (SELECT FROM users u WHERE u.role = 'admin' AND u.deactivated_at IS NULL AND u.id <> OLD.id) THEN
			RAISE EXCEPTION '% is the last active admin', OLD.email USING ERRCODE = 'check_violation',
				HINT = 'Register another admin first.';
		END IF;
	END IF;
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER user_changes BEFORE UPDATE ON users
	FOR EACH ROW EXECUTE FUNCTION user_changes();

-- user_changed ends what was begun by proofs, or with rights, that no longer hold.
CREATE OR REPLACE FUNCTION user_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	DELETE FROM sessions WHERE user_id = NEW.id;
	UPDATE links SET used_at = now() WHERE user_id = NEW.id AND used_at IS NULL;
	IF (NEW.role, NEW.institution_id) IS DISTINCT FROM (OLD.role, OLD.institution_id) OR NEW.deactivated_at IS NOT NULL THEN
		DELETE FROM api_tokens WHERE user_id = NEW.id;
	END IF;
	IF lower(NEW.email) <> lower(OLD.email) AND NEW.deactivated_at IS NULL THEN
		INSERT INTO mail_outbox (user_id, kind, args) VALUES (NEW.id, 'moved', jsonb_build_object('to', OLD.email));
	END IF;
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER user_changed AFTER UPDATE ON users
	FOR EACH ROW WHEN ((NEW.email, NEW.role, NEW.institution_id, NEW.deactivated_at, NEW.password_set_at) -- a hash may be renewed
		IS DISTINCT FROM (OLD.email, OLD.role, OLD.institution_id, OLD.deactivated_at, OLD.password_set_at)) EXECUTE FUNCTION user_changed();

CREATE OR REPLACE FUNCTION institution_changes() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
	NEW.version := OLD.version + 1;
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER institution_changes BEFORE UPDATE ON institutions
	FOR EACH ROW EXECUTE FUNCTION institution_changes();

-- must_be_admin_of refuses a person who may not decide about an institution's deletions,
-- and one who is not the person that has signed in.
CREATE OR REPLACE FUNCTION must_be_admin_of(person bigint, institution bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	u users;
BEGIN
	SELECT * INTO u FROM users WHERE id = person;
	IF u.deactivated_at IS NOT NULL THEN
		RAISE EXCEPTION 'the user % was deactivated', u.email USING ERRCODE = 'check_violation', HINT = 'Another person has to do it.';
	ELSIF u.role <> 'institutional_admin' OR u.institution_id <> institution THEN
		RAISE EXCEPTION '% is no institutional admin of this institution', u.email USING ERRCODE = 'check_violation',
			HINT = 'Only its institutional admins request, approve and cancel deletions.';
	END IF;
	PERFORM must_be_signed_in(u.email);
END
$$;

-- must_decide_deletion refuses a person who may not decide about a request for a deletion.
-- Where the institution has no other active admin than the requester, an admin of the archive may.
CREATE OR REPLACE FUNCTION must_decide_deletion(person bigint, institution bigint, requester bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	u users;
BEGIN
	SELECT * INTO u FROM users WHERE id = person;
	IF u.role IS DISTINCT FROM 'admin' OR u.deactivated_at IS NOT NULL THEN
		PERFORM must_be_admin_of(person, institution);
		RETURN;
	END IF;
	IF EXISTS (SELECT FROM users o WHERE o.institution_id = institution AND o.role = 'institutional_admin'
		AND o.deactivated_at IS NULL AND o.id <> requester) THEN
		RAISE EXCEPTION '% is an admin of the archive, and the institution has another admin', u.email
			USING ERRCODE = 'check_violation', CONSTRAINT = 'two_people', HINT = 'That institutional admin has to decide about it.';
	END IF;
	PERFORM must_be_signed_in(u.email);
END
$$;

CREATE OR REPLACE FUNCTION must_be_signed_in(email text) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF lower(signed_in_actor()) <> lower(email) THEN
		RAISE EXCEPTION '% cannot act for %', signed_in_actor(), email USING ERRCODE = 'check_violation', HINT = 'That person has to sign in.';
	END IF;
END
$$;

-- deletion_request_made: a request begins undecided, by a person who may make it.
CREATE OR REPLACE FUNCTION deletion_request_made() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF NEW.approved_by IS NOT NULL OR NEW.cancelled_by IS NOT NULL THEN
		RAISE EXCEPTION 'a new deletion request is not decided' USING ERRCODE = 'check_violation', HINT = 'Have another person approve it.';
	END IF;
	PERFORM must_be_admin_of(NEW.requested_by, NEW.institution_id);
	NEW.requested_at := now(); -- also says which transaction may name what is requested
	NEW.requested_as := acting_user();
	NEW.approved_as := NULL;
	NEW.on_paper := NULL;
	NEW.begins_at := NULL;
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER deletion_request_made BEFORE INSERT ON deletion_requests
	FOR EACH ROW EXECUTE FUNCTION deletion_request_made();

-- deletion_request_decided has the rule of two people: the requester never approves, nor does
-- one whose account is in the same hands (must_be_second_person). Where the institution has no
-- other active admin, the second person is an admin of the archive.
-- A decision that no signed-in person makes is made for one, on paper, and says why.
CREATE OR REPLACE FUNCTION deletion_request_decided() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF (NEW.id, NEW.institution_id, NEW.requested_by, NEW.requested_at, NEW.requested_as)
		IS DISTINCT FROM (OLD.id, OLD.institution_id, OLD.requested_by, OLD.requested_at, OLD.requested_as)
		OR OLD.cancelled_by IS NOT NULL OR NEW.cancelled_by IS NULL AND OLD.approved_by IS NOT NULL
		OR NEW.cancelled_by IS NOT NULL AND (NEW.approved_by, NEW.approved_at, NEW.approved_as, NEW.on_paper, NEW.begins_at)
			IS DISTINCT FROM (OLD.approved_by, OLD.approved_at, OLD.approved_as, OLD.on_paper, OLD.begins_at) THEN
		RAISE EXCEPTION 'deletion request % is not changed afterwards', OLD.id USING ERRCODE = 'check_violation', HINT = 'Make a new request.';
	END IF;
	IF NEW.cancelled_by IS NOT NULL THEN
		IF OLD.approved_by IS NULL THEN
			PERFORM must_decide_deletion(NEW.cancelled_by, NEW.institution_id, NEW.requested_by);
		ELSE
			PERFORM must_stop_deletion(NEW.cancelled_by, NEW.institution_id);
			PERFORM must_be_unfinished(NEW.id);
		END IF;
		NEW.cancelled_at := greatest(now(), OLD.approved_at); -- which may have been written since this transaction began
		RETURN NEW;
	END IF;
	IF NEW.approved_by IS NULL THEN
		RETURN NEW;
	END IF;
	PERFORM must_be_second_person(NEW.approved_by, NEW.institution_id, NEW.requested_by);
	IF signed_in_actor() IS NOT NULL THEN
		NEW.on_paper := NULL;
	ELSIF coalesce(btrim(NEW.on_paper), '') = '' THEN
		RAISE EXCEPTION 'nobody is signed in, and no paper is named' USING ERRCODE = 'check_violation', CONSTRAINT = 'two_people',
			HINT = 'The person who approves signs in, or the reason why staff acts for that person on paper is given in on_paper.';
	END IF;
	NEW.approved_at := now();
	NEW.approved_as := acting_user();
	NEW.begins_at := now() + deletion_wait_of(NEW.institution_id);
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER deletion_request_decided BEFORE UPDATE ON deletion_requests
	FOR EACH ROW EXECUTE FUNCTION deletion_request_decided();

-- named_with_request: what a request names is written with the request, and not changed
-- afterwards, so that what is approved is what was requested.
CREATE OR REPLACE FUNCTION named_with_request() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF EXISTS (SELECT FROM (SELECT DISTINCT deletion_request_id AS id FROM named) n JOIN deletion_requests d ON d.id = n.id
		WHERE d.requested_at <> now()) THEN
		RAISE EXCEPTION 'what a deletion request names is not changed afterwards' USING ERRCODE = 'check_violation', HINT = 'Make a new request.';
	END IF;
	RETURN NULL;
END
$$;
CREATE OR REPLACE FUNCTION named_is_kept() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'what a deletion request names is not changed afterwards' USING ERRCODE = 'check_violation', HINT = 'Make a new request.';
END
$$;
CREATE OR REPLACE TRIGGER named_with_request AFTER INSERT ON deletion_requests_generic_files
	REFERENCING NEW TABLE AS named FOR EACH STATEMENT EXECUTE FUNCTION named_with_request();
CREATE OR REPLACE TRIGGER named_with_request AFTER INSERT ON deletion_requests_intellectual_objects
	REFERENCING NEW TABLE AS named FOR EACH STATEMENT EXECUTE FUNCTION named_with_request();
CREATE OR REPLACE TRIGGER named_is_kept BEFORE UPDATE OR DELETE ON deletion_requests_generic_files
	FOR EACH ROW EXECUTE FUNCTION named_is_kept();
CREATE OR REPLACE TRIGGER named_is_kept BEFORE UPDATE OR DELETE ON deletion_requests_intellectual_objects
	FOR EACH ROW EXECUTE FUNCTION named_is_kept();

REVOKE EXECUTE ON FUNCTION note_action, open_action_partitions, must_be_admin_of, must_decide_deletion, must_be_signed_in, actions_are_kept, user_changes, user_changed,
	institution_changes, deletion_request_made, deletion_request_decided, named_with_request, named_is_kept FROM PUBLIC;
