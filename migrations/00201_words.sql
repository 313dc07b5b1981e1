-- What columns may hold: domains, and the functions that domains, checks, indexes,
-- defaults and generated columns rest on. These functions change by numbered
-- migrations, because data that is stored depends on them; all others are in
-- repeatable/.

-- +goose Up

-- Functions with their owner's rights look for names in this schema, and in pg_temp
-- only after it: a temporary table must not stand in for one of ours.
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true);

-- +goose StatementBegin
-- refused raises the error of a check: what was typed, and what to type.
CREATE FUNCTION refused(reason text, hint text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RAISE EXCEPTION '%', reason USING ERRCODE = 'check_violation', HINT = hint;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- meant_name returns the name that was probably meant: the one with the same letters but
-- for two at most. NULL: none is that near.
CREATE FUNCTION meant_name(typed text, names text[]) RETURNS text LANGUAGE sql IMMUTABLE
RETURN (
	SELECT n.name FROM unnest(names) WITH ORDINALITY n (name, place) CROSS JOIN LATERAL (
		SELECT coalesce(sum(abs(c.missing)), 0) AS letters FROM (
			SELECT sum(l.of_name) AS missing FROM (
				SELECT upper(x) AS letter, 1 AS of_name FROM regexp_split_to_table(n.name, '') x
				UNION ALL SELECT upper(x), -1 FROM regexp_split_to_table(left(typed, 50), '') x
			) l WHERE l.letter ~ '[A-Z]' GROUP BY l.letter) c) off
	WHERE off.letters <= 2 ORDER BY off.letters, n.place LIMIT 1);
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION no_such(kind text, typed text, names text[], of_what text DEFAULT '') RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN refused(
		format('there is no %s %s; the %s%s are: %s', kind, quote_nullable(typed), CASE kind WHEN 'status' THEN 'statuses' ELSE kind || 's' END,
			of_what, array_to_string(names, ', ')),
		coalesce('Write ' || quote_literal(meant_name(typed, names)) || '.', 'Write one of them as it is written here.'));
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION no_such_priority(typed bigint) RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN refused('there is no priority ' || coalesce(typed::text, 'NULL'), 'Write a number from -100, which goes first, to 100, which goes last.');
-- +goose StatementEnd

-- +goose StatementBegin
-- is_stage_name says whether a stage of this name was added, or raises an error that lists
-- the stages. While the table is empty a dump is being restored, in any order, and its
-- rows were checked when they were written.
CREATE FUNCTION is_stage_name(typed text) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL SAFE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
	IF EXISTS (SELECT FROM stage_names n WHERE n.stage = typed) OR NOT EXISTS (SELECT FROM stage_names) THEN
		RETURN true;
	END IF;
	RETURN no_such('stage', typed,
		ARRAY(SELECT s.stage::text FROM stage_settings s WHERE s.action = 'Ingest' ORDER BY s.ordinal)
			|| '{Requested,Fetch,Unpack,Restoring,Package,Available in S3,Resolve}'::text[]);
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- event_type_uri names an event type in the vocabulary of the Library of Congress
-- (id.loc.gov/vocabulary/preservation/eventType); NULL if it is none of ours. That
-- has no term for the assignment of an identifier, and policy assignment is the
-- nearest to that of access rights.
CREATE FUNCTION event_type_uri(event_type text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE event_type
	WHEN 'identifier assignment' THEN 'https://github.com/farol-preservation/farol/blob/main/docs/auditors.md#identifier-assignment'
	ELSE 'http://id.loc.gov/vocabulary/preservation/eventType/' || CASE event_type
		WHEN 'access assignment'            THEN 'poa'
		WHEN 'capture'                      THEN 'cap'
		WHEN 'compression'                  THEN 'com'
		WHEN 'creation'                     THEN 'cre'
		WHEN 'deaccession'                  THEN 'dea'
		WHEN 'decompression'                THEN 'dec'
		WHEN 'decryption'                   THEN 'der'
		WHEN 'deletion'                     THEN 'del'
		WHEN 'digital signature validation' THEN 'dig'
		WHEN 'fixity check'                 THEN 'fix'
		WHEN 'format identification'        THEN 'for'
		WHEN 'ingestion'                    THEN 'ing'
		WHEN 'message digest calculation'   THEN 'mes'
		WHEN 'migration'                    THEN 'mig'
		WHEN 'normalization'                THEN 'nor'
		WHEN 'replication'                  THEN 'rep'
		WHEN 'validation'                   THEN 'val'
		WHEN 'virus check'                  THEN 'vir'
	END
END;
-- +goose StatementEnd

-- +goose StatementBegin
-- signature_number is the number of PRONOM's signature file; 0 if it is not known.
-- Searching for its pattern took a sixth of the time of a recording, for an index: only
-- names of an unusual form are searched.
CREATE FUNCTION signature_number(signature_version text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE
	WHEN strpos(signature_version, 'DROID_SignatureFile_V') = 0 THEN 0
	WHEN split_part(split_part(signature_version, 'DROID_SignatureFile_V', 2), '.', 1) IN ('', split_part(signature_version, 'DROID_SignatureFile_V', 2))
		OR length(split_part(split_part(signature_version, 'DROID_SignatureFile_V', 2), '.', 1)) > 6
		OR translate(split_part(split_part(signature_version, 'DROID_SignatureFile_V', 2), '.', 1), '0123456789', '') <> ''
		THEN coalesce(substring(signature_version FROM 'DROID_SignatureFile_V([0-9]{1,6})[.]')::integer, 0)
	ELSE split_part(split_part(signature_version, 'DROID_SignatureFile_V', 2), '.', 1)::integer END;
-- +goose StatementEnd

-- +goose StatementBegin
-- Each partition holds the ids of one multiple of log_partition_width(), and is
-- closed by moving the sequence on to the next multiple: so that partitions are
-- of about the same time, whatever comes. What no partition is ready for goes into
-- the default one, which never should happen and must stop no transition.
CREATE FUNCTION log_partition_width() RETURNS bigint LANGUAGE sql IMMUTABLE PARALLEL SAFE RETURN 100000000;
-- +goose StatementEnd

-- +goose StatementBegin
-- The commands of Farol call themselves "farol-item ann": application_name is what a
-- pooler in transaction mode hands on as well. What a person says of themselves is no
-- proof, so it never stands without the role, which is.
CREATE FUNCTION acting_program() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN regexp_replace(current_setting('application_name'), '^(farol-[a-z-]+) .*$', '\1');
-- +goose StatementEnd
COMMENT ON FUNCTION acting_program IS 'Program of this session, without the person who runs it.';

-- +goose StatementBegin
CREATE FUNCTION acting_person() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN substring(current_setting('application_name') FROM '^farol-[a-z-]+ (.+)$');
-- +goose StatementEnd
COMMENT ON FUNCTION acting_person IS 'Person who runs the command of this session, as the command says; NULL: none is named.';

-- +goose StatementBegin
-- signed_in_actor is who the server for people says is signed in, for this transaction. It
-- counts only where the role that logged in is itself a member of farol_web: a setting can
-- be set by anyone. Superusers are members of every role by right, and are none here.
CREATE FUNCTION signed_in_actor() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE WHEN nullif(current_setting('farol.actor', true), '') IS NOT NULL AND EXISTS (
		SELECT FROM pg_catalog.pg_auth_members m
		JOIN pg_catalog.pg_roles g ON g.oid = m.roleid AND g.rolname = 'farol_web'
		JOIN pg_catalog.pg_roles u ON u.oid = m.member AND u.rolname = session_user)
	THEN current_setting('farol.actor', true) END;
-- +goose StatementEnd
COMMENT ON FUNCTION signed_in_actor IS 'Person or token that a member of farol_web acts for, as it has proved; NULL: none.';

-- +goose StatementBegin
CREATE FUNCTION acting_user() RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(signed_in_actor(), session_user || coalesce(' (' || acting_person() || ')', ''));
-- +goose StatementEnd
COMMENT ON FUNCTION acting_user IS
	'Who acts: a person or token that has signed in; otherwise the role that logged in, followed in brackets by the person that a command names.';

-- The type of a column checks it: that costs an UPDATE nothing where the column is
-- not assigned, while a CHECK of the table is evaluated by every statement of the queue.
CREATE DOMAIN work_action AS text COLLATE "C"
	CHECK (VALUE IN ('Ingest', 'Delete', 'Restore File', 'Restore Object', 'Glacier Restore', 'Export')
		OR no_such('action', VALUE, '{Ingest,Delete,Restore File,Restore Object,Glacier Restore,Export}'));
CREATE DOMAIN work_stage AS text COLLATE "C";
-- NOT VALID has pg_dump restore the check after the data, which stage_names is part of.
ALTER DOMAIN work_stage ADD CONSTRAINT work_stage_check
	CHECK (VALUE IN ('Receive', 'Validate', 'Reingest Check', 'Copy To Staging', 'Format Identification', 'Store', 'Storage Validation',
			'Record', 'Cleanup', 'Requested', 'Fetch', 'Unpack', 'Restoring', 'Package', 'Available in S3', 'Resolve')
		OR is_stage_name(VALUE)) NOT VALID;
CREATE DOMAIN work_status AS text COLLATE "C"
	CHECK (VALUE IN ('Pending', 'Started', 'Success', 'Failed', 'Cancelled', 'Suspended')
		OR no_such('status', VALUE, '{Pending,Started,Success,Failed,Cancelled,Suspended}'));
CREATE DOMAIN storage_option_name AS text
	CHECK (VALUE IS NULL OR VALUE IN ('Standard', 'Wasabi-VA', 'Wasabi-OR', 'Wasabi-TX', 'Glacier-VA', 'Glacier-OH', 'Glacier-OR',
			'Glacier-Deep-VA', 'Glacier-Deep-OH', 'Glacier-Deep-OR')
		OR no_such('storage option', VALUE, '{Standard,Wasabi-VA,Wasabi-OR,Wasabi-TX,Glacier-VA,Glacier-OH,Glacier-OR,'
			'Glacier-Deep-VA,Glacier-Deep-OH,Glacier-Deep-OR}'));
CREATE DOMAIN moment AS timestamptz -- an infinite lease would never expire
	CHECK (VALUE IS NULL OR isfinite(VALUE) OR refused(VALUE || ' is no point in time', 'Write one, such as now().'));
CREATE DOMAIN due_time AS timestamptz
	CHECK (VALUE > '-infinity' OR refused(coalesce(VALUE::text, 'NULL') || ' is no point in time', 'Write one, such as now().'));
CREATE DOMAIN object_key AS text CONSTRAINT "1 to 1000 bytes" CHECK (octet_length(VALUE) BETWEEN 1 AND 1000);
CREATE DOMAIN object_etag AS text COLLATE "C" CONSTRAINT "1 to 128 bytes" CHECK (octet_length(VALUE) BETWEEN 1 AND 128);
CREATE DOMAIN byte_count AS bigint -- exact in JSON
	CHECK (VALUE BETWEEN 0 AND 1::bigint << 53
		OR refused(format('%s bytes is not a possible size', coalesce(VALUE::text, 'NULL')), 'It is the number of bytes of the tar.'));
CREATE DOMAIN attempt_count AS integer CONSTRAINT "0 to a million" CHECK (VALUE BETWEEN 0 AND 1000000);
CREATE DOMAIN attempt_outcome AS text CONSTRAINT "how an attempt ends" CHECK (VALUE IN
	('done', 'transient', 'fatal', 'released', 'stopped', 'snoozed', 'sent back', 'held', 'lease expired', 'killed', 'oom', 'panic', 'cancelled'));
CREATE DOMAIN work_priority AS smallint
	CHECK (VALUE BETWEEN -100 AND 100 OR no_such_priority(VALUE));
CREATE DOMAIN user_email AS text CONSTRAINT "an e-mail address" CHECK (VALUE LIKE '_%@_%');
