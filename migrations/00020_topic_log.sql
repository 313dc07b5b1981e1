-- The topic log in partitions, so that trimming it is dropping; the queues that
-- people post to, which are part of it; and what was given to whom of them.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- Both kinds of messages are in one log. Those of the pipeline are appended by its
-- transitions, and read in the order of (xid, id); their ids grow with gaps. Those
-- that people post are numbered from 1 in each queue without gaps, by the row of
-- their queue, which is locked until the commit: number is then all the order that
-- a reader needs.
ALTER TABLE topic_messages RENAME TO topic_messages_before;
ALTER TABLE topic_messages_before RENAME CONSTRAINT topic_messages_pkey TO topic_messages_before_pkey;
CREATE SEQUENCE topic_message_ids;
CREATE SEQUENCE posted_message_ids;
CREATE TABLE topic_messages (
	id           bigint      NOT NULL DEFAULT nextval('topic_message_ids'),
	xid          xid8        NOT NULL DEFAULT pg_current_xact_id(),
	work_item_id bigint, -- no foreign key, as in work_item_attempts
	created_at   timestamptz NOT NULL DEFAULT now(),
	posted       boolean     NOT NULL DEFAULT false, -- by somebody, to a queue
	topic        text        NOT NULL CONSTRAINT topic_messages_topic_check CHECK (topic <> ''), -- or queue
	body         text        NOT NULL,
	number       bigint, -- of a posted message in its queue
	sender       text, -- of a posted message, as it says
	CONSTRAINT posted_is_numbered CHECK (posted = (number IS NOT NULL) AND (posted OR sender IS NULL AND body <> ''))
) PARTITION BY LIST (posted);
ALTER SEQUENCE topic_message_ids OWNED BY topic_messages.id;
ALTER SEQUENCE posted_message_ids OWNED BY topic_messages.number;
CREATE TABLE pipeline_messages PARTITION OF topic_messages (PRIMARY KEY (xid, id)) FOR VALUES IN (false) PARTITION BY RANGE (id);
CREATE TABLE posted_messages PARTITION OF topic_messages FOR VALUES IN (true) PARTITION BY RANGE (id);
CREATE INDEX posted_messages_queue ON posted_messages (topic, number);
COMMENT ON TABLE topic_messages IS 'The topic log: what the pipeline tells of its items, and what people post to queues.';

-- Each partition holds the ids of one multiple of log_partition_width(), and is
-- closed by moving the sequence on to the next multiple: so that partitions are
-- of about the same time, whatever comes. What no partition is ready for goes into
-- the default one, which never should happen and must stop no transition.
-- +goose StatementBegin
CREATE FUNCTION log_partition_width() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 100000000;
-- +goose StatementEnd
CREATE TABLE pipeline_messages_rest PARTITION OF pipeline_messages DEFAULT;
CREATE TABLE posted_messages_rest PARTITION OF posted_messages DEFAULT;
CREATE TABLE topic_partitions (
	parent    text        NOT NULL CHECK (parent IN ('pipeline_messages', 'posted_messages')),
	number    bigint      NOT NULL, -- of the multiple
	opened_at timestamptz NOT NULL DEFAULT now(),
	closed_at timestamptz, -- no id of it is given any more
	PRIMARY KEY (parent, number)
);
COMMENT ON TABLE topic_partitions IS 'The partitions of the topic log, <parent>_<number>; upkeep makes, closes and drops them.';

-- open_log_partition makes a partition, unless it is there.
-- +goose StatementBegin
CREATE FUNCTION open_log_partition(parent text, number bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
	name text := parent || '_' || number;
BEGIN
	IF to_regclass(name) IS NULL THEN
		EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING INDEXES)', name, parent);
		EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', parent, name,
			number * log_partition_width(), (number + 1) * log_partition_width());
	END IF;
	INSERT INTO topic_partitions (parent, number) VALUES (open_log_partition.parent, open_log_partition.number) ON CONFLICT DO NOTHING;
END
$$;
-- +goose StatementEnd
SELECT open_log_partition(parent, number) FROM unnest('{pipeline_messages,posted_messages}'::text[]) parent, generate_series(0, 1) number;

INSERT INTO topic_messages (id, xid, work_item_id, created_at, topic, body)
SELECT id, xid, work_item_id, created_at, topic, body FROM topic_messages_before;
SELECT setval('topic_message_ids', max(id)) FROM topic_messages_before HAVING max(id) > 0;
DROP TABLE topic_messages_before;

