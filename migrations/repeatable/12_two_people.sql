-- Two people: whoever has given an account, a role or means to sign in holds that account, too.

-- acting_user_id is the person who has signed in, or whose token acts; of the token of a
-- service, who made it. A command acts for no person: NULL.
CREATE OR REPLACE FUNCTION acting_user_id() RETURNS bigint LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
RETURN CASE WHEN signed_in_actor() IS NOT NULL THEN coalesce(
	nullif(nullif(current_setting('farol.actor_user', true), ''), '0')::bigint,
	(SELECT t.made_by FROM api_tokens t WHERE t.id = nullif(current_setting('farol.actor_token', true), '')::bigint),
	(SELECT u.id FROM users u WHERE lower(u.email) = lower(signed_in_actor()))) END;
COMMENT ON FUNCTION acting_user_id IS 'ID of the person who acts, has the token that acts, or made it if it is of a service; NULL: a command.';

-- means_are_given records who gives a person means to sign in or to act: each row that another
-- person writes, and of users each column but those that are known to give none. What a later
-- migration adds counts until it is listed here. Rows of eight days ago decide nothing.
CREATE OR REPLACE FUNCTION means_are_given() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	giver  bigint := acting_user_id();
	now_is jsonb;
	was    jsonb := '{}';
	person bigint;
	given  text := TG_TABLE_NAME;
BEGIN
	IF giver IS NULL THEN
		RETURN NULL;
	END IF;
	IF TG_OP = 'DELETE' THEN
		now_is := to_jsonb(OLD);
	ELSE
		now_is := to_jsonb(NEW);
	END IF;
	person := (now_is ->> TG_ARGV[0])::bigint;
	IF TG_OP = 'UPDATE' THEN
		was := to_jsonb(OLD);
		given := (SELECT string_agg(n.key, ', ' ORDER BY n.key) FROM jsonb_each(now_is) n WHERE n.value IS DISTINCT FROM was -> n.key
			AND n.key NOT IN ('name', 'time_zone', 'color_scheme', 'version', 'updated_at')
			AND NOT (n.key = 'deactivated_at' AND n.value <> 'null') AND NOT (n.key = 'second_factor_required' AND n.value = 'true'));
	END IF;
	IF person IS NULL OR person = giver OR given IS NULL THEN
		RETURN NULL;
	END IF;
	DELETE FROM means_given WHERE at < now() - interval '8 days';
	INSERT INTO means_given (to_user, by_user, what) VALUES (person, giver, given)
	ON CONFLICT (to_user, by_user) DO UPDATE SET what = excluded.what, at = greatest(means_given.at, excluded.at);
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER means_are_given AFTER INSERT OR UPDATE ON users FOR EACH ROW EXECUTE FUNCTION means_are_given('id');
CREATE OR REPLACE TRIGGER means_are_given AFTER INSERT ON links FOR EACH ROW EXECUTE FUNCTION means_are_given('user_id');
CREATE OR REPLACE TRIGGER means_are_given AFTER INSERT ON sessions FOR EACH ROW EXECUTE FUNCTION means_are_given('user_id');
CREATE OR REPLACE TRIGGER means_are_given AFTER INSERT ON api_tokens FOR EACH ROW EXECUTE FUNCTION means_are_given('user_id');
CREATE OR REPLACE TRIGGER means_are_given AFTER INSERT ON recovery_codes FOR EACH ROW EXECUTE FUNCTION means_are_given('user_id');
CREATE OR REPLACE TRIGGER means_are_given AFTER DELETE ON sign_in_failures FOR EACH ROW EXECUTE FUNCTION means_are_given('user_id');

CREATE OR REPLACE FUNCTION token_made() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	NEW.made_by := acting_user_id();
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER token_made BEFORE INSERT ON api_tokens FOR EACH ROW EXECUTE FUNCTION token_made();

-- invitation_is_first: a link to set a first password is for a person without one. For another
-- it would be a link to set a new one under a harmless name.
CREATE OR REPLACE FUNCTION invitation_is_first() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF EXISTS (SELECT FROM users u WHERE u.id = NEW.user_id AND u.password_hash IS NOT NULL) THEN
		RAISE EXCEPTION 'the person has a password already' USING ERRCODE = 'check_violation', CONSTRAINT = 'invitation_is_first',
			HINT = 'Make a link to set a new password.';
	END IF;
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER invitation_is_first BEFORE INSERT ON links FOR EACH ROW WHEN (NEW.kind = 'invite') EXECUTE FUNCTION invitation_is_first();

-- admin_left records when an institution loses an admin, in whatever way.
CREATE OR REPLACE FUNCTION admin_left() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF TG_OP = 'UPDATE' AND NEW.role = OLD.role AND NEW.institution_id = OLD.institution_id AND NEW.deactivated_at IS NULL THEN
		RETURN NULL;
	END IF;
	DELETE FROM admins_left WHERE left_at < now() - interval '8 days';
	INSERT INTO admins_left (user_id, institution_id) VALUES (OLD.id, OLD.institution_id)
	ON CONFLICT (institution_id, user_id) DO UPDATE SET left_at = greatest(admins_left.left_at, excluded.left_at);
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER admin_left AFTER UPDATE OR DELETE ON users
	FOR EACH ROW WHEN (OLD.role = 'institutional_admin' AND OLD.deactivated_at IS NULL) EXECUTE FUNCTION admin_left();

-- hands are those who hold an account at a time: the person, and whoever gave them means in
-- the seven days before, and so on.
CREATE OR REPLACE FUNCTION hands(person bigint, as_of timestamptz DEFAULT now()) RETURNS SETOF bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
	WITH RECURSIVE held (by_user) AS (
		SELECT person
		UNION
		SELECT g.by_user FROM held h JOIN means_given g ON g.to_user = h.by_user AND g.at > as_of - interval '7 days')
	SELECT by_user FROM held;
