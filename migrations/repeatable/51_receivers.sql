-- Receivers of messages over HTTP.

CREATE OR REPLACE VIEW deliveries AS
SELECT r.topic AS queue, d.message, r.name AS receiver, d.status, d.fail_count, d.result, d.created_at, d.updated_at,
	CASE d.status WHEN 'finished' THEN d.updated_at - d.created_at END AS took
FROM topic_deliveries d JOIN topic_receivers r ON r.id = d.receiver_id
WHERE d.status <> 'delayed'; -- it was not given yet
COMMENT ON VIEW deliveries IS
	'Each message that was given to a receiver of the HTTP pull API: processing, finished or failed, with its result and times.';

-- receiver_locked returns the row of a receiver, locked, and creates it if necessary.
-- Calls under one name wait for each other by it.
CREATE OR REPLACE FUNCTION receiver_locked(of_topic text, called text) RETURNS topic_receivers
LANGUAGE plpgsql AS $$
DECLARE
	r topic_receivers;
BEGIN
	SELECT * INTO r FROM topic_receivers WHERE topic = of_topic AND name = called FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		INSERT INTO topic_receivers (topic, name) VALUES (of_topic, called)
		ON CONFLICT (topic, name) DO UPDATE SET name = excluded.name
		RETURNING * INTO r;
	END IF;
	RETURN r;
END
$$;

-- move_in_topic moves a receiver forward to where it wants to begin in a topic of the
-- pipeline, never back.
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

-- next_in_topic returns a receiver's next messages in a topic of the pipeline, in their
-- order, up to the oldest open transaction; and how far it has read, as a last row without
-- a body. One call reads at most 50,000 messages of all topics.
CREATE OR REPLACE FUNCTION next_in_topic(r topic_receivers, most integer)
RETURNS TABLE (xid xid8, id bigint, body text, created_at timestamptz)
LANGUAGE plpgsql AS $$
DECLARE
	m record;
	n integer := 0;
BEGIN
	FOR m IN SELECT l.xid, l.id, l.topic, l.body, l.created_at FROM pipeline_messages l
		WHERE (l.xid, l.id) > (r.xid, r.position) AND l.xid < pg_snapshot_xmin(pg_current_snapshot())
		ORDER BY l.xid, l.id LIMIT 50000 LOOP
		xid := m.xid; id := m.id; body := NULL; created_at := m.created_at;
		IF m.topic = r.topic THEN
			body := m.body;
			n := n + 1;
			RETURN NEXT;
			IF n >= most THEN
				RETURN;
			END IF;
		END IF;
	END LOOP;
	IF xid IS NOT NULL AND body IS NULL THEN
		RETURN NEXT;
	END IF;
END
$$;

-- receiver_begins says whether there is anything to record of a new receiver: a message to
-- deliver, or messages that it passes over.
CREATE OR REPLACE FUNCTION receiver_begins(of_topic text, called text, start bigint) RETURNS boolean
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
	RETURN EXISTS (SELECT FROM next_in_topic(r, 1)); -- it has to read on from there
END
$$;

-- take_delayed delivers delayed messages that are due.
CREATE OR REPLACE FUNCTION take_delayed(r topic_receivers, start bigint, most integer, retry_num integer, bytes bigint)
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

-- take_again redelivers messages that a receiver has not answered, and counts that. A
-- message that is no longer in the log has failed.
CREATE OR REPLACE FUNCTION take_again(r topic_receivers, most integer, retry_num integer, fail_timeout float8, bytes bigint)
RETURNS TABLE (message bigint, sent_by text, content text, posted_at timestamptz, due float8)
LANGUAGE plpgsql AS $$
DECLARE
	d record;
	n integer := 0;
