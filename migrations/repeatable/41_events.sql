-- Events and checksums: the views that show the rows of event_records and file_digests one
-- by one, and what becomes of rows that are written to the views.

-- event_number returns the number of what an event says, which it adds to the dictionary
-- if it is new. A recording that adds the same at this moment is waited for.
CREATE OR REPLACE FUNCTION event_number(at integer, about text, event_type text, detail text, outcome text, outcome_detail text, outcome_information text,
	object text, agent text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
	of   bytea := sha256(convert_to(jsonb_build_array($1, $2, $3, $4, $5, $6, $7, $8, $9)::text, 'UTF8'));
	n    integer;
BEGIN
	SELECT t.id INTO n FROM event_texts t WHERE t.digest = of;
	IF n IS NULL THEN
		INSERT INTO event_texts AS t (digest, at, about, event_type, detail, outcome, outcome_detail, outcome_information, object, agent)
		VALUES (of, $1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (digest) DO NOTHING RETURNING t.id INTO n;
	END IF;
	IF n IS NULL THEN
		SELECT t.id INTO n FROM event_texts t WHERE t.digest = of;
	END IF;
	IF n IS NULL THEN
		RAISE EXCEPTION 'another transaction has just added this text of an event' USING ERRCODE = 'serialization_failure';
	END IF;
	RETURN n;
END
$$;
REVOKE EXECUTE ON FUNCTION event_number FROM PUBLIC;

-- event_text_is_notable gives a text the number by which event_records_notable knows it.
CREATE OR REPLACE FUNCTION event_text_is_notable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.id := -abs(NEW.id);
	RETURN NEW;
END
$$;
REVOKE EXECUTE ON FUNCTION event_text_is_notable FROM PUBLIC;
CREATE OR REPLACE TRIGGER event_text_is_notable BEFORE INSERT ON event_texts
	FOR EACH ROW WHEN (NEW.outcome = 'Failure' OR NEW.event_type = 'deletion') EXECUTE FUNCTION event_text_is_notable();

-- event_places divides the texts of an event of a file into sentences and facts: names,
-- addresses, digests and whatever else differs from file to file. Places are %f (the
-- file's identifier), %u (its uuid), %h01 (the first fact, in hexadecimal), %t01 (the
-- first fact, as text) and %p (a percent sign).
CREATE OR REPLACE FUNCTION event_places(event_type text, INOUT detail text, INOUT outcome_detail text, INOUT outcome_information text,
	file text, uuid uuid, OUT facts bytea[])
LANGUAGE plpgsql IMMUTABLE SET search_path FROM CURRENT AS $$
DECLARE
	-- What does not differ from file to file, as far as its form tells.
	plain constant text := '^[A-Za-z ,()-]{0,80}$';
	part  text[];
BEGIN
	facts := '{}';
	IF outcome_detail = file THEN
		outcome_detail := '%f';
	ELSIF outcome_detail ~ '^(md5|sha1|sha256|sha512):([0-9a-f]{2})+$' THEN
		facts := facts || decode(split_part(outcome_detail, ':', 2), 'hex');
		outcome_detail := split_part(outcome_detail, ':', 1) || ':%h01';
	ELSIF outcome_detail ~ '^https?://' AND right(outcome_detail, 37) = '/' || uuid THEN
		outcome_detail := replace(left(outcome_detail, -36), '%', '%p') || '%u';
	ELSIF event_type <> 'format identification' AND outcome_detail !~ plain THEN
		facts := facts || convert_to(outcome_detail, 'UTF8');
		outcome_detail := '%t01';
	ELSE
		outcome_detail := replace(outcome_detail, '%', '%p');
	END IF;
	part := regexp_match(outcome_information, '^(Fixity matches at https?://.*/)' || uuid || ': (.*)$');
	IF outcome_detail = 'sha256:%h01' AND part[2] = encode(facts[1], 'hex') THEN
		outcome_information := replace(part[1], '%', '%p') || '%u: %h01';
	ELSIF outcome_information ~ plain THEN
		NULL;
	ELSE
		facts := facts || convert_to(outcome_information, 'UTF8');
		outcome_information := '%t' || lpad(cardinality(facts)::text, 2, '0');
	END IF;
	IF length(detail) > 200 OR translate(replace(detail, coalesce(uuid::text, '-'), ''), '0123456789/@', '') <> replace(detail, coalesce(uuid::text, '-'), '') THEN
		facts := facts || convert_to(detail, 'UTF8');
		detail := '%t' || lpad(cardinality(facts)::text, 2, '0');
	ELSE
		detail := replace(detail, '%', '%p');
		detail := CASE WHEN uuid IS NULL THEN detail ELSE replace(detail, uuid::text, '%u') END;
	END IF;
END
$$;
REVOKE EXECUTE ON FUNCTION event_places FROM PUBLIC;

-- event_words puts facts into the places of a sentence (see event_places), if they belong
-- together: a query may be planned so that a condition is evaluated before a row has been
-- joined with its own sentences, and the facts of others are no text.
CREATE OR REPLACE FUNCTION event_words(own boolean, sentence text, file text, uuid uuid, facts bytea[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE COST 1000 AS $$
DECLARE
	pieces text[];
	said   text;
BEGIN
	IF NOT own THEN
		RETURN NULL;
	ELSIF strpos(sentence, '%') = 0 THEN
		RETURN sentence;
	END IF;
	pieces := string_to_array(sentence, '%');
	said := pieces[1];
	FOR i IN 2..cardinality(pieces) LOOP
		said := said || CASE left(pieces[i], 1)
			WHEN 'f' THEN file || substr(pieces[i], 2)
			WHEN 'u' THEN uuid || substr(pieces[i], 2)
			WHEN 'p' THEN '%' || substr(pieces[i], 2)
			WHEN 'h' THEN encode(facts[substr(pieces[i], 2, 2)::integer], 'hex') || substr(pieces[i], 4)
			WHEN 't' THEN convert_from(facts[substr(pieces[i], 2, 2)::integer], 'UTF8') || substr(pieces[i], 4)
		END;
	END LOOP;
	RETURN said;
END
$$;

-- An event of an ingest has the identifier that is derived from what it says; that of any
-- other is the key of its row. A text of the number 0 is an event that was deleted by hand.
CREATE OR REPLACE VIEW premis_events AS
SELECT r.id + s.n - 1 AS id,
	CASE WHEN r.item IS NULL THEN r.key ELSE event_identifier(r.item,
		event_words(t.id = s.text, t.about, coalesce(r.file_identifier, f.identifier), coalesce(r.file_uuid, f.uuid), r.facts), t.event_type,
		event_words(t.id = s.text, t.outcome_detail, coalesce(r.file_identifier, f.identifier), coalesce(r.file_uuid, f.uuid), r.facts)) END AS identifier,
	r.institution_id, r.intellectual_object_id, r.generic_file_id, t.event_type,
	CASE t.at WHEN 0 THEN r.created_at ELSE r.times[t.at] END AS date_time,
	event_words(t.id = s.text, t.detail, coalesce(r.file_identifier, f.identifier), coalesce(r.file_uuid, f.uuid), r.facts) AS detail,
	t.outcome,
	event_words(t.id = s.text, t.outcome_detail, coalesce(r.file_identifier, f.identifier), coalesce(r.file_uuid, f.uuid), r.facts) AS outcome_detail,
	event_words(t.id = s.text, t.outcome_information, coalesce(r.file_identifier, f.identifier), coalesce(r.file_uuid, f.uuid), r.facts) AS outcome_information,
	t.object, t.agent, r.created_at, coalesce(r.updated_at, r.created_at) AS updated_at, t.event_type_uri
FROM event_records r
LEFT JOIN generic_files f ON f.id = r.generic_file_id
CROSS JOIN LATERAL unnest(r.texts) WITH ORDINALITY AS s (text, n)
JOIN event_texts t ON t.id = s.text;

CREATE OR REPLACE VIEW checksums AS
SELECT d.id + a.n AS id, d.generic_file_id, a.algorithm, encode(a.digest, 'hex') AS digest, d.datetime, d.created_at,
	coalesce(d.updated_at, d.created_at) AS updated_at
FROM file_digests d
CROSS JOIN LATERAL (VALUES (0, 'md5', d.md5), (1, 'sha1', d.sha1), (2, 'sha256', d.sha256), (3, 'sha512', d.sha512)) AS a (n, algorithm, digest)
WHERE a.digest IS NOT NULL;

-- event_is_whole raises the error of the constraint that a row would have violated in a table
-- of its own.
CREATE OR REPLACE FUNCTION event_is_whole(e premis_events) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF num_nulls(e.identifier, e.institution_id, e.intellectual_object_id, e.event_type, e.date_time, e.detail, e.outcome, e.outcome_detail,
		e.outcome_information, e.object, e.agent) > 0 THEN
		RAISE EXCEPTION 'an event without a value that is not generic_file_id' USING ERRCODE = 'not_null_violation', TABLE = 'premis_events';
	END IF;
	PERFORM FROM intellectual_objects o WHERE o.id = e.intellectual_object_id AND o.institution_id = e.institution_id FOR KEY SHARE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'an event of an object that is not in intellectual_objects, or of another institution' USING ERRCODE = 'foreign_key_violation',
			TABLE = 'premis_events', CONSTRAINT = 'premis_events_intellectual_object_id_institution_id_fkey';
	END IF;
END
$$;

-- event_known says whether there is an event of this type and identifier. It looks among the
-- events of the same file or object: an identifier is derived from their name.
CREATE OR REPLACE FUNCTION event_known(e premis_events) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF e.generic_file_id IS NULL THEN
		RETURN EXISTS (SELECT FROM premis_events p WHERE p.generic_file_id IS NULL AND p.intellectual_object_id = e.intellectual_object_id
			AND p.event_type = e.event_type AND p.identifier = e.identifier);
	END IF;
	RETURN EXISTS (SELECT FROM premis_events p WHERE p.generic_file_id = e.generic_file_id AND p.event_type = e.event_type AND p.identifier = e.identifier);
END
$$;

-- event_stored writes an event as a row of its own, and says whether it has: not if its file or
-- object has one of this identifier.
CREATE OR REPLACE FUNCTION event_stored(e premis_events) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF event_known(e) THEN
		RETURN false;
	END IF;
	INSERT INTO event_records (id, generic_file_id, intellectual_object_id, institution_id, key, created_at, updated_at, texts, times, facts)
	SELECT e.id, e.generic_file_id, e.intellectual_object_id, e.institution_id, e.identifier, e.created_at, nullif(e.updated_at, e.created_at),
		ARRAY[event_number(1, '', e.event_type, p.detail, e.outcome, p.outcome_detail, p.outcome_information, e.object, e.agent)],
		ARRAY[e.date_time], p.facts
	FROM (SELECT) one LEFT JOIN generic_files f ON f.id = e.generic_file_id
	CROSS JOIN LATERAL event_places(e.event_type, e.detail, e.outcome_detail, e.outcome_information, f.identifier, f.uuid) p
	ON CONFLICT (generic_file_id, key) DO NOTHING;
	RETURN FOUND;
END
$$;

-- An event that is on record is not written again, and the statement says that it has
-- written one less: what ON CONFLICT DO NOTHING did, which a view cannot have.
CREATE OR REPLACE FUNCTION event_is_inserted() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF NEW.id IS NOT NULL OR NEW.event_type_uri IS NOT NULL THEN
		RAISE EXCEPTION 'cannot insert a non-DEFAULT value into column "%"', CASE WHEN NEW.id IS NULL THEN 'event_type_uri' ELSE 'id' END
			USING ERRCODE = 'generated_always';
	END IF;
	NEW.created_at := coalesce(NEW.created_at, now());
	NEW.updated_at := coalesce(NEW.updated_at, now());
	PERFORM event_is_whole(NEW);
	NEW.id := nextval('premis_events_id_seq');
	NEW.event_type_uri := event_type_uri(NEW.event_type);
	RETURN CASE WHEN event_stored(NEW) THEN NEW END;
END
$$;
CREATE OR REPLACE TRIGGER event_is_inserted INSTEAD OF INSERT ON premis_events FOR EACH ROW EXECUTE FUNCTION event_is_inserted();

-- A changed event keeps its id, and gets a row of its own.
CREATE OR REPLACE FUNCTION event_is_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF TG_OP = 'UPDATE' THEN
		IF NEW.id <> OLD.id OR NEW.event_type_uri IS DISTINCT FROM OLD.event_type_uri THEN
			RAISE EXCEPTION 'column "%" can only be updated to DEFAULT', CASE WHEN NEW.id <> OLD.id THEN 'id' ELSE 'event_type_uri' END
				USING ERRCODE = 'generated_always';
		END IF;
		PERFORM event_is_whole(NEW);
	END IF;
	IF OLD.generic_file_id IS NULL THEN
		DELETE FROM event_records r WHERE r.generic_file_id IS NULL AND r.item IS NULL AND r.key = OLD.identifier;
		UPDATE event_records r SET texts[OLD.id - r.id + 1] = 0 WHERE r.generic_file_id IS NULL AND r.item IS NOT NULL
			AND r.intellectual_object_id = OLD.intellectual_object_id AND OLD.id BETWEEN r.id AND r.id + cardinality(r.texts) - 1;
		DELETE FROM event_records r WHERE r.generic_file_id IS NULL AND r.intellectual_object_id = OLD.intellectual_object_id AND 0 = ALL (r.texts);
	ELSE
		DELETE FROM event_records r WHERE r.generic_file_id = OLD.generic_file_id AND r.item IS NULL AND r.key = OLD.identifier;
		UPDATE event_records r SET texts[OLD.id - r.id + 1] = 0 WHERE r.generic_file_id = OLD.generic_file_id AND r.item IS NOT NULL
			AND OLD.id BETWEEN r.id AND r.id + cardinality(r.texts) - 1;
		DELETE FROM event_records r WHERE r.generic_file_id = OLD.generic_file_id AND 0 = ALL (r.texts);
	END IF;
	IF TG_OP = 'DELETE' THEN
		RETURN OLD;
	END IF;
	NEW.event_type_uri := event_type_uri(NEW.event_type);
	IF NOT event_stored(NEW) THEN
		RAISE EXCEPTION 'there is an event of the identifier %', NEW.identifier USING ERRCODE = 'unique_violation',
			TABLE = 'premis_events', CONSTRAINT = 'premis_events_identifier_key';
	END IF;
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER event_is_changed INSTEAD OF UPDATE OR DELETE ON premis_events FOR EACH ROW EXECUTE FUNCTION event_is_changed();

-- digest_is_whole raises the error of the constraint that a row would have violated in a table
-- of its own, and locks the file, so that a recording of its digests comes before or after.
CREATE OR REPLACE FUNCTION digest_is_whole(c checksums) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
	IF num_nulls(c.generic_file_id, c.algorithm, c.digest, c.datetime) > 0 THEN
		RAISE EXCEPTION 'a checksum without a value' USING ERRCODE = 'not_null_violation', TABLE = 'checksums';
	ELSIF c.algorithm NOT IN ('md5', 'sha1', 'sha256', 'sha512') THEN
		RAISE EXCEPTION 'there is no digest algorithm %', quote_literal(c.algorithm) USING ERRCODE = 'check_violation',
			TABLE = 'checksums', CONSTRAINT = 'checksums_algorithm_check';
	ELSIF c.digest !~ '^[0-9a-f]+$' OR length(c.digest) <> (CASE c.algorithm WHEN 'md5' THEN 32 WHEN 'sha1' THEN 40 WHEN 'sha256' THEN 64 ELSE 128 END) THEN
		RAISE EXCEPTION '% is no digest of the algorithm %', quote_literal(c.digest), c.algorithm USING ERRCODE = 'check_violation',
			TABLE = 'checksums', CONSTRAINT = 'checksums_check';
	END IF;
	PERFORM FROM generic_files f WHERE f.id = c.generic_file_id FOR NO KEY UPDATE;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'a checksum of a file that is not in generic_files' USING ERRCODE = 'foreign_key_violation',
			TABLE = 'checksums', CONSTRAINT = 'checksums_generic_file_id_fkey';
	END IF;
	IF EXISTS (SELECT FROM checksums k WHERE k.generic_file_id = c.generic_file_id AND k.algorithm = c.algorithm AND k.digest = c.digest) THEN
		RAISE EXCEPTION 'the file has this % already', c.algorithm USING ERRCODE = 'unique_violation',
			TABLE = 'checksums', CONSTRAINT = 'checksums_generic_file_id_algorithm_digest_key';
	END IF;
END
$$;

-- A checksum by hand gets a row of its own, and so does one that is changed.
CREATE OR REPLACE FUNCTION digest_is_changed() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF TG_OP = 'INSERT' AND NEW.id IS NOT NULL OR TG_OP = 'UPDATE' AND NEW.id <> OLD.id THEN
		RAISE EXCEPTION 'column "id" can only be DEFAULT' USING ERRCODE = 'generated_always';
	END IF;
	IF TG_OP <> 'INSERT' THEN
		UPDATE file_digests d SET md5 = CASE OLD.algorithm WHEN 'md5' THEN NULL ELSE md5 END, sha1 = CASE OLD.algorithm WHEN 'sha1' THEN NULL ELSE sha1 END,
			sha256 = CASE OLD.algorithm WHEN 'sha256' THEN NULL ELSE sha256 END, sha512 = CASE OLD.algorithm WHEN 'sha512' THEN NULL ELSE sha512 END
		WHERE d.generic_file_id = OLD.generic_file_id AND d.id = OLD.id - digest_place(OLD.algorithm)
			AND encode(CASE OLD.algorithm WHEN 'md5' THEN md5 WHEN 'sha1' THEN sha1 WHEN 'sha256' THEN sha256 ELSE sha512 END, 'hex') = OLD.digest;
		DELETE FROM file_digests d WHERE d.generic_file_id = OLD.generic_file_id AND num_nonnulls(md5, sha1, sha256, sha512) = 0;
	END IF;
	IF TG_OP = 'DELETE' THEN
		RETURN OLD;
	END IF;
	NEW.created_at := coalesce(NEW.created_at, now());
	NEW.updated_at := coalesce(NEW.updated_at, now());
	PERFORM digest_is_whole(NEW);
	NEW.id := coalesce(NEW.id, nextval('checksums_id_seq') + digest_place(NEW.algorithm));
	INSERT INTO file_digests (id, generic_file_id, datetime, created_at, updated_at, md5, sha1, sha256, sha512)
	SELECT NEW.id - digest_place(NEW.algorithm), NEW.generic_file_id, NEW.datetime, NEW.created_at, nullif(NEW.updated_at, NEW.created_at),
		CASE NEW.algorithm WHEN 'md5' THEN raw END, CASE NEW.algorithm WHEN 'sha1' THEN raw END,
		CASE NEW.algorithm WHEN 'sha256' THEN raw END, CASE NEW.algorithm WHEN 'sha512' THEN raw END
	FROM decode(NEW.digest, 'hex') AS raw;
	RETURN NEW;
END
$$;
CREATE OR REPLACE TRIGGER digest_is_changed INSTEAD OF INSERT OR UPDATE OR DELETE ON checksums FOR EACH ROW EXECUTE FUNCTION digest_is_changed();

-- digest_place is the place of an algorithm's digest in a row of file_digests.
CREATE OR REPLACE FUNCTION digest_place(algorithm text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE algorithm WHEN 'md5' THEN 0 WHEN 'sha1' THEN 1 WHEN 'sha256' THEN 2 ELSE 3 END;

-- Records are of files: what foreign keys would see to, at the price of one look for each
-- statement in place of one for each row. Nobody deletes a file whose row is being recorded,
-- because the recording locks it.
CREATE OR REPLACE FUNCTION files_are_there() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
	of text := CASE TG_TABLE_NAME WHEN 'file_digests' THEN 'checksums' WHEN 'storage_records' THEN 'storage_records' ELSE 'premis_events' END;
	id bigint;
BEGIN
	SELECT a.generic_file_id INTO id FROM added a
	WHERE a.generic_file_id IS NOT NULL AND NOT EXISTS (SELECT FROM generic_files f WHERE f.id = a.generic_file_id) LIMIT 1;
	IF FOUND THEN
		RAISE EXCEPTION 'there is no file %', id USING ERRCODE = 'foreign_key_violation', TABLE = of, CONSTRAINT = of || '_generic_file_id_fkey';
	END IF;
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER files_are_there AFTER INSERT ON event_records REFERENCING NEW TABLE AS added EXECUTE FUNCTION files_are_there();
CREATE OR REPLACE TRIGGER files_are_there AFTER INSERT ON file_digests REFERENCING NEW TABLE AS added EXECUTE FUNCTION files_are_there();
CREATE OR REPLACE TRIGGER files_are_there AFTER INSERT ON storage_records REFERENCING NEW TABLE AS added EXECUTE FUNCTION files_are_there();

CREATE OR REPLACE FUNCTION file_is_there() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	PERFORM FROM generic_files f WHERE f.id = NEW.generic_file_id;
	IF NOT FOUND THEN
		RAISE EXCEPTION 'there is no file %', NEW.generic_file_id USING ERRCODE = 'foreign_key_violation',
			TABLE = 'storage_records', CONSTRAINT = 'storage_records_generic_file_id_fkey';
	END IF;
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER file_is_there AFTER UPDATE OF generic_file_id ON storage_records
	FOR EACH ROW WHEN (NEW.generic_file_id IS DISTINCT FROM OLD.generic_file_id) EXECUTE FUNCTION file_is_there();

CREATE OR REPLACE FUNCTION file_has_records() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
	what text := CASE WHEN EXISTS (SELECT FROM storage_records s WHERE s.generic_file_id = OLD.id) THEN 'storage_records'
		WHEN EXISTS (SELECT FROM event_records r WHERE r.generic_file_id = OLD.id) THEN 'premis_events'
		WHEN EXISTS (SELECT FROM file_digests d WHERE d.generic_file_id = OLD.id) THEN 'checksums' END;
BEGIN
	IF what IS NOT NULL THEN
		RAISE EXCEPTION 'file % is referenced from %', OLD.id, what USING ERRCODE = 'foreign_key_violation',
			TABLE = what, CONSTRAINT = what || '_generic_file_id_fkey';
	END IF;
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER file_has_records AFTER DELETE ON generic_files FOR EACH ROW EXECUTE FUNCTION file_has_records();

-- Events say what a file was called when they happened.
CREATE OR REPLACE FUNCTION events_keep_names() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	UPDATE event_records r SET file_identifier = coalesce(r.file_identifier, OLD.identifier), file_uuid = coalesce(r.file_uuid, OLD.uuid)
	WHERE r.generic_file_id = OLD.id;
	RETURN NULL;
END
$$;
CREATE OR REPLACE TRIGGER events_keep_names AFTER UPDATE OF identifier, uuid ON generic_files
	FOR EACH ROW WHEN (NEW.identifier <> OLD.identifier OR NEW.uuid <> OLD.uuid) EXECUTE FUNCTION events_keep_names();

REVOKE EXECUTE ON FUNCTION event_is_whole, event_known, event_stored, event_is_inserted, event_is_changed, digest_is_whole, digest_is_changed,
	digest_place, files_are_there, file_is_there, file_has_records, events_keep_names FROM PUBLIC;
