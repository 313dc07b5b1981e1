-- What the janitor and the doctor go by: which copies belong to nobody, who cleans
-- up at present, and what was removed.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- S3 lists keys in the order of their bytes. In the same order, by target, the
-- records can be walked beside a bucket, however many there are.
DROP INDEX storage_records_key;
ALTER TABLE storage_records ALTER COLUMN key TYPE text COLLATE "C";
CREATE INDEX storage_records_copy ON storage_records (target, key); -- also: whether any record still names a key

-- Copies that an item may have made and that never came on record. Each file of a
-- bag has a uuid of its item's own, which is the key of its copies and of nothing
-- else; they are noted before what tells of them is deleted from staging. A row
-- goes when the item has ended for good and its copies are deleted.
CREATE TABLE unrecorded_copies (
	work_item_id bigint      PRIMARY KEY, -- no foreign key, as the item may be archived
	targets      text[]      NOT NULL,
	uuids        uuid[]      NOT NULL,
	noted_at     timestamptz NOT NULL DEFAULT now()
);

-- Who cleans up. A lease in a row, and no lock of a session, since a round takes
-- longer than a transaction should, and a pooler gives no session.
CREATE TABLE janitor (
	only_one   boolean     PRIMARY KEY DEFAULT true CHECK (only_one),
	holder     text        NOT NULL DEFAULT '',
	held_until timestamptz NOT NULL DEFAULT '-infinity',
	began_at   timestamptz, -- the last round
	ended_at   timestamptz, -- the last round that came to its end
	error      text        NOT NULL DEFAULT '' -- what it could not do
);
INSERT INTO janitor DEFAULT VALUES;

-- What the janitor removed: bags and copies by their names, the rest by number.
CREATE TABLE removals (
	id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	at           timestamptz NOT NULL DEFAULT clock_timestamp(),
	work_item_id bigint,     -- NULL: no item is known that it belonged to
	store        text        NOT NULL, -- staging, redis, receiving, or a storage target
	what         text        NOT NULL CHECK (what IN ('objects', 'uploads', 'keys', 'copies', 'bags')),
	why          text        NOT NULL,
	name         text        NOT NULL DEFAULT '', -- of a single one
	count        bigint      NOT NULL,
	bytes        bigint      NOT NULL
);
CREATE INDEX removals_item ON removals (work_item_id);
COMMENT ON TABLE removals IS 'What the janitor removed from staging, Redis, receiving and preservation buckets, when, and why.';

-- As in 00010, and these two tables.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION grant_administration(to_role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s', (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'work_items'::regclass), to_role);
	EXECUTE format('GRANT EXECUTE ON FUNCTION requeue, requeue_where, requeue_found, cancel, release, set_priority, pause_stage, resume_stage, pause_all,
		resume_all, drain_worker, why_not TO %s', to_role);
	EXECUTE format('GRANT SELECT ON queue_depth, running, needs_review, failed, outcomes, workers, attempts, all_work_items,
		work_items, work_item_attempts, work_item_audit, stage_settings, stage_settings_audit, institutions, worker_processes, plans, plan_items,
		removals, janitor TO %s', to_role);
	EXECUTE format('GRANT UPDATE (stage, status, priority, note, needs_admin_review) ON work_items TO %s', to_role);
	EXECUTE format('GRANT UPDATE (paused, pause_reason, max_attempts, backoff_first, backoff_most, cap, overdue, processing_timeout,
		heartbeat, lease, unrenewed_timeout, unrenewed_lease) ON stage_settings TO %s', to_role);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
BEGIN
	IF to_regrole('farol_admin') IS NOT NULL THEN
		PERFORM grant_administration('farol_admin');
	END IF;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION grant_administration(to_role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s', (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'work_items'::regclass), to_role);
	EXECUTE format('GRANT EXECUTE ON FUNCTION requeue, requeue_where, requeue_found, cancel, release, set_priority, pause_stage, resume_stage, pause_all,
		resume_all, drain_worker, why_not TO %s', to_role);
	EXECUTE format('GRANT SELECT ON queue_depth, running, needs_review, failed, outcomes, workers, attempts, all_work_items,
		work_items, work_item_attempts, work_item_audit, stage_settings, stage_settings_audit, institutions, worker_processes, plans, plan_items TO %s', to_role);
	EXECUTE format('GRANT UPDATE (stage, status, priority, note, needs_admin_review) ON work_items TO %s', to_role);
	EXECUTE format('GRANT UPDATE (paused, pause_reason, max_attempts, backoff_first, backoff_most, cap, overdue, processing_timeout,
		heartbeat, lease, unrenewed_timeout, unrenewed_lease) ON stage_settings TO %s', to_role);
END
$$;
-- +goose StatementEnd
DROP TABLE removals, janitor, unrecorded_copies;
DROP INDEX storage_records_copy;
ALTER TABLE storage_records ALTER COLUMN key TYPE text COLLATE "default";
CREATE INDEX storage_records_key ON storage_records (key);
