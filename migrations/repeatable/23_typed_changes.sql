-- Changes that people type, in psql or through a command. The engine moves claim_token
-- with every transition; a person never does. A change of stage or status that leaves
-- the token alone was made by hand, and is completed here, or refused. The functions are
-- documented in docs/sql.md.

-- rival_of names the item that keeps an ingest from being revived: a newer version of the
-- bag, or another item of the same upload.
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

-- again says how to get again what an ended item was about, and with which code and
-- arguments each channel says how to ask for it.
CREATE OR REPLACE FUNCTION again(item bigint, OUT code text, OUT args json, OUT hint text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	w     all_work_items;
	about record;
	rival text;
BEGIN
	SELECT * INTO w FROM all_work_items WHERE id = item;
	code := '';
	IF w.action = 'Ingest' THEN
		hint := 'Upload the bag again to ingest it again.';
		RETURN;
	END IF;
	SELECT coalesce(f.identifier, o.identifier) AS name, CASE WHEN f.id IS NULL THEN 'object' ELSE 'file' END AS kind,
		'D' IN (o.state, f.state) AS gone, coalesce(f.deleted_by_item, o.deleted_by_item) IS NOT NULL AS going, o.id AS object
	INTO about
	FROM intellectual_objects o LEFT JOIN generic_files f ON f.id = w.generic_file_id
	WHERE o.id = w.intellectual_object_id;
	IF NOT FOUND THEN
		hint := 'It is not on record any more.';
	ELSIF about.gone THEN
		hint := format('Nothing is left to do: the %s %s is deleted.', about.kind, about.name);
	ELSIF w.action <> 'Delete' AND about.going THEN
		hint := format('A deletion of the %s %s has begun: it cannot be given back.', about.kind, about.name);
	ELSE
		rival := request_rival(w.object_identifier, w.generic_file_id, w.id);
		code := CASE w.action WHEN 'Delete' THEN 'delete-again' ELSE 'restore-again' END;
		args := json_object(ARRAY['kind', about.kind, 'name', about.name, 'object', about.object::text, 'after', rival,
			'user', CASE WHEN w.action = 'Delete' OR w."user" NOT IN ('', 'system@aptrust.org') THEN w."user" ELSE '' END]);
		hint := coalesce(upper(left(rival, 1)) || substr(rival, 2) || '. When that has ended, ask', 'Ask')
			|| format(' for the %s of the %s %s again.', CASE w.action WHEN 'Delete' THEN 'deletion' ELSE 'restoration' END, about.kind, about.name);
	END IF;
END
$$;
COMMENT ON FUNCTION again IS
	'How to get again what an ended item was about: a code and arguments for programs, and a text.';

CREATE OR REPLACE FUNCTION have_again(item bigint) RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
RETURN (again(item)).hint;
COMMENT ON FUNCTION have_again IS
	'How to get again what an ended item was about: an upload, or another request.';

-- requeue_refusal says why an item cannot be requeued to a stage, and what to do instead;
-- NULL: it can. It changes nothing, so previews call it as well.
CREATE OR REPLACE FUNCTION requeue_refusal(w work_items, to_stage text, OUT reason text, OUT hint text, OUT code text, OUT args json)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	come_to smallint := stage_place(w.action, w.stage);
	goes_to smallint := (SELECT ordinal FROM stage_settings WHERE action = w.action AND stage = to_stage);
	reached text := (SELECT s.stage FROM stage_settings s WHERE s.action = w.action AND s.ordinal = come_to);
BEGIN
	args := json_object(ARRAY['item', w.id::text, 'stage', reached]);
	IF w.status IN ('Success', 'Cancelled') THEN
		reason := format('item %s has ended (%s): it cannot be changed', w.id, w.status);
		SELECT a.code, a.args, a.hint INTO code, args, hint FROM again(w.id) a;
	ELSIF goes_to IS NULL AND to_stage = w.stage AND come_to IS NOT NULL THEN
		reason := format('item %s cannot be requeued to %s: that stage was removed', w.id, to_stage);
		hint := format('Name another stage: SELECT requeue(%s, %L);', w.id, reached);
		code := 'not-at-stage';
	ELSIF goes_to IS NULL OR goes_to > come_to THEN
		reason := format('item %s cannot be requeued to %s: it has only come to %s', w.id, to_stage, w.stage);
		hint := format('Name the stage that it has reached, or an earlier one: SELECT requeue(%s, %L);', w.id, reached);
		code := 'not-at-stage';
	ELSE
		reason := format('item %s cannot be requeued: ', w.id) || rival_of(w);
		hint := format('End this one: SELECT cancel(%s);', w.id);
		code := 'newer-item';
	END IF;
END
$$;

-- requeue_stage is the stage at which an item begins that is requeued to a stage: a bag
-- that was found invalid is read again, because Validate judges what Receive has left. A
-- verdict from before the last Receive no longer counts.
CREATE OR REPLACE FUNCTION requeue_stage(w work_items, to_stage text) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
BEGIN
	IF w.action = 'Ingest' AND to_stage <> 'Receive' AND EXISTS (
		SELECT FROM work_item_attempts a
		WHERE a.work_item_id = w.id AND a.stage = 'Validate' AND a.outcome = 'fatal' AND NOT EXISTS (
			SELECT FROM work_item_attempts r
			WHERE r.work_item_id = w.id AND r.stage = 'Receive' AND r.outcome = 'done' AND r.claim_token > a.claim_token)) THEN
		RETURN 'Receive';
	END IF;
	RETURN to_stage;
END
$$;

-- requeued_by_hand is the move of an item that was typed to be Pending: the stage
-- begins from the start, with all its attempts ahead.
CREATE OR REPLACE FUNCTION requeued_by_hand(was work_items, w work_items) RETURNS work_item_move
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	m  work_item_move := unchanged(was);
	no record;
BEGIN
	IF (requeue_refusal(was, w.stage)).reason IS NULL THEN -- or else the stage that was typed is refused
		w.stage := requeue_stage(was, w.stage);
	END IF;
	PERFORM stage_named(w.stage, w.action);
	IF was.action = 'Ingest' AND NOT was.retry THEN
		PERFORM lock_object(was.object_identifier);
	END IF;
	SELECT * INTO no FROM requeue_refusal(was, w.stage);
	IF no.reason IS NOT NULL THEN
		RAISE EXCEPTION '%', no.reason USING ERRCODE = 'check_violation', HINT = no.hint, CONSTRAINT = no.code, DATATYPE = coalesce(no.args::text, '');
	END IF;
	m.stage := w.stage;
	m.attempt := 0;
	m.run_at := now();
	m.note := CASE WHEN w.note = was.note THEN 'Requeued for ' || w.stage || ' by ' || acting_user() ELSE w.note END;
	m.code := '';
	m.outcome := '';
	m.topic := topic_of(w.action, w.stage);
	m.entered_token := was.claim_token + 1;
	m.review := false;
	m.virtual_start := take_virtual_start(was.institution_id, was.size_band, was.size, w.priority); -- behind what its institution has queued
	IF was.action = 'Ingest' AND NOT was.retry THEN -- behind the live items of its object
		m.waits_for := last_in_work(was.object_identifier, was.id);
		PERFORM uploads_begin(was); -- now: the statement may revive another item of the object
	END IF;
	RETURN m;
END
$$;

-- ended_by_hand is the move of an item that was typed to be Cancelled, Failed or
-- Suspended.
CREATE OR REPLACE FUNCTION ended_by_hand(was work_items, w work_items) RETURNS work_item_move
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	m work_item_move;
BEGIN
	IF w.stage IS DISTINCT FROM was.stage THEN
		RAISE EXCEPTION 'item % cannot change its stage and be % in one step', was.id, w.status
			USING ERRCODE = 'check_violation', HINT = 'To requeue it, set status = ''Pending'' as well.';
	END IF;
	m.id := was.id;
	m.token := was.claim_token;
	m.stage := was.stage;
	m.status := w.status;
	m.note := CASE WHEN w.note = was.note THEN w.status || ' by ' || acting_user() ELSE w.note END;
	m.code := 'by-hand';
	m.outcome := CASE WHEN w.outcome <> was.outcome THEN w.outcome END;
	RETURN m;
END
$$;

-- bound_by_hand counts the items that one statement changes by hand: an UPDATE without
-- WHERE would requeue, or cancel, all items.
CREATE OR REPLACE FUNCTION bound_by_hand() RETURNS void
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
			CONSTRAINT = 'too-many-by-hand',
			HINT = format('Is its WHERE missing? requeue_where() requeues many, and reports first what it would do. If you mean it: SET farol.most_by_hand = %s;', most * 100);
	END IF;
	PERFORM set_config('farol.by_hand', statement || ' ' || items, true);
END
$$;

-- most_by_hand sets how many items a statement of this transaction may change by hand,
-- and returns the limit before.
CREATE OR REPLACE FUNCTION most_by_hand(most text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	was text := coalesce(current_setting('farol.most_by_hand', true), '');
BEGIN
	PERFORM set_config('farol.most_by_hand', most, true);
	RETURN was;
END
$$;

-- The move is applied to NEW, since the UPDATE that was typed writes the row itself.
CREATE OR REPLACE FUNCTION work_item_by_hand() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
DECLARE
	m  work_item_move;
	w  work_items;
	no record;
BEGIN
	IF (OLD.stage, OLD.status) IS NOT DISTINCT FROM (NEW.stage, NEW.status) THEN
		RETURN NEW;
	END IF;
	PERFORM bound_by_hand();
	IF OLD.status IN ('Success', 'Cancelled') THEN
		SELECT * INTO no FROM again(OLD.id);
		RAISE EXCEPTION 'item % has ended (%): it cannot be changed', OLD.id, OLD.status
			USING ERRCODE = 'check_violation', HINT = no.hint, CONSTRAINT = no.code, DATATYPE = coalesce(no.args::text, '');
	END IF;
	NEW.note := coalesce(NEW.note, '');
	IF NEW.stage IS DISTINCT FROM OLD.stage AND NEW.status = OLD.status AND OLD.status = 'Started' THEN
		NEW.status := 'Pending'; -- only the stage was typed: the worker that has the item loses it
	END IF;
	IF NEW.status = 'Pending' THEN
		m := requeued_by_hand(OLD, NEW);
	ELSIF NEW.status IN ('Cancelled', 'Failed', 'Suspended') THEN
		m := ended_by_hand(OLD, NEW);
	ELSE
		RAISE EXCEPTION 'item % cannot be set to % by hand', OLD.id, NEW.status
			USING ERRCODE = 'check_violation', HINT = 'Only a worker starts an item or brings it to success.';
	END IF;
	IF OLD.status = 'Started' THEN
		m.ended := 'cancelled';
		m.end_code := 'by-hand';
		m.error := m.note;
	END IF;
	w := NEW; -- with what else was typed, but not what the queue alone writes
	w.stage := OLD.stage;
	w.status := OLD.status;
	w.attempt := OLD.attempt;
	w.entered_token := OLD.entered_token;
	w.virtual_start := OLD.virtual_start;
	NEW.stage_started_at := OLD.stage_started_at;
	NEW.size_band := OLD.size_band;
	SELECT * INTO NEW.stage, NEW.status, NEW.claim_token, NEW.entered_token, NEW.attempt, NEW.run_at,
		NEW.lease_expires_at, NEW.node, NEW.pid, NEW.worker, NEW.retry, NEW.needs_admin_review,
		NEW.note, NEW.outcome, NEW.error_code, NEW.waits_for, NEW.virtual_start,
		NEW.intellectual_object_id, NEW.storage_option, NEW.memory_need, NEW.updated_at
	FROM moved(w, m);
	PERFORM record_moves(ARRAY[m], false, true);
	INSERT INTO work_item_audit (work_item_id, before, after) VALUES (OLD.id, to_jsonb(OLD), to_jsonb(NEW));
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER work_item_by_hand BEFORE UPDATE OF stage, status ON work_items
	FOR EACH ROW
	WHEN (OLD.claim_token = NEW.claim_token)
	EXECUTE FUNCTION work_item_by_hand();

COMMENT ON FUNCTION requeue_refusal IS 'Why an item cannot be requeued to a stage, and what to do instead; NULL: it can.';
COMMENT ON FUNCTION requeue_stage IS 'Stage at which an item begins that is requeued to a stage: Receive if its bag was found invalid.';

REVOKE EXECUTE ON FUNCTION again, have_again, requeue_refusal, requeue_stage,
	requeued_by_hand, ended_by_hand, work_item_by_hand FROM PUBLIC;
