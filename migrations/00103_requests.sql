-- Restorations and deletions: who may request them, what is requested, and what it
-- costs. A request becomes work items, one for each file or object, that no worker
-- claims before the rules here are met.

-- +goose Up

CREATE TABLE users (
	id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	email          user_email  NOT NULL CHECK (length(email) <= 254 AND email !~ '[[:space:]]'),
	name           text        NOT NULL CHECK (length(name) BETWEEN 2 AND 200),
	institution_id bigint      REFERENCES institutions,
	role           text        NOT NULL CHECK (role IN ('admin', 'institutional_admin', 'institutional_user')),
	deactivated_at timestamptz,
	created_at     timestamptz NOT NULL DEFAULT now(),
	updated_at     timestamptz NOT NULL DEFAULT now(),
	CONSTRAINT admins_have_no_institution CHECK ((role = 'admin') = (institution_id IS NULL))
);
CREATE UNIQUE INDEX users_email ON users (lower(email));
CREATE INDEX users_institution ON users (institution_id) WHERE deactivated_at IS NULL;

CREATE TABLE storage_options (
	name           text    PRIMARY KEY,
	retention_days integer NOT NULL CHECK (retention_days BETWEEN 0 AND 36500)
);
INSERT INTO storage_options VALUES
	('Standard', 0), ('Wasabi-VA', 90), ('Wasabi-OR', 90), ('Wasabi-TX', 90), ('Glacier-VA', 90), ('Glacier-OH', 90), ('Glacier-OR', 90),
	('Glacier-Deep-VA', 180), ('Glacier-Deep-OH', 180), ('Glacier-Deep-OR', 180);

CREATE TABLE retrieval_prices (
	storage_class     text           NOT NULL,
	tier              text           NOT NULL CHECK (tier IN ('Expedited', 'Standard', 'Bulk')),
	per_gib           numeric(12, 6) NOT NULL CHECK (per_gib >= 0),
	per_1000_requests numeric(12, 6) NOT NULL CHECK (per_1000_requests >= 0),
	takes             interval       NOT NULL CHECK (takes > '0'),
	poll              interval       NOT NULL CHECK (poll > '0'),
	PRIMARY KEY (storage_class, tier)
);
INSERT INTO retrieval_prices VALUES -- AWS, us-east-1, November 2026
	('GLACIER',      'Expedited', 0.03,   10,    '5 minutes', '1 minute'),
	('GLACIER',      'Standard',  0.01,   0.05,  '5 hours',   '1 hour'),
	('GLACIER',      'Bulk',      0,      0.025, '12 hours',  '4 hours'),
	('DEEP_ARCHIVE', 'Standard',  0.02,   0.10,  '12 hours',  '4 hours'),
	('DEEP_ARCHIVE', 'Bulk',      0.0025, 0.025, '48 hours',  '8 hours');

CREATE TABLE request_settings (
	only_one      boolean        PRIMARY KEY DEFAULT true CHECK (only_one),
	retrieval_cap numeric(16, 2) NOT NULL DEFAULT 100 CHECK (retrieval_cap >= 0)
);
INSERT INTO request_settings DEFAULT VALUES;

-- Only a digest of the token is stored; the token itself goes to the approver.
CREATE TABLE deletion_requests (
	id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	institution_id bigint      NOT NULL REFERENCES institutions,
	requested_by   bigint      NOT NULL REFERENCES users,
	requested_at   timestamptz NOT NULL DEFAULT now(),
	token_sha256   bytea       NOT NULL CHECK (length(token_sha256) = 32),
	approved_by    bigint      REFERENCES users,
	approved_at    timestamptz,
	cancelled_by   bigint      REFERENCES users,
	cancelled_at   timestamptz,
	CHECK ((approved_by IS NULL) = (approved_at IS NULL)),
	CHECK ((cancelled_by IS NULL) = (cancelled_at IS NULL)),
	CONSTRAINT decided_once CHECK (approved_at IS NULL OR cancelled_at IS NULL)
);
CREATE INDEX deletion_requests_institution ON deletion_requests (institution_id, id);

