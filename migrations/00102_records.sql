-- The records: who deposits, what is kept, where its copies are, and what happened to
-- it. The database's clock sets every timestamp.

-- +goose Up

CREATE TABLE institutions (
	id                    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name                  text        NOT NULL CHECK (length(name) BETWEEN 2 AND 200),
	identifier            text        NOT NULL UNIQUE
		CHECK (identifier ~ '^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$' AND length(identifier) <= 253),
	type                  text        NOT NULL DEFAULT 'MemberInstitution'
		CHECK (type IN ('MemberInstitution', 'SubscriptionInstitution')),
	member_institution_id bigint      REFERENCES institutions,
	receiving_bucket      text        NOT NULL UNIQUE CHECK (receiving_bucket <> ''),
	restore_bucket        text        NOT NULL UNIQUE CHECK (restore_bucket <> ''),
	state                 text        NOT NULL DEFAULT 'A' CHECK (state IN ('A', 'D')),
	deactivated_at        timestamptz,
	created_at            timestamptz NOT NULL DEFAULT now(),
	updated_at            timestamptz NOT NULL DEFAULT now(),
	spot_restore_days     integer     NOT NULL DEFAULT 0 CHECK (spot_restore_days BETWEEN 0 AND 3650),
	CHECK (receiving_bucket <> restore_bucket),
	CHECK ((type = 'SubscriptionInstitution') = (member_institution_id IS NOT NULL))
);

CREATE TABLE intellectual_objects (
	id                          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	institution_id              bigint      NOT NULL REFERENCES institutions,
	identifier                  text        NOT NULL UNIQUE,
	title                       text        NOT NULL CHECK (title <> ''),
	description                 text        NOT NULL DEFAULT '',
	access                      text        NOT NULL DEFAULT 'institution'
		CHECK (access IN ('consortia', 'institution', 'restricted')),
	alt_identifier              text        NOT NULL DEFAULT '',
	bag_name                    text        NOT NULL CHECK (bag_name <> ''),
	bag_group_identifier        text        NOT NULL DEFAULT '',
	bagit_profile_identifier    text        NOT NULL,
	source_organization         text        NOT NULL DEFAULT '',
	internal_sender_identifier  text        NOT NULL DEFAULT '',
	internal_sender_description text        NOT NULL DEFAULT '',
	etag                        text        NOT NULL,
	storage_option              text        NOT NULL DEFAULT 'Standard'
		CHECK (storage_option IN ('Standard', 'Wasabi-VA', 'Wasabi-OR', 'Wasabi-TX', 'Glacier-VA', 'Glacier-OH', 'Glacier-OR',
			'Glacier-Deep-VA', 'Glacier-Deep-OH', 'Glacier-Deep-OR')),
	state                       text        NOT NULL DEFAULT 'A' CHECK (state IN ('A', 'D')),
	created_at                  timestamptz NOT NULL DEFAULT now(),
	updated_at                  timestamptz NOT NULL DEFAULT now(),
	deleted_by_item             bigint,
	deletions                   bigint      NOT NULL DEFAULT 0,
	tag_encoding                text        NOT NULL DEFAULT 'UTF-8' CHECK (tag_encoding <> ''),
	UNIQUE (id, storage_option), -- what ties a file to its object's option
	UNIQUE (id, institution_id)
);
CREATE INDEX intellectual_objects_institution ON intellectual_objects (institution_id);
-- Spot restorations draw from these, by a number in the range of an institution's.
CREATE INDEX intellectual_objects_drawn ON intellectual_objects (institution_id, id) WHERE state = 'A';
CREATE INDEX intellectual_objects_deleting ON intellectual_objects (id) WHERE state = 'A' AND deleted_by_item IS NOT NULL;

