-- What the queue keeps true by itself, whoever adds an item or ends one. What holds
-- when a person changes one is in 00004.

-- +goose Up

-- Functions that run with their owner's rights look for names in this schema, and
-- in what a session has made for itself only after that: a temporary table must
-- not stand in for one of ours. Those that look into uploads_in_work and its like
-- do so by index: such a table is empty when a plan is made, and has a hundred
-- thousand rows when as many items have come by the same statement.
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true);

-- +goose StatementBegin
CREATE FUNCTION is_late_stage(stage text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN stage IN ('Store', 'Storage Validation', 'Record', 'Cleanup');
-- +goose StatementEnd

-- stage_named returns a stage if it is written right, or says what the stages are:
-- those of one action, or of all.
-- +goose StatementBegin
CREATE FUNCTION stage_named(typed text, of_action text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
	actions text[];
	stages  text[];
BEGIN
	IF EXISTS (SELECT FROM stage_settings s WHERE s.stage = typed AND (of_action IS NULL OR s.action = of_action)) THEN
		RETURN typed;
	END IF;
	actions := ARRAY(SELECT DISTINCT s.action FROM stage_settings s ORDER BY s.action);
	stages := ARRAY(SELECT s.stage FROM stage_settings s WHERE of_action IS NULL OR s.action = of_action
		GROUP BY s.stage ORDER BY min((s.action <> 'Ingest')::int * 100 + s.ordinal));
	IF of_action <> ALL (actions) THEN
		PERFORM no_such('action', of_action, actions);
	END IF;
	PERFORM no_such('stage', typed, stages, coalesce(' of ' || of_action, ''));
END
$$;
-- +goose StatementEnd

-- An item that has ended, whoever ended it, lets go of those that waited for it.
-- If it was itself waiting, they now wait for what it waited for. This is a
-- statement of its own, after the one that ended the item: it sees also what
-- came to wait while that one stood at the item's lock.
-- +goose StatementBegin
CREATE FUNCTION work_item_ended() RETURNS trigger
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
	RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER work_item_ended AFTER UPDATE OF status ON work_items
	FOR EACH ROW WHEN (OLD.retry AND NOT NEW.retry) EXECUTE FUNCTION work_item_ended();

-- uploads_begin notes that an upload is in work, or refuses it because it is.
-- +goose StatementBegin
CREATE FUNCTION uploads_begin(item work_items) RETURNS void LANGUAGE plpgsql AS $$
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
			RAISE EXCEPTION 'the upload % with ETag % is in work already: item %', item.name, item.etag, other
				USING ERRCODE = 'unique_violation', CONSTRAINT = 'one_live_ingest', TABLE = 'uploads_in_work';
		END IF;
	END IF;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION work_item_revived() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	PERFORM uploads_begin(NEW);
	RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER work_item_revived AFTER UPDATE OF status ON work_items
	FOR EACH ROW WHEN (NEW.retry AND NOT OLD.retry) EXECUTE FUNCTION work_item_revived();

-- last_in_work returns the live ingest of an object that none waits for yet, an
-- item itself aside, or NULL: live items of one object stand in one line. None
-- of them ends before the caller commits, and whoever ends one then finds the
-- caller's item behind it. They are locked from the front of the line, as it
-- moves up.
-- +goose StatementBegin
CREATE FUNCTION last_in_work(object text, item bigint) RETURNS bigint LANGUAGE plpgsql AS $$
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
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION append_topic_message(action_is text, stage_is text, item bigint) RETURNS void
LANGUAGE plpgsql AS $$ -- which is planned once; SQL would be each time
BEGIN
	INSERT INTO topic_messages (topic, body, work_item_id)
	SELECT s.topic, item::text, item FROM stage_settings s WHERE s.action = action_is AND s.stage = stage_is;
END
$$;
-- +goose StatementEnd

-- object_identifier_of is what the bag in a tar becomes: the parts of a bag that
-- came in several tars are one object.
-- +goose StatementBegin
CREATE FUNCTION object_identifier_of(institution text, name text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN institution || '/' || regexp_replace(regexp_replace(name, '\.tar$', ''), '\.b\d+\.of\d+$', '');
-- +goose StatementEnd

-- lock_institution makes the readers of an institution's bucket take turns.
-- +goose StatementBegin
CREATE FUNCTION lock_institution(institution bigint) RETURNS void LANGUAGE sql AS $$
	SELECT pg_advisory_xact_lock(hashtextextended('farol institution', institution))
$$;
-- +goose StatementEnd

-- lock_object makes those take turns who bring items of one object into the
-- queue, until their transactions end. Who needs several locks takes them in this
-- order, and never waits for others in a ring: items that have ended by their
-- IDs, objects by their names, and live items from the front of their lines.
-- +goose StatementBegin
CREATE FUNCTION lock_object(object text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	LOOP
		INSERT INTO objects_in_work VALUES (object) ON CONFLICT DO NOTHING; -- waits for whoever inserts the same
		EXIT WHEN FOUND;
		PERFORM FROM objects_in_work WHERE object_identifier = object FOR UPDATE;
		EXIT WHEN FOUND; -- or else its item has ended meanwhile, and the row is gone
	END LOOP;
END
$$;
-- +goose StatementEnd

-- turn_cost is what an item takes of its institution's turns. The mebibyte is for
-- the work that any item makes, however small.
-- +goose StatementBegin
CREATE FUNCTION turn_cost(size bigint) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN least(size, 1::bigint << 50) + (1 << 20);
-- +goose StatementEnd

-- take_turn returns the turn of an institution's next item in a band. Transactions
-- that bring its items at the same moment may get the same turns. An item of a
-- priority of its own takes none: it gets the turn that is being served, so that
-- what overtakes moves the scale no further.
-- +goose StatementBegin
CREATE FUNCTION take_turn(institution bigint, band smallint, size bigint, priority smallint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	served bigint := (SELECT b.turn FROM size_bands b WHERE b.band = take_turn.band);
	come_to bigint;
BEGIN
	IF priority <> 0 THEN
		RETURN served;
	END IF;
	come_to := (SELECT max(t.next_turn) FROM institution_turns t WHERE t.institution_id = institution AND t.size_band = take_turn.band);
	INSERT INTO institution_turns VALUES (institution, band, greatest(served, come_to) + turn_cost(size));
	RETURN greatest(served, come_to);
END
$$;
-- +goose StatementEnd

-- A new item: its band, its turn, its object, and its place behind or instead of
-- other live items of the same object. It is run for each row, so it asks for all
-- that it needs at once.
-- +goose StatementBegin
CREATE FUNCTION work_item_created() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	known record;
	other record;
BEGIN
	SELECT b.band, greatest(b.turn, (SELECT max(t.next_turn) FROM institution_turns t
			WHERE t.institution_id = NEW.institution_id AND t.size_band = b.band AND NEW.priority = 0)) AS turn,
		object_identifier_of(i.identifier, NEW.name) AS object
	INTO known
	FROM institutions i CROSS JOIN size_bands b
	WHERE i.id = NEW.institution_id AND b.band = (SELECT max(band) FROM size_bands WHERE min_size <= NEW.size);
	IF NOT FOUND THEN -- the foreign key will say that there is no such institution
		NEW.object_identifier := coalesce(NEW.object_identifier, '');
		RETURN NEW;
	END IF;
	IF NEW.priority = 0 THEN
		INSERT INTO institution_turns VALUES (NEW.institution_id, known.band, known.turn + turn_cost(NEW.size)); -- take_turn
	END IF;
	NEW.size_band := known.band;
	NEW.turn := known.turn;
	NEW.queued_at := coalesce(NEW.queued_at, now());
	NEW.claim_token := 0; -- no worker has had it
	NEW.entered_token := 0;
	NEW.attempt := 0;
	IF NEW.retry THEN
		PERFORM stage_named(NEW.stage, NEW.action); -- no worker would come to another
		IF NEW.status <> 'Pending' THEN
			PERFORM refused('a new item cannot be ' || NEW.status, 'Only a worker starts an item. Leave the status out.');
		END IF;
	END IF;
	IF NEW.action <> 'Ingest' THEN
		IF NEW.waits_for IS NOT NULL THEN
			PERFORM FROM work_items WHERE id = NEW.waits_for AND retry FOR UPDATE; -- whoever ends it now, finds this one behind it
			IF NOT FOUND THEN
				RAISE EXCEPTION 'item % would wait for ever: item % is not live', NEW.id, NEW.waits_for
					USING ERRCODE = 'check_violation', HINT = 'Leave waits_for out.';
			END IF;
			NEW.run_at := 'infinity';
		END IF;
		RETURN NEW;
	END IF;

	NEW.object_identifier := known.object;
	IF NOT NEW.retry THEN -- it is put on record as ended
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
		UPDATE work_item_attempts SET ended_at = clock_timestamp(), outcome = 'cancelled', error_code = 'superseded'
		WHERE work_item_id = other.id AND claim_token = other.claim_token AND ended_at IS NULL;
		UPDATE work_items SET
			status = 'Cancelled', retry = false, needs_admin_review = false, claim_token = claim_token + 1,
			lease_expires_at = NULL, node = NULL, pid = NULL, worker = NULL, waits_for = NULL, run_at = now(),
			error_code = 'superseded', updated_at = now(),
			note = 'Cancelled because a newer version of this bag was received: item ' || NEW.id || '.'
		WHERE id = other.id;
	END LOOP;
	PERFORM uploads_begin(NEW);
	NEW.waits_for := last_in_work(known.object, NEW.id);
	IF NEW.waits_for IS NOT NULL THEN
		NEW.run_at := 'infinity';
	END IF;
	RETURN NEW;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER work_item_created BEFORE INSERT ON work_items
	FOR EACH ROW EXECUTE FUNCTION work_item_created();

-- New items are told of once for each statement: in the topic log, and to the
-- workers that wait.
-- +goose StatementBegin
CREATE FUNCTION work_items_announced() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	INSERT INTO topic_messages (topic, body, work_item_id)
	SELECT s.topic, c.id::text, c.id
	FROM created c JOIN stage_settings s ON s.action = c.action AND s.stage = c.stage
	ORDER BY c.id;
	PERFORM pg_notify('farol_work', format(E'\n%s\t%s\t%s\t%s', stage, size_band, priority, min(turn)))
	FROM created GROUP BY stage, size_band, priority;
	RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER work_items_announced AFTER INSERT ON work_items
	REFERENCING NEW TABLE AS created
	FOR EACH STATEMENT EXECUTE FUNCTION work_items_announced();

-- +goose StatementBegin
CREATE FUNCTION work_item_resized() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	NEW.size_band := coalesce((SELECT max(band) FROM size_bands WHERE min_size <= NEW.size), 0); -- a constraint refuses what has none
	IF NEW.size_band <> OLD.size_band THEN
		NEW.turn := take_turn(NEW.institution_id, NEW.size_band, NEW.size, NEW.priority);
	END IF;
	RETURN NEW;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER work_item_resized BEFORE UPDATE OF size ON work_items
	FOR EACH ROW WHEN (OLD.size IS DISTINCT FROM NEW.size) EXECUTE FUNCTION work_item_resized();

-- Whoever moves the edges of the bands moves the live items with them.
-- +goose StatementBegin
CREATE FUNCTION size_bands_moved() RETURNS trigger
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
-- +goose StatementEnd

CREATE TRIGGER size_bands_moved AFTER INSERT OR DELETE OR UPDATE OF band, min_size ON size_bands
	FOR EACH STATEMENT EXECUTE FUNCTION size_bands_moved();

-- +goose Down
DROP TRIGGER work_item_resized ON work_items;
DROP FUNCTION work_item_resized();
DROP TRIGGER size_bands_moved ON size_bands;
DROP FUNCTION size_bands_moved();
DROP TRIGGER work_items_announced ON work_items;
DROP FUNCTION work_items_announced();
DROP TRIGGER work_item_created ON work_items;
DROP FUNCTION work_item_created();
DROP FUNCTION take_turn(bigint, smallint, bigint, smallint);
DROP FUNCTION turn_cost(bigint);
DROP FUNCTION lock_object(text);
DROP FUNCTION lock_institution(bigint);
DROP FUNCTION object_identifier_of(text, text);
DROP FUNCTION append_topic_message(text, text, bigint);
DROP FUNCTION last_in_work(text, bigint);
DROP TRIGGER work_item_ended ON work_items;
DROP FUNCTION work_item_ended();
DROP TRIGGER work_item_revived ON work_items;
DROP FUNCTION work_item_revived();
DROP FUNCTION uploads_begin(work_items);
DROP FUNCTION stage_named(text, text);
DROP FUNCTION is_late_stage(text);
