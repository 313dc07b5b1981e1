-- Where a pull starts, without losing what comes before it; messages that are given
-- later; and receivers that are on record only once there is something to record.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- A message with run_at is given to nobody before it. Its number is given when it is
-- posted, so a receiver that comes to it too early notes it as delayed and goes on.
ALTER TABLE topic_messages ADD COLUMN run_at timestamptz, ADD CONSTRAINT run_at_of_posted CHECK (run_at IS NULL OR posted);
ALTER TABLE topic_deliveries ADD COLUMN run_at timestamptz;
ALTER TABLE topic_deliveries DROP CONSTRAINT topic_deliveries_status_check,
	ADD CONSTRAINT topic_deliveries_status_check CHECK (status IN ('processing', 'finished', 'failed', 'delayed')),
	ADD CONSTRAINT delayed_until CHECK (status <> 'delayed' OR run_at IS NOT NULL);
CREATE INDEX topic_deliveries_delayed ON topic_deliveries (receiver_id, run_at) WHERE status = 'delayed';
CREATE INDEX topic_deliveries_failed ON topic_deliveries (receiver_id) WHERE status = 'failed';

CREATE OR REPLACE VIEW deliveries AS
SELECT r.topic AS queue, d.message, r.name AS receiver, d.status, d.fail_count, d.result, d.created_at, d.updated_at,
	CASE d.status WHEN 'finished' THEN d.updated_at - d.created_at END AS took
FROM topic_deliveries d JOIN topic_receivers r ON r.id = d.receiver_id
WHERE d.status <> 'delayed'; -- it was not given yet

-- As in 00020, but that NULL is returned if a message is asked for that there is not.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION move_in_topic(r topic_receivers, start bigint) RETURNS topic_receivers
LANGUAGE plpgsql AS $$
DECLARE
	m record;
BEGIN
	IF start > 0 THEN -- just before the first that has the id, or a larger one
		SELECT xid, id - 1 AS id INTO m FROM pipeline_messages
		WHERE (xid, id) > (r.xid, r.position) AND id >= start AND topic = r.topic AND xid < pg_snapshot_xmin(pg_current_snapshot())
		ORDER BY xid, id LIMIT 1;
		IF NOT FOUND THEN
			RETURN NULL;
		END IF;
	ELSIF start = -1 THEN
		SELECT xid, id - 1 AS id INTO m FROM pipeline_messages
		WHERE topic = r.topic AND xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xid DESC, id DESC LIMIT 1;
	ELSIF start = -2 THEN
		SELECT xid, id INTO m FROM pipeline_messages
		WHERE xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xid DESC, id DESC LIMIT 1;
	ELSE
		RETURN r;
	END IF;
	IF (m.xid, m.id) > (r.xid, r.position) THEN
		r.xid := m.xid;
		r.position := m.id;
	END IF;
	RETURN r;
END
$$;

