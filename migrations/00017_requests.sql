-- Restorations and deletions: who may ask for them, what is asked for, and what it
-- costs. A request becomes items of the queue, one for each file or object, which
-- no worker takes before the rules here are met.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- An institution's people see and ask for what is its own; an admin is the
-- archive's own staff, and neither requests nor approves deletions.
CREATE TABLE users (
	id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	email          user_email  NOT NULL CHECK (length(email) <= 254 AND email !~ '[[:space:]]'),
	name           text        NOT NULL CHECK (length(name) BETWEEN 2 AND 200),
	institution_id bigint      REFERENCES institutions,
	role           text        NOT NULL CHECK (role IN ('admin', 'institutional_admin', 'institutional_user')),
	deactivated_at timestamptz,
	created_at     timestamptz NOT NULL DEFAULT now(),
	updated_at     timestamptz NOT NULL DEFAULT now(),
	CONSTRAINT admins_have_no_institution CHECK ((role = 'admin') = (institution_id IS NULL))
);
CREATE UNIQUE INDEX users_email ON users (lower(email));
CREATE INDEX users_institution ON users (institution_id) WHERE deactivated_at IS NULL;

-- For how long what was stored must stay. The provider bills for as long anyway.
CREATE TABLE storage_options (
	name           text PRIMARY KEY,
	retention_days integer NOT NULL CHECK (retention_days BETWEEN 0 AND 36500) -- since it came on record, or came back after a deletion
);
INSERT INTO storage_options VALUES
	('Standard', 0), ('Wasabi-VA', 90), ('Wasabi-OR', 90), ('Wasabi-TX', 90), ('Glacier-VA', 90), ('Glacier-OH', 90), ('Glacier-OR', 90),
	('Glacier-Deep-VA', 180), ('Glacier-Deep-OH', 180), ('Glacier-Deep-OR', 180);

-- What a provider takes for making archived objects readable, in US dollars, and
-- how long it is about it. Requests are counted by the object.
CREATE TABLE retrieval_prices (
	storage_class     text           NOT NULL,
	tier              text           NOT NULL CHECK (tier IN ('Expedited', 'Standard', 'Bulk')),
	per_gib           numeric(12, 6) NOT NULL CHECK (per_gib >= 0), -- of 2^30 bytes
	per_1000_requests numeric(12, 6) NOT NULL CHECK (per_1000_requests >= 0),
	takes             interval       NOT NULL CHECK (takes > '0'), -- as the provider says, at most
	poll              interval       NOT NULL CHECK (poll > '0'), -- between two looks whether it is done
	PRIMARY KEY (storage_class, tier)
);
INSERT INTO retrieval_prices VALUES -- AWS, us-east-1, November 2026
	('GLACIER',      'Expedited', 0.03,   10,    '5 minutes', '1 minute'),
	('GLACIER',      'Standard',  0.01,   0.05,  '5 hours',   '1 hour'),
	('GLACIER',      'Bulk',      0,      0.025, '12 hours',  '4 hours'),
	('DEEP_ARCHIVE', 'Standard',  0.02,   0.10,  '12 hours',  '4 hours'),
	('DEEP_ARCHIVE', 'Bulk',      0.0025, 0.025, '48 hours',  '8 hours');
COMMENT ON TABLE retrieval_prices IS 'What it costs to make archived copies readable, by storage class and tier. Keep it up to date with the provider''s list.';

