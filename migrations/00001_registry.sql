-- The records: who deposits, what is kept, where its copies are, and what
-- happened to it. Every timestamp is set by the database's clock.

-- +goose Up
CREATE TABLE institutions (
	id                    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name                  text        NOT NULL CHECK (length(name) BETWEEN 2 AND 200),
	identifier            text        NOT NULL UNIQUE -- a domain name, such as test.edu
		CHECK (identifier ~ '^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$' AND length(identifier) <= 253),
	type                  text        NOT NULL DEFAULT 'MemberInstitution'
		CHECK (type IN ('MemberInstitution', 'SubscriptionInstitution')),
	member_institution_id bigint      REFERENCES institutions, -- the parent of a subscription institution
	receiving_bucket      text        NOT NULL UNIQUE CHECK (receiving_bucket <> ''),
	restore_bucket        text        NOT NULL UNIQUE CHECK (restore_bucket <> ''),
	state                 text        NOT NULL DEFAULT 'A' CHECK (state IN ('A', 'D')),
	deactivated_at        timestamptz,
	created_at            timestamptz NOT NULL DEFAULT now(),
	updated_at            timestamptz NOT NULL DEFAULT now(),
	CHECK (receiving_bucket <> restore_bucket),
	CHECK ((type = 'SubscriptionInstitution') = (member_institution_id IS NOT NULL))
);

CREATE TABLE intellectual_objects (
	id                          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	institution_id              bigint      NOT NULL REFERENCES institutions,
	identifier                  text        NOT NULL UNIQUE, -- <institution identifier>/<bag name>
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
	etag                        text        NOT NULL, -- of the tar that was ingested last
	storage_option              text        NOT NULL DEFAULT 'Standard'
		CHECK (storage_option IN ('Standard', 'Wasabi-VA', 'Wasabi-OR', 'Wasabi-TX', 'Glacier-VA', 'Glacier-OH', 'Glacier-OR',
			'Glacier-Deep-VA', 'Glacier-Deep-OH', 'Glacier-Deep-OR')),
	state                       text        NOT NULL DEFAULT 'A' CHECK (state IN ('A', 'D')),
	created_at                  timestamptz NOT NULL DEFAULT now(),
	updated_at                  timestamptz NOT NULL DEFAULT now(),
	UNIQUE (id, storage_option), -- what lets a file be tied to its object's option
	UNIQUE (id, institution_id)
);

CREATE INDEX intellectual_objects_institution ON intellectual_objects (institution_id);

CREATE TABLE generic_files (
	id                     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	institution_id         bigint      NOT NULL,
	intellectual_object_id bigint      NOT NULL,
	identifier             text        NOT NULL UNIQUE, -- <object identifier>/<path in bag>
	uuid                   uuid        NOT NULL UNIQUE, -- the file's for life
	file_format            text        NOT NULL CHECK (file_format <> ''), -- MIME type
	format_puid            text        NOT NULL DEFAULT '', -- PRONOM identifier, such as fmt/43
	format_identified_by   text        NOT NULL DEFAULT '',
	size                   bigint      NOT NULL CHECK (size >= 0),
	state                  text        NOT NULL DEFAULT 'A' CHECK (state IN ('A', 'D')),
	storage_option         text        NOT NULL,
	mod_time               timestamptz, -- as the tar had it
	last_fixity_check      timestamptz NOT NULL,
	created_at             timestamptz NOT NULL DEFAULT now(),
	updated_at             timestamptz NOT NULL DEFAULT now(),
	-- A file is stored as its object is, and belongs to the same institution.
	FOREIGN KEY (intellectual_object_id, storage_option) REFERENCES intellectual_objects (id, storage_option),
	FOREIGN KEY (intellectual_object_id, institution_id) REFERENCES intellectual_objects (id, institution_id)
);

CREATE INDEX generic_files_object ON generic_files (intellectual_object_id);
CREATE INDEX generic_files_fixity ON generic_files (last_fixity_check) WHERE state = 'A';

CREATE TABLE checksums (
	id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	generic_file_id bigint      NOT NULL REFERENCES generic_files,
	algorithm       text        NOT NULL CHECK (algorithm IN ('md5', 'sha1', 'sha256', 'sha512')),
	digest          text        NOT NULL,
	datetime        timestamptz NOT NULL, -- the newest of an algorithm is the current one
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
	target          text        NOT NULL CHECK (target <> ''), -- name of the storage target, such as Standard-VA
	bucket          text        NOT NULL CHECK (bucket <> ''),
	key             text        NOT NULL CHECK (key <> ''),
	etag            text        NOT NULL DEFAULT '',
	stored_at       timestamptz NOT NULL,
	verified_at     timestamptz NOT NULL, -- nothing is recorded that was not verified
	created_at      timestamptz NOT NULL DEFAULT now(),
	updated_at      timestamptz NOT NULL DEFAULT now(),
	UNIQUE (generic_file_id, url)
);

CREATE INDEX storage_records_key ON storage_records (key); -- whether any record still names a key

CREATE TABLE premis_events (
	id                     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	identifier             uuid        NOT NULL UNIQUE, -- derived from what happened, so that recording twice is recording once
	institution_id         bigint      NOT NULL,
	intellectual_object_id bigint      NOT NULL,
	generic_file_id        bigint      REFERENCES generic_files, -- NULL: the event is the object's
	event_type             text        NOT NULL
		CHECK (event_type IN ('access assignment', 'capture', 'compression', 'creation', 'deaccession', 'decompression', 'decryption',
			'deletion', 'message digest calculation', 'fixity check', 'identifier assignment', 'ingestion', 'migration',
			'normalization', 'replication', 'digital signature validation', 'validation', 'virus check')),
	date_time              timestamptz NOT NULL,
	detail                 text        NOT NULL CHECK (detail <> ''),
	outcome                text        NOT NULL CHECK (outcome IN ('Success', 'Failure')),
	outcome_detail         text        NOT NULL,
	outcome_information    text        NOT NULL,
	object                 text        NOT NULL,
	agent                  text        NOT NULL,
	created_at             timestamptz NOT NULL DEFAULT now(),
	updated_at             timestamptz NOT NULL DEFAULT now(),
	FOREIGN KEY (intellectual_object_id, institution_id) REFERENCES intellectual_objects (id, institution_id)
);

CREATE INDEX premis_events_file ON premis_events (generic_file_id) WHERE generic_file_id IS NOT NULL;
CREATE INDEX premis_events_object ON premis_events (intellectual_object_id) WHERE generic_file_id IS NULL;

-- event_identifier derives an event's UUID (version 8, RFC 9562) from the item
-- that it belongs to and what it says.
-- +goose StatementBegin
CREATE FUNCTION event_identifier(item bigint, about text, event_type text, outcome_detail text) RETURNS uuid
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN overlay(overlay(
	md5(item::text || E'\x1f' || about || E'\x1f' || event_type || E'\x1f' || outcome_detail) PLACING '8' FROM 13) PLACING '8' FROM 17)::uuid;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION event_identifier(bigint, text, text, text);
DROP TABLE premis_events, storage_records, checksums, generic_files, intellectual_objects, institutions;
