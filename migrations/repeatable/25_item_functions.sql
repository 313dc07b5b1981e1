-- What people and programs do with one item.

-- lock_items locks items, and the objects of those that may be revived, in the order that
-- prevents deadlocks: see lock_object.
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

-- item_to_change returns an item that nobody else changes until the transaction
-- ends.
CREATE OR REPLACE FUNCTION item_to_change(item bigint) RETURNS work_items
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	w  work_items;
	no record;
BEGIN
	SELECT * INTO w FROM work_items WHERE id = item FOR UPDATE;
	IF FOUND THEN
		RETURN w;
	END IF;
	SELECT * INTO w FROM work_items_archive WHERE id = item;
	IF FOUND THEN
		SELECT * INTO no FROM again(item);
		RAISE EXCEPTION 'item % has ended (%) and is in the archive: it cannot be changed', item, w.status
			USING ERRCODE = 'check_violation', HINT = no.hint, CONSTRAINT = no.code, DATATYPE = coalesce(no.args::text, '');
	END IF;
	RAISE EXCEPTION 'there is no item %', coalesce(item::text, 'NULL') USING ERRCODE = 'no_data_found';
END
$$;

-- requeue of a waiting item does not begin the stage again.
CREATE OR REPLACE FUNCTION requeue(item bigint, to_stage text DEFAULT NULL) RETURNS work_items
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	was work_items := item_to_change(item);
	w   work_items;
	m   work_item_move;
BEGIN
	IF to_stage IS NOT NULL THEN
		PERFORM stage_named(to_stage, was.action);
	END IF;
	IF was.status <> 'Pending' OR coalesce(to_stage, was.stage) <> was.stage THEN
		UPDATE work_items SET stage = coalesce(to_stage, stage), status = 'Pending' WHERE id = item RETURNING * INTO w;
		RETURN w;
	END IF;
	IF was.attempt > 0 THEN -- it gets all its attempts again; what the stage has finished counts
		m := unchanged(was);
		m.attempt := 0;
		m.run_at := least(was.run_at, now());
		RETURN move_by_hand(was, m);
	END IF;
	IF was.waits_for IS NULL AND was.run_at > now() THEN -- it is due now
		UPDATE work_items SET run_at = now(), updated_at = now() WHERE id = item RETURNING * INTO w;
		RETURN w;
	END IF;
	RETURN was;
END
$$;
COMMENT ON FUNCTION requeue IS
	'Makes an item claimable again, at once: at its stage, or an earlier one; at Receive if its bag was found invalid. A worker that runs it loses its lease.';

CREATE OR REPLACE FUNCTION cancel(item bigint, reason text DEFAULT NULL) RETURNS work_items
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	w work_items := item_to_change(item);
BEGIN
	IF w.status = 'Cancelled' THEN
		RETURN w; -- with the reason that was given first
	END IF;
	UPDATE work_items SET status = 'Cancelled', note = coalesce(reason, note) WHERE id = item RETURNING * INTO w;
	RETURN w;
END
$$;
COMMENT ON FUNCTION cancel IS
	'Ends an item for good, with the reason as its note. A worker that runs it loses its lease.';

-- release does not begin the stage again: what it has finished counts for the next worker.
CREATE OR REPLACE FUNCTION release(item bigint) RETURNS work_items
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	was work_items := item_to_change(item);
	m   work_item_move := unchanged(was);
BEGIN
	IF was.status <> 'Started' THEN
		RAISE EXCEPTION 'item % does not run: it is % at %', item, was.status, was.stage
			USING ERRCODE = 'check_violation', HINT = format('SELECT * FROM why_not(%s); says what it waits for.', item),
			CONSTRAINT = 'item-not-running', DATATYPE = json_object(ARRAY['item', item::text])::text;
	END IF;
	m.attempt := was.attempt - 1;
	m.run_at := now();
	m.note := format('Taken from the worker %s by %s', was.worker, acting_user());
	m.code := 'by-hand';
	m.ended := 'released';
	m.error := m.note;
	RETURN move_by_hand(was, m);
