-- Receivers are moved by hand, and forgotten when they have not been heard of.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

-- +goose StatementBegin
-- place_receiver has a receiver go on behind a message, or at the beginning with 0.
-- It returns the number of the last message of the queue, NULL if there is no such
-- queue; beyond the last it moves nothing.
CREATE FUNCTION place_receiver(of_topic text, called text, behind bigint) RETURNS bigint
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

-- trim_receivers forgets receivers that were not heard of for so long, with what they
-- were given and have not answered, and returns how many, up to 1000 at a time. One
-- that has answered stays for as long as its answers.
CREATE FUNCTION trim_receivers(keep interval) RETURNS bigint
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
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION place_receiver, trim_receivers FROM PUBLIC;

-- +goose Down
DROP FUNCTION trim_receivers(interval);
DROP FUNCTION place_receiver(text, text, bigint);
