-- What keeps the queue true whoever writes to it. The engine moves claim_token
-- with every transition; a person never does. So a change of stage or status
-- that leaves the token alone was made by hand, and is completed here as the
-- console's button would have done it, or refused.

-- +goose Up

-- +goose StatementBegin
CREATE FUNCTION is_late_stage(stage text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN stage IN ('Store', 'Storage Validation', 'Record', 'Cleanup');
-- +goose StatementEnd

-- An item that has ended, whoever ended it, lets go of those that waited for it.
-- If it was itself waiting, they now wait for what it waited for. This is a
-- statement of its own, after the one that ended the item: it sees also what
-- came to wait while that one stood at the item's lock.
-- +goose StatementBegin
CREATE FUNCTION work_item_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	UPDATE work_items SET
		waits_for  = OLD.waits_for,
		run_at     = CASE WHEN OLD.waits_for IS NULL THEN now() ELSE 'infinity' END,
		updated_at = now()
	WHERE waits_for = OLD.id;
	RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER work_item_ended AFTER UPDATE OF status ON work_items
	FOR EACH ROW WHEN (OLD.retry AND NOT NEW.retry) EXECUTE FUNCTION work_item_ended();

-- last_in_work returns the live ingest of an object that none waits for yet, an
-- item itself aside, or NULL: live items of one object stand in one line. None
-- of them ends before the caller commits, and whoever ends one then finds the
-- caller's item behind it.
-- +goose StatementBegin
CREATE FUNCTION last_in_work(object text, item bigint) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM work_items
	WHERE object_identifier = object AND action = 'Ingest' AND retry AND id <> item
	ORDER BY id
	FOR UPDATE;
	RETURN (SELECT max(id) FROM work_items w
		WHERE object_identifier = object AND action = 'Ingest' AND retry AND id <> item
			AND NOT EXISTS (SELECT FROM work_items behind WHERE behind.waits_for = w.id));
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION append_topic_message(action_is text, stage_is text, item bigint) RETURNS void
LANGUAGE sql AS $$
	INSERT INTO topic_messages (topic, body, work_item_id)
	SELECT s.topic, item::text, item FROM stage_settings s WHERE s.action = action_is AND s.stage = stage_is
$$;
-- +goose StatementEnd

-- A new item: its band, its object, and its place behind or instead of other
-- live items of the same object. One advisory lock for each object makes two
-- uploads that arrive together take their turns.
-- +goose StatementBegin
CREATE FUNCTION work_item_created() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	other record;
BEGIN
	NEW.size_band := (SELECT max(band) FROM size_bands WHERE min_size <= NEW.size);
	NEW.queued_at := coalesce(NEW.queued_at, now());
	IF NEW.action <> 'Ingest' THEN
		RETURN NEW;
	END IF;
	IF NEW.object_identifier IS NULL THEN
		NEW.object_identifier := (SELECT identifier FROM institutions WHERE id = NEW.institution_id)
			|| '/' || regexp_replace(regexp_replace(NEW.name, '\.tar$', ''), '\.b\d+\.of\d+$', '');
	END IF;

	PERFORM pg_advisory_xact_lock(hashtextextended(NEW.object_identifier, 0));
	FOR other IN -- the depositor has replaced this upload and nothing of it is stored yet
		SELECT * FROM work_items
		WHERE object_identifier = NEW.object_identifier AND action = 'Ingest' AND retry
			AND name = NEW.name AND etag <> NEW.etag AND NOT is_late_stage(stage)
		ORDER BY id
		FOR UPDATE
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
	NEW.waits_for := last_in_work(NEW.object_identifier, NEW.id);
	IF NEW.waits_for IS NOT NULL THEN
		NEW.run_at := 'infinity';
	END IF;
	RETURN NEW;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER work_item_created BEFORE INSERT ON work_items
	FOR EACH ROW EXECUTE FUNCTION work_item_created();

-- +goose StatementBegin
CREATE FUNCTION work_item_announced() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM append_topic_message(NEW.action, NEW.stage, NEW.id);
	PERFORM pg_notify('farol_work', NEW.stage); -- equal payloads of one transaction are sent once
	RETURN NULL;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER work_item_announced AFTER INSERT ON work_items
	FOR EACH ROW EXECUTE FUNCTION work_item_announced();

-- +goose StatementBegin
CREATE FUNCTION work_item_resized() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.size_band := (SELECT max(band) FROM size_bands WHERE min_size <= NEW.size);
	RETURN NEW;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER work_item_resized BEFORE UPDATE OF size ON work_items
	FOR EACH ROW WHEN (OLD.size IS DISTINCT FROM NEW.size) EXECUTE FUNCTION work_item_resized();

-- +goose StatementBegin
CREATE FUNCTION work_item_by_hand() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	old_ordinal smallint := (SELECT ordinal FROM stage_settings WHERE action = OLD.action AND stage = OLD.stage);
	new_ordinal smallint := (SELECT ordinal FROM stage_settings WHERE action = NEW.action AND stage = NEW.stage);
	newer bigint;
BEGIN
	IF OLD.status IN ('Success', 'Cancelled') THEN
		RAISE EXCEPTION 'item % has ended (%): it cannot be changed', OLD.id, OLD.status
			USING ERRCODE = 'check_violation', HINT = 'Upload the bag again to ingest it again.';
	END IF;
	IF NEW.stage IS DISTINCT FROM OLD.stage AND NEW.status = OLD.status AND OLD.status = 'Started' THEN
		NEW.status := 'Pending'; -- only the stage was typed: the worker that has the item loses it
	END IF;

	IF NEW.status = 'Pending' THEN
		IF new_ordinal IS NULL OR new_ordinal > old_ordinal THEN
			RAISE EXCEPTION 'item % cannot be requeued to %: it has only come to %', OLD.id, NEW.stage, OLD.stage
				USING ERRCODE = 'check_violation', HINT = 'Name the stage that it has reached, or an earlier one.';
		END IF;
		IF OLD.action = 'Ingest' THEN
			PERFORM pg_advisory_xact_lock(hashtextextended(OLD.object_identifier, 0));
			SELECT id INTO newer FROM work_items
			WHERE institution_id = OLD.institution_id AND name = OLD.name AND id > OLD.id AND action = 'Ingest'
				AND status IN ('Pending', 'Started', 'Success') LIMIT 1;
			IF newer IS NOT NULL THEN
				RAISE EXCEPTION 'item % cannot be requeued: item % is a newer version of the same bag', OLD.id, newer
					USING ERRCODE = 'check_violation';
			END IF;
			IF NOT OLD.retry THEN -- it rejoins the queue behind what its object has in work
				NEW.waits_for := last_in_work(OLD.object_identifier, OLD.id);
			END IF;
		END IF;
		NEW.entered_token := OLD.claim_token + 1; -- the stage is begun anew, not taken up
		NEW.retry := true;
		NEW.needs_admin_review := false;
		NEW.attempt := 0;
		NEW.outcome := '';
		NEW.error_code := '';
		NEW.note := 'Requeued for ' || NEW.stage;
		NEW.run_at := CASE WHEN NEW.waits_for IS NULL THEN now() ELSE 'infinity' END;
	ELSIF NEW.status IN ('Cancelled', 'Failed', 'Suspended') THEN
		IF NEW.stage IS DISTINCT FROM OLD.stage THEN
			RAISE EXCEPTION 'item % cannot change its stage and be % in one step', OLD.id, NEW.status
				USING ERRCODE = 'check_violation', HINT = 'To requeue it, set status = ''Pending'' as well.';
		END IF;
		NEW.retry := false;
		NEW.needs_admin_review := NEW.status <> 'Cancelled';
		NEW.error_code := 'by-hand';
		IF NEW.note IS NOT DISTINCT FROM OLD.note THEN
			NEW.note := NEW.status || ' by ' || session_user;
		END IF;
		NEW.waits_for := NULL;
		NEW.run_at := now();
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
		PERFORM pg_notify('farol_work', NEW.stage);
	END IF;
	RETURN NEW;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER work_item_by_hand BEFORE UPDATE OF stage, status ON work_items
	FOR EACH ROW
	WHEN (OLD.claim_token = NEW.claim_token AND (OLD.stage, OLD.status) IS DISTINCT FROM (NEW.stage, NEW.status))
	EXECUTE FUNCTION work_item_by_hand();

-- requeue makes an item claimable again at a stage that it has reached: the
-- last attempted one unless an earlier one is named.
-- +goose StatementBegin
CREATE FUNCTION requeue(item bigint, to_stage text DEFAULT NULL) RETURNS work_items
LANGUAGE plpgsql AS $$
DECLARE
	w work_items;
BEGIN
	SELECT * INTO w FROM work_items WHERE id = item FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no item %', item USING ERRCODE = 'no_data_found';
	END IF;
	IF w.status = 'Pending' AND coalesce(to_stage, w.stage) = w.stage THEN
		RETURN w; -- it is queued there already
	END IF;
	UPDATE work_items SET stage = coalesce(to_stage, stage), status = 'Pending' WHERE id = item RETURNING * INTO w;
	RETURN w;
END
$$;
-- +goose StatementEnd

-- cancel ends an item for good. A worker that holds it is refused its next write.
-- +goose StatementBegin
CREATE FUNCTION cancel(item bigint, reason text DEFAULT NULL) RETURNS work_items
LANGUAGE plpgsql AS $$
DECLARE
	w work_items;
BEGIN
	SELECT * INTO w FROM work_items WHERE id = item FOR UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no item %', item USING ERRCODE = 'no_data_found';
	END IF;
	IF w.status = 'Cancelled' THEN
		RETURN w; -- as it is, with the reason that it was given first
	END IF;
	UPDATE work_items SET status = 'Cancelled', note = coalesce(reason, note) WHERE id = item RETURNING * INTO w;
	RETURN w;
END
$$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION cancel(bigint, text);
DROP FUNCTION requeue(bigint, text);
DROP TRIGGER work_item_by_hand ON work_items;
DROP FUNCTION work_item_by_hand();
DROP TRIGGER work_item_resized ON work_items;
DROP FUNCTION work_item_resized();
DROP TRIGGER work_item_announced ON work_items;
DROP FUNCTION work_item_announced();
DROP TRIGGER work_item_created ON work_items;
DROP FUNCTION work_item_created();
DROP FUNCTION append_topic_message(text, text, bigint);
DROP FUNCTION last_in_work(text, bigint);
DROP TRIGGER work_item_ended ON work_items;
DROP FUNCTION work_item_ended();
DROP FUNCTION is_late_stage(text);
