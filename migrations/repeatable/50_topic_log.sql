-- The topic log: its partitions, its readers, and what is trimmed.

CREATE OR REPLACE FUNCTION is_pipeline_topic(topic text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ -- which is planned once
BEGIN
	RETURN topic = 'fixity_check' OR EXISTS (SELECT FROM stage_settings s WHERE s.topic = is_pipeline_topic.topic);
END
$$;

CREATE OR REPLACE FUNCTION log_sequence(parent text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN CASE parent WHEN 'pipeline_messages' THEN 'topic_message_ids' ELSE 'posted_message_ids' END;

-- open_log_partition creates a partition, unless it exists.
CREATE OR REPLACE FUNCTION open_log_partition(parent text, number bigint) RETURNS void
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

-- rotate_log_partitions creates the partitions that are needed next, and closes the current
-- one of a parent if it is older than span and not empty, by moving the sequence on. A full
-- partition is closed by the next call. Calls do not wait long for locks: what is locked is
-- left to the next call.
CREATE OR REPLACE FUNCTION rotate_log_partitions(parent text, span interval) RETURNS void
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
	IF rest >= current * log_partition_width() THEN -- the partition came too late; the next one begins behind these
		current := rest / log_partition_width() + 1;
		PERFORM open_log_partition(parent, current);
		PERFORM setval(log_sequence(parent), current * log_partition_width() + 1, false);
	ELSIF given % log_partition_width() BETWEEN 1 AND log_partition_width() * 9 / 10 -- no transaction reaches its end in the meantime
		AND EXISTS (SELECT FROM topic_partitions p WHERE p.parent = rotate_log_partitions.parent AND p.number = current AND p.opened_at < now() - span) THEN
		PERFORM open_log_partition(parent, current + 1);
		PERFORM setval(log_sequence(parent), (current + 1) * log_partition_width() + 1, false);
		current := current + 1;
		UPDATE topic_partitions p SET opened_at = now() WHERE p.parent = rotate_log_partitions.parent AND p.number = current;
	END IF;
	PERFORM open_log_partition(parent, current);
	PERFORM open_log_partition(parent, current + 1);
	UPDATE topic_partitions p SET closed_at = now() WHERE p.parent = rotate_log_partitions.parent AND p.number < current AND p.closed_at IS NULL;
EXCEPTION WHEN lock_not_available THEN
	RETURN;
END
$$;

-- slowest_reader is the position of the slowest reader of the pipeline's topics, of those
-- that read lately; the end of the log if there is none.
CREATE OR REPLACE FUNCTION slowest_reader(lately interval) RETURNS TABLE (xid xid8, id bigint) LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
	SELECT s.xid, s.id FROM (
		SELECT r.xid, r.message_id AS id FROM topic_readers r WHERE r.updated_at > now() - lately
		UNION ALL
		SELECT r.xid, r.position FROM topic_receivers r WHERE r.pulled_at > now() - lately AND is_pipeline_topic(r.topic)
		UNION ALL
		SELECT '9223372036854775807'::xid8, 0
	) s ORDER BY s.xid, s.id LIMIT 1
$$;

-- queue_is_needed says whether a message up to last is still to be delivered, or answered.
CREATE OR REPLACE FUNCTION queue_is_needed(queue text, last bigint, lately interval) RETURNS boolean LANGUAGE sql STABLE SET search_path FROM CURRENT
RETURN NOT EXISTS (SELECT FROM topic_receivers r WHERE r.topic = queue)
	OR EXISTS (SELECT FROM topic_receivers r WHERE r.topic = queue AND r.pulled_at > now() - lately
		AND (r.position < last OR EXISTS (SELECT FROM topic_deliveries d
			WHERE d.receiver_id = r.id AND d.status IN ('processing', 'delayed') AND d.message <= last)));

-- trim_log drops the oldest partition of a parent if it was closed longer ago than
-- keep and no reader needs it, and returns its name; NULL if there is none. Readers
-- that have been silent for four times as long do not hold it back. A queue is kept until
-- a receiver has got and answered the messages in the partition.
CREATE OR REPLACE FUNCTION trim_log(parent text, keep interval) RETURNS text
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
	RETURN NULL; -- it is locked; the next call drops it
END
$$;

-- renumber_log puts the log and all its readers right in a database that came from
-- another cluster, whose transactions were numbered otherwise, and reports whether
-- that was so: a row that we see was committed before our snapshot, so if it is
-- numbered beyond that, this cluster has not had its transaction. Else readers would
-- wait for years for the numbers to catch up. All messages then get the first number
-- that any cluster has, so that they come before all that are still to be written.
-- Every reader is put where, in the order of ids, which is all the order that is
-- left, it is past no message that it has not read: neither one that it had before
-- it nor one written since the restore, whose id is larger than any before.
CREATE OR REPLACE FUNCTION renumber_log() RETURNS boolean
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

-- The first partitions; upkeep makes the others.
SELECT open_log_partition(parent, number) FROM unnest('{pipeline_messages,posted_messages}'::text[]) parent, generate_series(0, 1) number
WHERE NOT EXISTS (SELECT FROM topic_partitions);

REVOKE EXECUTE ON FUNCTION open_log_partition, rotate_log_partitions, slowest_reader, queue_is_needed, trim_log,
	renumber_log FROM PUBLIC;