$$;

-- two_people says whether two accounts are in two hands. It is the one rule for all that takes
-- two people. one is NULL where a command has asked, or the archive itself.
CREATE OR REPLACE FUNCTION two_people(one bigint, other bigint, as_of timestamptz DEFAULT now()) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
RETURN other IS NOT NULL AND NOT EXISTS (SELECT hands(one, as_of) INTERSECT SELECT hands(other, as_of));
COMMENT ON FUNCTION two_people IS
	'Whether two accounts are in two hands: neither has given the other an account, a role or means to sign in within seven days, nor has a third given them to both, on whatever way.';

-- two_people_from is when two accounts are in two hands, if nobody gives more means until then.
CREATE OR REPLACE FUNCTION two_people_from(one bigint, other bigint) RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
RETURN (SELECT min(t.at) FROM (
		SELECT now() AS at
		UNION
		SELECT g.at + interval '7 days' FROM means_given g
		WHERE g.at > now() - interval '7 days' AND g.to_user IN (SELECT hands(one) UNION SELECT hands(other))) t
	WHERE two_people(one, other, t.at));

-- second_people are those who may approve what a person of an institution has requested, and
-- from when. Where the institution has no other active admin, and has had none for seven
-- days, the admins of the archive are; staff_too: in any case.
CREATE OR REPLACE FUNCTION second_people(institution bigint, requester bigint, staff_too boolean)
RETURNS TABLE (person bigint, email text, staff boolean, since timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
	WITH others AS (
		SELECT NULL::timestamptz AS left_at FROM users u
		WHERE u.institution_id = institution AND u.role = 'institutional_admin' AND u.deactivated_at IS NULL AND u.id IS DISTINCT FROM requester
		UNION ALL
		SELECT l.left_at FROM admins_left l
		WHERE l.institution_id = institution AND l.left_at > now() - interval '7 days' AND l.user_id IS DISTINCT FROM requester)
	SELECT u.id, u.email, u.role = 'admin', greatest(two_people_from(requester, u.id),
		CASE WHEN u.role = 'admin' AND NOT staff_too THEN (SELECT max(left_at) + interval '7 days' FROM others) END)
	FROM users u
	WHERE u.deactivated_at IS NULL AND u.id IS DISTINCT FROM requester
		AND (u.role = 'institutional_admin' AND u.institution_id = institution
			OR u.role = 'admin' AND (staff_too OR NOT EXISTS (SELECT FROM others WHERE left_at IS NULL)));
$$;

-- whom_to_ask is the next step of a person whose request waits for another. It names people
-- of the institution, and of the archive nobody.
CREATE OR REPLACE FUNCTION whom_to_ask(institution bigint, requester bigint, staff_too boolean) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
	WITH may AS (SELECT * FROM second_people(institution, requester, staff_too)),
		at_once AS (SELECT string_agg(email, ', ' ORDER BY email) FILTER (WHERE NOT staff) AS names, bool_or(staff) AS staff FROM may WHERE since <= now()),
		later AS (SELECT * FROM may WHERE since > now() ORDER BY since, staff, email LIMIT 1)
	SELECT CASE
		WHEN a.names IS NOT NULL OR a.staff THEN format('Ask %s to approve it.', concat_ws(' or ', a.names, CASE WHEN a.staff THEN 'an admin of the archive' END))
		WHEN l.since IS NOT NULL THEN format('Nobody may approve it before %s, when %s may. Until then a change of accounts counts that is less than seven days old. '
			'The archive''s staff can register another admin.',
			to_char(l.since AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI "UTC"'), CASE WHEN l.staff THEN 'an admin of the archive' ELSE l.email END)
		ELSE 'Nobody may approve it. Have the archive''s staff register another admin.' END
	FROM at_once a LEFT JOIN later l ON true;
$$;
COMMENT ON FUNCTION whom_to_ask IS 'Who may approve what a person of an institution has requested; if nobody may now, who may next, and from when.';

-- must_be_second_person refuses a person who may not approve what another has requested for an
-- institution, and says who may.
CREATE OR REPLACE FUNCTION must_be_second_person(person bigint, institution bigint, requester bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	u    users;
	next text := whom_to_ask(institution, requester, false);
BEGIN
	SELECT * INTO u FROM users WHERE id = person;
	IF person = requester THEN
		RAISE EXCEPTION 'nobody approves the own request' USING ERRCODE = 'check_violation', CONSTRAINT = 'two_people', HINT = next;
	ELSIF u.role IS DISTINCT FROM 'admin' OR u.deactivated_at IS NOT NULL THEN
		PERFORM must_be_admin_of(person, institution);
	END IF;
	PERFORM must_be_signed_in(u.email);
	IF NOT two_people(requester, person) THEN
		RAISE EXCEPTION 'one of the two people, or a third for both, has set how the other signs in' USING ERRCODE = 'check_violation', CONSTRAINT = 'two_people',
			DETAIL = 'An account, a role and means to sign in count for seven days.', HINT = next;
	ELSIF NOT EXISTS (SELECT FROM second_people(institution, requester, false) s WHERE s.person = u.id AND s.since <= now()) THEN
		RAISE EXCEPTION '% is an admin of the archive, and the institution has another admin, or had one within seven days', u.email
			USING ERRCODE = 'check_violation', CONSTRAINT = 'two_people', HINT = next;
	END IF;
END
$$;

REVOKE EXECUTE ON FUNCTION acting_user_id, means_are_given, token_made, invitation_is_first, admin_left, hands, two_people, two_people_from, second_people, whom_to_ask,
	must_be_second_person FROM PUBLIC;
