-- Fixity: when each copy was read last, what promises there are of how often, the
-- checks in hand, and the copies that are bad. There are no work items for it; the
-- checks are claimed from the copies themselves, the most overdue first.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

ALTER TABLE storage_records
	ADD COLUMN last_fixity_at timestamptz NOT NULL DEFAULT now(), -- its bytes were compared with their digest, well or not
	ADD COLUMN active         boolean     NOT NULL DEFAULT true;  -- its file is neither deleted nor being deleted
UPDATE storage_records s SET
	last_fixity_at = f.last_fixity_check,
	active         = f.state = 'A' AND f.deleted_by_item IS NULL AND o.deleted_by_item IS NULL
FROM generic_files f JOIN intellectual_objects o ON o.id = f.intellectual_object_id
WHERE f.id = s.generic_file_id;
DROP INDEX generic_files_fixity;
-- What is due in a target, the most overdue first, however long it has been. Counts
-- of it need no table.
CREATE INDEX storage_records_fixity ON storage_records (target, last_fixity_at, id) WHERE active;

-- How often the copies in a target are to be checked, and how. A change counts at
-- once, for all its copies.
CREATE TABLE fixity_policies (
	target        text        PRIMARY KEY,
	provider      text        NOT NULL CHECK (provider <> ''), -- who keeps it: what fails together
	mode          text        NOT NULL CHECK (mode IN ('read', 'report', 'off')), -- by reading; by reports of the provider alone; not at all
	interval_days integer     CHECK (interval_days BETWEEN 1 AND 3650), -- NULL: as is configured, MAX_DAYS_SINCE_LAST_FIXITY
	failures      integer     NOT NULL DEFAULT 0 CHECK (failures >= 0), -- in a row, which no copy is to blame for
	paused_until  timestamptz NOT NULL DEFAULT '-infinity', -- nothing is read there before, since the provider does not answer
	pause_reason  text        NOT NULL DEFAULT ''
);
INSERT INTO fixity_policies (target, provider, mode) VALUES
	('Standard-VA', 'AWS', 'read'), ('Wasabi-VA', 'Wasabi-VA', 'read'), ('Wasabi-OR', 'Wasabi-OR', 'read'), ('Wasabi-TX', 'Wasabi-TX', 'read'),
	-- What is archived cannot be read without a restoration that costs money.
	('Standard-OR', 'AWS', 'off'), ('Glacier-VA', 'AWS', 'off'), ('Glacier-OH', 'AWS', 'off'), ('Glacier-OR', 'AWS', 'off'),
	('Glacier-Deep-VA', 'AWS', 'off'), ('Glacier-Deep-OH', 'AWS', 'off'), ('Glacier-Deep-OR', 'AWS', 'off');
COMMENT ON TABLE fixity_policies IS 'How often the copies in each storage target are checked, and how.';

