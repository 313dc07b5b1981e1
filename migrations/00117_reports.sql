-- Reports: what each institution had in storage on each day, and what became of items.

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

INSERT INTO administration_rights (privilege, on_table) SELECT 'SELECT', unnest('{holdings_daily, daily_outcomes}'::text[]);
INSERT INTO auditor_rights (on_table) SELECT unnest('{holdings_daily, daily_outcomes}'::text[]);

INSERT INTO schedules (job, every) VALUES ('count-holdings', '1 hour');
