-- The records: who deposits, what is kept, where its copies are, and what happened to
-- it. The database's clock sets every timestamp.

-- +goose Up

CREATE TABLE institutions (
	id                     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name                   text        NOT NULL CHECK (length(name) BETWEEN 2 AND 200),
	identifier             text        NOT NULL UNIQUE
		CHECK (identifier ~ '^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$' AND length(identifier) <= 253),
	type                   text        NOT NULL DEFAULT 'MemberInstitution'
		CHECK (type IN ('MemberInstitution', 'SubscriptionInstitution')),
	member_institution_id  bigint      REFERENCES institutions,
	receiving_bucket       text        NOT NULL UNIQUE CHECK (receiving_bucket <> ''),
	restore_bucket         text        NOT NULL UNIQUE CHECK (restore_bucket <> ''),
	state                  text        NOT NULL DEFAULT 'A' CHECK (state IN ('A', 'D')),
	deactivated_at         timestamptz,
	created_at             timestamptz NOT NULL DEFAULT now(),
	updated_at             timestamptz NOT NULL DEFAULT now(),
	spot_restore_days      integer     NOT NULL DEFAULT 0 CHECK (spot_restore_days BETWEEN 0 AND 3650),
	second_factor_required boolean     NOT NULL DEFAULT false,
	version                bigint      NOT NULL DEFAULT 1,
	deletion_wait          interval -- NULL: that of request_settings
		CONSTRAINT institutions_deletion_wait CHECK (deletion_wait BETWEEN '0' AND '90 days'),
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
-- Each file and event that is recorded has the key of its object and institution checked.
-- An index on the institution alone was chosen for that while statistics said that there
-- were hardly any objects, and each check walked all objects of the institution.
CREATE INDEX intellectual_objects_of_institution ON intellectual_objects (institution_id, id);
-- Spot restorations draw from these, by a number in the range of an institution's.
CREATE INDEX intellectual_objects_drawn ON intellectual_objects (institution_id, id) WHERE state = 'A';
CREATE INDEX intellectual_objects_updated ON intellectual_objects (institution_id, updated_at DESC, id DESC);
-- In the order of bytes, so that what begins with a prefix is a range.
CREATE INDEX intellectual_objects_bytes ON intellectual_objects (identifier COLLATE "C");
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

-- One row has the four digests of a content; the view checksums shows them one by one. A
-- digest has the id of its row, and 0 to 3 more by its algorithm.
CREATE SEQUENCE checksums_id_seq INCREMENT 4;
CREATE TABLE file_digests (
	id              bigint      NOT NULL DEFAULT nextval('checksums_id_seq'),
	generic_file_id bigint      NOT NULL,
	datetime        timestamptz NOT NULL,
	created_at      timestamptz NOT NULL DEFAULT now(),
	updated_at      timestamptz,
	md5             bytea       CHECK (length(md5) = 16),
	sha1            bytea       CHECK (length(sha1) = 20),
	sha256          bytea       CHECK (length(sha256) = 32),
	sha512          bytea       CHECK (length(sha512) = 64)
);
ALTER SEQUENCE checksums_id_seq OWNED BY file_digests.id;
CREATE INDEX file_digests_file ON file_digests (generic_file_id);
-- Do we hold these bytes? Eight bytes of a digest are as good as all, and the ID of the file
-- is the order in which files with the same content are listed.
CREATE INDEX file_digests_md5 ON file_digests (substr(md5, 1, 8), generic_file_id);
CREATE INDEX file_digests_sha256 ON file_digests (substr(sha256, 1, 8), generic_file_id);

CREATE TABLE storage_records (
	id              bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	generic_file_id bigint      NOT NULL, -- no foreign key, as in event_records
	url             text        NOT NULL CHECK (url ~ '^https?://'),
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
	fixity_from     timestamptz GENERATED ALWAYS AS (coalesce(least(last_fixity_at, fixity_since), verified_at)) STORED
);
-- A URL has some hundred bytes, its digest 16.
CREATE UNIQUE INDEX storage_records_generic_file_id_url_key ON storage_records (generic_file_id, (md5(url)::uuid));
-- Read together with the listing of a bucket; also says whether any record names a key.
CREATE INDEX storage_records_copy ON storage_records (target, key);
-- What is due in a target, the most overdue first, and how many copies were never read.
CREATE INDEX storage_records_fixity ON storage_records (target, fixity_from, id) INCLUDE (last_fixity_at) WHERE active;

-- Events and digests need a third of the space of a row each. An event's sentences are in a
-- dictionary, and one row has all events that an ingest records of a file: the numbers of
-- their sentences, their times, and the facts that the sentences leave places for. The view
-- premis_events shows the events one by one.
-- event_number() finds or adds rows, so that each has a number for good. Failures and
-- deletions are few among the events: their texts have negative numbers, by which an index
-- knows the records that have one.
CREATE TABLE event_texts (
	id                  integer  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	digest              bytea    NOT NULL UNIQUE,
	at                  smallint NOT NULL CHECK (at >= 0),
	about               text     NOT NULL,
	event_type          text     NOT NULL,
	detail              text     NOT NULL CHECK (detail <> ''),
	outcome             text     NOT NULL,
	outcome_detail      text     NOT NULL,
	outcome_information text     NOT NULL,
	object              text     NOT NULL,
	agent               text     NOT NULL,
	event_type_uri      text     GENERATED ALWAYS AS (event_type_uri(event_type)) STORED,
	CONSTRAINT premis_events_outcome_check CHECK (outcome IN ('Success', 'Failure')),
	CONSTRAINT premis_events_event_type_check CHECK (event_type_uri(event_type) IS NOT NULL)
);

CREATE SEQUENCE premis_events_id_seq INCREMENT 64;
-- No foreign keys: a look-up for each row was a third of a recording. Instead each statement
-- looks once whether all files are there (files_are_there), and a file with records cannot be
-- deleted (file_has_records).
CREATE TABLE event_records (
	id                     bigint        NOT NULL DEFAULT nextval('premis_events_id_seq'),
	generic_file_id        bigint,
	intellectual_object_id bigint        NOT NULL,
	institution_id         bigint        NOT NULL,
	item                   bigint,
	key                    uuid          NOT NULL,
	created_at             timestamptz   NOT NULL DEFAULT now(),
	updated_at             timestamptz,
	file_uuid              uuid,
	file_identifier        text,
	texts                  integer[]     NOT NULL CHECK (cardinality(texts) BETWEEN 1 AND 64),
	times                  timestamptz[] NOT NULL,
	facts                  bytea[]       NOT NULL,
	UNIQUE NULLS NOT DISTINCT (generic_file_id, key)
) PARTITION BY HASH (generic_file_id);
ALTER SEQUENCE premis_events_id_seq OWNED BY event_records.id;
CREATE INDEX event_records_object ON event_records (intellectual_object_id) WHERE generic_file_id IS NULL;

-- +goose StatementBegin
DO $$
BEGIN
	FOR n IN 0..15 LOOP
		EXECUTE format('CREATE TABLE event_records_%s PARTITION OF event_records FOR VALUES WITH (MODULUS 16, REMAINDER %s)', n, n);
		EXECUTE format('CREATE INDEX event_records_%s_recorded ON event_records_%s (institution_id, created_at, id)', n, n);
		EXECUTE format('CREATE INDEX event_records_%s_notable ON event_records_%s (institution_id, created_at, id) WHERE 0 > ANY (texts)', n, n);
	END LOOP;
END
$$;
-- +goose StatementEnd
-- Each takes in those of the partitions.
CREATE INDEX event_records_recorded ON event_records (institution_id, created_at, id);
CREATE INDEX event_records_notable ON event_records (institution_id, created_at, id) WHERE 0 > ANY (texts);

-- What an object has is counted as its files are recorded and deleted: a list of objects
-- whose files it counts by itself takes minutes where an object has a million.
CREATE TABLE object_holdings (
	intellectual_object_id bigint PRIMARY KEY REFERENCES intellectual_objects,
	files                  bigint NOT NULL CHECK (files >= 0),
	bytes                  bigint NOT NULL CHECK (bytes >= 0),
	payload_files          bigint NOT NULL DEFAULT 0,
	payload_bytes          bigint NOT NULL DEFAULT 0,
	CONSTRAINT payload_is_a_part CHECK (payload_files BETWEEN 0 AND files AND payload_bytes BETWEEN 0 AND bytes)
);