-- Checks that somebody has in hand, that failed for a reason which may pass, or that
-- a person asked for. Of other copies there is no row.
CREATE SEQUENCE fixity_tokens;
CREATE TABLE fixity_checks (
	storage_record_id bigint      PRIMARY KEY REFERENCES storage_records ON DELETE CASCADE,
	target            text        NOT NULL, -- of that record
	requested         boolean     NOT NULL DEFAULT false, -- by a person: it goes before all others
	token             bigint,     -- of its last claim; NULL: it has had none
	worker            text        NOT NULL DEFAULT '', -- who has it; '': nobody
	run_at            timestamptz NOT NULL DEFAULT now(), -- can be claimed from then on: the end of a lease, or of a backoff
	attempts          integer     NOT NULL DEFAULT 0 CHECK (attempts >= 0), -- that failed for a reason which may pass
	error             text        NOT NULL DEFAULT '', -- of the last of them
	created_at        timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX fixity_checks_waiting ON fixity_checks (target, requested DESC, run_at); -- not by the copy: that is the primary key's to find
COMMENT ON TABLE fixity_checks IS 'Fixity checks in hand, asked for, or waiting for another try.';

-- How many more copies may be taken up until the scheduler says again.
CREATE TABLE fixity_feed (
	only_one   boolean     PRIMARY KEY DEFAULT true CHECK (only_one),
	allowance  bigint      NOT NULL DEFAULT 0 CHECK (allowance >= 0),
	fed        bigint      NOT NULL DEFAULT 0, -- what the scheduler has given last
	every      interval    NOT NULL DEFAULT '0', -- time between two times
	fed_at     timestamptz,
	drained_at timestamptz -- when a claim last found less than it could have taken
);
INSERT INTO fixity_feed DEFAULT VALUES;

-- What was done, by minutes, for a few days.
CREATE TABLE fixity_done (
	target   text        NOT NULL,
	minute   timestamptz NOT NULL,
	checks   bigint      NOT NULL DEFAULT 0, -- copies that were read whole and judged, or seen to be missing
	failures bigint      NOT NULL DEFAULT 0, -- of these, copies that are bad
	wavered  bigint      NOT NULL DEFAULT 0, -- copies that were read twice with two results
	bytes    bigint      NOT NULL DEFAULT 0,
	PRIMARY KEY (target, minute)
);

-- Copies that were found to be bad. The row stays when the copy is good again.
CREATE TABLE fixity_failures (
	id                bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	storage_record_id bigint      REFERENCES storage_records ON DELETE SET NULL, -- NULL: it was replaced, or its file deleted
	generic_file_id   bigint      NOT NULL REFERENCES generic_files,
	target            text        NOT NULL,
	provider          text        NOT NULL,
	url               text        NOT NULL,
	problem           text        NOT NULL CHECK (problem IN ('altered', 'missing')),
	algorithm         text        NOT NULL,
	expected          text        NOT NULL,
	found             text        NOT NULL DEFAULT '', -- digest; '': there was nothing
	found_at          timestamptz NOT NULL, -- for the first time
	seen_at           timestamptz NOT NULL, -- for the last time
	noted_at          timestamptz NOT NULL DEFAULT now(), -- when we heard of that; a report may be older
	state             text        NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'repaired', 'good again')),
	closed_at         timestamptz,
	quarantined_as    text        NOT NULL DEFAULT '', -- where the bad bytes are kept; noted before they are replaced
	repaired_from     text        NOT NULL DEFAULT '', -- URL of the good copy; likewise
	CHECK ((state = 'open') = (closed_at IS NULL))
);
CREATE UNIQUE INDEX fixity_failures_open ON fixity_failures (storage_record_id) WHERE state = 'open';
CREATE INDEX fixity_failures_copy ON fixity_failures (storage_record_id);
CREATE INDEX fixity_failures_recent ON fixity_failures (provider, noted_at);
COMMENT ON TABLE fixity_failures IS 'Copies that failed a fixity check, and what became of them.';

CREATE VIEW bad_copies AS
SELECT b.id AS failure, f.identifier AS file, i.identifier AS institution, b.target, b.provider, b.url, b.problem, b.algorithm, b.expected, b.found,
	b.found_at, b.seen_at, b.noted_at, b.quarantined_as, b.storage_record_id, b.generic_file_id
FROM fixity_failures b
JOIN storage_records s ON s.id = b.storage_record_id AND s.active
JOIN generic_files f ON f.id = b.generic_file_id
JOIN institutions i ON i.id = f.institution_id
WHERE b.state = 'open';
COMMENT ON VIEW bad_copies IS 'The copies that are bad now.';

-- A provider of which so many copies fail at once that it is no bit rot. Nothing is
-- repaired there until a person says so.
CREATE TABLE repair_brakes (
	id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	provider    text        NOT NULL,
	reason      text        NOT NULL,
	pulled_at   timestamptz NOT NULL DEFAULT now(),
	released_by bigint      REFERENCES users,
	released_at timestamptz,
	CHECK ((released_by IS NULL) = (released_at IS NULL))
);
CREATE UNIQUE INDEX repair_brakes_pulled ON repair_brakes (provider) WHERE released_at IS NULL;
CREATE INDEX repair_brakes_released ON repair_brakes (provider, released_at);
COMMENT ON TABLE repair_brakes IS 'Providers at which repair has stopped by itself, why, and who let it go on.';

