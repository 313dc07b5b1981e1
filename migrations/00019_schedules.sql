-- What is done again and again, by one process at a time: who does it now, when it
-- was done last and is due next, and what came of it. One of these jobs restores
-- objects drawn at random, to see that they can be.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- A run is a lease in a row, and no lock of a session, since it takes longer than a
-- transaction should, and a pooler gives no session. Its number is what it is known
-- by: whoever lost the lease names an older one, and is refused.
CREATE TABLE schedules (
	job         text        PRIMARY KEY CHECK (job ~ '^[a-z][a-z-]{0,62}$'),
	every       interval    NOT NULL CHECK (every > '0'), -- as who ran it last was told
	paused      boolean     NOT NULL DEFAULT false, -- it is begun by hand alone
	next_run_at moment      NOT NULL DEFAULT now(), -- it is due from then on
	holder      text        NOT NULL DEFAULT '', -- who runs it, or ran it last
	held_until  timestamptz NOT NULL DEFAULT '-infinity', -- then, nobody runs it
	began_at    moment, -- the last run
	ended_at    moment, -- the last run that came to its end
	result      text        NOT NULL DEFAULT '', -- of that one
	error       text        NOT NULL DEFAULT '', -- what that one could not do
	runs        bigint      NOT NULL DEFAULT 0, -- that were begun
	failures    bigint      NOT NULL DEFAULT 0  -- of these: could not do all, or never came to their end
);
COMMENT ON TABLE schedules IS 'The recurring jobs: when each ran last and is due next, who ran it, and what came of it.';
INSERT INTO schedules (job, every) VALUES
	('read-buckets', '1 minute'), ('fixity-feed', '30 minutes'), ('glacier-poll', '15 minutes'), ('janitor', '15 minutes'), ('spot-restore', '24 hours');
UPDATE schedules s SET
	holder = j.holder, held_until = j.held_until, began_at = j.began_at, ended_at = j.ended_at, error = j.error,
	next_run_at = coalesce(j.began_at + s.every, s.next_run_at), runs = CASE WHEN j.began_at IS NULL THEN 0 ELSE 1 END
FROM janitor j WHERE s.job = 'janitor';
DROP TABLE janitor;

-- An item that waits for its provider is looked at before its time, but not at
-- every poll: a look asks about each of its files.
ALTER TABLE retrievals ADD COLUMN woken_at timestamptz; -- last

