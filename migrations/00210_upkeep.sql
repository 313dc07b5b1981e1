-- Services that work needs, what is known of stores, recurring jobs and what they removed,
-- reports, exports, and which files of repeatable/ were applied.

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

-- What is known of each S3 store: measured by trials, and corrected by what it answers. Each
-- process would find it out again otherwise, with a refused request for each thing.
CREATE TABLE stores (
	endpoint    text        PRIMARY KEY CHECK (length(endpoint) BETWEEN 1 AND 2000),
	server      text        NOT NULL DEFAULT '' CHECK (length(server) <= 200),
	measured_at timestamptz,
	seen_at     timestamptz NOT NULL DEFAULT now(),
	ways        jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(ways) = 'object'),
	buckets     jsonb       NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(buckets) = 'object')
);

-- A run is a lease in a row, and no lock of a session, since it takes longer than a
-- transaction should, and a pooler gives no session. Its number is its fencing token.
CREATE TABLE schedules (
	job          text        PRIMARY KEY CHECK (job ~ '^[a-z][a-z-]{0,62}$'),
	every        interval    NOT NULL CHECK (every > '0'),
	paused       boolean     NOT NULL DEFAULT false,
	next_run_at  moment      NOT NULL DEFAULT now(),
	holder       text        NOT NULL DEFAULT '',
	held_until   timestamptz NOT NULL DEFAULT '-infinity',
	began_at     moment,
	ended_at     moment,
	result       text        NOT NULL DEFAULT '',
	error        text        NOT NULL DEFAULT '',
	runs         bigint      NOT NULL DEFAULT 0,
	failures     bigint      NOT NULL DEFAULT 0,
	paused_by    text,
	paused_at    timestamptz,
	pause_reason text
);
INSERT INTO schedules (job, every) VALUES
	('read-buckets', '1 minute'), ('fixity-feed', '30 minutes'), ('glacier-poll', '15 minutes'), ('janitor', '15 minutes'),
	('spot-restore', '24 hours'), ('topic-log', '1 minute'), ('raise-alerts', '5 minutes'), ('send-mail', '30 seconds'), ('count-holdings', '1 hour');

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

-- What each institution had in storage on each day, and what became of items.
CREATE TABLE holdings_daily (
	day            date   NOT NULL,
	institution_id bigint NOT NULL REFERENCES institutions,
	storage_option text   NOT NULL REFERENCES storage_options,
	objects        bigint NOT NULL CHECK (objects >= 0),
	files          bigint NOT NULL CHECK (files >= 0),
	bytes          bigint NOT NULL CHECK (bytes >= 0),
	PRIMARY KEY (day, institution_id, storage_option)
);

CREATE TABLE daily_outcomes (
	day            date   NOT NULL,
	institution_id bigint NOT NULL REFERENCES institutions,
	action         text   NOT NULL,
	result         text   NOT NULL CHECK (result IN ('Success', 'Cancelled', 'Failed', 'Suspended')),
	items          bigint NOT NULL CHECK (items > 0),
	bytes          bigint NOT NULL CHECK (bytes >= 0),
	PRIMARY KEY (day, institution_id, action, result)
);

-- Who had what written of the records, and its digest.
CREATE TABLE exports (
	id                     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	kind                   text        NOT NULL CHECK (kind IN ('inventory', 'manifest', 'events', 'premis', 'evidence')),
	institution_id         bigint      NOT NULL REFERENCES institutions,
	intellectual_object_id bigint,
	requested_by           text        NOT NULL DEFAULT acting_user(),
	created_at             timestamptz NOT NULL DEFAULT now(),
	work_item_id           bigint UNIQUE, -- no foreign key: the item may be archived
	key                    text,
	records                bigint CHECK (records >= 0),
	bytes                  bigint CHECK (bytes >= 0),
	sha256                 bytea CHECK (length(sha256) = 32),
	taken_at               timestamptz,
	completed_at           timestamptz,
	FOREIGN KEY (intellectual_object_id, institution_id) REFERENCES intellectual_objects (id, institution_id),
	CONSTRAINT completed_is_whole CHECK (num_nulls(records, bytes, sha256, taken_at, completed_at) IN (0, 5))
);

-- A log, so that a program that is older than the last one that migrated knows that its
-- own files were replaced, and leaves the newer functions alone.
CREATE TABLE schema_repeatables (
	file       text        NOT NULL,
	digest     text        NOT NULL,
	applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
	PRIMARY KEY (file, digest)
);