-- Whoever sets a file's last check back makes its copies due, at once. And what is
-- deleted, or being deleted, is not checked: its copies are to be missing.
-- +goose StatementBegin
CREATE FUNCTION file_changes_its_fixity() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	UPDATE storage_records s SET
		active         = NEW.state = 'A' AND NEW.deleted_by_item IS NULL AND o.deleted_by_item IS NULL,
		last_fixity_at = CASE WHEN NEW.last_fixity_check < OLD.last_fixity_check
			THEN least(s.last_fixity_at, NEW.last_fixity_check) ELSE s.last_fixity_at END
	FROM intellectual_objects o
	WHERE s.generic_file_id = NEW.id AND o.id = NEW.intellectual_object_id;
	IF NEW.last_fixity_check < OLD.last_fixity_check THEN
		UPDATE fixity_checks c SET run_at = now()
		FROM storage_records s
		WHERE s.generic_file_id = NEW.id AND c.storage_record_id = s.id AND c.worker = '' AND c.run_at > now();
	END IF;
	RETURN NULL;
END
$$;
CREATE FUNCTION object_changes_its_fixity() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	UPDATE storage_records s SET active = f.state = 'A' AND f.deleted_by_item IS NULL AND NEW.deleted_by_item IS NULL
	FROM generic_files f
	WHERE f.intellectual_object_id = NEW.id AND s.generic_file_id = f.id;
	RETURN NULL;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER file_changes_its_fixity AFTER UPDATE OF state, deleted_by_item, last_fixity_check ON generic_files
	FOR EACH ROW WHEN (NEW.state <> OLD.state OR (NEW.deleted_by_item IS NULL) <> (OLD.deleted_by_item IS NULL)
		OR NEW.last_fixity_check < OLD.last_fixity_check)
	EXECUTE FUNCTION file_changes_its_fixity();
CREATE TRIGGER object_changes_its_fixity AFTER UPDATE OF deleted_by_item ON intellectual_objects
	FOR EACH ROW WHEN ((NEW.deleted_by_item IS NULL) <> (OLD.deleted_by_item IS NULL))
	EXECUTE FUNCTION object_changes_its_fixity();

INSERT INTO administration_rights (privilege, on_table) VALUES
	('SELECT', 'fixity_policies'), ('UPDATE (mode, interval_days, paused_until)', 'fixity_policies'),
	('SELECT', 'fixity_checks'), ('SELECT', 'fixity_feed'), ('SELECT', 'fixity_done'), ('SELECT', 'fixity_failures'),
	('SELECT', 'bad_copies'), ('SELECT', 'repair_brakes');
SELECT grant_to_administrators();

-- +goose Down
DELETE FROM administration_rights WHERE on_table IN
	('fixity_policies', 'fixity_checks', 'fixity_feed', 'fixity_done', 'fixity_failures', 'bad_copies', 'repair_brakes');
DROP TRIGGER object_changes_its_fixity ON intellectual_objects;
DROP TRIGGER file_changes_its_fixity ON generic_files;
DROP FUNCTION object_changes_its_fixity();
DROP FUNCTION file_changes_its_fixity();
DROP VIEW bad_copies;
DROP TABLE repair_brakes, fixity_failures, fixity_done, fixity_feed, fixity_checks, fixity_policies;
DROP SEQUENCE fixity_tokens;
DROP INDEX storage_records_fixity;
ALTER TABLE storage_records DROP COLUMN active, DROP COLUMN last_fixity_at;
CREATE INDEX generic_files_fixity ON generic_files (last_fixity_check) WHERE state = 'A';
