-- Fixity: how often each copy is checked, the checks in progress, and the copies that
-- are bad. There are no work items for it: checks are claimed from the copies
-- themselves, the most overdue first.

-- +goose Up

CREATE TABLE fixity_policies (
	target        text        PRIMARY KEY,
	provider      text        NOT NULL CHECK (provider <> ''),
	mode          text        NOT NULL CHECK (mode IN ('read', 'report', 'off')),
	interval_days integer     CHECK (interval_days BETWEEN 1 AND 3650),
	failures      integer     NOT NULL DEFAULT 0 CHECK (failures >= 0),
	paused_until  timestamptz NOT NULL DEFAULT '-infinity',
	pause_reason  text        NOT NULL DEFAULT '',
	set_at        timestamptz NOT NULL DEFAULT now()
);
INSERT INTO fixity_policies (target, provider, mode) VALUES
	('Standard-VA', 'AWS', 'read'), ('Wasabi-VA', 'Wasabi-VA', 'read'), ('Wasabi-OR', 'Wasabi-OR', 'read'), ('Wasabi-TX', 'Wasabi-TX', 'read'),
	-- Archived copies cannot be read without a restoration that costs money.
	('Standard-OR', 'AWS', 'off'), ('Glacier-VA', 'AWS', 'off'), ('Glacier-OH', 'AWS', 'off'), ('Glacier-OR', 'AWS', 'off'),
	('Glacier-Deep-VA', 'AWS', 'off'), ('Glacier-Deep-OH', 'AWS', 'off'), ('Glacier-Deep-OR', 'AWS', 'off');

CREATE SEQUENCE fixity_tokens; -- of claims in fixity_checks
CREATE TABLE fixity_checks (
	storage_record_id bigint      PRIMARY KEY REFERENCES storage_records ON DELETE CASCADE,
	target            text        NOT NULL,
	requested         boolean     NOT NULL DEFAULT false,
	token             bigint,
	worker            text        NOT NULL DEFAULT '',
	run_at            timestamptz NOT NULL DEFAULT now(),
	attempts          integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0),
	error             text        NOT NULL DEFAULT '',
	created_at        timestamptz NOT NULL DEFAULT now(),
	set_at            timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX fixity_checks_waiting ON fixity_checks (target, requested DESC, run_at); -- the primary key finds a copy

CREATE TABLE fixity_feed (
	only_one      boolean     PRIMARY KEY DEFAULT true CHECK (only_one),
	allowance     bigint      NOT NULL DEFAULT 0 CHECK (allowance >= 0),
	fed           bigint      NOT NULL DEFAULT 0,
	every         interval    NOT NULL DEFAULT '0',
	fed_at        timestamptz,
	drained_at    timestamptz,
	paused        boolean     NOT NULL DEFAULT false,
	paused_at     timestamptz CHECK (isfinite(paused_at)),
	paused_by     text,
	pause_reason  text,
	paused_in_nsq boolean     NOT NULL DEFAULT false
);
INSERT INTO fixity_feed DEFAULT VALUES;

CREATE TABLE fixity_done (
	target   text        NOT NULL,
	minute   timestamptz NOT NULL,
	checks   bigint      NOT NULL DEFAULT 0,
	failures bigint      NOT NULL DEFAULT 0,
	wavered  bigint      NOT NULL DEFAULT 0,
	bytes    bigint      NOT NULL DEFAULT 0,
	PRIMARY KEY (target, minute)
);

CREATE TABLE fixity_failures (
	id                bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	storage_record_id bigint      REFERENCES storage_records ON DELETE SET NULL,
	generic_file_id   bigint      NOT NULL REFERENCES generic_files,
	target            text        NOT NULL,
	provider          text        NOT NULL,
	url               text        NOT NULL,
	problem           text        NOT NULL CHECK (problem IN ('altered', 'missing')),
	algorithm         text        NOT NULL,
	expected          text        NOT NULL,
	found             text        NOT NULL DEFAULT '',
	found_at          timestamptz NOT NULL,
	seen_at           timestamptz NOT NULL,
	noted_at          timestamptz NOT NULL DEFAULT now(),
	state             text        NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'repaired', 'good again', 'replaced', 'deleted')),
	closed_at         timestamptz,
	quarantined_as    text        NOT NULL DEFAULT '',
	repaired_from     text        NOT NULL DEFAULT '',
	CHECK ((state = 'open') = (closed_at IS NULL))
);
CREATE UNIQUE INDEX fixity_failures_open ON fixity_failures (storage_record_id) WHERE state = 'open';
CREATE INDEX fixity_failures_copy ON fixity_failures (storage_record_id);
CREATE INDEX fixity_failures_recent ON fixity_failures (provider, noted_at);
CREATE INDEX fixity_failures_file ON fixity_failures (generic_file_id);

-- When as many copies of a provider fail at once, the cause is not bit rot.
CREATE TABLE repair_stops (
	id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	provider    text        NOT NULL,
	reason      text        NOT NULL,
	stopped_at  timestamptz NOT NULL DEFAULT now(),
	released_by bigint      REFERENCES users,
	released_at timestamptz,
	CHECK ((released_by IS NULL) = (released_at IS NULL))
);
CREATE UNIQUE INDEX repair_stops_open ON repair_stops (provider) WHERE released_at IS NULL;
CREATE INDEX repair_stops_released ON repair_stops (provider, released_at);
