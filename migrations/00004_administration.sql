-- What a person decides about an item, a stage or a worker, in psql or through a
-- command. The engine moves claim_token with every transition; a person never
-- does. So a change of stage or status that leaves the token alone was made by
-- hand, and is completed here as the console's button would have done it, or
-- refused. The functions are documented in docs/sql.md.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- rival_of names the item because of which an ingest must not come alive again: a
-- newer version of the bag, or another item of the same upload.
-- +goose StatementBegin
CREATE FUNCTION rival_of(w work_items) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
	IF w.action <> 'Ingest' THEN
		RETURN NULL;
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

-- requeue_refusal says why an item cannot be requeued to a stage, and what to do
-- instead; NULL if it can. It changes nothing, so it also tells beforehand.
-- +goose StatementBegin
CREATE FUNCTION requeue_refusal(w work_items, to_stage text, OUT reason text, OUT hint text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	come_to smallint := (SELECT ordinal FROM stage_settings WHERE action = w.action AND stage = w.stage);
	goes_to smallint := (SELECT ordinal FROM stage_settings WHERE action = w.action AND stage = to_stage);
BEGIN
	IF w.status IN ('Success', 'Cancelled') THEN
		reason := format('item %s has ended (%s): it cannot be changed', w.id, w.status);
		hint := 'Upload the bag again to ingest it again.';
	ELSIF goes_to IS NULL OR goes_to > come_to THEN
		reason := format('item %s cannot be requeued to %s: it has only come to %s', w.id, to_stage, w.stage);
		hint := 'Name the stage that it has reached, or an earlier one.';
	ELSE
		reason := format('item %s cannot be requeued: ', w.id) || rival_of(w);
		hint := format('End this one: SELECT cancel(%s);', w.id);
	END IF;
END
$$;
-- +goose StatementEnd

-- requeued_by_hand completes a change to Pending: the stage is begun anew, not
-- taken up, with all its attempts ahead.
-- +goose StatementBegin
CREATE FUNCTION requeued_by_hand(was work_items, w work_items) RETURNS work_items
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	no record;
BEGIN
	PERFORM stage_named(w.stage, w.action);
	IF was.action = 'Ingest' AND NOT was.retry THEN
		PERFORM lock_object(was.object_identifier);
	END IF;
	SELECT * INTO no FROM requeue_refusal(was, w.stage);
	IF no.reason IS NOT NULL THEN
		RAISE EXCEPTION '%', no.reason USING ERRCODE = 'check_violation', HINT = no.hint;
	END IF;
	w.turn := take_turn(was.institution_id, was.size_band, was.size, w.priority); -- behind what its institution has queued
	IF was.action = 'Ingest' AND NOT was.retry THEN -- it rejoins the queue behind what its object has in work
		w.waits_for := last_in_work(was.object_identifier, was.id);
		PERFORM uploads_begin(was); -- now: the statement may bring back another of the object
	END IF;
	w.entered_token := was.claim_token + 1;
	w.retry := true;
	w.needs_admin_review := false;
	w.attempt := 0;
	w.outcome := '';
	w.error_code := '';
	IF w.note = was.note THEN
		w.note := 'Requeued for ' || w.stage;
	END IF;
	w.run_at := CASE WHEN w.waits_for IS NULL THEN now() ELSE 'infinity' END;
	RETURN w;
END
$$;
-- +goose StatementEnd

-- ended_by_hand completes a change to Cancelled, Failed or Suspended.
-- +goose StatementBegin
CREATE FUNCTION ended_by_hand(was work_items, w work_items) RETURNS work_items
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF w.stage IS DISTINCT FROM was.stage THEN
		RAISE EXCEPTION 'item % cannot change its stage and be % in one step', was.id, w.status
			USING ERRCODE = 'check_violation', HINT = 'To requeue it, set status = ''Pending'' as well.';
	END IF;
	w.retry := false;
	w.needs_admin_review := w.status <> 'Cancelled';
	w.error_code := 'by-hand';
	IF w.note = was.note THEN
		w.note := w.status || ' by ' || session_user;
	END IF;
	w.waits_for := NULL;
	w.run_at := now();
	RETURN w;
END
$$;
-- +goose StatementEnd

-- bound_by_hand counts the items that one statement changes by hand. An UPDATE
-- without WHERE would requeue, or cancel, all there are.
-- +goose StatementBegin
CREATE FUNCTION bound_by_hand() RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	most      int := coalesce(nullif(current_setting('farol.most_by_hand', true), ''), '1000');
	statement text := extract(epoch FROM statement_timestamp())::text;
	counted   text := current_setting('farol.by_hand', true); -- "statement items"
	items     int := 1;
BEGIN
	IF split_part(counted, ' ', 1) = statement THEN
		items := split_part(counted, ' ', 2)::int + 1;
	END IF;
	IF items > most THEN
		RAISE EXCEPTION 'this statement changes more than % items by hand, and none was changed', most
			USING ERRCODE = 'program_limit_exceeded',
			HINT = format('Is its WHERE missing? requeue_where() requeues many, and tells beforehand. If you mean it: SET farol.most_by_hand = %s;', most * 100);
	END IF;
	PERFORM set_config('farol.by_hand', statement || ' ' || items, true);
END
$$;
-- +goose StatementEnd

-- most_by_hand lets statements of this transaction change so many items, and
-- returns what they might before.
-- +goose StatementBegin
CREATE FUNCTION most_by_hand(most text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	was text := coalesce(current_setting('farol.most_by_hand', true), '');
BEGIN
	PERFORM set_config('farol.most_by_hand', most, true);
	RETURN was;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION work_item_by_hand() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	IF (OLD.stage, OLD.status) IS NOT DISTINCT FROM (NEW.stage, NEW.status) THEN
		RETURN NEW;
	END IF;
	PERFORM bound_by_hand();
	IF OLD.status IN ('Success', 'Cancelled') THEN
		RAISE EXCEPTION 'item % has ended (%): it cannot be changed', OLD.id, OLD.status
			USING ERRCODE = 'check_violation', HINT = 'Upload the bag again to ingest it again.';
	END IF;
	NEW.attempt := OLD.attempt; -- what the queue itself writes is not typed
	NEW.entered_token := OLD.entered_token;
	NEW.stage_started_at := OLD.stage_started_at;
	NEW.size_band := OLD.size_band;
	NEW.turn := OLD.turn;
	NEW.waits_for := OLD.waits_for;
	NEW.note := coalesce(NEW.note, '');
	IF NEW.stage IS DISTINCT FROM OLD.stage AND NEW.status = OLD.status AND OLD.status = 'Started' THEN
		NEW.status := 'Pending'; -- only the stage was typed: the worker that has the item loses it
	END IF;
	IF NEW.status = 'Pending' THEN
		NEW := requeued_by_hand(OLD, NEW);
	ELSIF NEW.status IN ('Cancelled', 'Failed', 'Suspended') THEN
		NEW := ended_by_hand(OLD, NEW);
	ELSE
		RAISE EXCEPTION 'item % cannot be set to % by hand', OLD.id, NEW.status
			USING ERRCODE = 'check_violation', HINT = 'Only a worker starts an item or brings it to success.';
	END IF;
	NEW.claim_token := OLD.claim_token + 1; -- the next write of a worker that holds it is refused
	NEW.lease_expires_at := NULL;
	NEW.node := NULL;
	NEW.pid := NULL;
	NEW.worker := NULL;
	NEW.updated_at := now();
	IF OLD.status = 'Started' THEN
		UPDATE work_item_attempts SET ended_at = clock_timestamp(), outcome = 'cancelled', error_code = 'by-hand',
			error = NEW.note
		WHERE work_item_id = OLD.id AND claim_token = OLD.claim_token AND ended_at IS NULL;
	END IF;
	INSERT INTO work_item_audit (work_item_id, before, after) VALUES (OLD.id, to_jsonb(OLD), to_jsonb(NEW));
	IF NEW.status = 'Pending' THEN
		PERFORM append_topic_message(NEW.action, NEW.stage, NEW.id);
		PERFORM pg_notify('farol_work', E'\n' || NEW.stage); -- equal payloads of one transaction are sent once
	END IF;
	RETURN NEW;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER work_item_by_hand BEFORE UPDATE OF stage, status ON work_items
	FOR EACH ROW
	WHEN (OLD.claim_token = NEW.claim_token)
	EXECUTE FUNCTION work_item_by_hand();

-- lock_items keeps items as they are until the transaction ends, in the order of
-- all who lock several: see lock_object.
-- +goose StatementBegin
CREATE FUNCTION lock_items(ids bigint[]) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	PERFORM FROM work_items WHERE id = ANY (ids) AND NOT retry ORDER BY id FOR UPDATE;
	PERFORM lock_object(o.name) FROM (
		SELECT object_identifier COLLATE "C" AS name FROM work_items WHERE id = ANY (ids) AND NOT retry AND action = 'Ingest' GROUP BY 1 ORDER BY 1
	) o;
	PERFORM FROM work_items WHERE id = ANY (ids) AND retry ORDER BY waits_for IS NOT NULL, id FOR UPDATE;
END
$$;
-- +goose StatementEnd

-- item_to_change returns an item that nobody else changes until the transaction
-- ends.
-- +goose StatementBegin
CREATE FUNCTION item_to_change(item bigint) RETURNS work_items
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	w work_items;
BEGIN
	SELECT * INTO w FROM work_items WHERE id = item FOR UPDATE;
	IF FOUND THEN
		RETURN w;
	END IF;
	SELECT * INTO w FROM work_items_archive WHERE id = item;
	IF FOUND THEN
		RAISE EXCEPTION 'item % has ended (%) and is in the archive: it cannot be changed', item, w.status
			USING ERRCODE = 'check_violation', HINT = 'Upload the bag again to ingest it again.';
	END IF;
	RAISE EXCEPTION 'there is no item %', coalesce(item::text, 'NULL') USING ERRCODE = 'no_data_found';
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION requeue(item bigint, to_stage text DEFAULT NULL) RETURNS work_items
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	w work_items := item_to_change(item);
BEGIN
	IF to_stage IS NOT NULL THEN
		PERFORM stage_named(to_stage, w.action);
	END IF;
	IF w.status = 'Pending' AND coalesce(to_stage, w.stage) = w.stage THEN
		IF w.waits_for IS NULL AND w.run_at > now() THEN -- as it stands, but now
			UPDATE work_items SET run_at = now(), updated_at = now() WHERE id = item RETURNING * INTO w;
		END IF;
		RETURN w;
	END IF;
	UPDATE work_items SET stage = coalesce(to_stage, stage), status = 'Pending' WHERE id = item RETURNING * INTO w;
	RETURN w;
END
$$;
COMMENT ON FUNCTION requeue IS
	'Makes an item claimable again, at once: at the stage that it came to last, or an earlier one. A worker that has it loses it.';
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION cancel(item bigint, reason text DEFAULT NULL) RETURNS work_items
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	w work_items := item_to_change(item);
BEGIN
	IF w.status = 'Cancelled' THEN
		RETURN w; -- as it is, with the reason that it was given first
	END IF;
	UPDATE work_items SET status = 'Cancelled', note = coalesce(reason, note) WHERE id = item RETURNING * INTO w;
	RETURN w;
END
$$;
COMMENT ON FUNCTION cancel IS 'Ends an item for good, with the reason as its note. A worker that has it loses it.';
-- +goose StatementEnd

-- release goes by the engine's way, with the token: the stage is not begun anew,
-- so what it has finished counts for the next worker.
-- +goose StatementBegin
CREATE FUNCTION release(item bigint) RETURNS work_items
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	was work_items := item_to_change(item);
	w   work_items;
BEGIN
	IF was.status <> 'Started' THEN
		RAISE EXCEPTION 'item % does not run: it is % at %', item, was.status, was.stage
			USING ERRCODE = 'check_violation', HINT = format('SELECT * FROM why_not(%s); says what it waits for.', item);
	END IF;
	UPDATE work_items SET
		status = 'Pending', claim_token = claim_token + 1, attempt = attempt - 1, run_at = now(),
		lease_expires_at = NULL, node = NULL, pid = NULL, worker = NULL,
		note = format('Taken from the worker %s by %s', was.worker, session_user), error_code = 'by-hand', updated_at = now()
	WHERE id = item RETURNING * INTO w;
	UPDATE work_item_attempts SET ended_at = clock_timestamp(), outcome = 'released', error_code = 'by-hand', error = w.note
	WHERE work_item_id = item AND claim_token = was.claim_token AND ended_at IS NULL;
	INSERT INTO work_item_audit (work_item_id, before, after) VALUES (item, to_jsonb(was), to_jsonb(w));
	PERFORM pg_notify('farol_work', E'\n' || w.stage);
	RETURN w;
END
$$;
COMMENT ON FUNCTION release IS
	'Takes a running item from its worker. It is Pending at once, keeps what the stage has finished, and the attempt does not count.';
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION set_priority(item bigint, priority integer) RETURNS work_items
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
COMMENT ON FUNCTION set_priority IS 'Lets an item go before others, or after them: from -100, which goes first, to 100.';
-- +goose StatementEnd

CREATE TYPE stage_pause AS (
	action text, stage text, paused boolean, paused_by text, paused_at timestamptz, pause_reason text
);

-- set_paused pauses or resumes what is named; NULL names all of them.
-- +goose StatementBegin
CREATE FUNCTION set_paused(of_action text, of_stage text, yes boolean, reason text) RETURNS SETOF stage_pause
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	RETURN QUERY
	UPDATE stage_settings s SET paused = yes, pause_reason = CASE WHEN yes THEN coalesce(reason, s.pause_reason) END
	WHERE (of_action IS NULL OR s.action = of_action) AND (of_stage IS NULL OR s.stage = of_stage)
	RETURNING s.action::text, s.stage::text, s.paused, s.paused_by, s.paused_at, s.pause_reason;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION pause_stage(stage text, reason text DEFAULT NULL, action text DEFAULT NULL) RETURNS SETOF stage_pause
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS
$$ SELECT * FROM set_paused($3, stage_named($1, $3), true, $2) $$;
COMMENT ON FUNCTION pause_stage IS
	'Stops claims of a stage, of one action or of each that has it. What runs goes on, and what comes to the stage waits.';

CREATE FUNCTION resume_stage(stage text, action text DEFAULT NULL) RETURNS SETOF stage_pause
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS
$$ SELECT * FROM set_paused($2, stage_named($1, $2), false, NULL) $$;
COMMENT ON FUNCTION resume_stage IS 'Lets workers claim a stage again.';

CREATE FUNCTION pause_all(reason text DEFAULT NULL) RETURNS SETOF stage_pause
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS
$$ SELECT * FROM set_paused(NULL, NULL, true, $1) $$;
COMMENT ON FUNCTION pause_all IS 'Stops all claims. What runs goes on.';

CREATE FUNCTION resume_all() RETURNS SETOF stage_pause
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS
$$ SELECT * FROM set_paused(NULL, NULL, false, NULL) $$;
COMMENT ON FUNCTION resume_all IS 'Lets workers claim all stages again, also those that were paused one by one.';
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION resume_all();
DROP FUNCTION pause_all(text);
DROP FUNCTION resume_stage(text, text);
DROP FUNCTION pause_stage(text, text, text);
DROP FUNCTION set_paused(text, text, boolean, text);
DROP TYPE stage_pause;
DROP FUNCTION set_priority(bigint, integer);
DROP FUNCTION release(bigint);
DROP FUNCTION cancel(bigint, text);
DROP FUNCTION requeue(bigint, text);
DROP FUNCTION item_to_change(bigint);
DROP FUNCTION lock_items(bigint[]);
DROP TRIGGER work_item_by_hand ON work_items;
DROP FUNCTION work_item_by_hand();
DROP FUNCTION most_by_hand(text);
DROP FUNCTION bound_by_hand();
DROP FUNCTION ended_by_hand(work_items, work_items);
DROP FUNCTION requeued_by_hand(work_items, work_items);
DROP FUNCTION requeue_refusal(work_items, text);
DROP FUNCTION rival_of(work_items);