-- A request to delete names its files and objects, and needs a second person. The
-- token goes to that person; here is only what it can be compared with.
CREATE TABLE deletion_requests (
	id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	institution_id bigint      NOT NULL REFERENCES institutions,
	requested_by   bigint      NOT NULL REFERENCES users,
	requested_at   timestamptz NOT NULL DEFAULT now(),
	token_sha256   bytea       NOT NULL CHECK (length(token_sha256) = 32),
	approved_by    bigint      REFERENCES users,
	approved_at    timestamptz,
	cancelled_by   bigint      REFERENCES users,
	cancelled_at   timestamptz,
	CHECK ((approved_by IS NULL) = (approved_at IS NULL)),
	CHECK ((cancelled_by IS NULL) = (cancelled_at IS NULL)),
	CONSTRAINT decided_once CHECK (approved_at IS NULL OR cancelled_at IS NULL)
);
CREATE INDEX deletion_requests_institution ON deletion_requests (institution_id, id);
CREATE TABLE deletion_requests_generic_files (
	deletion_request_id bigint NOT NULL REFERENCES deletion_requests,
	generic_file_id     bigint NOT NULL REFERENCES generic_files,
	PRIMARY KEY (deletion_request_id, generic_file_id)
);
CREATE TABLE deletion_requests_intellectual_objects (
	deletion_request_id    bigint NOT NULL REFERENCES deletion_requests,
	intellectual_object_id bigint NOT NULL REFERENCES intellectual_objects,
	PRIMARY KEY (deletion_request_id, intellectual_object_id)
);

