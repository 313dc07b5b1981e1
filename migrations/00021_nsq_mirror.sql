-- What the mirror needs to show the queue in nsqd as it is: the retries, which no
-- count tells, what people publish on the pipeline's topics, and the pauses that
-- both sides agreed on last.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- A row for each attempt after which the item is tried at the same stage again,
-- written by the statement that ends the attempt. The mirror takes the rows away;
-- where none runs, they go after a day.
CREATE TABLE topic_retries (
	id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	topic        text        NOT NULL,
	work_item_id bigint      NOT NULL, -- no foreign key, as in work_item_attempts
	created_at   timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000);
CREATE INDEX topic_retries_old ON topic_retries (created_at);

CREATE TABLE nsq_topics (
	topic   text    PRIMARY KEY,
	paused  boolean NOT NULL DEFAULT false, -- as Farol and nsqd agreed on last: whoever differs has changed
	-- A mirror that ends in order leaves the messages of items that wait in their
	-- channels. The next one tells them from what others publish meanwhile by when
	-- they were published, and by how many they are.
	settled       boolean NOT NULL DEFAULT false, -- the last mirror ended in order: all its messages were published before left_at
	left_at       timestamptz,                    -- by nsqd's clock; NULL: it left no message
	left_messages bigint  NOT NULL DEFAULT 0      -- that were its own
);
COMMENT ON TABLE nsq_topics IS 'What the mirror remembers of each topic of nsqd.';

CREATE TABLE topic_requests (
	id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	at           timestamptz NOT NULL DEFAULT clock_timestamp(),
	topic        text        NOT NULL,
	message      text        NOT NULL, -- nsqd's id: a message that comes twice is one request
	body         text        NOT NULL, -- its beginning
	work_item_id bigint,               -- NULL: it names no item
	accepted     boolean     NOT NULL,
	answer       text        NOT NULL
);
CREATE UNIQUE INDEX topic_requests_message ON topic_requests (topic, message);
CREATE INDEX topic_requests_at ON topic_requests (at);
CREATE INDEX topic_requests_item ON topic_requests (work_item_id) WHERE work_item_id IS NOT NULL;
COMMENT ON TABLE topic_requests IS 'What others have published on the pipeline''s topics, which asks for a requeue or a fixity check, and what became of it.';

ALTER TABLE work_item_audit ADD COLUMN refused text; -- why nothing was changed; NULL: it was
COMMENT ON COLUMN work_item_audit.refused IS 'Why a request from a topic changed nothing; NULL where something was changed.';

-- topic_request answers the request to requeue an item to the stage of a topic, by
-- the rules for a person's. One that the mirror is not sure of may be an old
-- message of its own: it changes nothing, and a person hears of it only where
-- something could have been meant.
-- +goose StatementBegin
CREATE FUNCTION topic_request(of_topic text, message_id text, body_is text, item bigint, sure boolean) RETURNS SETOF topic_requests
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	w      work_items;
	goes   stage_settings;
	reason text;
	hint   text;
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
		reason := format('item %s is of %s, which has nothing to do with this topic', item, w.action);
	ELSIF NOT sure AND w.status NOT IN ('Failed', 'Suspended') THEN
		RETURN;
	ELSIF NOT sure THEN
		reason := 'it came while the mirror was away, and may be an old message of its own: publish it again';
	ELSIF w.status = 'Started' AND w.stage = goes.stage THEN
		said := format('item %s is at %s already, and runs', item, w.stage);
	ELSE
		BEGIN
			PERFORM requeue(item, goes.stage);
			said := format('item %s is in the queue for %s', item, goes.stage);
		EXCEPTION WHEN integrity_constraint_violation OR no_data_found OR invalid_parameter_value OR program_limit_exceeded THEN
			GET STACKED DIAGNOSTICS reason = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
			reason := reason || coalesce('. ' || nullif(hint, ''), '');
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
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION topic_request(text, text, text, bigint, boolean) FROM PUBLIC;

INSERT INTO administration_rights (privilege, on_table) VALUES ('SELECT', 'topic_requests'), ('SELECT', 'nsq_topics');
SELECT grant_to_administrators();

-- +goose Down
DELETE FROM administration_rights WHERE on_table IN ('topic_requests', 'nsq_topics');
DROP FUNCTION topic_request(text, text, text, bigint, boolean);
ALTER TABLE work_item_audit DROP COLUMN refused;
DROP TABLE topic_requests, nsq_topics, topic_retries;
