-- What an object has is counted as its files are recorded and deleted: a list of objects
-- whose files it counts by itself takes minutes where an object has a million.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true);

ALTER TABLE object_holdings
	ADD payload_files bigint NOT NULL DEFAULT 0,
	ADD payload_bytes bigint NOT NULL DEFAULT 0,
	ADD CONSTRAINT payload_is_a_part CHECK (payload_files BETWEEN 0 AND files AND payload_bytes BETWEEN 0 AND bytes);

-- Nothing is recorded or deleted until the files that are there are counted.
LOCK TABLE generic_files IN SHARE ROW EXCLUSIVE MODE;

-- is_payload reports whether a file is in the folder data of its bag.
-- +goose StatementBegin
CREATE FUNCTION is_payload(identifier text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN identifier ~ '^[^/]+/[^/]+/data/';

-- count_files adds to what an object has.
CREATE FUNCTION count_files(object bigint, more_files bigint, more_bytes numeric, more_payload_files bigint, more_payload_bytes numeric) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	INSERT INTO object_holdings (intellectual_object_id, files, bytes) VALUES (object, 0, 0) ON CONFLICT (intellectual_object_id) DO NOTHING;
	UPDATE object_holdings SET files = files + more_files, bytes = bytes + more_bytes,
		payload_files = payload_files + more_payload_files, payload_bytes = payload_bytes + more_payload_bytes
	WHERE intellectual_object_id = object;
END
$$;

-- files_are_counted counts the files that a statement has added, changed or removed. A
-- statement that changes something else of files changes no count and locks none. Objects come
-- in the order of their IDs, so that no two statements wait for each other.
CREATE FUNCTION files_are_counted() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF TG_OP = 'INSERT' THEN
		PERFORM count_files(object, count(*), sum(size), sum(payload), sum(payload * size))
		FROM (SELECT intellectual_object_id AS object, size, is_payload(identifier)::integer AS payload FROM added WHERE state = 'A') f
		GROUP BY object ORDER BY object;
	ELSIF TG_OP = 'DELETE' THEN
		PERFORM count_files(object, -count(*), -sum(size), -sum(payload), -sum(payload * size))
		FROM (SELECT intellectual_object_id AS object, size, is_payload(identifier)::integer AS payload FROM removed WHERE state = 'A') f
		GROUP BY object ORDER BY object;
	ELSE
		PERFORM count_files(object, sum(n), sum(n * size), sum(n * payload), sum(n * payload * size))
		FROM (
			SELECT intellectual_object_id AS object, size, is_payload(identifier)::integer AS payload, 1 AS n FROM added WHERE state = 'A'
			UNION ALL
			SELECT intellectual_object_id, size, is_payload(identifier)::integer, -1 FROM removed WHERE state = 'A'
		) f
		GROUP BY object
		HAVING (sum(n), sum(n * size), sum(n * payload), sum(n * payload * size)) <> (0, 0, 0, 0)
		ORDER BY object;
	END IF;
	RETURN NULL;
END
$$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION is_payload, count_files, files_are_counted FROM PUBLIC;
CREATE TRIGGER added_files_are_counted AFTER INSERT ON generic_files
	REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION files_are_counted();
CREATE TRIGGER changed_files_are_counted AFTER UPDATE ON generic_files
	REFERENCING OLD TABLE AS removed NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION files_are_counted();
CREATE TRIGGER removed_files_are_counted AFTER DELETE ON generic_files
	REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION files_are_counted();

DELETE FROM object_holdings;
INSERT INTO object_holdings (intellectual_object_id, files, bytes, payload_files, payload_bytes)
SELECT intellectual_object_id, count(*), sum(size), count(*) FILTER (WHERE is_payload(identifier)), coalesce(sum(size) FILTER (WHERE is_payload(identifier)), 0)
FROM generic_files WHERE state = 'A' GROUP BY intellectual_object_id;
