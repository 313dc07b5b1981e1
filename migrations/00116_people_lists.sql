-- People: who an OpenID provider says a person is, and whose people have acted.

-- +goose Up

-- A person is known to one provider at most, by a subject that it gives to nobody else.
ALTER TABLE users
	ADD oidc_issuer  text CHECK (length(oidc_issuer) BETWEEN 1 AND 500),
	ADD oidc_subject text CHECK (length(oidc_subject) BETWEEN 1 AND 255),
	ADD oidc_factor  boolean NOT NULL DEFAULT false,
	ADD CONSTRAINT oidc_names_both CHECK ((oidc_issuer IS NULL) = (oidc_subject IS NULL));
CREATE UNIQUE INDEX users_oidc ON users (oidc_issuer, oidc_subject) WHERE oidc_subject IS NOT NULL;

-- The institution of the person who acts is recorded with the action, since people move.
ALTER TABLE actions ADD actor_institution_id bigint;
DROP TRIGGER IF EXISTS actions_are_kept ON actions; -- a repeatable file creates it again
UPDATE actions a SET actor_institution_id = u.institution_id FROM users u WHERE u.id = a.user_id AND u.institution_id IS NOT NULL;

-- Lists go by time and ID, newest first.
DROP INDEX actions_actor, actions_subject, actions_institution;
CREATE INDEX actions_actor ON actions (actor, at, id);
CREATE INDEX actions_subject ON actions (subject_type, subject_id, at, id);
CREATE INDEX actions_institution ON actions (institution_id, at, id) WHERE institution_id IS NOT NULL;
CREATE INDEX actions_actor_institution ON actions (actor_institution_id, at, id) WHERE actor_institution_id IS NOT NULL;
CREATE INDEX alerts_staff ON alerts (id) WHERE institution_id IS NULL;
