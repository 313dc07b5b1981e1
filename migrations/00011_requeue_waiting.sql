-- A person who requeues an item that waits for its next attempt gives it all its
-- attempts again, as with any other requeue. The stage is not begun anew, so what
-- it has finished counts.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- requeue goes by the engine's way, with the token, where it gives back attempts.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION requeue(item bigint, to_stage text DEFAULT NULL) RETURNS work_items
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	was work_items := item_to_change(item);
	w   work_items;
BEGIN
	IF to_stage IS NOT NULL THEN
		PERFORM stage_named(to_stage, was.action);
	END IF;
	IF was.status <> 'Pending' OR coalesce(to_stage, was.stage) <> was.stage THEN
		UPDATE work_items SET stage = coalesce(to_stage, stage), status = 'Pending' WHERE id = item RETURNING * INTO w;
		RETURN w;
	END IF;
	IF was.attempt > 0 THEN
		UPDATE work_items SET
			claim_token = claim_token + 1, attempt = 0, updated_at = now(),
			run_at = CASE WHEN waits_for IS NULL THEN least(run_at, now()) ELSE run_at END
		WHERE id = item RETURNING * INTO w;
		INSERT INTO work_item_audit (work_item_id, before, after) VALUES (item, to_jsonb(was), to_jsonb(w));
		PERFORM pg_notify('farol_work', E'\n' || w.stage);
		RETURN w;
	END IF;
	IF was.waits_for IS NULL AND was.run_at > now() THEN -- as it stands, but now
		UPDATE work_items SET run_at = now(), updated_at = now() WHERE id = item RETURNING * INTO w;
		RETURN w;
	END IF;
	RETURN was;
END
$$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION requeue(item bigint, to_stage text DEFAULT NULL) RETURNS work_items
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	w work_items := item_to_change(item);
BEGIN
	IF to_stage IS NOT NULL THEN
		PERFORM stage_named(to_stage, w.action);
	END IF;
	IF w.status = 'Pending' AND coalesce(to_stage, w.stage) = w.stage THEN
		IF w.waits_for IS NULL AND w.run_at > now() THEN
			UPDATE work_items SET run_at = now(), updated_at = now() WHERE id = item RETURNING * INTO w;
		END IF;
		RETURN w;
	END IF;
	UPDATE work_items SET stage = coalesce(to_stage, stage), status = 'Pending' WHERE id = item RETURNING * INTO w;
	RETURN w;
END
$$;
-- +goose StatementEnd
