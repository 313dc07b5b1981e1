-- A receiver mostly answers a message and asks for the next of the same queue in one
-- call: then both are one transaction, which waits for the disk once.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- As in 00020, but that the receiver is locked first, as it is when it is given
-- messages: else who answers and who is given a message again could wait for each
-- other.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION save_results(called text, of_topics text[], messages bigint[], results text[]) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
DECLARE
	saved bigint;
BEGIN
	PERFORM FROM topic_receivers r WHERE r.topic = ANY (of_topics) AND r.name = called ORDER BY r.topic COLLATE "C" FOR NO KEY UPDATE;
	UPDATE topic_deliveries d SET status = 'finished', result = a.result, updated_at = clock_timestamp()
	FROM unnest(of_topics, messages, results) a (topic, message, result)
	JOIN topic_receivers r ON r.topic = a.topic AND r.name = called
	WHERE d.receiver_id = r.id AND d.message = a.message;
	GET DIAGNOSTICS saved = ROW_COUNT;
	RETURN saved;
END
$$;

-- As in 00020, but that a receiver which has looked at as many messages as it may
-- looks on at once also if they are all of one transaction.
CREATE OR REPLACE FUNCTION take_messages(of_topic text, called text, start bigint, most integer, retry_num integer, fail_timeout float8, bytes bigint)
RETURNS TABLE (message bigint, sent_by text, content text, posted_at timestamptz, due float8)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
DECLARE
	r     topic_receivers := receiver_locked(of_topic, called);
	stood topic_receivers := r;
	given bigint[] := '{}';
	xids  xid8[] := '{}';
	m     record;
BEGIN
	IF is_pipeline_topic(of_topic) THEN
		r := move_in_topic(r, start);
		FOR m IN SELECT * FROM next_in_topic(r, most) LOOP
			r.xid := m.xid;
			r.position := m.id;
			CONTINUE WHEN m.body IS NULL;
			given := given || m.id;
			xids := xids || m.xid;
			message := m.id; sent_by := NULL; content := m.body; posted_at := m.created_at;
			RETURN NEXT;
		END LOOP;
	ELSE
		IF start <> 0 THEN
			r.position := greatest(r.position, CASE WHEN start > 0 THEN start - 1
				ELSE coalesce((SELECT last_number FROM queues WHERE name = of_topic), 0) - (start = -1)::int END);
		END IF;
		FOR m IN SELECT p.number, p.sender, p.body, p.created_at FROM posted_messages p
			WHERE p.topic = of_topic AND p.number > r.position ORDER BY p.number LIMIT most LOOP
			bytes := bytes - octet_length(m.body);
			EXIT WHEN bytes < 0 AND given <> '{}';
			r.position := m.number;
			given := given || m.number;
			message := m.number; sent_by := m.sender; content := m.body; posted_at := m.created_at;
			RETURN NEXT;
		END LOOP;
	END IF;
	IF (r.xid, r.position) IS DISTINCT FROM (stood.xid, stood.position) OR r.pulled_at < now() - interval '1 minute' THEN
		UPDATE topic_receivers SET xid = r.xid, position = r.position, pulled_at = now() WHERE id = r.id;
	END IF;
	IF given <> '{}' THEN
		INSERT INTO topic_deliveries (receiver_id, message, xid, status)
		SELECT r.id, g.n, g.xid, CASE retry_num WHEN 0 THEN 'failed' ELSE 'processing' END FROM unnest(given, xids) g (n, xid)
		ON CONFLICT DO NOTHING; -- it was given before somebody moved the receiver back by hand
		RETURN;
	END IF;
	IF r.xid > '0' AND (r.xid, r.position) > (stood.xid, stood.position) AND EXISTS (SELECT FROM next_in_topic(r, 1)) THEN -- it has looked at as many as it may; there are more
		message := NULL; content := NULL; due := 0;
		RETURN NEXT;
		RETURN;
	END IF;
	RETURN QUERY SELECT * FROM take_again(r, most, retry_num, fail_timeout, bytes);
END
$$;

-- answer_and_take saves a receiver's results and gives it the next messages of the
-- same queue, as take_messages does. saved, in each row, is how many of the results
-- were of messages that it had been given; if not all were, it is given none.
CREATE FUNCTION answer_and_take(of_topic text, called text, answered bigint[], results text[],
	start bigint, most integer, retry_num integer, fail_timeout float8, bytes bigint)
RETURNS TABLE (saved bigint, message bigint, sent_by text, content text, posted_at timestamptz, due float8)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	saved := save_results(called, array_fill(of_topic, ARRAY[cardinality(answered)]), answered, results);
	IF saved < cardinality(answered) THEN
		RETURN NEXT;
		RETURN;
	END IF;
	RETURN QUERY SELECT answer_and_take.saved, t.* FROM take_messages(of_topic, called, start, most, retry_num, fail_timeout, bytes) t;
END
$$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION answer_and_take FROM PUBLIC;

-- +goose Down
-- take_messages stays as it is now: it is called as before.
DROP FUNCTION answer_and_take(text, text, bigint[], text[], bigint, integer, integer, float8, bigint);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION save_results(called text, of_topics text[], messages bigint[], results text[]) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$ -- which is planned once
DECLARE
	saved bigint;
BEGIN
	WITH locked AS ( -- in the order in which calls are given messages
		SELECT d.receiver_id, d.message, a.result
		FROM unnest(of_topics, messages, results) a (topic, message, result)
		JOIN topic_receivers r ON r.topic = a.topic AND r.name = called
		JOIN topic_deliveries d ON d.receiver_id = r.id AND d.message = a.message
		ORDER BY r.topic COLLATE "C", d.message
		FOR UPDATE OF d
	)
	UPDATE topic_deliveries d SET status = 'finished', result = l.result, updated_at = clock_timestamp()
	FROM locked l WHERE d.receiver_id = l.receiver_id AND d.message = l.message;
	GET DIAGNOSTICS saved = ROW_COUNT;
	RETURN saved;
END
$$;
-- +goose StatementEnd
