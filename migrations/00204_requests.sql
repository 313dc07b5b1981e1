-- Restorations and deletions: what is requested, what it costs, and what two people decide. A
-- request becomes work items, one for each file or object, that no worker claims before the
-- rules here are met.

-- +goose Up

CREATE TABLE storage_options (
	name           text    PRIMARY KEY,
	retention_days integer NOT NULL CHECK (retention_days BETWEEN 0 AND 36500),
	per_gib_month  numeric(12, 6) CHECK (per_gib_month >= 0), -- NULL: no price is shown
	included_tib   numeric(12, 3) CHECK (included_tib >= 0)
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

-- An approved deletion waits before anything is removed, so that a mistake can be stopped: the
-- installation has a time for that, and an institution may have its own.
CREATE TABLE request_settings (
	only_one      boolean        PRIMARY KEY DEFAULT true CHECK (only_one),
	retrieval_cap numeric(16, 2) NOT NULL DEFAULT 100 CHECK (retrieval_cap >= 0),
	deletion_wait interval       NOT NULL DEFAULT '24 hours'
		CONSTRAINT request_settings_deletion_wait CHECK (deletion_wait BETWEEN '0' AND '90 days')
);
INSERT INTO request_settings DEFAULT VALUES;

-- Two people: a request is approved by another person than the one who made it.
CREATE TABLE deletion_requests (
	id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	institution_id bigint      NOT NULL REFERENCES institutions,
	requested_by   bigint      NOT NULL REFERENCES users,
	requested_at   timestamptz NOT NULL DEFAULT now(),
	approved_by    bigint      REFERENCES users,
	approved_at    timestamptz,
	cancelled_by   bigint      REFERENCES users,
	cancelled_at   timestamptz,
	requested_as   text,
	approved_as    text,
	on_paper       text,
	cancel_reason  text, -- NULL: none was given
	begins_at      timestamptz, -- fixed at the approval
	CHECK ((approved_by IS NULL) = (approved_at IS NULL)),
	CHECK ((cancelled_by IS NULL) = (cancelled_at IS NULL)),
	CONSTRAINT deletion_requests_reason CHECK (cancel_reason IS NULL OR cancelled_at IS NOT NULL),
	CONSTRAINT deletion_requests_begin CHECK (begins_at IS NULL OR approved_at IS NOT NULL),
	CONSTRAINT cancelled_last CHECK (cancelled_at >= approved_at)
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
-- A receipt says when the removal of its copy began, before it is removed: so the record says
-- exactly which copies may be gone, and all others of a deletion stay in preservation.
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
	begun_at        timestamptz, -- NULL: the copy is untouched
	kept_by_store   text        NOT NULL DEFAULT '', -- '': the store does not keep it
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
	requested_by   bigint         REFERENCES users,
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
