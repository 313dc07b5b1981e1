-- Reports: what each institution had in storage on each day, and what became of items.
-- Exports: who had what written of the records, and its digest.

-- +goose Up

ALTER TABLE storage_options
	ADD per_gib_month numeric(12, 6) CHECK (per_gib_month >= 0), -- NULL: no price is shown
	ADD included_tib  numeric(12, 3) CHECK (included_tib >= 0);

-- What is counted of an object is kept, so that a count reads only the files of objects
-- that have changed.
CREATE TABLE object_holdings (
	intellectual_object_id bigint PRIMARY KEY REFERENCES intellectual_objects,
	files                  bigint NOT NULL CHECK (files >= 0),
	bytes                  bigint NOT NULL CHECK (bytes >= 0)
);

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

-- Large exports are work items. The old check was a part of this one, so that what is there
-- need not be read.
ALTER DOMAIN work_action DROP CONSTRAINT work_action_check;
ALTER DOMAIN work_action ADD CONSTRAINT work_action_check
	CHECK (VALUE IN ('Ingest', 'Delete', 'Restore File', 'Restore Object', 'Glacier Restore', 'Export')
		OR no_such('action', VALUE, '{Ingest,Delete,Restore File,Restore Object,Glacier Restore,Export}')) NOT VALID;
INSERT INTO stage_settings (action, stage, ordinal, topic, max_attempts, cap, unrenewed_timeout, unrenewed_lease) VALUES
	('Export', 'Requested', 1, 'export_records', 3, NULL, '20 seconds', '60 seconds');

INSERT INTO administration_rights (privilege, on_table) SELECT 'SELECT', unnest('{holdings_daily, daily_outcomes, exports}'::text[]);
INSERT INTO auditor_rights (on_table) SELECT unnest('{holdings_daily, daily_outcomes, exports}'::text[]);

INSERT INTO schedules (job, every) VALUES ('count-holdings', '1 hour');
