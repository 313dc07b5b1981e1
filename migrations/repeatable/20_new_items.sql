-- New items: their band, their virtual start time, their object and the items before them.

-- object_identifier_of is the identifier of the object that a tar becomes part of: the
-- parts of a bag that came in several tars are one object.
CREATE OR REPLACE FUNCTION object_identifier_of(institution text, name text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN institution || '/' || regexp_replace(regexp_replace(name, '\.tar$', ''), '\.b\d+\.of\d+$', '');

-- lock_institution makes the readers of an institution's bucket wait for each other.
CREATE OR REPLACE FUNCTION lock_institution(institution bigint) RETURNS void LANGUAGE sql AS $$
	SELECT pg_advisory_xact_lock(hashtextextended('farol institution', institution))
$$;

-- lock_object makes transactions that add items of one object wait for each other. To
-- prevent deadlocks, several locks are taken in this order: items that have ended by
-- their IDs, objects by their names, and live items from the front of their lines.
CREATE OR REPLACE FUNCTION lock_object(object text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	LOOP
		INSERT INTO objects_in_work VALUES (object) ON CONFLICT DO NOTHING; -- waits for a transaction that inserts the same
		EXIT WHEN FOUND;
		PERFORM FROM objects_in_work WHERE object_identifier = object FOR UPDATE;
		EXIT WHEN FOUND; -- or else its item has ended in the meantime, and the row was deleted
	END LOOP;
END
$$;

-- virtual_cost is the virtual time that an item takes: its bytes, and a mebibyte for the
-- work that any item makes, however small.
CREATE OR REPLACE FUNCTION virtual_cost(size bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least(size, 1::bigint << 50) + (1 << 20);

-- take_virtual_start returns the virtual start time of an institution's next item in a band, and
-- moves the institution on. Transactions that add its items at the same moment may get
-- the same times. An item with a priority gets the virtual time of the band, so that
-- items which overtake do not advance it.
CREATE OR REPLACE FUNCTION take_virtual_start(institution bigint, band smallint, size bigint, priority smallint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	served bigint := (SELECT b.virtual_time FROM size_bands b WHERE b.band = take_virtual_start.band);
	come_to bigint;
BEGIN
	IF priority <> 0 THEN
		RETURN served;
	END IF;
	come_to := (SELECT max(t.virtual_finish) FROM institution_virtual_times t WHERE t.institution_id = institution AND t.size_band = take_virtual_start.band);
	INSERT INTO institution_virtual_times VALUES (institution, band, greatest(served, come_to) + virtual_cost(size));
	RETURN greatest(served, come_to);
END
$$;

-- uploads_begin records that an upload has a live ingest, or refuses a second one.
CREATE OR REPLACE FUNCTION uploads_begin(item work_items) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	other bigint;
BEGIN
	IF item.action <> 'Ingest' THEN
		RETURN;
	END IF;
	INSERT INTO uploads_in_work VALUES (item.object_identifier, item.name, item.etag, item.id)
	ON CONFLICT DO NOTHING;
	IF NOT FOUND THEN
		SELECT work_item_id INTO other FROM uploads_in_work
		WHERE object_identifier = item.object_identifier AND name = item.name AND etag = item.etag;
		IF other <> item.id THEN
			RAISE EXCEPTION 'the upload % with ETag % is being ingested already: item %', item.name, item.etag, other
				USING ERRCODE = 'unique_violation', CONSTRAINT = 'one_live_ingest', TABLE = 'uploads_in_work';
		END IF;
	END IF;
END
$$;

-- last_in_work returns the live ingest of an object, other than the item itself, that no
-- other item waits for, or NULL: live items of one object are in one line. None of them
-- ends before the caller commits, and a transaction that ends one after that finds the
-- caller's item behind it. They are locked from the front of the line.
CREATE OR REPLACE FUNCTION last_in_work(object text, item bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM work_items
	WHERE id IN (SELECT work_item_id FROM uploads_in_work WHERE object_identifier = object) AND retry AND id <> item
	ORDER BY waits_for IS NOT NULL, id
	FOR UPDATE;
	RETURN (SELECT max(id) FROM work_items w
		WHERE id IN (SELECT work_item_id FROM uploads_in_work WHERE object_identifier = object) AND retry AND id <> item
			AND NOT EXISTS (SELECT FROM work_items behind WHERE behind.waits_for = w.id));
END
$$;

-- superseded is the move of an upload that a newer one of the same bag replaces.
CREATE OR REPLACE FUNCTION superseded(w work_items, by bigint) RETURNS work_item_move
LANGUAGE plpgsql STABLE AS $$
DECLARE
	m work_item_move;
BEGIN
	m.id := w.id;
	m.token := w.claim_token;
	m.stage := w.stage;
	m.status := 'Cancelled';
	m.note := 'Cancelled because a newer version of this bag was received: item ' || by || '.';
	m.code := 'superseded';
	m.ended := CASE WHEN w.status = 'Started' THEN 'cancelled' END;
	RETURN m;
END
$$;

-- A new item: its band, its virtual start time, its object, and its place behind or
-- instead of other live items of the same object. It runs for each row, so it reads all
-- that it needs by one query.
CREATE OR REPLACE FUNCTION work_item_created() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	known record;
	other work_items;
BEGIN
	SELECT b.band, greatest(b.virtual_time, (SELECT max(t.virtual_finish) FROM institution_virtual_times t
			WHERE t.institution_id = NEW.institution_id AND t.size_band = b.band AND NEW.priority = 0)) AS virtual_start,
		object_identifier_of(i.identifier, NEW.name) AS object
	INTO known
	FROM institutions i CROSS JOIN size_bands b
	WHERE i.id = NEW.institution_id AND b.band = (SELECT max(band) FROM size_bands WHERE min_size <= NEW.size);
	IF NOT FOUND THEN -- the foreign key refuses it
		NEW.object_identifier := coalesce(NEW.object_identifier, '');
		RETURN NEW;
	END IF;
	IF NEW.priority = 0 THEN
		INSERT INTO institution_virtual_times VALUES (NEW.institution_id, known.band, known.virtual_start + virtual_cost(NEW.size)); -- take_virtual_start
	END IF;
	NEW.size_band := known.band;
	NEW.virtual_start := known.virtual_start;
	NEW.queued_at := coalesce(NEW.queued_at, now());
	NEW.claim_token := 0; -- no worker has claimed it
	NEW.entered_token := 0;
	NEW.attempt := 0;
	IF NEW.retry THEN
		PERFORM stage_named(NEW.stage, NEW.action); -- no worker claims another
		IF NEW.status <> 'Pending' THEN
			PERFORM refused('a new item cannot be ' || NEW.status, 'Only a worker starts an item. Leave the status out.');
		END IF;
	END IF;
	IF NEW.action <> 'Ingest' THEN
		IF NEW.waits_for IS NOT NULL THEN
			PERFORM FROM work_items WHERE id = NEW.waits_for AND retry FOR UPDATE; -- a transaction that ends it now finds this one behind it
			IF NOT FOUND THEN
				RAISE EXCEPTION 'item % would never be claimed: item %, which it waits for, is not Pending or Started', NEW.id, NEW.waits_for
					USING ERRCODE = 'check_violation', HINT = 'Leave waits_for out.';
			END IF;
			NEW.run_at := 'infinity';
		END IF;
		RETURN NEW;
	END IF;

	NEW.object_identifier := known.object;
	IF NOT NEW.retry THEN -- it is recorded as ended
		RETURN NEW;
	END IF;
	INSERT INTO objects_in_work VALUES (known.object) ON CONFLICT DO NOTHING; -- lock_object
	IF NOT FOUND THEN
		PERFORM lock_object(known.object);
	END IF;
	IF NOT EXISTS (SELECT FROM uploads_in_work WHERE object_identifier = known.object) THEN
		INSERT INTO uploads_in_work VALUES (known.object, NEW.name, NEW.etag, NEW.id); -- uploads_begin
		RETURN NEW;
	END IF;
	FOR other IN -- the depositor has replaced this upload and nothing of it is stored yet
		SELECT w.* FROM uploads_in_work u JOIN work_items w ON w.id = u.work_item_id
		WHERE u.object_identifier = known.object AND u.name = NEW.name AND u.etag <> NEW.etag
			AND w.retry AND NOT is_late_stage(w.stage)
		ORDER BY w.id
		FOR UPDATE OF w
	LOOP
		PERFORM move_items(ARRAY[superseded(other, NEW.id)]);
	END LOOP;
	PERFORM uploads_begin(NEW);
	NEW.waits_for := last_in_work(known.object, NEW.id);
	IF NEW.waits_for IS NOT NULL THEN
		NEW.run_at := 'infinity';
	END IF;
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER work_item_created BEFORE INSERT ON work_items
	FOR EACH ROW EXECUTE FUNCTION work_item_created();

-- Announces new items, once for each statement: in the topic log, and to idle workers.
CREATE OR REPLACE FUNCTION work_items_announced() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	INSERT INTO topic_messages (topic, body, work_item_id)
	SELECT s.topic, c.id::text, c.id
	FROM created c JOIN stage_settings s ON s.action = c.action AND s.stage = c.stage
	ORDER BY c.id;
	PERFORM pg_notify('farol_work', format(E'\n%s\t%s\t%s\t%s', stage, size_band, priority, min(virtual_start)))
	FROM created GROUP BY stage, size_band, priority;
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER work_items_announced AFTER INSERT ON work_items
	REFERENCING NEW TABLE AS created
	FOR EACH STATEMENT EXECUTE FUNCTION work_items_announced();

CREATE OR REPLACE FUNCTION work_item_resized() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	NEW.size_band := coalesce((SELECT max(band) FROM size_bands WHERE min_size <= NEW.size), 0); -- a constraint refuses other sizes
	IF NEW.size_band <> OLD.size_band THEN
		NEW.virtual_start := take_virtual_start(NEW.institution_id, NEW.size_band, NEW.size, NEW.priority);
	END IF;
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER work_item_resized BEFORE UPDATE OF size ON work_items
	FOR EACH ROW WHEN (OLD.size IS DISTINCT FROM NEW.size) EXECUTE FUNCTION work_item_resized();

-- When the edges of the bands change, the live items move with them.
CREATE OR REPLACE FUNCTION size_bands_moved() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	UPDATE work_items w SET size_band = (SELECT max(band) FROM size_bands WHERE min_size <= w.size)
	WHERE retry AND size_band <> (SELECT max(band) FROM size_bands WHERE min_size <= w.size);
	IF NOT EXISTS (SELECT FROM size_bands WHERE min_size = 0) THEN
		RAISE EXCEPTION 'no size band begins at 0 bytes: small items would have none' USING ERRCODE = 'check_violation';
	END IF;
	PERFORM pg_notify('farol_settings', '');
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER size_bands_moved AFTER INSERT OR DELETE OR UPDATE OF band, min_size ON size_bands
	FOR EACH STATEMENT EXECUTE FUNCTION size_bands_moved();

REVOKE EXECUTE ON FUNCTION superseded, lock_institution, lock_object, take_virtual_start, uploads_begin, last_in_work,
	work_item_created, work_items_announced, work_item_resized, size_bands_moved FROM PUBLIC;
