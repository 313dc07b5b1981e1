-- People: who they are, how they sign in, what they may, and what each of them did.

-- +goose Up

CREATE TABLE users (
	id                     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	email                  user_email  NOT NULL CHECK (length(email) <= 254 AND email !~ '[[:space:]]'),
	name                   text        NOT NULL CHECK (length(name) BETWEEN 2 AND 200),
	institution_id         bigint      REFERENCES institutions,
	role                   text        NOT NULL CHECK (role IN ('admin', 'operator', 'auditor', 'institutional_admin', 'institutional_user')),
	deactivated_at         timestamptz,
	created_at             timestamptz NOT NULL DEFAULT now(),
	updated_at             timestamptz NOT NULL DEFAULT now(),
	password_hash          text,
	password_set_at        timestamptz,
	totp_sealed            bytea, -- with FAROL_WEB_KEY; NULL: no second factor
	totp_last_step         bigint      NOT NULL DEFAULT 0,
	second_factor_required boolean     NOT NULL DEFAULT false,
	signed_in_at           timestamptz,
	time_zone              text        NOT NULL DEFAULT 'UTC' CHECK (length(time_zone) BETWEEN 1 AND 64),
	version                bigint      NOT NULL DEFAULT 1,
	-- A person is known to one OpenID provider at most, by a subject that it gives to nobody else.
	oidc_issuer            text        CHECK (length(oidc_issuer) BETWEEN 1 AND 500),
	oidc_subject           text        CHECK (length(oidc_subject) BETWEEN 1 AND 255),
	oidc_factor            boolean     NOT NULL DEFAULT false,
	color_scheme           text        NOT NULL DEFAULT '' CHECK (color_scheme IN ('', 'light', 'dark')),
	CONSTRAINT oidc_names_both CHECK ((oidc_issuer IS NULL) = (oidc_subject IS NULL)),
	CONSTRAINT staff_have_no_institution CHECK (CASE WHEN role IN ('admin', 'operator') THEN institution_id IS NULL
		WHEN role IN ('institutional_admin', 'institutional_user') THEN institution_id IS NOT NULL ELSE true END)
);
CREATE UNIQUE INDEX users_email ON users (lower(email));
CREATE UNIQUE INDEX users_oidc ON users (oidc_issuer, oidc_subject) WHERE oidc_subject IS NOT NULL;
CREATE INDEX users_institution ON users (institution_id) WHERE deactivated_at IS NULL;

-- Failures are counted for each browser that has signed in the person before, and together
-- for all others: so strangers lock out strangers, and never the person.
CREATE TABLE sign_in_failures (
	user_id      bigint      NOT NULL REFERENCES users ON DELETE CASCADE,
	device       text        NOT NULL CHECK (length(device) <= 64), -- '': one that is not known
	failures     integer     NOT NULL CHECK (failures > 0),
	failed_at    timestamptz NOT NULL DEFAULT now(),
	locked_until timestamptz,
	PRIMARY KEY (user_id, device)
);

CREATE TABLE recovery_codes (
	user_id bigint NOT NULL REFERENCES users ON DELETE CASCADE,
	digest  bytea  NOT NULL CHECK (length(digest) = 32),
	used_at timestamptz,
	PRIMARY KEY (user_id, digest)
);

-- A level belongs to a session, never to a person: a second factor that is given in one
-- browser frees no other.
CREATE TABLE sessions (
	digest    bytea       PRIMARY KEY CHECK (length(digest) = 32),
	id        bigint      GENERATED ALWAYS AS IDENTITY UNIQUE,
	user_id   bigint      NOT NULL REFERENCES users ON DELETE CASCADE,
	level     text        NOT NULL CHECK (level IN ('password', 'full')),
	begun_at  timestamptz NOT NULL DEFAULT now(),
	seen_at   timestamptz NOT NULL DEFAULT now(),
	ends_at   timestamptz NOT NULL,
	strong_at timestamptz,
	ip        inet,
	agent     text        NOT NULL DEFAULT '' CHECK (length(agent) <= 200)
);
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_ends ON sessions (ends_at);

