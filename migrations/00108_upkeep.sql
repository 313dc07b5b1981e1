-- Services that work needs, recurring jobs, what was removed, and which files of
-- repeatable/ were applied.

-- +goose Up

-- scopes says which work needs the service: a list of objects with "steps" (stages of an
-- ingest, actions of requests), and optionally "storage_options" and "institutions"; a
-- missing list means any.
CREATE TABLE known_services (
	service     text        PRIMARY KEY CHECK (service <> ''),
	of_process  boolean     NOT NULL DEFAULT false,
	scopes      jsonb       NOT NULL DEFAULT '[]',
	held_at     timestamptz,
	held_by     text,
	held_reason text,
	released_at timestamptz,
	released_by text,
	alerted_for timestamptz,
	CHECK ((held_at IS NULL) = (held_by IS NULL))
);

-- Only changes are written; a process that died is not counted, so that nothing has to
-- be taken back.
CREATE TABLE service_reports (
	service  text        NOT NULL REFERENCES known_services ON DELETE CASCADE,
	worker   text        NOT NULL,
	state    text        NOT NULL CHECK (state IN ('ok', 'failing', 'trying')),
	since    timestamptz NOT NULL DEFAULT now(),
	code     text        NOT NULL DEFAULT '',
	said     text        NOT NULL DEFAULT '',
	detail   text        NOT NULL DEFAULT '',
	probe_at timestamptz,
	place    text        NOT NULL DEFAULT '',
	PRIMARY KEY (service, worker)
);

-- A run is a lease in a row, and no lock of a session, since it takes longer than a
-- transaction should, and a pooler gives no session. Its number is its fencing token.
CREATE TABLE schedules (
	job         text        PRIMARY KEY CHECK (job ~ '^[a-z][a-z-]{0,62}$'),
	every       interval    NOT NULL CHECK (every > '0'),
	paused      boolean     NOT NULL DEFAULT false,
	next_run_at moment      NOT NULL DEFAULT now(),
	holder      text        NOT NULL DEFAULT '',
	held_until  timestamptz NOT NULL DEFAULT '-infinity',
	began_at    moment,
	ended_at    moment,
	result      text        NOT NULL DEFAULT '',
	error       text        NOT NULL DEFAULT '',
	runs        bigint      NOT NULL DEFAULT 0,
	failures    bigint      NOT NULL DEFAULT 0
);
INSERT INTO schedules (job, every) VALUES
	('read-buckets', '1 minute'), ('fixity-feed', '30 minutes'), ('glacier-poll', '15 minutes'), ('janitor', '15 minutes'),
	('spot-restore', '24 hours'), ('topic-log', '1 minute');

CREATE TABLE removals (
	id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	at           timestamptz NOT NULL DEFAULT clock_timestamp(),
	work_item_id bigint,
	store        text        NOT NULL,
	what         text        NOT NULL CHECK (what IN ('objects', 'uploads', 'keys', 'copies', 'bags')),
	why          text        NOT NULL,
	name         text        NOT NULL DEFAULT '',
	count        bigint      NOT NULL,
	bytes        bigint      NOT NULL
);
CREATE INDEX removals_item ON removals (work_item_id);

-- A log, so that a program that is older than the last one that migrated knows that its
-- own files were replaced, and leaves the newer functions alone.
CREATE TABLE schema_repeatables (
	file       text        NOT NULL,
	digest     text        NOT NULL,
	applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (file, digest)
);