-- wake_retrieval has an item of the queue that waits for a later time taken up now,
-- if nobody has had it since. It goes by the engine's way, with the token.
-- +goose StatementBegin
CREATE FUNCTION wake_retrieval(item bigint, token bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	UPDATE work_items SET claim_token = claim_token + 1, run_at = now(), updated_at = now()
	WHERE id = item AND claim_token = token AND status = 'Pending' AND waits_for IS NULL AND run_at > now();
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	UPDATE retrievals SET woken_at = now() WHERE work_item_id = item;
	PERFORM pg_notify('farol_work', E'\nRequested');
	RETURN true;
END
$$;
-- +goose StatementEnd

-- Restorations of objects that nobody asked for.
ALTER TABLE institutions
	ADD COLUMN spot_restore_days integer NOT NULL DEFAULT 0 CHECK (spot_restore_days BETWEEN 0 AND 3650); -- between two; 0: none
CREATE TABLE spot_restores (
	institution_id         bigint      NOT NULL REFERENCES institutions,
	work_item_id           bigint      PRIMARY KEY, -- no foreign key: the item may be archived
	intellectual_object_id bigint      NOT NULL REFERENCES intellectual_objects,
	requested_at           timestamptz NOT NULL DEFAULT now(),
	ended_at               timestamptz, -- NULL: the item is in the queue
	outcome                text CHECK (outcome IN ('restored', 'failed', 'cancelled')),
	CHECK ((ended_at IS NULL) = (outcome IS NULL))
);
CREATE INDEX spot_restores_institution ON spot_restores (institution_id, requested_at);
CREATE INDEX spot_restores_object ON spot_restores (intellectual_object_id, requested_at);
COMMENT ON TABLE spot_restores IS 'Objects that were drawn at random and restored, to see that they can be, and what came of it.';
-- What they are drawn from, by a number in the range of an institution's.
CREATE INDEX intellectual_objects_drawn ON intellectual_objects (institution_id, id) WHERE state = 'A';

-- spot_restore_ended reports what came of an item, if it is a spot restoration; if
-- it is none it says so. One that failed and was requeued is reported again.
-- +goose StatementBegin
CREATE FUNCTION spot_restore_ended(item work_items) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	days integer;
BEGIN
	UPDATE spot_restores SET ended_at = now(), outcome = CASE item.status WHEN 'Success' THEN 'restored' WHEN 'Cancelled' THEN 'cancelled' ELSE 'failed' END
	WHERE work_item_id = item.id;
	IF NOT FOUND THEN
		RETURN false;
	END IF;
	SELECT spot_restore_days INTO days FROM institutions WHERE id = item.institution_id;
	IF item.status = 'Success' THEN
		INSERT INTO alerts (institution_id, type, subject, content, work_item_id)
		VALUES (item.institution_id, 'Spot Restoration Completed', 'Spot restoration is completed: ' || item.object_identifier,
			format('An object of yours is drawn every %s days, restored and validated, to see that it can be. This time it was %s. %s',
				days, item.object_identifier, item.note), item.id);
	ELSIF item.status <> 'Cancelled' THEN -- the archive's own staff have to hear of it, too
		INSERT INTO alerts (institution_id, type, subject, content, work_item_id)
		SELECT i.id, 'Spot Restoration Failed', 'Spot restoration failed: ' || item.object_identifier,
			format('%s was drawn to see that it can be restored, and it could not: item %s is %s. %s', item.object_identifier, item.id, item.status, item.note),
			item.id
		FROM (VALUES (item.institution_id), (NULL)) i (id);
	END IF;
	RETURN true;
END
$$;
-- +goose StatementEnd

-- As in 00017, but that nobody has asked for a spot restoration.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION restoration_ended(w work_items) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF NOT spot_restore_ended(w) AND w.status = 'Success' THEN
		INSERT INTO alerts (institution_id, type, subject, content, work_item_id)
		VALUES (w.institution_id, 'Restoration Completed', w.action || ' is completed: ' || w.object_identifier, w.note, w.id);
	END IF;
END
$$;
-- +goose StatementEnd

-- As in 00014, without the janitor's table.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION grant_queue(to_role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	EXECUTE format('GRANT USAGE ON SCHEMA %I TO %s', (SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'work_items'::regclass), to_role);
	EXECUTE format('GRANT EXECUTE ON FUNCTION requeue, requeue_where, requeue_found, cancel, release, set_priority, pause_stage, resume_stage, pause_all,
		resume_all, drain_worker, why_not TO %s', to_role);
	EXECUTE format('GRANT SELECT ON queue_depth, running, needs_review, failed, outcomes, workers, attempts, all_work_items,
		work_items, work_item_attempts, work_item_audit, stage_settings, stage_settings_audit, institutions, worker_processes, plans, plan_items,
		removals TO %s', to_role);
	EXECUTE format('GRANT UPDATE (stage, status, priority, note, needs_admin_review) ON work_items TO %s', to_role);
	EXECUTE format('GRANT UPDATE (paused, pause_reason, max_attempts, backoff_first, backoff_most, cap, overdue, processing_timeout,
		heartbeat, lease, unrenewed_timeout, unrenewed_lease) ON stage_settings TO %s', to_role);
END
$$;
-- +goose StatementEnd
INSERT INTO administration_rights (privilege, on_table) VALUES
	('SELECT, UPDATE (paused, next_run_at)', 'schedules'), ('SELECT', 'spot_restores'), ('UPDATE (spot_restore_days)', 'institutions');
SELECT grant_to_administrators();
REVOKE EXECUTE ON FUNCTION wake_retrieval(bigint, bigint), spot_restore_ended(work_items) FROM PUBLIC;

-- +goose Down
DELETE FROM administration_rights WHERE on_table IN ('schedules', 'spot_restores', 'institutions');
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION restoration_ended(w work_items) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF w.status = 'Success' THEN
		INSERT INTO alerts (institution_id, type, subject, content, work_item_id)
		VALUES (w.institution_id, 'Restoration Completed', w.action || ' is completed: ' || w.object_identifier, w.note, w.id);
	END IF;
END
$$;
-- +goose StatementEnd
DROP FUNCTION spot_restore_ended(work_items);
DROP INDEX intellectual_objects_drawn;
DROP TABLE spot_restores;
ALTER TABLE institutions DROP COLUMN spot_restore_days;
DROP FUNCTION wake_retrieval(bigint, bigint);
ALTER TABLE retrievals DROP COLUMN woken_at;
CREATE TABLE janitor (
	only_one   boolean     PRIMARY KEY DEFAULT true CHECK (only_one),
	holder     text        NOT NULL DEFAULT '',
	held_until timestamptz NOT NULL DEFAULT '-infinity',
	began_at   timestamptz,
	ended_at   timestamptz,
	error      text        NOT NULL DEFAULT ''
);
INSERT INTO janitor (holder, held_until, began_at, ended_at, error)
SELECT holder, held_until, began_at, ended_at, error FROM schedules WHERE job = 'janitor';
DROP TABLE schedules;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION grant_queue(to_role regrole) RETURNS void
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
SELECT grant_to_administrators();
