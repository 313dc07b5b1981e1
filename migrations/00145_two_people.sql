-- Who gave whom the means to sign in or to act, and which admins an institution has lost. Two
-- people were kept apart by the names of four operations; each other way to a second account
-- let one person delete what two must.

-- +goose Up
CREATE TABLE means_given (
	to_user bigint      NOT NULL, -- no foreign keys: the chain holds when an account in it is gone
	by_user bigint      NOT NULL,
	what    text        NOT NULL,
	at      timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (to_user, by_user),
	CHECK (to_user <> by_user)
);
CREATE TABLE admins_left (
	user_id        bigint      NOT NULL,
	institution_id bigint      NOT NULL,
	left_at        timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (institution_id, user_id)
);
ALTER TABLE api_tokens ADD made_by bigint; -- NULL: a command, or it was not recorded at the time

-- What the last seven days have on record holds.
INSERT INTO means_given (to_user, by_user, what, at)
SELECT subject_id::bigint, user_id, max(operation), max(at) FROM actions
WHERE subject_type = 'user' AND subject_id ~ '^\d{1,18}$' AND outcome = 'done' AND operation LIKE 'users.%' AND operation <> 'users.deactivate'
	AND user_id IS NOT NULL AND subject_id <> user_id::text AND at > now() - interval '7 days'
GROUP BY subject_id, user_id;
INSERT INTO admins_left (user_id, institution_id, left_at)
SELECT id, institution_id, deactivated_at FROM users WHERE role = 'institutional_admin' AND deactivated_at > now() - interval '7 days';

INSERT INTO auditor_rights (on_table) VALUES ('means_given'), ('admins_left');
INSERT INTO administration_rights (privilege, on_table) VALUES ('SELECT', 'means_given'), ('SELECT', 'admins_left');
DROP FUNCTION IF EXISTS one_hand(bigint, bigint);
