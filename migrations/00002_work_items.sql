-- The queue. One row of work_items is the message, the lock, the status and the
-- history's head; a transition is one UPDATE of it.

-- +goose Up

-- What a column may hold is checked by its type, which costs an UPDATE nothing
-- where the column is not assigned; a CHECK of the table is read and evaluated by
-- every statement of the queue. A refusal says what was typed, and what to type.
-- +goose StatementBegin
CREATE FUNCTION refused(reason text, hint text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RAISE EXCEPTION '%', reason USING ERRCODE = 'check_violation', HINT = hint;
END
$$;

-- meant_name returns the one of several names that somebody has mistyped: the one
-- with the same letters, but for two at most. NULL if none is that near.
CREATE FUNCTION meant_name(typed text, names text[]) RETURNS text LANGUAGE sql IMMUTABLE
RETURN (
	SELECT n.name FROM unnest(names) WITH ORDINALITY n (name, place) CROSS JOIN LATERAL (
		SELECT coalesce(sum(abs(c.missing)), 0) AS letters FROM (
			SELECT sum(l.of_name) AS missing FROM (
				SELECT upper(x) AS letter, 1 AS of_name FROM regexp_split_to_table(n.name, '') x
				UNION ALL SELECT upper(x), -1 FROM regexp_split_to_table(left(typed, 50), '') x
			) l WHERE l.letter ~ '[A-Z]' GROUP BY l.letter) c) off
	WHERE off.letters <= 2 ORDER BY off.letters, n.place LIMIT 1);

CREATE FUNCTION no_such(kind text, typed text, names text[], of_what text DEFAULT '') RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	RETURN refused(
		format('there is no %s %s; the %s%s are: %s', kind, quote_nullable(typed), CASE kind WHEN 'status' THEN 'statuses' ELSE kind || 's' END,
			of_what, array_to_string(names, ', ')),
		coalesce('Write ' || quote_literal(meant_name(typed, names)) || '.', 'Write one of them as it is written here.'));
END
$$;

CREATE FUNCTION no_such_priority(typed bigint) RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN refused('there is no priority ' || coalesce(typed::text, 'NULL'), 'Write a number from -100, which goes first, to 100, which goes last.');
-- +goose StatementEnd

CREATE DOMAIN work_action AS text COLLATE "C"
	CHECK (VALUE IN ('Ingest', 'Delete', 'Restore File', 'Restore Object', 'Glacier Restore')
		OR no_such('action', VALUE, '{Ingest,Delete,Restore File,Restore Object,Glacier Restore}'));
CREATE DOMAIN work_stage AS text COLLATE "C"
	CHECK (VALUE IN ('Receive', 'Validate', 'Reingest Check', 'Copy To Staging', 'Format Identification', 'Store', 'Storage Validation',
			'Record', 'Cleanup', 'Requested', 'Fetch', 'Unpack', 'Restoring', 'Package', 'Available in S3', 'Resolve')
		OR no_such('stage', VALUE, '{Receive,Validate,Reingest Check,Copy To Staging,Format Identification,Store,Storage Validation,'
			'Record,Cleanup,Requested,Fetch,Unpack,Restoring,Package,Available in S3,Resolve}'));
CREATE DOMAIN work_status AS text COLLATE "C"
	CHECK (VALUE IN ('Pending', 'Started', 'Success', 'Failed', 'Cancelled', 'Suspended')
		OR no_such('status', VALUE, '{Pending,Started,Success,Failed,Cancelled,Suspended}'));
CREATE DOMAIN storage_option_name AS text
	CHECK (VALUE IS NULL OR VALUE IN ('Standard', 'Wasabi-VA', 'Wasabi-OR', 'Wasabi-TX', 'Glacier-VA', 'Glacier-OH', 'Glacier-OR',
			'Glacier-Deep-VA', 'Glacier-Deep-OH', 'Glacier-Deep-OR')
		OR no_such('storage option', VALUE, '{Standard,Wasabi-VA,Wasabi-OR,Wasabi-TX,Glacier-VA,Glacier-OH,Glacier-OR,'
			'Glacier-Deep-VA,Glacier-Deep-OH,Glacier-Deep-OR}'));
CREATE DOMAIN moment AS timestamptz -- or ages could not be told, and a lease would never lapse
	CHECK (VALUE IS NULL OR isfinite(VALUE) OR refused(VALUE || ' is no point in time', 'Write one, such as now().'));
CREATE DOMAIN due_time AS timestamptz
	CHECK (VALUE > '-infinity' OR refused(coalesce(VALUE::text, 'NULL') || ' is no point in time', 'Write one, such as now().'));
CREATE DOMAIN object_key AS text CONSTRAINT "1 to 1000 bytes" CHECK (octet_length(VALUE) BETWEEN 1 AND 1000);
CREATE DOMAIN object_etag AS text COLLATE "C" CONSTRAINT "1 to 128 bytes" CHECK (octet_length(VALUE) BETWEEN 1 AND 128);
CREATE DOMAIN byte_count AS bigint -- exact in JSON
	CHECK (VALUE BETWEEN 0 AND 1::bigint << 53
		OR refused(format('nothing has a size of %s bytes', coalesce(VALUE::text, 'NULL')), 'It is the number of bytes of the tar.'));
CREATE DOMAIN attempt_count AS integer CONSTRAINT "0 to a million" CHECK (VALUE BETWEEN 0 AND 1000000);
CREATE DOMAIN attempt_outcome AS text CONSTRAINT "how an attempt ends" CHECK (VALUE IN
	('done', 'transient', 'fatal', 'released', 'snoozed', 'sent back', 'lease expired', 'killed', 'oom', 'panic', 'cancelled'));
CREATE DOMAIN work_priority AS smallint
	CHECK (VALUE BETWEEN -100 AND 100 OR no_such_priority(VALUE));
CREATE DOMAIN user_email AS text CONSTRAINT "an e-mail address" CHECK (VALUE LIKE '_%@_%');

-- Size bands spread work by bytes. An item's band is set from its size when it
-- is created; a pool names the bands that it takes.
CREATE TABLE size_bands (
	band     smallint PRIMARY KEY,
	min_size bigint   NOT NULL UNIQUE CHECK (min_size >= 0),
	turn     bigint   NOT NULL DEFAULT 0 -- the latest turn in this band that was claimed; see institution_turns
) WITH (fillfactor = 50);
INSERT INTO size_bands VALUES (0, 0), (1, 64 << 20), (2, 1 << 30), (3, 64::bigint << 30);

-- Institutions take turns by bytes (start-time fair queueing, Goyal et al. 1996).
-- A turn is a number of bytes on one scale for a band: a new item gets the turn
-- that its institution has come to, or the one that is being served if that is
-- later, and moves its institution on by its own size. An institution that floods
-- the queue so stands in its own way, and one that comes seldom is served next.
-- A row is added for each item, since a counter would be a chain of dead versions
-- in a transaction that adds many; all but the last are deleted in time.
CREATE TABLE institution_turns (
	institution_id bigint   NOT NULL REFERENCES institutions,
	size_band      smallint NOT NULL,
	next_turn      bigint   NOT NULL
);
CREATE INDEX institution_turns_last ON institution_turns (institution_id, size_band, next_turn);

-- What each stage is called, in which order, and how it is treated. Changes
-- hold from the next claim on.
CREATE TABLE stage_settings (
	action        work_action NOT NULL,
	stage         work_stage  NOT NULL,
	ordinal       smallint NOT NULL, -- place in the life of the item
	topic         text     NOT NULL CHECK (topic ~ '^[A-Za-z0-9._-]{1,64}$'), -- the NSQ topic that the mirror publishes to
	paused        boolean  NOT NULL DEFAULT false,
	max_attempts  integer  NOT NULL DEFAULT 3 CHECK (max_attempts BETWEEN 1 AND 1000),
	backoff_first interval NOT NULL DEFAULT '1 second' CHECK (backoff_first > '0'),
	backoff_most  interval NOT NULL DEFAULT '10 minutes',
	cap           integer  CHECK (cap >= 1), -- how many may run at once in all processes; NULL: any number
	overdue       interval NOT NULL DEFAULT '1 hour' CHECK (overdue > '0'), -- a priority whose first item has waited longer gets half of the claims
	-- How long a worker may be at it, and how long its silence means its death.
	processing_timeout interval CHECK (processing_timeout > '0'), -- NULL: as long as it needs
	heartbeat          interval NOT NULL DEFAULT '10 seconds' CHECK (heartbeat > '0'), -- a worker is heard of as often, at least
	lease              interval NOT NULL DEFAULT '30 seconds',
	unrenewed_timeout  interval NOT NULL CHECK (unrenewed_timeout > '0'), -- the two for a worker that cannot heartbeat
	unrenewed_lease    interval NOT NULL,
	-- Who paused it, when and why.
	paused_at     timestamptz,
	paused_by     text,
	pause_reason  text,
	PRIMARY KEY (action, stage),
	CHECK (backoff_most >= backoff_first),
	CONSTRAINT times_are_finite CHECK (backoff_most <= '1 year' AND overdue <= '1 year' AND processing_timeout <= '1 year'
		AND lease <= '100 days' AND unrenewed_lease <= '100 days' AND isfinite(paused_at)),
	CONSTRAINT lease_outlasts_heartbeats CHECK (lease >= 3 * heartbeat), -- one late heartbeat loses no live work
	CONSTRAINT unrenewed_lease_outlasts_timeout CHECK (unrenewed_lease >= 3 * unrenewed_timeout)
);
INSERT INTO stage_settings (action, stage, ordinal, topic, max_attempts, cap, unrenewed_timeout, unrenewed_lease) VALUES
	('Ingest', 'Receive',               1, 'ingest01_prefetch',              3, NULL, '15 minutes', '45 minutes'),
	('Ingest', 'Validate',              2, 'ingest02_bag_validation',        3, NULL, '3 minutes',  '9 minutes'),
	('Ingest', 'Reingest Check',        3, 'ingest03_reingest_check',        3, NULL, '20 seconds', '60 seconds'),
	('Ingest', 'Copy To Staging',       4, 'ingest04_staging',               3, NULL, '15 minutes', '45 minutes'),
	('Ingest', 'Format Identification', 5, 'ingest05_format_identification', 3, NULL, '15 minutes', '45 minutes'),
	('Ingest', 'Store',                 6, 'ingest06_storage',               3, NULL, '15 minutes', '45 minutes'),
	('Ingest', 'Storage Validation',    7, 'ingest07_storage_validation',    3, NULL, '3 minutes',  '9 minutes'),
	('Ingest', 'Record',                8, 'ingest08_record',                5, 2,    '3 minutes',  '9 minutes'),
	('Ingest', 'Cleanup',               9, 'ingest09_cleanup',               3, NULL, '20 seconds', '60 seconds'),
	('Delete',          'Requested',    1, 'delete_item',                    3, NULL, '3 minutes',  '9 minutes'),
	('Restore File',    'Requested',    1, 'restore_file',                   3, NULL, '15 minutes', '45 minutes'),
	('Restore Object',  'Requested',    1, 'restore_object',                 3, NULL, '15 minutes', '45 minutes'),
	('Glacier Restore', 'Requested',    1, 'restore_glacier',                3, NULL, '20 seconds', '60 seconds');

-- The columns are in an order that keeps a hop cheap. An UPDATE that finds room
-- on the row's own page logs what lies between the first and the last byte that
-- it changes, so what a hop leaves alone is at both ends; and a column is found at
-- once if none before it is NULL or of varying width.
CREATE TABLE work_items (
	id                     bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	institution_id         bigint      NOT NULL REFERENCES institutions,
	size                   byte_count  NOT NULL, -- bytes of the tar, object or file
	turn                   bigint      NOT NULL DEFAULT 0, -- its institution's turn in its band; lower goes first
	bag_date               moment      NOT NULL, -- when the tar was uploaded
	date_processed         moment      NOT NULL DEFAULT now(), -- when the work was requested
	created_at             moment      NOT NULL DEFAULT now(),
	size_band              smallint    NOT NULL DEFAULT 0,
	priority               work_priority NOT NULL DEFAULT 0, -- lower goes first
	-- What the queue moves.
	attempt                attempt_count NOT NULL DEFAULT 0, -- claims of this stage that count
	claim_token            bigint      NOT NULL DEFAULT 0, -- grows with every transition; a write names the one it holds
	entered_token          bigint      NOT NULL DEFAULT 0, -- claim_token when the item came to its stage; progress goes by it
	run_at                 due_time    NOT NULL DEFAULT now(), -- not before this; 'infinity' while waits_for is set
	updated_at             moment      NOT NULL DEFAULT now(),
	retry                  boolean     NOT NULL DEFAULT true,  -- false: no worker takes it before a person requeues it
	needs_admin_review     boolean     NOT NULL DEFAULT false,
	stage                  work_stage  NOT NULL,
	status                 work_status NOT NULL DEFAULT 'Pending',
	lease_expires_at       moment,
	stage_started_at       moment,
	pid                    integer,
	node                   text,
	worker                 text, -- one process start: two starts never share it
	note                   text        NOT NULL DEFAULT '',
	outcome                text        NOT NULL DEFAULT '',
	error_code             text        NOT NULL DEFAULT '', -- of what ended or delayed it last
	-- What the item is about.
	waits_for              bigint      REFERENCES work_items, -- another item of the same object that must end first
	intellectual_object_id bigint,
	generic_file_id        bigint      REFERENCES generic_files,
	queued_at              moment,
	name                   object_key  NOT NULL, -- key in the receiving bucket
	etag                   object_etag NOT NULL,
	bucket                 object_key  NOT NULL,
	action                 work_action NOT NULL,
	object_identifier      text        NOT NULL,
	storage_option         storage_option_name, -- NULL until the bag has been read
	"user"                 user_email  NOT NULL DEFAULT 'system@aptrust.org',
	inst_approver          text,
	aptrust_approver       text,

	CONSTRAINT stage_fits_action CHECK ((action = 'Ingest') =
		(stage <> ALL ('{Available in S3,Fetch,Package,Requested,Resolve,Restoring,Unpack}'::text[]))),
	CONSTRAINT entered_before CHECK (entered_token BETWEEN 0 AND claim_token),
	CONSTRAINT success_is_at_the_end CHECK (status <> 'Success' OR stage IN ('Cleanup', 'Resolve')),
	CONSTRAINT retry_is_live CHECK (retry = (status IN ('Pending', 'Started'))),
	CONSTRAINT started_is_leased CHECK (num_nonnulls(lease_expires_at, node, pid, worker) = CASE status WHEN 'Started' THEN 4 ELSE 0 END
		AND (lease_expires_at IS NULL OR attempt >= 1)),
	CONSTRAINT waiting_is_pending CHECK (CASE WHEN waits_for IS NULL THEN run_at < 'infinity' ELSE run_at = 'infinity' AND status = 'Pending' END),
	CONSTRAINT object_is_the_institutions FOREIGN KEY (intellectual_object_id, institution_id)
		REFERENCES intellectual_objects (id, institution_id),
	CONSTRAINT waits_for_another CHECK (waits_for <> id)
) WITH (
	fillfactor = 60, -- room for the next version of the row on its own page
	autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 50000
);

-- What the claim walks, exactly in its order.
CREATE INDEX work_items_ready ON work_items (stage, size_band, priority, turn, run_at, id) WHERE status = 'Pending' AND retry;
-- What the reaper and the caps walk.
CREATE INDEX work_items_lease ON work_items (stage, lease_expires_at) WHERE status = 'Started';
CREATE INDEX work_items_waiting ON work_items (waits_for) WHERE waits_for IS NOT NULL;
-- Look-ups by people and by the bucket reader; only rows that have ended, which hops leave alone.
CREATE INDEX work_items_ended_bag ON work_items (institution_id, name, etag) WHERE NOT retry;
-- What the archive takes, however much waits.
CREATE INDEX work_items_ended ON work_items (updated_at) WHERE status IN ('Success', 'Cancelled');
CREATE INDEX work_items_review ON work_items (id) WHERE needs_admin_review;

-- The uploads that have a live ingest. Two of the same upload cannot be, and live
-- items of one object go one after the other. Triggers keep it with the items'
-- beginning and end; as an index of work_items it would be written on every hop
-- and make each a third dearer.
CREATE TABLE uploads_in_work (
	object_identifier text COLLATE "C" NOT NULL,
	name              text COLLATE "C" NOT NULL,
	etag              text COLLATE "C" NOT NULL,
	work_item_id      bigint NOT NULL,
	CONSTRAINT one_live_ingest PRIMARY KEY (object_identifier, name, etag)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000);

-- What makes transactions take turns that bring items of one object into the
-- queue: a row is inserted, or locked. Advisory locks would do, but there is room
-- for some thousands only, and a transaction may bring a hundred thousand items.
-- A row says nothing else; it goes when an item of its object ends.
CREATE TABLE objects_in_work (
	object_identifier text COLLATE "C" PRIMARY KEY
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000);

-- The attempt ledger: one row for each claim, written at its start and its end.
-- It has no foreign key to work_items, whose row would then be locked once more
-- on every hop.
CREATE TABLE work_item_attempts (
	work_item_id bigint      NOT NULL,
	claim_token  bigint      NOT NULL,
	stage        text        NOT NULL,
	attempt      integer     NOT NULL,
	node         text        NOT NULL,
	pid          integer     NOT NULL,
	worker       text        NOT NULL,
	claimed_at   moment      NOT NULL DEFAULT clock_timestamp(), -- later than the end of the attempt before it, whoever ended that
	heard_at     moment      NOT NULL DEFAULT clock_timestamp(), -- last sign of life
	ended_at     moment,
	outcome      attempt_outcome,
	error_code   text        NOT NULL DEFAULT '',
	error        text        NOT NULL DEFAULT '',
	file_in_hand text        NOT NULL DEFAULT '',
	PRIMARY KEY (work_item_id, claim_token),
	CHECK ((ended_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 45); -- each row is written twice: both find room on one page

-- One row for each start of a worker process. No lease hangs on it: it tells
-- people who is there, and the reaper what a silent worker died of.
CREATE TABLE worker_processes (
	worker      text        PRIMARY KEY, -- two starts never share it
	node        text        NOT NULL,
	pid         integer     NOT NULL,
	host        text        NOT NULL, -- boot and process namespace: who shares them sees whether it lives
	pid_started bigint      NOT NULL, -- the kernel's start time of the process, since numbers are used again
	pools       jsonb       NOT NULL DEFAULT '[]',
	heartbeat   interval    NOT NULL,
	cgroup      text        NOT NULL DEFAULT '',
	oom_kills   bigint      NOT NULL DEFAULT 0, -- of its control group, when it was last heard of
	started_at  timestamptz NOT NULL DEFAULT now(),
	heard_at    timestamptz NOT NULL DEFAULT now(),
	draining    boolean     NOT NULL DEFAULT false, -- it was asked to stop
	ended_at    timestamptz,
	ending      text CHECK (ending IN ('stopped', 'killed', 'oom', 'panic', 'silent')),
	CHECK ((ended_at IS NULL) = (ending IS NULL))
) WITH (fillfactor = 50);

-- What a person changed by hand, from the console, the command line or psql.
CREATE TABLE work_item_audit (
	id               bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	work_item_id     bigint      NOT NULL, -- stays when the item is archived
	at               timestamptz NOT NULL DEFAULT clock_timestamp(),
	session_user_is  text        NOT NULL DEFAULT session_user,
	application_name text        NOT NULL DEFAULT current_setting('application_name'),
	before           jsonb       NOT NULL,
	after            jsonb       NOT NULL
);
CREATE INDEX work_item_audit_item ON work_item_audit (work_item_id);

-- The topic log: what the NSQ mirror and other readers follow. A row is written
-- in the transaction of the transition that it tells of. Readers go by
-- (xid, id) and stop before the oldest transaction that is still open, so that
-- they never pass over a message that commits late.
CREATE TABLE topic_messages (
	id           bigint      GENERATED ALWAYS AS IDENTITY,
	xid          xid8        NOT NULL DEFAULT pg_current_xact_id(),
	topic        text        NOT NULL CHECK (topic <> ''),
	body         text        NOT NULL CHECK (body <> ''),
	work_item_id bigint, -- no foreign key, as in work_item_attempts
	created_at   timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (xid, id)
);

-- Copies that a re-ingest has replaced: the record names the new bytes already,
-- and Cleanup of the item deletes the old ones.
CREATE TABLE retired_copies (
	work_item_id bigint      NOT NULL REFERENCES work_items,
	target       text        NOT NULL,
	bucket       text        NOT NULL,
	key          text        NOT NULL,
	retired_at   timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (work_item_id, target, key)
);

-- How far each reader of the topic log has come.
CREATE TABLE topic_readers (
	name       text        PRIMARY KEY,
	xid        xid8        NOT NULL DEFAULT '0',
	message_id bigint      NOT NULL DEFAULT 0,
	updated_at timestamptz NOT NULL DEFAULT now()
);

-- Items that have ended for good, and their attempts, leave the queue's tables
-- after a while. Who asks for any item asks the views.
CREATE TABLE work_items_archive (LIKE work_items INCLUDING STORAGE, PRIMARY KEY (id));
CREATE INDEX work_items_archive_bag ON work_items_archive (institution_id, name, etag);
CREATE TABLE work_item_attempts_archive (LIKE work_item_attempts INCLUDING STORAGE, PRIMARY KEY (work_item_id, claim_token));
CREATE VIEW all_work_items AS SELECT * FROM work_items UNION ALL SELECT * FROM work_items_archive;
CREATE VIEW attempts AS SELECT * FROM work_item_attempts UNION ALL SELECT * FROM work_item_attempts_archive;

ANALYZE size_bands, stage_settings;

-- +goose Down
DROP VIEW attempts, all_work_items;
DROP TABLE work_item_attempts_archive, work_items_archive, topic_readers, retired_copies, topic_messages, work_item_audit,
	worker_processes, work_item_attempts, objects_in_work, uploads_in_work, work_items, stage_settings, institution_turns, size_bands;
DROP DOMAIN work_action, work_stage, work_status, storage_option_name, moment, due_time, object_key, object_etag, byte_count, attempt_count, attempt_outcome,
	work_priority, user_email;
DROP FUNCTION no_such_priority(bigint);
DROP FUNCTION no_such(text, text, text[], text);
DROP FUNCTION meant_name(text, text[]);
DROP FUNCTION refused(text, text);