CREATE TABLE deletion_requests_generic_files (
	deletion_request_id bigint NOT NULL REFERENCES deletion_requests,
	generic_file_id     bigint NOT NULL REFERENCES generic_files,
	PRIMARY KEY (deletion_request_id, generic_file_id)
);
CREATE INDEX deletion_requests_file ON deletion_requests_generic_files (generic_file_id);

CREATE TABLE deletion_requests_intellectual_objects (
	deletion_request_id    bigint NOT NULL REFERENCES deletion_requests,
	intellectual_object_id bigint NOT NULL REFERENCES intellectual_objects,
	PRIMARY KEY (deletion_request_id, intellectual_object_id)
);
CREATE INDEX deletion_requests_object ON deletion_requests_intellectual_objects (intellectual_object_id);

-- A deletion looks for all copies before it removes the first. A copy that is missing
-- although nobody here has deleted it was lost: a person has to know before the rest goes.
CREATE TABLE deletion_receipts (
	work_item_id    bigint      NOT NULL, -- no foreign key: the item may be archived
	generic_file_id bigint      NOT NULL REFERENCES generic_files,
	target          text        NOT NULL,
	bucket          text        NOT NULL,
	key             text        NOT NULL,
	url             text        NOT NULL,
	removed_at      timestamptz,
	kept            text        NOT NULL DEFAULT '',
	absent_at       timestamptz,
	seen_at         timestamptz,
	found_missing   boolean     NOT NULL DEFAULT false,
	accepted_by     text        NOT NULL DEFAULT '',
	PRIMARY KEY (work_item_id, generic_file_id, target, key)
);
CREATE INDEX deletion_receipts_file ON deletion_receipts (generic_file_id);

CREATE TABLE retrievals (
	work_item_id   bigint         PRIMARY KEY, -- no foreign key: the item may be archived
	storage_class  text           NOT NULL,
	tier           text           NOT NULL CHECK (tier IN ('Expedited', 'Standard', 'Bulk')),
	days           integer        NOT NULL CHECK (days BETWEEN 1 AND 365),
	files          bigint         NOT NULL,
	bytes          bigint         NOT NULL,
	price          numeric(16, 2) NOT NULL CHECK (price >= 0),
	cap            numeric(16, 2) NOT NULL CHECK (cap >= 0),
	approved_by    bigint         REFERENCES users,
	approved_at    timestamptz,
	-- A poll asks about each of the files, so that not every round polls each item.
	woken_at       timestamptz,
	readable_until timestamptz,
	next_item      bigint, -- no foreign key: it may be archived
	CHECK ((approved_by IS NULL) = (approved_at IS NULL))
);
CREATE INDEX retrievals_next ON retrievals (next_item) WHERE next_item IS NOT NULL;

CREATE TABLE spot_restores (
	institution_id         bigint      NOT NULL REFERENCES institutions,
	work_item_id           bigint      PRIMARY KEY, -- no foreign key: the item may be archived
	intellectual_object_id bigint      NOT NULL REFERENCES intellectual_objects,
	requested_at           timestamptz NOT NULL DEFAULT now(),
	ended_at               timestamptz,
	outcome                text        CHECK (outcome IN ('restored', 'failed', 'cancelled')),
	CHECK ((ended_at IS NULL) = (outcome IS NULL))
);
CREATE INDEX spot_restores_institution ON spot_restores (institution_id, requested_at);
CREATE INDEX spot_restores_object ON spot_restores (intellectual_object_id, requested_at);

CREATE TABLE alerts (
	id                  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	institution_id      bigint      REFERENCES institutions,
	type                text        NOT NULL CHECK (type IN ('Deletion Cancelled', 'Deletion Completed', 'Deletion Confirmed', 'Deletion Requested',
		'Failed Fixity Check', 'Restoration Completed', 'Spot Restoration Completed', 'Spot Restoration Failed', 'Repair Stopped', 'Service Held')),
	subject             text        NOT NULL CHECK (subject <> ''),
	content             text        NOT NULL,
	deletion_request_id bigint      REFERENCES deletion_requests,
	work_item_id        bigint, -- no foreign key: the item may be archived
	generic_file_id     bigint      REFERENCES generic_files,
	created_at          timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX alerts_institution ON alerts (institution_id, id);