-- receiver_begins tells whether there is anything to record of a receiver that is not
-- on record yet: a message that it is given, or messages that it passes over.
CREATE FUNCTION receiver_begins(of_topic text, called text, start bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
	r topic_receivers;
	m record;
BEGIN
	IF NOT is_pipeline_topic(of_topic) THEN
		RETURN CASE WHEN start = -2 THEN EXISTS (SELECT FROM queues WHERE name = of_topic)
			ELSE EXISTS (SELECT FROM posted_messages p WHERE p.topic = of_topic AND p.number >= greatest(start, 1)) END;
	END IF;
	r.id := 0; r.xid := '0'; r.position := 0; r.topic := of_topic; r.name := called;
	r := move_in_topic(r, start);
	IF r.id IS NULL OR start = -2 THEN
		RETURN r.xid > '0' IS TRUE;
	END IF;
	SELECT * INTO m FROM next_in_topic(r, 1);
	IF NOT FOUND OR m.body IS NOT NULL THEN
		RETURN FOUND;
	END IF;
	r.xid := m.xid; r.position := m.id;
	RETURN EXISTS (SELECT FROM next_in_topic(r, 1)); -- it has to look on from there
END
$$;

-- take_delayed gives what a receiver has come to before its time, which is over.
CREATE FUNCTION take_delayed(r topic_receivers, start bigint, most integer, retry_num integer, bytes bigint)
RETURNS TABLE (message bigint, sent_by text, content text, posted_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
	m record;
	n integer := 0;
BEGIN
	FOR m IN SELECT p.number, p.sender, p.body, p.created_at
		FROM (SELECT d.message, d.run_at FROM topic_deliveries d
			WHERE d.receiver_id = r.id AND d.status = 'delayed' AND d.run_at <= clock_timestamp() AND d.message >= start
			ORDER BY d.run_at, d.message LIMIT most) d
		JOIN LATERAL (SELECT * FROM posted_messages p WHERE p.topic = r.topic AND p.number = d.message) p ON true
		ORDER BY d.run_at, d.message
	LOOP
		bytes := bytes - octet_length(m.body);
		EXIT WHEN bytes < 0 AND n > 0;
		n := n + 1;
		UPDATE topic_deliveries d SET status = CASE retry_num WHEN 0 THEN 'failed' ELSE 'processing' END,
			created_at = clock_timestamp(), updated_at = clock_timestamp()
		WHERE d.receiver_id = r.id AND d.message = m.number;
		message := m.number; sent_by := m.sender; content := m.body; posted_at := m.created_at;
		RETURN NEXT;
	END LOOP;
END
$$;

-- take_messages gives the next messages of a queue or topic to a receiver: those whose
-- time has come, then new ones, in order, up to so many of them and about so many
-- bytes; if there are none, those that it was given fail_timeout seconds ago and has
-- not answered. If there are none of these either, one row says in how many seconds
-- (due) there is one, NULL if never. start: n is from message n on, 0 where it stands,
-- -1 the newest, -2 behind the newest. A message n that there is not moves nothing,
-- and nothing new is given before it.
CREATE OR REPLACE FUNCTION take_messages(of_topic text, called text, start bigint, most integer, retry_num integer, fail_timeout float8, bytes bigint)
RETURNS TABLE (message bigint, sent_by text, content text, posted_at timestamptz, due float8)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
DECLARE
	r      topic_receivers;
	stood  topic_receivers;
	moved  topic_receivers;
	given  bigint[] := '{}';
	xids   xid8[] := '{}';
	m      record;
	last   bigint;
	n      integer := 0; -- of messages that are given
	passed integer := 0; -- of those that are delayed
	seen   integer;
	full_  boolean := false;
BEGIN
	SELECT * INTO r FROM topic_receivers WHERE topic = of_topic AND name = called FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		IF NOT receiver_begins(of_topic, called, start) THEN
			RETURN;
		END IF;
		r := receiver_locked(of_topic, called);
	END IF;
	stood := r;
	IF is_pipeline_topic(of_topic) THEN
		moved := move_in_topic(r, start);
		IF moved.id IS NOT NULL THEN
			r := moved;
			FOR m IN SELECT * FROM next_in_topic(r, most) LOOP
				r.xid := m.xid;
				r.position := m.id;
				CONTINUE WHEN m.body IS NULL;
				given := given || m.id;
				xids := xids || m.xid;
				message := m.id; sent_by := NULL; content := m.body; posted_at := m.created_at;
				RETURN NEXT;
			END LOOP;
		END IF;
	ELSE
		last := coalesce((SELECT q.last_number FROM queues q WHERE q.name = of_topic), 0);
		r.position := greatest(r.position, CASE WHEN start BETWEEN 1 AND last THEN start - 1 WHEN start = -1 THEN last - 1 WHEN start = -2 THEN last END);
		FOR m IN SELECT * FROM take_delayed(r, start, most, retry_num, bytes) LOOP
			n := n + 1;
			bytes := bytes - octet_length(m.content);
			message := m.message; sent_by := m.sent_by; content := m.content; posted_at := m.posted_at;
			RETURN NEXT;
		END LOOP;
		WHILE start <= last AND n < most AND passed < 1000 AND NOT full_ LOOP
			seen := 0;
			FOR m IN SELECT p.number, p.sender, p.body, p.created_at, p.run_at FROM posted_messages p
				WHERE p.topic = of_topic AND p.number > r.position ORDER BY p.number LIMIT most - n LOOP
				seen := seen + 1;
				IF m.run_at > clock_timestamp() THEN
					INSERT INTO topic_deliveries (receiver_id, message, status, run_at) VALUES (r.id, m.number, 'delayed', m.run_at) ON CONFLICT DO NOTHING;
					passed := passed + 1;
					r.position := m.number;
					CONTINUE;
				END IF;
				bytes := bytes - octet_length(m.body);
				full_ := bytes < 0 AND n > 0;
				EXIT WHEN full_;
				n := n + 1;
				r.position := m.number;
				given := given || m.number;
				message := m.number; sent_by := m.sender; content := m.body; posted_at := m.created_at;
				RETURN NEXT;
			END LOOP;
			EXIT WHEN seen = 0;
		END LOOP;
	END IF;
	IF (r.xid, r.position) IS DISTINCT FROM (stood.xid, stood.position) OR r.pulled_at < now() - interval '1 minute' THEN
		UPDATE topic_receivers SET xid = r.xid, position = r.position, pulled_at = now() WHERE id = r.id;
	END IF;
	IF given <> '{}' THEN
		INSERT INTO topic_deliveries AS d (receiver_id, message, xid, status)
		SELECT r.id, g.n, g.xid, CASE retry_num WHEN 0 THEN 'failed' ELSE 'processing' END FROM unnest(given, xids) g (n, xid)
		ON CONFLICT ON CONSTRAINT topic_deliveries_pkey DO UPDATE -- it was given before somebody moved the receiver back
		SET status = excluded.status, fail_count = 0, result = NULL, created_at = excluded.created_at, updated_at = excluded.updated_at;
	END IF;
	IF given <> '{}' OR n > 0 THEN
		RETURN;
	END IF;
	IF passed >= 1000 OR r.xid > '0' AND (r.xid, r.position) > (stood.xid, stood.position) AND EXISTS (SELECT FROM next_in_topic(r, 1)) THEN
		message := NULL; content := NULL; due := 0; -- it has looked at as many as it may; there are more
		RETURN NEXT;
		RETURN;
	END IF;
	FOR m IN SELECT * FROM take_again(r, most, retry_num, fail_timeout, bytes) LOOP
		message := m.message; sent_by := m.sent_by; content := m.content; posted_at := m.posted_at; due := m.due;
		IF message IS NULL THEN
			due := least(due, (SELECT extract(epoch FROM min(d.run_at) - clock_timestamp()) FROM topic_deliveries d
				WHERE d.receiver_id = r.id AND d.status = 'delayed' AND d.message >= start));
		END IF;
		RETURN NEXT;
	END LOOP;
END
$$;

DROP FUNCTION post_messages(text[], bigint[], integer[], bigint[], text[], text[]);

-- As in 00020, but that messages may be for later: run_at is when, or else delay in
-- how many seconds. NULL is at once.
CREATE FUNCTION post_messages(of_queues text[], counts bigint[], queue_of integer[], place bigint[], senders text[], bodies text[],
	delays float8[] DEFAULT '{}', run_ats timestamptz[] DEFAULT '{}')
RETURNS TABLE (queue text, last_number bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
DECLARE
	lasts bigint[] := '{}';
	q     record;
BEGIN
	FOR q IN SELECT n.name, n.messages FROM unnest(of_queues, counts) n (name, messages) ORDER BY n.name COLLATE "C" LOOP
		IF is_pipeline_topic(q.name) THEN
			RAISE EXCEPTION '% is a topic of the pipeline', q.name
				USING ERRCODE = 'check_violation', CONSTRAINT = 'topics_are_the_pipelines', HINT = 'Requeue items with farol requeue.';
		END IF;
		INSERT INTO queues AS k (name, last_number) VALUES (q.name, q.messages)
		ON CONFLICT (name) DO UPDATE SET last_number = k.last_number + excluded.last_number
		RETURNING k.name, k.last_number INTO queue, last_number;
		lasts[array_position(of_queues, q.name)] := last_number;
		PERFORM pg_notify('farol_queues', queue || ' ' || q.messages);
		RETURN NEXT;
	END LOOP;
	INSERT INTO topic_messages (posted, id, topic, number, sender, body, run_at)
	SELECT true, nextval('posted_message_ids'), of_queues[m.queue], lasts[m.queue] - counts[m.queue] + m.place, m.sender, m.body,
		coalesce(m.run_at, clock_timestamp() + make_interval(secs => m.delay))
	FROM unnest(queue_of, place, senders, bodies, delays, run_ats) m (queue, place, sender, body, delay, run_at)
	ORDER BY m.queue, m.place;
END
$$;

CREATE OR REPLACE FUNCTION queue_is_needed(queue text, last bigint, lately interval) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN NOT EXISTS (SELECT FROM topic_receivers r WHERE r.topic = queue)
	OR EXISTS (SELECT FROM topic_receivers r WHERE r.topic = queue AND r.pulled_at > now() - lately
		AND (r.position < last OR EXISTS (SELECT FROM topic_deliveries d
			WHERE d.receiver_id = r.id AND d.status IN ('processing', 'delayed') AND d.message <= last)));
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION post_messages, receiver_begins, take_delayed FROM PUBLIC;

-- +goose Down
-- move_in_topic, take_messages and queue_is_needed are as they were before.
DROP FUNCTION take_delayed(topic_receivers, bigint, integer, integer, bigint);
DROP FUNCTION receiver_begins(text, text, bigint);
DROP FUNCTION post_messages(text[], bigint[], integer[], bigint[], text[], text[], float8[], timestamptz[]);
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION move_in_topic(r topic_receivers, start bigint) RETURNS topic_receivers
LANGUAGE plpgsql AS $$
DECLARE
	m record;
BEGIN
	IF start > 0 THEN -- just before the first that has the id, or a larger one
		SELECT xid, id - 1 AS id INTO m FROM pipeline_messages
		WHERE (xid, id) > (r.xid, r.position) AND id >= start AND topic = r.topic AND xid < pg_snapshot_xmin(pg_current_snapshot())
		ORDER BY xid, id LIMIT 1;
	ELSIF start = -1 THEN
		SELECT xid, id - 1 AS id INTO m FROM pipeline_messages
		WHERE topic = r.topic AND xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xid DESC, id DESC LIMIT 1;
	ELSIF start = -2 THEN
		SELECT xid, id INTO m FROM pipeline_messages
		WHERE xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xid DESC, id DESC LIMIT 1;
	ELSE
		RETURN r;
	END IF;
	IF (m.xid, m.id) > (r.xid, r.position) THEN
		r.xid := m.xid;
		r.position := m.id;
	END IF;
	RETURN r;
END
$$;
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
CREATE FUNCTION post_messages(of_queues text[], counts bigint[], queue_of integer[], place bigint[], senders text[], bodies text[])
RETURNS TABLE (queue text, last_number bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off AS $$
DECLARE
	lasts bigint[] := '{}';
	q     record;
BEGIN
	FOR q IN SELECT n.name, n.messages FROM unnest(of_queues, counts) n (name, messages) ORDER BY n.name COLLATE "C" LOOP
		IF is_pipeline_topic(q.name) THEN
			RAISE EXCEPTION '% is a topic of the pipeline', q.name
				USING ERRCODE = 'check_violation', CONSTRAINT = 'topics_are_the_pipelines', HINT = 'Requeue items with farol requeue.';
		END IF;
		INSERT INTO queues AS k (name, last_number) VALUES (q.name, q.messages)
		ON CONFLICT (name) DO UPDATE SET last_number = k.last_number + excluded.last_number
		RETURNING k.name, k.last_number INTO queue, last_number;
		lasts[array_position(of_queues, q.name)] := last_number;
		PERFORM pg_notify('farol_queues', queue || ' ' || q.messages);
		RETURN NEXT;
	END LOOP;
	INSERT INTO topic_messages (posted, id, topic, number, sender, body)
	SELECT true, nextval('posted_message_ids'), of_queues[m.queue], lasts[m.queue] - counts[m.queue] + m.place, m.sender, m.body
	FROM unnest(queue_of, place, senders, bodies) m (queue, place, sender, body)
	ORDER BY m.queue, m.place;
END
$$;
CREATE OR REPLACE FUNCTION queue_is_needed(queue text, last bigint, lately interval) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN NOT EXISTS (SELECT FROM topic_receivers r WHERE r.topic = queue)
	OR EXISTS (SELECT FROM topic_receivers r WHERE r.topic = queue AND r.pulled_at > now() - lately
		AND (r.position < last OR EXISTS (SELECT FROM topic_deliveries d WHERE d.receiver_id = r.id AND d.status = 'processing' AND d.message <= last)));
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION post_messages FROM PUBLIC;
CREATE OR REPLACE VIEW deliveries AS
SELECT r.topic AS queue, d.message, r.name AS receiver, d.status, d.fail_count, d.result, d.created_at, d.updated_at,
	CASE d.status WHEN 'finished' THEN d.updated_at - d.created_at END AS took
FROM topic_deliveries d JOIN topic_receivers r ON r.id = d.receiver_id;
DROP INDEX topic_deliveries_failed, topic_deliveries_delayed;
UPDATE topic_deliveries SET status = 'processing' WHERE status = 'delayed';
ALTER TABLE topic_deliveries DROP CONSTRAINT delayed_until, DROP CONSTRAINT topic_deliveries_status_check,
	ADD CONSTRAINT topic_deliveries_status_check CHECK (status IN ('processing', 'finished', 'failed')), DROP COLUMN run_at;
ALTER TABLE topic_messages DROP CONSTRAINT run_at_of_posted, DROP COLUMN run_at;
