-- Attempts of a stage that got an item further do not count towards its maximum: a
-- worker that is killed again and again in the course of a week's work is not the
-- item's doing. One that kills its workers gets no further, and is parked.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- Each row is the claim of an attempt which found that those before it had got on.
CREATE TABLE attempts_forgiven (
	work_item_id bigint      NOT NULL, -- no foreign key, as in work_item_attempts
	claim_token  bigint      NOT NULL,
	attempts     integer     NOT NULL, -- that count no more
	forgiven_at  timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (work_item_id, claim_token)
);

-- forgive_attempts makes a running attempt the first that counts, if the claim
-- holds, and if it is not that already.
-- +goose StatementBegin
CREATE FUNCTION forgive_attempts() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	SELECT attempt - 1 INTO NEW.attempts FROM work_items
	WHERE id = NEW.work_item_id AND claim_token = NEW.claim_token AND status = 'Started' AND attempt > 1 FOR UPDATE;
	IF NOT FOUND THEN
		RETURN NULL;
	END IF;
	UPDATE work_items SET attempt = 1 WHERE id = NEW.work_item_id;
	RETURN NEW;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER forgive_attempts BEFORE INSERT ON attempts_forgiven FOR EACH ROW EXECUTE FUNCTION forgive_attempts();

-- +goose Down
DROP TABLE attempts_forgiven;
DROP FUNCTION forgive_attempts();