-- What people have to hear of.
CREATE TABLE alerts (
	id                  bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	institution_id      bigint      REFERENCES institutions, -- NULL: only the archive's own staff
	type                text        NOT NULL CHECK (type IN ('Deletion Cancelled', 'Deletion Completed', 'Deletion Confirmed', 'Deletion Requested',
		'Failed Fixity Check', 'Restoration Completed', 'Spot Restoration Completed', 'Spot Restoration Failed', 'Repair Stopped')),
	subject             text        NOT NULL CHECK (subject <> ''),
	content             text        NOT NULL,
	deletion_request_id bigint      REFERENCES deletion_requests,
	work_item_id        bigint, -- no foreign key: the item may be archived
	generic_file_id     bigint      REFERENCES generic_files,
	created_at          timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX alerts_institution ON alerts (institution_id, id);
COMMENT ON TABLE alerts IS 'What people have to hear of: deletions, restorations that are ready, copies that failed their fixity check.';

ALTER TABLE work_items         ADD COLUMN IF NOT EXISTS deletion_request_id bigint;
ALTER TABLE work_items_archive ADD COLUMN IF NOT EXISTS deletion_request_id bigint;
ALTER TABLE work_items ADD CONSTRAINT work_items_deletion_request FOREIGN KEY (deletion_request_id) REFERENCES deletion_requests;
CREATE OR REPLACE VIEW all_work_items AS SELECT * FROM work_items UNION ALL SELECT * FROM work_items_archive;

-- What the claims of requests walk, exactly in their order: as work_items_ready,
-- but each action by itself.
CREATE INDEX work_items_requested ON work_items (action, size_band, priority, turn, run_at, id)
	WHERE status = 'Pending' AND retry AND stage = 'Requested';
-- The live requests for an object.
CREATE INDEX work_items_requests ON work_items (object_identifier) WHERE retry AND stage = 'Requested';
-- What came of a deletion request.
CREATE INDEX work_items_deletion ON work_items (deletion_request_id) WHERE deletion_request_id IS NOT NULL;

-- What a restoration from an archive class costs, and who said that it may. An
-- item whose price is above the cap is not worked on before that.
CREATE TABLE retrievals (
	work_item_id  bigint         PRIMARY KEY, -- no foreign key: the item may be archived
	storage_class text           NOT NULL, -- that the copies are in
	tier          text           NOT NULL CHECK (tier IN ('Expedited', 'Standard', 'Bulk')),
	days          integer        NOT NULL CHECK (days BETWEEN 1 AND 365), -- for which the copies stay readable
	files         bigint         NOT NULL,
	bytes         bigint         NOT NULL,
	price         numeric(16, 2) NOT NULL CHECK (price >= 0), -- US dollars
	cap           numeric(16, 2) NOT NULL CHECK (cap >= 0), -- above which somebody must approve
	approved_by   bigint         REFERENCES users,
	approved_at   timestamptz,
	CHECK ((approved_by IS NULL) = (approved_at IS NULL))
);
CREATE TABLE request_settings (
	only_one      boolean        PRIMARY KEY DEFAULT true CHECK (only_one),
	retrieval_cap numeric(16, 2) NOT NULL DEFAULT 100 CHECK (retrieval_cap >= 0) -- US dollars
);
INSERT INTO request_settings DEFAULT VALUES;

-- In the order of their bytes the files of an object are together, so that they can
-- be walked page by page, however many there are.
ALTER TABLE generic_files ALTER COLUMN identifier TYPE text COLLATE "C";

-- A file whose copies are being deleted says so before the first is gone: its
-- bytes are not to be relied on any more, whatever happens to the item.
ALTER TABLE generic_files        ADD COLUMN deleted_by_item bigint; -- work item; set before the first copy is deleted
CREATE INDEX generic_files_deleting ON generic_files (intellectual_object_id) WHERE state = 'A' AND deleted_by_item IS NOT NULL;
ALTER TABLE intellectual_objects
	ADD COLUMN deleted_by_item bigint,
	ADD COLUMN deletions       bigint NOT NULL DEFAULT 0, -- deletions of it or its files; a re-ingest was compared with what was there then
	ADD COLUMN tag_encoding    text   NOT NULL DEFAULT 'UTF-8' CHECK (tag_encoding <> ''); -- of its tag files, which restored bags keep

CREATE INDEX intellectual_objects_deleting ON intellectual_objects (id) WHERE state = 'A' AND deleted_by_item IS NOT NULL;

-- A receipt for each copy that a deletion removed: when it was deleted, and when
-- its provider was seen to have nothing of it left.
CREATE TABLE deletion_receipts (
	work_item_id    bigint      NOT NULL, -- no foreign key: the item may be archived
	generic_file_id bigint      NOT NULL REFERENCES generic_files,
	target          text        NOT NULL,
	bucket          text        NOT NULL,
	key             text        NOT NULL,
	url             text        NOT NULL,
	removed_at      timestamptz NOT NULL DEFAULT now(),
	kept            text        NOT NULL DEFAULT '', -- why its bytes stay
	absent_at       timestamptz, -- HEAD answered 404, and no version is left
	PRIMARY KEY (work_item_id, generic_file_id, target, key)
);
CREATE INDEX deletion_receipts_file ON deletion_receipts (generic_file_id);
COMMENT ON TABLE deletion_receipts IS 'Each copy that a deletion removed, when, and when it was seen to be gone.';

-- request_rival names the live item because of which a request for an object, or
-- for a file of it, cannot be met now; NULL if there is none. The caller holds the
-- object's lock.
-- +goose StatementBegin
CREATE FUNCTION request_rival(object text, file bigint, item bigint) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT SET enable_seqscan = off
RETURN (
	SELECT format('item %s is in the queue for the same %s: %s', o.id, CASE WHEN o.same THEN 'file' ELSE 'object' END, o.action) FROM (
		SELECT u.work_item_id AS id, 'Ingest' AS action, false AS same FROM uploads_in_work u WHERE u.object_identifier = object
		UNION ALL
		SELECT w.id, w.action, w.generic_file_id = file FROM work_items w
		WHERE w.object_identifier = object AND w.retry AND w.stage = 'Requested' AND w.id <> item
			AND (file IS NULL OR w.generic_file_id IS NULL OR w.generic_file_id = file)
	) o ORDER BY o.id LIMIT 1);
-- +goose StatementEnd

-- As in 00004, and for requests.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION rival_of(w work_items) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
	IF w.action <> 'Ingest' THEN
		IF w.retry THEN
			RETURN NULL;
		END IF;
		RETURN request_rival(w.object_identifier, w.generic_file_id, w.id);
	END IF;
	RETURN (
		SELECT format(CASE WHEN o.id > w.id THEN 'item %s is a newer version of the same bag'
			ELSE 'item %s is the same upload, and is in the queue' END, o.id)
		FROM ( -- each by an index
			SELECT work_item_id AS id FROM uploads_in_work
			WHERE object_identifier = w.object_identifier AND name = w.name AND (work_item_id > w.id OR work_item_id < w.id AND etag = w.etag)
			UNION ALL
			SELECT id FROM work_items
			WHERE institution_id = w.institution_id AND name = w.name AND action = 'Ingest' AND NOT retry AND status = 'Success' AND id > w.id
			UNION ALL
			SELECT id FROM work_items_archive
			WHERE institution_id = w.institution_id AND name = w.name AND action = 'Ingest' AND status = 'Success' AND id > w.id
		) o
		ORDER BY o.id > w.id DESC, o.id
		LIMIT 1);
END
$$;
-- +goose StatementEnd

-- request_begin sees to a request that is new, or comes alive again: it names what
-- there is, nothing else is in work on that, and a deletion was approved.
-- +goose StatementBegin
CREATE FUNCTION request_begin(w work_items) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	rival text;
BEGIN
	PERFORM lock_object(w.object_identifier);
	rival := request_rival(w.object_identifier, w.generic_file_id, w.id);
	IF rival IS NOT NULL THEN
		RAISE EXCEPTION '% of % cannot be queued: %', w.action, w.object_identifier, rival
			USING ERRCODE = 'unique_violation', CONSTRAINT = 'one_live_request', HINT = 'Ask again when that has ended.';
	END IF;
	IF w.action = 'Delete' AND NOT EXISTS (
		SELECT FROM deletion_requests d
		WHERE d.id = w.deletion_request_id AND d.approved_at IS NOT NULL AND d.institution_id = w.institution_id
			AND CASE WHEN w.generic_file_id IS NULL
				THEN EXISTS (SELECT FROM deletion_requests_intellectual_objects o
					WHERE o.deletion_request_id = d.id AND o.intellectual_object_id = w.intellectual_object_id)
				ELSE EXISTS (SELECT FROM deletion_requests_generic_files f
					WHERE f.deletion_request_id = d.id AND f.generic_file_id = w.generic_file_id) END)
	THEN
		RAISE EXCEPTION 'the deletion of % was not approved', w.object_identifier
			USING ERRCODE = 'check_violation', HINT = 'farol delete request and farol delete approve make the items of a deletion.';
	END IF;
END
$$;

CREATE FUNCTION request_created() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF pg_trigger_depth() = 1 THEN -- or else it takes the place of one that ends: see request_ended
		PERFORM request_begin(NEW);
	END IF;
	RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER request_created AFTER INSERT ON work_items
	FOR EACH ROW WHEN (NEW.retry AND NEW.stage = 'Requested') EXECUTE FUNCTION request_created();

-- restoration_ended tells people of what is ready for them.
-- +goose StatementBegin
CREATE FUNCTION restoration_ended(w work_items) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF w.status = 'Success' THEN
		INSERT INTO alerts (institution_id, type, subject, content, work_item_id)
		VALUES (w.institution_id, 'Restoration Completed', w.action || ' is completed: ' || w.object_identifier, w.note, w.id);
	END IF;
END
$$;

-- request_ended says what follows from the end of a request, in the transaction of
-- that: what was archived and can be read now goes to who restores it, and people
-- hear of what is done.
CREATE FUNCTION request_ended(w work_items) RETURNS void
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
		PERFORM FROM deletion_requests WHERE id = w.deletion_request_id FOR UPDATE; -- the last of several that end at once says so
		INSERT INTO alerts (institution_id, type, subject, content, deletion_request_id)
		SELECT d.institution_id, 'Deletion Completed', format('Deletion request %s is completed', d.id),
			format('All that the request names is deleted. It was requested by %s and approved by %s.', r.email, a.email), d.id
		FROM deletion_requests d JOIN users r ON r.id = d.requested_by JOIN users a ON a.id = d.approved_by
		WHERE d.id = w.deletion_request_id AND NOT EXISTS (
			SELECT FROM work_items o WHERE o.deletion_request_id = d.id AND o.status <> 'Success');
	END IF;
END
$$;

-- As in 00003, and for requests. Triggers of their own would be read anew by every
-- statement of the queue.
CREATE OR REPLACE FUNCTION work_item_ended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	UPDATE work_items SET
		waits_for  = OLD.waits_for,
		run_at     = CASE WHEN OLD.waits_for IS NULL THEN now() ELSE 'infinity' END,
		updated_at = now()
	WHERE waits_for = OLD.id;
	DELETE FROM uploads_in_work WHERE object_identifier = OLD.object_identifier AND name = OLD.name AND etag = OLD.etag
		AND work_item_id = OLD.id;
	DELETE FROM objects_in_work WHERE object_identifier IN ( -- one that somebody holds is left to the next
		SELECT object_identifier FROM objects_in_work WHERE object_identifier = OLD.object_identifier FOR UPDATE SKIP LOCKED);
	IF OLD.action <> 'Ingest' THEN
		PERFORM request_ended(NEW);
	END IF;
	RETURN NULL;
END
$$;

CREATE OR REPLACE FUNCTION work_item_revived() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	IF NEW.action = 'Ingest' THEN
		PERFORM uploads_begin(NEW);
	ELSE
		PERFORM request_begin(NEW);
	END IF;
	RETURN NULL;
END
$$;
-- +goose StatementEnd

-- lock_items and requeued_by_hand lock the objects of requests too.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION lock_items(ids bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	PERFORM FROM work_items WHERE id = ANY (ids) AND NOT retry ORDER BY id FOR UPDATE;
	PERFORM lock_object(o.name) FROM (
		SELECT object_identifier COLLATE "C" AS name FROM work_items WHERE id = ANY (ids) AND NOT retry GROUP BY 1 ORDER BY 1
	) o;
	PERFORM FROM work_items WHERE id = ANY (ids) AND retry ORDER BY waits_for IS NOT NULL, id FOR UPDATE;
END
$$;
-- +goose StatementEnd

-- As in 00008, but that a pool takes a request by its action.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION why_no_worker(w work_items) RETURNS TABLE (reason text, detail text, remedy text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	WITH t AS MATERIALIZED (SELECT * FROM takers(w)),
	best AS (SELECT count(DISTINCT worker) AS workers, max(misses) AS misses, bool_or(misses IS NULL) AS any_takes, max(free) FILTER (WHERE misses IS NULL) AS free FROM t)
	SELECT CASE WHEN any_takes THEN 'busy' ELSE 'no worker' END,
		CASE
			WHEN any_takes THEN 'The workers that take it have no free slot: '
				|| (SELECT string_agg(DISTINCT t.worker, ', ') FROM t WHERE t.misses IS NULL) || '.'
			WHEN workers = 0 THEN 'No worker lives.'
			WHEN misses = '1 stage' THEN format('No live worker takes %s of %s.', w.stage, w.action)
			WHEN misses = '2 size' THEN format('No live worker that takes %s takes an item of %s bytes.', w.stage, w.size)
			WHEN misses = '3 storage option' THEN format('No live worker that takes %s takes the storage option %s.', w.stage, w.storage_option)
			WHEN misses = '4 institution' THEN format('No live worker that takes %s takes items of its institution.', w.stage)
			ELSE 'The workers that would take it were asked to stop: ' || (SELECT string_agg(DISTINCT t.worker, ', ') FROM t WHERE t.misses = '5 draining') || '.'
		END,
		CASE WHEN any_takes THEN 'Wait, or start more: farol work. SELECT * FROM running; says what they do.'
			ELSE format('farol work --stages %L on a machine that can have it. SELECT * FROM workers; says who takes what.',
				CASE w.action WHEN 'Ingest' THEN w.stage::text ELSE w.action::text END) END
	FROM best WHERE any_takes IS NOT TRUE OR free <= 0
$$;
-- +goose StatementEnd

-- What an administrator may is 00014's and what is written here: a later migration
-- adds its rows and grants anew.
ALTER FUNCTION grant_administration(regrole) RENAME TO grant_queue;
CREATE TABLE administration_rights (
	privilege text NOT NULL,
	on_table  text NOT NULL,
	PRIMARY KEY (on_table, privilege)
);
INSERT INTO administration_rights (privilege, on_table) VALUES
	('SELECT', 'users'), ('SELECT', 'deletion_requests_generic_files'), ('SELECT', 'deletion_requests_intellectual_objects'),
	('SELECT (id, institution_id, requested_by, requested_at, approved_by, approved_at, cancelled_by, cancelled_at)', 'deletion_requests'),
	('SELECT', 'deletion_receipts'), ('SELECT', 'alerts'), ('SELECT', 'retrievals'), ('SELECT', 'attempts_forgiven'),
	('SELECT, UPDATE', 'storage_options'), ('SELECT, INSERT, UPDATE, DELETE', 'retrieval_prices'), ('SELECT, UPDATE', 'request_settings');
-- +goose StatementBegin
CREATE FUNCTION grant_administration(to_role regrole) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	r administration_rights;
BEGIN
	PERFORM grant_queue(to_role);
	FOR r IN SELECT * FROM administration_rights LOOP
		EXECUTE format('GRANT %s ON %I TO %s', r.privilege, r.on_table, to_role);
	END LOOP;
END
$$;
COMMENT ON FUNCTION grant_administration IS 'Gives a role the rights that farol_admin has. Only the owner of the schema can.';

CREATE FUNCTION grant_to_administrators() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF to_regrole('farol_admin') IS NOT NULL THEN
		PERFORM grant_administration('farol_admin');
	END IF;
END
$$;
-- +goose StatementEnd
SELECT grant_to_administrators();
REVOKE EXECUTE ON FUNCTION request_rival(text, bigint, bigint), request_begin(work_items), request_ended(work_items),
	restoration_ended(work_items), grant_administration(regrole), grant_to_administrators() FROM PUBLIC;

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION why_no_worker(w work_items) RETURNS TABLE (reason text, detail text, remedy text)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	WITH t AS MATERIALIZED (SELECT * FROM takers(w)),
	best AS (SELECT count(DISTINCT worker) AS workers, max(misses) AS misses, bool_or(misses IS NULL) AS any_takes, max(free) FILTER (WHERE misses IS NULL) AS free FROM t)
	SELECT CASE WHEN any_takes THEN 'busy' ELSE 'no worker' END,
		CASE
			WHEN any_takes THEN 'The workers that take it have no free slot: '
				|| (SELECT string_agg(DISTINCT t.worker, ', ') FROM t WHERE t.misses IS NULL) || '.'
			WHEN workers = 0 THEN 'No worker lives.'
			WHEN misses = '1 stage' THEN format('No live worker takes %s of %s.', w.stage, w.action)
			WHEN misses = '2 size' THEN format('No live worker that takes %s takes an item of %s bytes.', w.stage, w.size)
			WHEN misses = '3 storage option' THEN format('No live worker that takes %s takes the storage option %s.', w.stage, w.storage_option)
			WHEN misses = '4 institution' THEN format('No live worker that takes %s takes items of its institution.', w.stage)
			ELSE 'The workers that would take it were asked to stop: ' || (SELECT string_agg(DISTINCT t.worker, ', ') FROM t WHERE t.misses = '5 draining') || '.'
		END,
		CASE WHEN any_takes THEN 'Wait, or start more: farol work. SELECT * FROM running; says what they do.'
			ELSE format('farol work --stages %L on a machine that can have it. SELECT * FROM workers; says who takes what.', w.stage) END
	FROM best WHERE any_takes IS NOT TRUE OR free <= 0
$$;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION work_item_revived() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	PERFORM uploads_begin(NEW);
	RETURN NULL;
END
$$;
CREATE OR REPLACE FUNCTION work_item_ended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	UPDATE work_items SET
		waits_for  = OLD.waits_for,
		run_at     = CASE WHEN OLD.waits_for IS NULL THEN now() ELSE 'infinity' END,
		updated_at = now()
	WHERE waits_for = OLD.id;
	DELETE FROM uploads_in_work WHERE object_identifier = OLD.object_identifier AND name = OLD.name AND etag = OLD.etag
		AND work_item_id = OLD.id;
	DELETE FROM objects_in_work WHERE object_identifier IN (
		SELECT object_identifier FROM objects_in_work WHERE object_identifier = OLD.object_identifier FOR UPDATE SKIP LOCKED);
	RETURN NULL;
END
$$;
-- +goose StatementEnd
DROP FUNCTION request_ended(work_items);
DROP FUNCTION restoration_ended(work_items);
DROP TRIGGER request_created ON work_items;
DROP FUNCTION request_created();
DROP FUNCTION request_begin(work_items);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION lock_items(ids bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	PERFORM FROM work_items WHERE id = ANY (ids) AND NOT retry ORDER BY id FOR UPDATE;
	PERFORM lock_object(o.name) FROM (
		SELECT object_identifier COLLATE "C" AS name FROM work_items WHERE id = ANY (ids) AND NOT retry AND action = 'Ingest' GROUP BY 1 ORDER BY 1
	) o;
	PERFORM FROM work_items WHERE id = ANY (ids) AND retry ORDER BY waits_for IS NOT NULL, id FOR UPDATE;
END
$$;
CREATE OR REPLACE FUNCTION rival_of(w work_items) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
	IF w.action <> 'Ingest' THEN
		RETURN NULL;
	END IF;
	RETURN (
		SELECT format(CASE WHEN o.id > w.id THEN 'item %s is a newer version of the same bag'
			ELSE 'item %s is the same upload, and is in the queue' END, o.id)
		FROM (
			SELECT work_item_id AS id FROM uploads_in_work
			WHERE object_identifier = w.object_identifier AND name = w.name AND (work_item_id > w.id OR work_item_id < w.id AND etag = w.etag)
			UNION ALL
			SELECT id FROM work_items
			WHERE institution_id = w.institution_id AND name = w.name AND action = 'Ingest' AND NOT retry AND status = 'Success' AND id > w.id
			UNION ALL
			SELECT id FROM work_items_archive
			WHERE institution_id = w.institution_id AND name = w.name AND action = 'Ingest' AND status = 'Success' AND id > w.id
		) o
		ORDER BY o.id > w.id DESC, o.id
		LIMIT 1);
END
$$;
-- +goose StatementEnd
DROP FUNCTION request_rival(text, bigint, bigint);
DROP TABLE deletion_receipts;
ALTER TABLE intellectual_objects DROP COLUMN tag_encoding, DROP COLUMN deletions, DROP COLUMN deleted_by_item;
ALTER TABLE generic_files DROP COLUMN deleted_by_item;
ALTER TABLE generic_files ALTER COLUMN identifier TYPE text COLLATE "default";
DROP TABLE request_settings, retrievals;
DROP INDEX work_items_deletion, work_items_requests, work_items_requested;
-- Its column stays, since views have it.
ALTER TABLE work_items DROP CONSTRAINT work_items_deletion_request;
DROP FUNCTION grant_to_administrators();
DROP FUNCTION grant_administration(regrole);
ALTER FUNCTION grant_queue(regrole) RENAME TO grant_administration;
DROP TABLE administration_rights;
DROP TABLE alerts, deletion_requests_intellectual_objects, deletion_requests_generic_files, deletion_requests, retrieval_prices,
	storage_options, users;
