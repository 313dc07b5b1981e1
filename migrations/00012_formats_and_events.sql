-- What is known of a file's format and how it was found out; events of validation,
-- format identification and virus checks; the Library of Congress' term beside
-- each event type. The new column of premis_events rewrites that table.

-- +goose Up
SELECT set_config('search_path', current_setting('search_path') || ', pg_temp', true); -- see 00003

ALTER TABLE generic_files
	ADD COLUMN format_name              text NOT NULL DEFAULT '', -- PRONOM's
	ADD COLUMN format_method            text NOT NULL DEFAULT '' CHECK (format_method IN ('', 'signature', 'container', 'extension')),
	ADD COLUMN format_signature_version text NOT NULL DEFAULT '', -- of what identified; '' for what was empty, or recorded before this column
	ADD COLUMN format_reason            text NOT NULL DEFAULT '', -- why the identifier gave no type: a word, and more behind a colon
	ADD COLUMN format_identified_at     timestamptz;

-- signature_number is the number of PRONOM's signature file; 0 if it is not known.
CREATE FUNCTION signature_number(signature_version text) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN coalesce(substring(signature_version FROM 'DROID_SignatureFile_V([0-9]{1,6})[.]')::integer, 0);

-- format_outcome is what a `format identification` event says of a file's format.
CREATE FUNCTION format_outcome(puid text, mime_type text, name text, method text, signature_version text, reason text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN 'PUID ' || coalesce(nullif(puid, ''), 'unknown') || ', ' || mime_type || coalesce(', ' || nullif(name, ''), '')
	|| coalesce(', by ' || nullif(method, ''), '') || coalesce(', ' || nullif(split_part(reason, ':', 1), ''), '')
	|| coalesce(', ' || nullif(signature_version, ''), '');

-- identification_failed tells whether the identifier broke on a file, for whatever
-- reason; that it knows of no such format is an answer.
CREATE FUNCTION identification_failed(reason text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN split_part(reason, ':', 1) IN ('crashed', 'timed out', 'refused');

-- What farol identify looks for: files without a PUID and without a reason why
-- there is none, and files by the signatures that they were identified with.
CREATE INDEX generic_files_without_format ON generic_files (id) WHERE state = 'A' AND format_puid = '' AND format_reason = '';
CREATE INDEX generic_files_signatures ON generic_files (signature_number(format_signature_version), id) WHERE state = 'A';

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

ALTER TABLE premis_events
	DROP CONSTRAINT premis_events_event_type_check,
	ADD COLUMN event_type_uri text GENERATED ALWAYS AS (event_type_uri(event_type)) STORED,
	ADD CONSTRAINT premis_events_event_type_check CHECK (event_type_uri(event_type) IS NOT NULL);

-- +goose Down
ALTER TABLE premis_events
	DROP CONSTRAINT premis_events_event_type_check,
	DROP COLUMN event_type_uri;
-- Events of a type that the older schema lacks go with it.
DELETE FROM premis_events WHERE event_type = 'format identification';
ALTER TABLE premis_events
	ADD CONSTRAINT premis_events_event_type_check CHECK (event_type IN ('access assignment', 'capture', 'compression', 'creation',
		'deaccession', 'decompression', 'decryption', 'deletion', 'message digest calculation', 'fixity check', 'identifier assignment',
		'ingestion', 'migration', 'normalization', 'replication', 'digital signature validation', 'validation', 'virus check'));
DROP INDEX generic_files_signatures, generic_files_without_format;
ALTER TABLE generic_files
	DROP COLUMN format_name, DROP COLUMN format_method, DROP COLUMN format_signature_version, DROP COLUMN format_reason,
	DROP COLUMN format_identified_at;
DROP FUNCTION event_type_uri(text);
DROP FUNCTION format_outcome(text, text, text, text, text, text);
DROP FUNCTION identification_failed(text);
DROP FUNCTION signature_number(text);