END
$$;
COMMENT ON FUNCTION release IS
	'Releases a running item from its worker. It is Pending at once, keeps what the stage has finished, and the attempt does not count.';

CREATE OR REPLACE FUNCTION note_item(item bigint, note text) RETURNS work_items
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	w work_items := item_to_change(item);
BEGIN
	INSERT INTO work_item_audit (work_item_id, before, after, note) VALUES (w.id, to_jsonb(w), to_jsonb(w), note_item.note);
	RETURN w;
END
$$;
COMMENT ON FUNCTION note_item IS
	'Adds a note to the history of an item, which stays as it is. A note is never changed: a later one corrects it.';

CREATE OR REPLACE FUNCTION set_priority(item bigint, priority integer) RETURNS work_items
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	w work_items := item_to_change(item);
BEGIN
	IF (set_priority.priority BETWEEN -100 AND 100) IS NOT TRUE THEN
		PERFORM no_such_priority(set_priority.priority);
	END IF;
	UPDATE work_items SET priority = set_priority.priority, updated_at = now() WHERE id = item RETURNING * INTO w;
	RETURN w;
END
$$;
COMMENT ON FUNCTION set_priority IS
	'Sets an item''s priority, from -100, which is claimed first, to 100.';

-- topic_request answers the request to requeue an item to the stage of a topic, by the
-- rules for a person's request. One that may be an old message of the mirror's own (not
-- sure) changes nothing, and is recorded only where it could have meant something.
CREATE OR REPLACE FUNCTION topic_request(of_topic text, message_id text, body_is text, item bigint, sure boolean) RETURNS SETOF topic_requests
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	w      work_items;
	goes   stage_settings;
	reason text;
	said   text;
BEGIN
	IF EXISTS (SELECT FROM topic_requests r WHERE r.topic = of_topic AND r.message = message_id) THEN
		RETURN QUERY SELECT * FROM topic_requests r WHERE r.topic = of_topic AND r.message = message_id;
		RETURN;
	END IF;
	SELECT * INTO w FROM all_work_items k WHERE k.id = item;
	SELECT * INTO goes FROM stage_settings s WHERE s.topic = of_topic AND s.action = w.action ORDER BY s.ordinal LIMIT 1;
	IF item IS NULL THEN
		reason := 'the message is no id of a work item';
	ELSIF w.id IS NULL THEN
		reason := format('there is no item %s', item);
	ELSIF goes.stage IS NULL THEN
		reason := format('item %s is of %s, which this topic is not for', item, w.action);
	ELSIF NOT sure AND w.status NOT IN ('Failed', 'Suspended') THEN
		RETURN;
	ELSIF NOT sure THEN
		reason := 'it was received while no mirror ran, and may be one of the mirror''s old messages: publish it again';
	ELSIF w.status = 'Started' AND w.stage = goes.stage THEN
		said := format('item %s is at %s already, and runs', item, w.stage);
	ELSE
		BEGIN
			said := format('item %s is in the queue for %s', item, (requeue(item, goes.stage)).stage);
		EXCEPTION WHEN integrity_constraint_violation OR no_data_found OR invalid_parameter_value OR program_limit_exceeded THEN
			GET STACKED DIAGNOSTICS reason = MESSAGE_TEXT; -- its hint is for psql, and this is kept
		END;
	END IF;
	IF reason IS NOT NULL AND w.id IS NOT NULL THEN
		INSERT INTO work_item_audit (work_item_id, before, after, refused)
		VALUES (w.id, to_jsonb(w), to_jsonb(w), format('requeue asked for on the topic %s: %s', of_topic, reason));
	END IF;
	RETURN QUERY INSERT INTO topic_requests (topic, message, body, work_item_id, accepted, answer)
		VALUES (of_topic, message_id, body_is, w.id, reason IS NULL, coalesce(reason, said)) RETURNING *;
END
$$;

REVOKE EXECUTE ON FUNCTION lock_items, item_to_change, requeue, cancel, release, note_item, set_priority, topic_request
	FROM PUBLIC;
