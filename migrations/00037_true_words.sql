-- What is written about an item says what was done, and who did it.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

ALTER TABLE retrievals
	ADD COLUMN readable_until timestamptz, -- the first of its copies that lapses, as the provider says; set when all can be read
	ADD COLUMN next_item      bigint;      -- the item that gives them back; no foreign key: it may be archived
CREATE INDEX retrievals_next ON retrievals (next_item) WHERE next_item IS NOT NULL;

-- As in 00024, but that an archived copy moves nowhere: its provider makes a copy of
-- it that can be read for some days.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION request_ended(w work_items) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	follows bigint;
BEGIN
	IF w.action IN ('Restore Object', 'Restore File') THEN
		PERFORM restoration_ended(w);
	ELSIF w.action = 'Glacier Restore' AND w.status = 'Success' THEN
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, date_processed, priority, object_identifier,
			intellectual_object_id, generic_file_id, storage_option, "user", note, outcome)
		VALUES (w.institution_id, CASE WHEN w.generic_file_id IS NULL THEN 'Restore Object' ELSE 'Restore File' END, 'Requested',
			w.name, w.bucket, w.etag, w.size, w.bag_date, w.date_processed, w.priority, w.object_identifier,
			w.intellectual_object_id, w.generic_file_id, w.storage_option, w."user",
			format('Requested by %s. Item %s had the archived copies made readable.', w."user", w.id), 'Item is pending restoration')
		RETURNING id INTO follows;
		UPDATE retrievals SET next_item = follows WHERE work_item_id = w.id;
	ELSIF w.action = 'Delete' AND w.status = 'Success' THEN
		PERFORM FROM deletion_requests WHERE id = w.deletion_request_id FOR UPDATE; -- the last of several that end at once says so
		INSERT INTO alerts (institution_id, type, subject, content, deletion_request_id)
		SELECT d.institution_id, 'Deletion Completed', format('Deletion request %s is completed', d.id),
			format('All that the request names is deleted. It was requested by %s and approved by %s.', r.email, a.email), d.id
		FROM deletion_requests d JOIN users r ON r.id = d.requested_by JOIN users a ON a.id = d.approved_by
		WHERE d.id = w.deletion_request_id AND NOT EXISTS (
			SELECT FROM work_items o WHERE o.deletion_request_id = d.id AND o.status <> 'Success')
			AND NOT EXISTS (SELECT FROM alerts k WHERE k.deletion_request_id = d.id AND k.type = 'Deletion Completed');
	END IF;
END
$$;

-- As in 00028, and for what a person has set to Failed: its outcome stayed what it
-- was in the queue.
CREATE OR REPLACE FUNCTION outcome_of_the_end() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	NEW.outcome := NEW.action || CASE NEW.status WHEN 'Cancelled' THEN ' was cancelled' WHEN 'Failed' THEN ' was given up'
		ELSE ' was suspended: a person has to decide' END;
	RETURN NEW;
END
$$;
-- +goose StatementEnd
DROP TRIGGER work_items_outcome ON work_items;
CREATE TRIGGER work_items_outcome BEFORE UPDATE ON work_items -- the last by its name: others complete what is typed by hand
	FOR EACH ROW WHEN (NEW.status IN ('Cancelled', 'Suspended', 'Failed') AND OLD.status <> NEW.status AND NEW.outcome = OLD.outcome)
	EXECUTE FUNCTION outcome_of_the_end();

-- The notes name the person, as the audit does.
-- +goose StatementBegin
DO $$
DECLARE
	f regprocedure;
BEGIN
	FOREACH f IN ARRAY ARRAY['ended_by_hand(work_items, work_items)', 'release(bigint)']::regprocedure[] LOOP
		EXECUTE regexp_replace(pg_get_functiondef(f), '\msession_user\M', 'acting_user()', 'g');
	END LOOP;
	EXECUTE replace(pg_get_functiondef('requeued_to_stage(work_items, work_items)'::regprocedure),
		'''Requeued for '' || w.stage;', '''Requeued for '' || w.stage || '' by '' || acting_user();');
END
$$;
-- +goose StatementEnd

SELECT grant_roles();

-- +goose Down
-- +goose StatementBegin
DO $$
DECLARE
	f regprocedure;
BEGIN
	FOREACH f IN ARRAY ARRAY['ended_by_hand(work_items, work_items)', 'release(bigint)']::regprocedure[] LOOP
		EXECUTE replace(pg_get_functiondef(f), 'acting_user()', 'session_user');
	END LOOP;
	EXECUTE replace(pg_get_functiondef('requeued_to_stage(work_items, work_items)'::regprocedure),
		' || '' by '' || acting_user();', ';');
END
$$;
-- +goose StatementEnd
DROP TRIGGER work_items_outcome ON work_items;
CREATE TRIGGER work_items_outcome BEFORE UPDATE ON work_items
	FOR EACH ROW WHEN (NEW.status IN ('Cancelled', 'Suspended') AND OLD.status <> NEW.status AND NEW.outcome = OLD.outcome)
	EXECUTE FUNCTION outcome_of_the_end();
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION outcome_of_the_end() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	NEW.outcome := NEW.action || CASE NEW.status WHEN 'Cancelled' THEN ' was cancelled' ELSE ' was suspended: a person has to decide' END;
	RETURN NEW;
END
$$;
CREATE OR REPLACE FUNCTION request_ended(w work_items) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	IF w.action IN ('Restore Object', 'Restore File') THEN
		PERFORM restoration_ended(w);
	ELSIF w.action = 'Glacier Restore' AND w.status = 'Success' THEN
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, date_processed, priority, object_identifier,
			intellectual_object_id, generic_file_id, storage_option, "user", note, outcome)
		VALUES (w.institution_id, CASE WHEN w.generic_file_id IS NULL THEN 'Restore Object' ELSE 'Restore File' END, 'Requested',
			w.name, w.bucket, w.etag, w.size, w.bag_date, w.date_processed, w.priority, w.object_identifier,
			w.intellectual_object_id, w.generic_file_id, w.storage_option, w."user",
			'Moved from Glacier to S3, awaiting restoration', 'Moved from Glacier to S3, awaiting restoration');
	ELSIF w.action = 'Delete' AND w.status = 'Success' THEN
		PERFORM FROM deletion_requests WHERE id = w.deletion_request_id FOR UPDATE;
		INSERT INTO alerts (institution_id, type, subject, content, deletion_request_id)
		SELECT d.institution_id, 'Deletion Completed', format('Deletion request %s is completed', d.id),
			format('All that the request names is deleted. It was requested by %s and approved by %s.', r.email, a.email), d.id
		FROM deletion_requests d JOIN users r ON r.id = d.requested_by JOIN users a ON a.id = d.approved_by
		WHERE d.id = w.deletion_request_id AND NOT EXISTS (
			SELECT FROM work_items o WHERE o.deletion_request_id = d.id AND o.status <> 'Success')
			AND NOT EXISTS (SELECT FROM alerts k WHERE k.deletion_request_id = d.id AND k.type = 'Deletion Completed');
	END IF;
END
$$;
-- +goose StatementEnd
DROP INDEX retrievals_next;
ALTER TABLE retrievals DROP COLUMN next_item, DROP COLUMN readable_until;