CREATE TABLE generic_files (
	id                       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	institution_id           bigint      NOT NULL,
	intellectual_object_id   bigint      NOT NULL,
	-- In the order of their bytes the files of an object are together, so that a reader
	-- can walk them page by page, however many there are.
	identifier               text        COLLATE "C" NOT NULL UNIQUE,
	uuid                     uuid        NOT NULL UNIQUE,
	file_format              text        NOT NULL CHECK (file_format <> ''),
	format_puid              text        NOT NULL DEFAULT '',
	format_identified_by     text        NOT NULL DEFAULT '',
	size                     bigint      NOT NULL CHECK (size >= 0),
	state                    text        NOT NULL DEFAULT 'A' CHECK (state IN ('A', 'D')),
	storage_option           text        NOT NULL,
	mod_time                 timestamptz,
	last_fixity_check        timestamptz NOT NULL,
	created_at               timestamptz NOT NULL DEFAULT now(),
	updated_at               timestamptz NOT NULL DEFAULT now(),
	format_name              text        NOT NULL DEFAULT '',
	format_method            text        NOT NULL DEFAULT '' CHECK (format_method IN ('', 'signature', 'container', 'extension')),
	format_signature_version text        NOT NULL DEFAULT '',
	format_reason            text        NOT NULL DEFAULT '',
	format_identified_at     timestamptz,
	-- Set before the first copy is gone: from then on nobody relies on its bytes.
	deleted_by_item          bigint,
	-- A file is stored as its object is, and belongs to the same institution.
	FOREIGN KEY (intellectual_object_id, storage_option) REFERENCES intellectual_objects (id, storage_option),
	FOREIGN KEY (intellectual_object_id, institution_id) REFERENCES intellectual_objects (id, institution_id)
);
CREATE INDEX generic_files_object ON generic_files (intellectual_object_id);
-- What farol identify looks for: files without a PUID and without a reason, and files
-- by the signatures that identified them.
CREATE INDEX generic_files_without_format ON generic_files (id) WHERE state = 'A' AND format_puid = '' AND format_reason = '';
CREATE INDEX generic_files_signatures ON generic_files (signature_number(format_signature_version), id) WHERE state = 'A';
CREATE INDEX generic_files_deleting ON generic_files (intellectual_object_id) WHERE state = 'A' AND deleted_by_item IS NOT NULL;

CREATE TABLE checksums (
	id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	generic_file_id bigint      NOT NULL REFERENCES generic_files,
	algorithm       text        NOT NULL CHECK (algorithm IN ('md5', 'sha1', 'sha256', 'sha512')),
	digest          text        NOT NULL,
	datetime        timestamptz NOT NULL,
	created_at      timestamptz NOT NULL DEFAULT now(),
	updated_at      timestamptz NOT NULL DEFAULT now(),
	UNIQUE (generic_file_id, algorithm, digest),
	CHECK (digest ~ '^[0-9a-f]+$'
		AND length(digest) = CASE algorithm WHEN 'md5' THEN 32 WHEN 'sha1' THEN 40 WHEN 'sha256' THEN 64 ELSE 128 END)
);

CREATE TABLE storage_records (
	id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	generic_file_id bigint      NOT NULL REFERENCES generic_files,
	url             text        NOT NULL CHECK (url LIKE 'https://%'),
	target          text        NOT NULL CHECK (target <> ''),
	bucket          text        NOT NULL CHECK (bucket <> ''),
	key             text        COLLATE "C" NOT NULL CHECK (key <> ''),
	etag            text        NOT NULL DEFAULT '',
	stored_at       timestamptz NOT NULL,
	verified_at     timestamptz NOT NULL,
	created_at      timestamptz NOT NULL DEFAULT now(),
	updated_at      timestamptz NOT NULL DEFAULT now(),
	last_fixity_at  timestamptz,
	active          boolean     NOT NULL DEFAULT true,
	fixity_since    timestamptz,
	verified_by     text        NOT NULL DEFAULT '' CHECK (verified_by IN ('', 'sha256', 'etag', 'read')),
	fixity_from     timestamptz GENERATED ALWAYS AS (coalesce(least(last_fixity_at, fixity_since), verified_at)) STORED,
	UNIQUE (generic_file_id, url)
);
-- Read together with the listing of a bucket; also says whether any record names a key.
CREATE INDEX storage_records_copy ON storage_records (target, key);
-- What is due in a target, the most overdue first, and how many copies were never read.
CREATE INDEX storage_records_fixity ON storage_records (target, fixity_from, id) INCLUDE (last_fixity_at) WHERE active;

CREATE TABLE premis_events (
	id                     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	identifier             uuid        NOT NULL UNIQUE,
	institution_id         bigint      NOT NULL,
	intellectual_object_id bigint      NOT NULL,
	generic_file_id        bigint      REFERENCES generic_files,
	event_type             text        NOT NULL,
	date_time              timestamptz NOT NULL,
	detail                 text        NOT NULL CHECK (detail <> ''),
	outcome                text        NOT NULL CHECK (outcome IN ('Success', 'Failure')),
	outcome_detail         text        NOT NULL,
	outcome_information    text        NOT NULL,
	object                 text        NOT NULL,
	agent                  text        NOT NULL,
	created_at             timestamptz NOT NULL DEFAULT now(),
	updated_at             timestamptz NOT NULL DEFAULT now(),
	event_type_uri         text        GENERATED ALWAYS AS (event_type_uri(event_type)) STORED,
	FOREIGN KEY (intellectual_object_id, institution_id) REFERENCES intellectual_objects (id, institution_id),
	CONSTRAINT premis_events_event_type_check CHECK (event_type_uri(event_type) IS NOT NULL)
);
CREATE INDEX premis_events_file ON premis_events (generic_file_id) WHERE generic_file_id IS NOT NULL;
CREATE INDEX premis_events_object ON premis_events (intellectual_object_id) WHERE generic_file_id IS NULL;
