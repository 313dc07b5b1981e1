-- What shows that the database was restored from a backup, and what is found in the buckets then.

-- +goose Up

-- The database, by its cluster and the timeline there. A restored one differs.
CREATE TABLE registry_origin (
	only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
	origin   text    NOT NULL
);

-- A restoration of the registry, until a person has brought the registry up to date.
CREATE TABLE registry_restores (
	id                bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	noted_at          timestamptz NOT NULL DEFAULT now(),
	was               text        NOT NULL,
	origin            text        NOT NULL,
	last_change       timestamptz,
	deletions_stopped bigint      NOT NULL DEFAULT 0,
	pause             bigint,
	reconciled_at     timestamptz,
	reconciled_by     text,
	CHECK ((reconciled_at IS NULL) = (reconciled_by IS NULL))
);

-- Copies that no record names, and that the next ingest of their bag takes over in place of
-- storing the same bytes once more.
CREATE TABLE found_copies (
	object_identifier text        NOT NULL,
	path              text        NOT NULL,
	key               text        NOT NULL,
	sha256            text        NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
	found_at          timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (object_identifier, path)
);
CREATE INDEX found_copies_key ON found_copies (key);

INSERT INTO administration_rights (privilege, on_table) SELECT 'SELECT', unnest('{registry_restores, found_copies}'::text[]);
INSERT INTO auditor_rights (on_table) SELECT unnest('{registry_restores, found_copies}'::text[]);