CREATE TABLE links (
	digest     bytea       PRIMARY KEY CHECK (length(digest) = 32),
	kind       text        NOT NULL CHECK (kind IN ('invite', 'reset', 'sign-in')),
	user_id    bigint      NOT NULL REFERENCES users ON DELETE CASCADE,
	created_at timestamptz NOT NULL DEFAULT now(),
	created_by text        NOT NULL DEFAULT acting_user(),
	ends_at    timestamptz NOT NULL,
	used_at    timestamptz
);
CREATE INDEX links_user ON links (user_id);

-- A personal token is of a user and dies with them. What it may is named in permissions.
CREATE TABLE api_tokens (
	id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name           text        NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 100),
	digest         bytea       NOT NULL UNIQUE CHECK (octet_length(digest) = 32),
	institution_id bigint      REFERENCES institutions,
	rights         text[]      NOT NULL,
	stages         text[]      NOT NULL DEFAULT '{}',
	created_at     timestamptz NOT NULL DEFAULT now(),
	created_by     text        NOT NULL DEFAULT acting_user(),
	expires_at     timestamptz CHECK (isfinite(expires_at)),
	used_at        timestamptz,
	user_id        bigint      REFERENCES users ON DELETE CASCADE,
	permissions    text[]      NOT NULL DEFAULT '{}',
	made_by        bigint, -- NULL: a command
	CONSTRAINT api_tokens_name_key UNIQUE NULLS NOT DISTINCT (user_id, name),
	CONSTRAINT api_tokens_rights_check CHECK (rights <@ '{post,pull,lease}'::text[]
		AND (cardinality(rights) > 0 OR cardinality(permissions) > 0)),
	CONSTRAINT people_do_not_lease CHECK (user_id IS NULL OR rights = '{}' AND institution_id IS NULL),
	CONSTRAINT queues_are_for_all CHECK (institution_id IS NULL OR NOT rights && '{post,pull}') -- ids of all institutions pass through them
);

-- Who gave whom the means to sign in or to act, and which admins an institution has lost: no
-- way to a second account lets one person delete what two must.
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

-- Only note_action() writes here, so that nobody can write in the name of another.
CREATE TABLE actions (
	id                   bigint      GENERATED BY DEFAULT AS IDENTITY,
	at                   timestamptz NOT NULL DEFAULT clock_timestamp(),
	actor                text        NOT NULL DEFAULT acting_user(),
	on_behalf_of         text,
	user_id              bigint, -- no foreign keys: actions are kept when the rest is gone
	token_id             bigint,
	ip                   inet,
	operation            text        NOT NULL CHECK (operation ~ '^[a-z_]+[.][a-z_]+$'),
	subject_type         text        NOT NULL DEFAULT '',
	subject_id           text        NOT NULL DEFAULT '',
	institution_id       bigint,
	outcome              text        NOT NULL CHECK (outcome IN ('done', 'refused')),
	detail               jsonb       NOT NULL DEFAULT '{}',
	actor_institution_id bigint, -- at that time, since people move
	PRIMARY KEY (id, at)
) PARTITION BY RANGE (at);
CREATE TABLE actions_rest PARTITION OF actions DEFAULT;
CREATE INDEX actions_at ON actions (at, id);
CREATE INDEX actions_actor ON actions (actor, at, id);
CREATE INDEX actions_subject ON actions (subject_type, subject_id, at, id);
CREATE INDEX actions_institution ON actions (institution_id, at, id) WHERE institution_id IS NOT NULL;
CREATE INDEX actions_actor_institution ON actions (actor_institution_id, at, id) WHERE actor_institution_id IS NOT NULL;

-- The answer is kept with the key for a day, so that a request that is sent again is
-- answered again and not done again.
CREATE TABLE idempotency_keys (
	caller         text        NOT NULL,
	key            text        NOT NULL CHECK (length(key) BETWEEN 1 AND 100),
	operation      text        NOT NULL,
	request_sha256 bytea       NOT NULL CHECK (length(request_sha256) = 32),
	status         integer,    -- NULL: in work
	body           bytea,
	done           boolean     NOT NULL DEFAULT false, -- written by the transaction that did it
	at             timestamptz NOT NULL DEFAULT now(),
	etag           text,
	PRIMARY KEY (caller, key)
);
CREATE INDEX idempotency_keys_at ON idempotency_keys (at);