BEGIN
	FOR d IN SELECT t.message, l.sender, l.body, l.created_at, l.there
		FROM (SELECT o.message, o.xid FROM topic_deliveries o
			WHERE o.receiver_id = r.id AND o.status = 'processing' AND o.updated_at <= clock_timestamp() - make_interval(secs => fail_timeout)
			ORDER BY o.message LIMIT most) t
		LEFT JOIN LATERAL (
			SELECT p.sender, p.body, p.created_at, true AS there FROM posted_messages p WHERE t.xid IS NULL AND p.topic = r.topic AND p.number = t.message
			UNION ALL
			SELECT NULL, q.body, q.created_at, true FROM pipeline_messages q WHERE q.xid = t.xid AND q.id = t.message
		) l ON true
		ORDER BY t.message
	LOOP
		bytes := bytes - coalesce(octet_length(d.body), 0);
		EXIT WHEN bytes < 0 AND n > 0;
		UPDATE topic_deliveries t SET updated_at = clock_timestamp(), fail_count = t.fail_count + 1,
			status = CASE WHEN t.fail_count + 1 >= retry_num OR d.there IS NULL THEN 'failed' ELSE 'processing' END
		WHERE t.receiver_id = r.id AND t.message = d.message;
		CONTINUE WHEN d.there IS NULL;
		n := n + 1;
		message := d.message; sent_by := d.sender; content := d.body; posted_at := d.created_at;
		RETURN NEXT;
	END LOOP;
	IF n = 0 THEN
		message := NULL; content := NULL;
		due := (SELECT extract(epoch FROM min(updated_at) - clock_timestamp()) + fail_timeout
			FROM topic_deliveries t WHERE t.receiver_id = r.id AND t.status = 'processing');
		RETURN NEXT;
	END IF;
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
		ON CONFLICT ON CONSTRAINT topic_deliveries_pkey DO UPDATE -- it was delivered before a person moved the receiver back
		SET status = excluded.status, fail_count = 0, result = NULL, created_at = excluded.created_at, updated_at = excluded.updated_at;
	END IF;
	IF given <> '{}' OR n > 0 THEN
		RETURN;
	END IF;
	IF passed >= 1000 OR r.xid > '0' AND (r.xid, r.position) > (stood.xid, stood.position) AND EXISTS (SELECT FROM next_in_topic(r, 1)) THEN
		message := NULL; content := NULL; due := 0; -- it has read as many as it may; there are more
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

-- save_results records the answers of receivers, and returns how many of them were to
-- messages that had been delivered.
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

-- answer_and_take saves a receiver's results and gives it the next messages of the
-- same queue, as take_messages does. saved, in each row, is how many of the results
-- were of messages that it had been given; if not all were, it is given none.
CREATE OR REPLACE FUNCTION answer_and_take(of_topic text, called text, answered bigint[], results text[],
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

-- post_messages appends messages to queues, and returns the number of the last in
-- each. Receivers that wait are notified. A queue is created with its first message;
-- queues are locked in the order of their names, to prevent deadlocks.
CREATE OR REPLACE FUNCTION post_messages(of_queues text[], counts bigint[], queue_of integer[], place bigint[], senders text[], bodies text[],
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
				USING ERRCODE = 'check_violation', CONSTRAINT = 'topics_are_the_pipelines', HINT = 'To requeue an item: SELECT requeue(7);';
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

-- place_receiver moves a receiver behind a message, or to the beginning with 0. It returns
-- the number of the last message of the queue, NULL: there is no such queue; beyond the
-- last it moves nothing.
CREATE OR REPLACE FUNCTION place_receiver(of_topic text, called text, behind bigint) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	r    topic_receivers;
	at_  record;
	last bigint;
BEGIN
	IF is_pipeline_topic(of_topic) THEN
		last := coalesce((SELECT max(id) FROM pipeline_messages WHERE xid < pg_snapshot_xmin(pg_current_snapshot())), 0);
		SELECT xid, id - 1 AS id INTO at_ FROM pipeline_messages
		WHERE topic = of_topic AND id > behind AND xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xid, id LIMIT 1;
		IF NOT FOUND THEN -- behind all
			SELECT xid, id INTO at_ FROM pipeline_messages WHERE xid < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY xid DESC, id DESC LIMIT 1;
		END IF;
	ELSE
		last := (SELECT last_number FROM queues WHERE name = of_topic);
		SELECT '0'::xid8 AS xid, behind AS id INTO at_;
	END IF;
	IF last IS NULL OR behind > last THEN
		RETURN last;
	END IF;
	r := receiver_locked(of_topic, called);
	UPDATE topic_receivers SET xid = coalesce(at_.xid, '0'), position = coalesce(at_.id, 0), pulled_at = now() WHERE id = r.id;
	DELETE FROM topic_deliveries WHERE receiver_id = r.id AND status = 'delayed';
	RETURN last;
END
$$;

-- trim_receivers deletes receivers that have been silent for longer than keep, with their
-- unanswered deliveries, and returns how many, up to 1000 at a time. A receiver that has
-- answered stays as long as its answers.
CREATE OR REPLACE FUNCTION trim_receivers(keep interval) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	old bigint[];
BEGIN
	old := ARRAY(SELECT r.id FROM topic_receivers r
		WHERE r.pulled_at < now() - keep AND NOT EXISTS (SELECT FROM topic_deliveries d WHERE d.receiver_id = r.id AND d.status = 'finished')
		ORDER BY r.id LIMIT 1000 FOR UPDATE SKIP LOCKED);
	DELETE FROM topic_deliveries WHERE receiver_id = ANY (old);
	DELETE FROM topic_receivers WHERE id = ANY (old);
	RETURN cardinality(old);
END
$$;

REVOKE EXECUTE ON FUNCTION receiver_locked, move_in_topic, next_in_topic, receiver_begins, take_delayed,
	take_again, take_messages, save_results, answer_and_take, post_messages, place_receiver, trim_receivers FROM
	PUBLIC;