-- Queues that people post to. Its row gives a message its number.
CREATE TABLE queues (
	name        text        PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9.@:/-][A-Za-z0-9._@:/-]{0,254}$'),
	last_number bigint      NOT NULL DEFAULT 0,
	created_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
COMMENT ON TABLE queues IS 'The queues that people post to, and the number of the last message in each.';

-- Receivers of messages over HTTP. Calls under one name share what comes; each
-- name is given each message. A name goes on from where it stands, and never back.
CREATE TABLE topic_receivers (
	id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	xid       xid8        NOT NULL DEFAULT '0', -- with position: the last message passed, of a topic of the pipeline
	position  bigint      NOT NULL DEFAULT 0,
	pulled_at timestamptz NOT NULL DEFAULT now(), -- to the minute
	topic     text        NOT NULL,
	name      text        NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 255),
	UNIQUE (topic, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- What was given to whom, and what came of it.
CREATE TABLE topic_deliveries (
	receiver_id bigint      NOT NULL, -- no foreign key: it would be looked at for each message
	message     bigint      NOT NULL, -- number in the queue, or id in a topic of the pipeline
	created_at  timestamptz NOT NULL DEFAULT clock_timestamp(), -- given for the first time
	updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(), -- given again, or answered
	xid         xid8, -- of a message of the pipeline; it is found by both
	fail_count  integer     NOT NULL DEFAULT 0, -- how often it was given again
	status      text        NOT NULL CHECK (status IN ('processing', 'finished', 'failed')),
	result      text        CHECK (octet_length(result) <= 65536),
	PRIMARY KEY (receiver_id, message)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
-- What may be given again, the longest given first.
CREATE INDEX topic_deliveries_processing ON topic_deliveries (receiver_id, updated_at) WHERE status = 'processing';

CREATE VIEW deliveries AS
SELECT r.topic AS queue, d.message, r.name AS receiver, d.status, d.fail_count, d.result, d.created_at, d.updated_at,
	CASE d.status WHEN 'finished' THEN d.updated_at - d.created_at END AS took
FROM topic_deliveries d JOIN topic_receivers r ON r.id = d.receiver_id;
COMMENT ON VIEW deliveries IS 'Each message that was given to a receiver of the HTTP pull API: processing, finished or failed, with its result and times.';

-- +goose StatementBegin
CREATE FUNCTION is_pipeline_topic(topic text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ -- which is planned once
BEGIN
	RETURN topic = 'fixity_check' OR EXISTS (SELECT FROM stage_settings s WHERE s.topic = is_pipeline_topic.topic);
END
$$;
-- +goose StatementEnd

-- The functions from here to take_messages are called by that alone, which sets for
-- them what is to be set: to set it costs more than any of them does.

-- receiver_locked returns the row of a receiver, which is new if it is asked for
-- the first time. Calls under one name take turns by it.
-- +goose StatementBegin
CREATE FUNCTION receiver_locked(of_topic text, called text) RETURNS topic_receivers
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
-- +goose StatementEnd

-- move_in_topic moves a receiver to where it wants to begin in a topic of the
-- pipeline, but never back.
-- +goose StatementBegin
CREATE FUNCTION move_in_topic(r topic_receivers, start bigint) RETURNS topic_receivers
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
-- +goose StatementEnd

-- next_in_topic returns a receiver's next messages in a topic of the pipeline, in
-- their order, behind which nothing can come late any more; and how far it has
-- looked for them, as a last row without a body. One look is at 50,000 messages of
-- all topics at most: who has far to go comes to its end in several.
-- +goose StatementBegin
CREATE FUNCTION next_in_topic(r topic_receivers, most integer)
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
-- +goose StatementEnd

-- take_again gives what a receiver was given and has not answered, and counts that.
-- What is no longer in the log has failed.
-- +goose StatementBegin
CREATE FUNCTION take_again(r topic_receivers, most integer, retry_num integer, fail_timeout float8, bytes bigint)
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
-- +goose StatementEnd

-- take_messages gives the next messages of a queue or topic to a receiver: new ones,
-- in order, up to so many of them and about so many bytes; if there are none, those
-- that it was given fail_timeout seconds ago and has not answered. If there are
-- none of these either, one row says in how many seconds (due) there is one, NULL
-- if never. start: n is from message n on, 0 where it stands, -1 the newest, -2
-- behind the newest.
-- +goose StatementBegin
CREATE FUNCTION take_messages(of_topic text, called text, start bigint, most integer, retry_num integer, fail_timeout float8, bytes bigint)
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
	IF r.xid > stood.xid AND EXISTS (SELECT FROM next_in_topic(r, 1)) THEN -- it has looked at as many as it may; there are more
		message := NULL; content := NULL; due := 0;
		RETURN NEXT;
		RETURN;
	END IF;
	RETURN QUERY SELECT * FROM take_again(r, most, retry_num, fail_timeout, bytes);
END
$$;
-- +goose StatementEnd

-- post_messages appends messages to queues, and returns the number of the last in
-- each. Whoever waits for them is told. The queues come into being with their first
-- message, and are locked in the order of their names, so that posters never wait
-- for each other in a ring.
-- +goose StatementBegin
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
-- +goose StatementEnd

-- save_results notes what receivers have answered, and returns how many of the
-- answers were to messages that they had been given.
-- +goose StatementBegin
CREATE FUNCTION save_results(called text, of_topics text[], messages bigint[], results text[]) RETURNS bigint
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

-- +goose StatementBegin
CREATE FUNCTION log_sequence(parent text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN CASE parent WHEN 'pipeline_messages' THEN 'topic_message_ids' ELSE 'posted_message_ids' END;
-- +goose StatementEnd

-- turn_log_partitions makes the partitions that are needed next, and closes that of
-- a parent which is older than span and has anything in it, by moving the sequence
-- on. A partition that fills up by itself is closed by the first who sees it.
-- Nobody is held up for long: what cannot be locked at once is left to the next call.
-- +goose StatementBegin
CREATE FUNCTION turn_log_partitions(parent text, span interval) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '200ms' AS $$
DECLARE
	given   bigint;
	current bigint;
	rest    bigint;
BEGIN
	IF NOT pg_try_advisory_xact_lock(hashtextextended('farol topic log', 0)) THEN
		RETURN;
	END IF;
	EXECUTE format('SELECT last_value FROM %I', log_sequence(parent)) INTO given;
	EXECUTE format('SELECT max(id) FROM %I', parent || '_rest') INTO rest;
	current := given / log_partition_width();
	IF rest >= current * log_partition_width() THEN -- it was too late; what follows begins behind that
		current := rest / log_partition_width() + 1;
		PERFORM open_log_partition(parent, current);
		PERFORM setval(log_sequence(parent), current * log_partition_width() + 1, false);
	ELSIF given % log_partition_width() BETWEEN 1 AND log_partition_width() * 9 / 10 -- nobody comes to the end of it meanwhile
		AND EXISTS (SELECT FROM topic_partitions p WHERE p.parent = turn_log_partitions.parent AND p.number = current AND p.opened_at < now() - span) THEN
		PERFORM open_log_partition(parent, current + 1);
		PERFORM setval(log_sequence(parent), (current + 1) * log_partition_width() + 1, false);
		current := current + 1;
		UPDATE topic_partitions p SET opened_at = now() WHERE p.parent = turn_log_partitions.parent AND p.number = current;
	END IF;
	PERFORM open_log_partition(parent, current);
	PERFORM open_log_partition(parent, current + 1);
	UPDATE topic_partitions p SET closed_at = now() WHERE p.parent = turn_log_partitions.parent AND p.number < current AND p.closed_at IS NULL;
EXCEPTION WHEN lock_not_available THEN
	RETURN;
END
$$;
-- +goose StatementEnd

-- trim_log drops the oldest partition of a parent if it was closed longer ago than
-- keep and no reader needs it, and returns its name; NULL if there is none. Readers
-- that were not heard of for four times as long are not waited for. A queue that
-- people post to is kept until somebody has been given and has answered what is in
-- the partition.
-- +goose StatementBegin
CREATE FUNCTION trim_log(parent text, keep interval) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '200ms' AS $$
DECLARE
	oldest topic_partitions;
	name   text;
	needed boolean;
BEGIN
	IF NOT pg_try_advisory_xact_lock(hashtextextended('farol topic log', 0)) THEN
		RETURN NULL;
	END IF;
	IF parent = 'pipeline_messages' THEN -- what came when no partition was ready
		DELETE FROM pipeline_messages_rest m USING slowest_reader(keep * 4) slowest
		WHERE m.created_at < now() - keep AND (m.xid, m.id) <= (slowest.xid, slowest.id);
	END IF;
	SELECT * INTO oldest FROM topic_partitions p WHERE p.parent = trim_log.parent ORDER BY p.number LIMIT 1;
	IF oldest.closed_at > now() - keep OR oldest.closed_at IS NULL THEN
		RETURN NULL;
	END IF;
	name := parent || '_' || oldest.number;
	IF parent = 'pipeline_messages' THEN
		EXECUTE format('SELECT EXISTS (SELECT FROM %I m WHERE (m.xid, m.id) > (slowest.xid, slowest.id))
			FROM slowest_reader($1) slowest', name) INTO needed USING keep * 4;
	ELSE
		EXECUTE format('SELECT EXISTS (SELECT FROM (SELECT topic, max(number) AS last FROM %I GROUP BY topic) q
			WHERE queue_is_needed(q.topic, q.last, $1))', name) INTO needed USING keep * 4;
	END IF;
	IF needed THEN
		RETURN NULL;
	END IF;
	DELETE FROM topic_deliveries d USING topic_receivers r
	WHERE r.id = d.receiver_id AND parent = 'pipeline_messages' AND d.xid IS NOT NULL AND d.message < (oldest.number + 1) * log_partition_width();
	IF parent = 'posted_messages' THEN
		EXECUTE format('DELETE FROM topic_deliveries d USING topic_receivers r, (SELECT topic, max(number) AS last FROM %I GROUP BY topic) q
			WHERE r.id = d.receiver_id AND r.topic = q.topic AND d.message <= q.last', name);
	END IF;
	DELETE FROM topic_partitions p WHERE p.parent = trim_log.parent AND p.number = oldest.number;
	EXECUTE format('DROP TABLE %I', name);
	RETURN name;
EXCEPTION WHEN lock_not_available THEN
	RETURN NULL; -- somebody reads or writes it; the next call will
END
$$;

-- slowest_reader is where the reader of the pipeline's topics stands that is least
-- far, of those heard of lately; at the end of all if there is none.
CREATE FUNCTION slowest_reader(lately interval) RETURNS TABLE (xid xid8, id bigint) LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT s.xid, s.id FROM (
		SELECT r.xid, r.message_id AS id FROM topic_readers r WHERE r.updated_at > now() - lately
		UNION ALL
		SELECT r.xid, r.position FROM topic_receivers r WHERE r.pulled_at > now() - lately AND is_pipeline_topic(r.topic)
		UNION ALL
		SELECT '9223372036854775807'::xid8, 0
	) s ORDER BY s.xid, s.id LIMIT 1
$$;

-- queue_is_needed tells whether a message up to last is still to be given to
-- somebody, or answered.
CREATE FUNCTION queue_is_needed(queue text, last bigint, lately interval) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN NOT EXISTS (SELECT FROM topic_receivers r WHERE r.topic = queue)
	OR EXISTS (SELECT FROM topic_receivers r WHERE r.topic = queue AND r.pulled_at > now() - lately
		AND (r.position < last OR EXISTS (SELECT FROM topic_deliveries d WHERE d.receiver_id = r.id AND d.status = 'processing' AND d.message <= last)));
-- +goose StatementEnd

-- A token lets a program use the HTTP APIs. Only its digest is stored.
CREATE TABLE api_tokens (
	id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name           text        NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 100),
	digest         bytea       NOT NULL UNIQUE CHECK (octet_length(digest) = 32), -- SHA-256
	institution_id bigint      REFERENCES institutions, -- NULL: of all
	rights         text[]      NOT NULL CHECK (rights <@ '{post,pull,lease}' AND rights <> '{}'),
	stages         text[]      NOT NULL DEFAULT '{}', -- that may be leased; none: all that are worked on over HTTP
	created_at     timestamptz NOT NULL DEFAULT now(),
	created_by     text        NOT NULL DEFAULT session_user,
	expires_at     timestamptz CHECK (isfinite(expires_at)), -- NULL: never
	used_at        timestamptz, -- to the minute
	CONSTRAINT queues_are_for_all CHECK (institution_id IS NULL OR NOT rights && '{post,pull}') -- ids of all institutions pass through them
);
COMMENT ON TABLE api_tokens IS 'Who may use the HTTP APIs, and for what.';

INSERT INTO schedules (job, every) VALUES ('topic-log', '1 minute');

INSERT INTO administration_rights (privilege, on_table) VALUES
	('SELECT', 'topic_messages'), ('SELECT', 'topic_readers'), ('SELECT', 'topic_receivers'), ('SELECT', 'topic_deliveries'),
	('SELECT', 'deliveries'), ('SELECT', 'queues'), ('SELECT', 'topic_partitions');
SELECT grant_to_administrators();

-- renumber_log puts the log and all its readers right in a database that came from
-- another cluster, whose transactions were numbered otherwise, and tells whether
-- that was so: a row that we see was committed before our snapshot, so if it is
-- numbered beyond that, this cluster has not had its transaction. Else readers would
-- wait for years for the numbers to catch up. All messages then get the first number
-- that any cluster has, so that they come before all that are still to be written.
-- Every reader is put where, in the order of ids, which is all the order that is
-- left, it is past no message that it has not read: neither one that it had before
-- it nor one written since the restore, whose id is larger than any before.
-- +goose StatementBegin
CREATE FUNCTION renumber_log() RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF greatest(
		(SELECT xid FROM topic_readers ORDER BY xid DESC LIMIT 1),
		(SELECT max(xid::text::numeric)::text::xid8 FROM topic_receivers),
		(SELECT xid FROM pipeline_messages ORDER BY xid DESC, id DESC LIMIT 1)
	) >= pg_snapshot_xmax(pg_current_snapshot()) IS NOT TRUE THEN
		RETURN false;
	END IF;
	LOCK TABLE topic_readers, topic_receivers IN EXCLUSIVE MODE;
	UPDATE topic_readers r SET
		xid        = '3',
		message_id = least(r.message_id,
			(SELECT min(m.id) - 1 FROM pipeline_messages m WHERE (m.xid, m.id) > (r.xid, r.message_id))),
		updated_at = now();
	UPDATE topic_receivers r SET
		xid      = '3',
		position = least(r.position,
			(SELECT min(m.id) - 1 FROM pipeline_messages m WHERE (m.xid, m.id) > (r.xid, r.position)))
	WHERE xid > '0';
	UPDATE topic_deliveries SET xid = '3' WHERE xid <> '3';
	UPDATE pipeline_messages SET xid = '3' WHERE xid <> '3';
	RETURN true;
END
$$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION turn_log_partitions, trim_log, open_log_partition, receiver_locked, take_messages, take_again, move_in_topic,
	next_in_topic, post_messages, save_results, slowest_reader, queue_is_needed, renumber_log FROM PUBLIC;

-- +goose Down
DELETE FROM schedules WHERE job = 'topic-log';
DELETE FROM administration_rights WHERE on_table IN
	('topic_messages', 'topic_readers', 'topic_receivers', 'topic_deliveries', 'deliveries', 'queues', 'topic_partitions');
CREATE TABLE topic_messages_before (
	id           bigint      GENERATED ALWAYS AS IDENTITY,
	xid          xid8        NOT NULL DEFAULT pg_current_xact_id(),
	topic        text        NOT NULL CHECK (topic <> ''),
	body         text        NOT NULL CHECK (body <> ''),
	work_item_id bigint,
	created_at   timestamptz NOT NULL DEFAULT now(),
	CONSTRAINT topic_messages_before_pkey PRIMARY KEY (xid, id)
);
INSERT INTO topic_messages_before (id, xid, topic, body, work_item_id, created_at) OVERRIDING SYSTEM VALUE
SELECT id, xid, topic, body, work_item_id, created_at FROM pipeline_messages;
SELECT setval(pg_get_serial_sequence('topic_messages_before', 'id'), max(id)) FROM topic_messages_before HAVING max(id) > 0;
DROP FUNCTION renumber_log();
DROP TABLE api_tokens;
DROP FUNCTION queue_is_needed(text, bigint, interval);
DROP FUNCTION slowest_reader(interval);
DROP FUNCTION trim_log(text, interval);
DROP FUNCTION turn_log_partitions(text, interval);
DROP FUNCTION log_sequence(text);
DROP FUNCTION save_results(text, text[], bigint[], text[]);
DROP FUNCTION post_messages(text[], bigint[], integer[], bigint[], text[], text[]);
DROP FUNCTION take_again(topic_receivers, integer, integer, float8, bigint);
DROP FUNCTION take_messages(text, text, bigint, integer, integer, float8, bigint);
DROP FUNCTION next_in_topic(topic_receivers, integer);
DROP FUNCTION move_in_topic(topic_receivers, bigint);
DROP FUNCTION receiver_locked(text, text);
DROP FUNCTION is_pipeline_topic(text);
DROP VIEW deliveries;
DROP TABLE topic_deliveries, topic_receivers, queues, topic_partitions, topic_messages;
DROP FUNCTION open_log_partition(text, bigint);
DROP SEQUENCE IF EXISTS topic_message_ids, posted_message_ids;
DROP FUNCTION log_partition_width();
ALTER TABLE topic_messages_before RENAME TO topic_messages;
ALTER TABLE topic_messages RENAME CONSTRAINT topic_messages_before_pkey TO topic_messages_pkey;
