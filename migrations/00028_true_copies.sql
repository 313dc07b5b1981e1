-- What is on record of a copy is what was seen of it: when its bytes were
-- read, how it was verified, what replaced it, and what became of it.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- A copy that nobody has read has no last check. Until now it had that of the bag's
-- digests, which are older than the copy. What is due stays due: fixity_since keeps
-- the time from which its days were counted.
DROP INDEX storage_records_fixity;
ALTER TABLE storage_records
	ALTER COLUMN last_fixity_at DROP NOT NULL,
	ALTER COLUMN last_fixity_at DROP DEFAULT,
	ADD COLUMN fixity_since timestamptz, -- the days until its next check count from here, if that is before its last one; NULL: nobody has said so
	ADD COLUMN verified_by  text NOT NULL DEFAULT '' CHECK (verified_by IN ('', 'sha256', 'etag', 'read')); -- the provider's checksum, its ETag, or its bytes; '' was not kept
UPDATE storage_records SET fixity_since = last_fixity_at, last_fixity_at = NULL WHERE last_fixity_at <= stored_at;
ALTER TABLE storage_records
	ADD COLUMN fixity_from timestamptz GENERATED ALWAYS AS (coalesce(least(last_fixity_at, fixity_since), verified_at)) STORED;
-- What is due in a target, the most overdue first, and how many copies were never read.
CREATE INDEX storage_records_fixity ON storage_records (target, fixity_from, id) INCLUDE (last_fixity_at) WHERE active;

-- As in 00018, but a copy's own last check stays what it is.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION file_changes_its_fixity() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	UPDATE storage_records s SET
		active       = NEW.state = 'A' AND NEW.deleted_by_item IS NULL AND o.deleted_by_item IS NULL,
		fixity_since = CASE WHEN NEW.last_fixity_check < OLD.last_fixity_check
			THEN least(s.fixity_since, NEW.last_fixity_check) ELSE s.fixity_since END
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
-- +goose StatementEnd

-- A bad copy that was replaced by the bytes of another deposit, or deleted with its
-- file, is bad no longer.
ALTER TABLE fixity_failures
	DROP CONSTRAINT fixity_failures_state_check,
	ADD CONSTRAINT fixity_failures_state_check CHECK (state IN ('open', 'repaired', 'good again', 'replaced', 'deleted'));
UPDATE fixity_failures b SET closed_at = now(), state = CASE f.state WHEN 'A' THEN 'replaced' ELSE 'deleted' END
FROM generic_files f WHERE f.id = b.generic_file_id AND b.state = 'open' AND b.storage_record_id IS NULL;

-- What the event of a replaced copy's deletion says. Rows of before have none.
ALTER TABLE retired_copies
	ADD COLUMN generic_file_id bigint,                   -- no foreign key: it goes with the row
	ADD COLUMN url             text NOT NULL DEFAULT '',
	ADD COLUMN digest          text NOT NULL DEFAULT '', -- algorithm:digest that was on record
	ADD COLUMN problem         text NOT NULL DEFAULT ''; -- altered or missing, if that was known

-- A deletion looks for all copies before the first goes. One that is not there, although
-- nobody here has deleted it, was lost: a person has to know before the rest goes.
ALTER TABLE deletion_receipts
	ALTER COLUMN removed_at DROP NOT NULL, -- NULL: its bytes stay, it was found missing, or it has still to go
	ALTER COLUMN removed_at DROP DEFAULT,
	ADD COLUMN seen_at       timestamptz,                    -- when it was looked for
	ADD COLUMN found_missing boolean NOT NULL DEFAULT false, -- and was not there
	ADD COLUMN accepted_by   text    NOT NULL DEFAULT '';    -- who lets the deletion go on without it
UPDATE deletion_receipts SET removed_at = NULL WHERE kept <> '';
INSERT INTO administration_rights (privilege, on_table) VALUES ('UPDATE (accepted_by)', 'deletion_receipts');
SELECT grant_to_administrators();

-- The outcome of an item that was given up or called off is that, and not what it was
-- when the item came into the queue.
-- +goose StatementBegin
CREATE FUNCTION outcome_of_the_end() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	NEW.outcome := NEW.action || CASE NEW.status WHEN 'Cancelled' THEN ' was cancelled' ELSE ' was suspended: a person has to decide' END;
	RETURN NEW;
END
$$;
-- +goose StatementEnd
CREATE TRIGGER work_items_outcome BEFORE UPDATE ON work_items -- the last by its name: others complete what is typed by hand
	FOR EACH ROW WHEN (NEW.status IN ('Cancelled', 'Suspended') AND OLD.status <> NEW.status AND NEW.outcome = OLD.outcome)
	EXECUTE FUNCTION outcome_of_the_end();
ALTER TABLE work_items DISABLE TRIGGER USER;
UPDATE work_items SET outcome = action || CASE status WHEN 'Cancelled' THEN ' was cancelled' ELSE ' was suspended: a person has to decide' END
WHERE status IN ('Cancelled', 'Suspended') AND outcome LIKE 'Item is pending%';
ALTER TABLE work_items ENABLE TRIGGER USER;
UPDATE work_items_archive SET outcome = action || ' was cancelled' WHERE status = 'Cancelled' AND outcome LIKE 'Item is pending%';

-- +goose Down
DROP TRIGGER work_items_outcome ON work_items;
DROP FUNCTION outcome_of_the_end();
DELETE FROM administration_rights WHERE (privilege, on_table) = ('UPDATE (accepted_by)', 'deletion_receipts');
DELETE FROM deletion_receipts WHERE removed_at IS NULL AND kept = '' AND absent_at IS NULL;
UPDATE deletion_receipts SET removed_at = coalesce(absent_at, seen_at, now()) WHERE removed_at IS NULL;
ALTER TABLE deletion_receipts
	ALTER COLUMN removed_at SET NOT NULL,
	ALTER COLUMN removed_at SET DEFAULT now(),
	DROP COLUMN seen_at,
	DROP COLUMN found_missing,
	DROP COLUMN accepted_by;
ALTER TABLE retired_copies DROP COLUMN generic_file_id, DROP COLUMN url, DROP COLUMN digest, DROP COLUMN problem;
UPDATE fixity_failures SET state = 'good again' WHERE state IN ('replaced', 'deleted');
ALTER TABLE fixity_failures
	DROP CONSTRAINT fixity_failures_state_check,
	ADD CONSTRAINT fixity_failures_state_check CHECK (state IN ('open', 'repaired', 'good again'));
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION file_changes_its_fixity() RETURNS trigger
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
-- +goose StatementEnd
DROP INDEX storage_records_fixity;
ALTER TABLE storage_records DROP COLUMN fixity_from;
UPDATE storage_records SET last_fixity_at = coalesce(last_fixity_at, fixity_since, verified_at);
ALTER TABLE storage_records
	ALTER COLUMN last_fixity_at SET NOT NULL,
	ALTER COLUMN last_fixity_at SET DEFAULT now(),
	DROP COLUMN fixity_since,
	DROP COLUMN verified_by;
CREATE INDEX storage_records_fixity ON storage_records (target, last_fixity_at, id) WHERE active;
