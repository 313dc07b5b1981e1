-- The queue. One row of work_items is the message, the lock, the status and the head
-- of the history; a transition is one UPDATE of it.

-- +goose Up

CREATE TABLE stage_names (
	stage       text COLLATE "C" PRIMARY KEY, -- no work_stage, whose check reads this table
	followed_by text COLLATE "C" REFERENCES stage_names
);
INSERT INTO stage_names (stage) SELECT unnest('{Receive,Validate,Reingest Check,Copy To Staging,Format Identification,Store,Storage Validation,
	Record,Cleanup,Requested,Fetch,Unpack,Restoring,Package,Available in S3,Resolve}'::text[]);
CREATE UNIQUE INDEX stage_names_alike ON stage_names (lower(stage)); -- names that differ by case only would be confused

CREATE TABLE stage_settings (
	action             work_action NOT NULL,
	stage              work_stage  NOT NULL,
	ordinal            smallint    NOT NULL,
	topic              text        NOT NULL CHECK (topic ~ '^[A-Za-z0-9._-]{1,64}$'),
	paused             boolean     NOT NULL DEFAULT false,
	max_attempts       integer     NOT NULL DEFAULT 3 CHECK (max_attempts BETWEEN 1 AND 1000),
	backoff_first      interval    NOT NULL DEFAULT '1 second' CHECK (backoff_first > '0'),
	backoff_most       interval    NOT NULL DEFAULT '5 minutes',
	cap                integer     CHECK (cap >= 1),
	overdue            interval    NOT NULL DEFAULT '1 hour' CHECK (overdue > '0'),
	processing_timeout interval    CHECK (processing_timeout > '0'),
	heartbeat          interval    NOT NULL DEFAULT '10 seconds' CHECK (heartbeat > '0'),
	lease              interval    NOT NULL DEFAULT '30 seconds',
	unrenewed_timeout  interval    NOT NULL CHECK (unrenewed_timeout > '0'),
	unrenewed_lease    interval    NOT NULL,
	paused_at          timestamptz,
	paused_by          text,
	pause_reason       text,
	worker             text        NOT NULL DEFAULT 'farol' CHECK (worker IN ('farol', 'http')),
	backoff_factor     integer     NOT NULL DEFAULT 60 CHECK (backoff_factor BETWEEN 1 AND 1000),
	paused_in_nsq      boolean     NOT NULL DEFAULT false,
	PRIMARY KEY (action, stage),
	CHECK (backoff_most >= backoff_first),
	CONSTRAINT times_are_finite CHECK (backoff_most <= '1 year' AND overdue <= '1 year' AND processing_timeout <= '1 year'
		AND lease <= '100 days' AND unrenewed_lease <= '100 days' AND isfinite(paused_at)),
	CONSTRAINT lease_outlasts_heartbeats CHECK (lease >= 3 * heartbeat), -- one late heartbeat loses no lease
	CONSTRAINT unrenewed_lease_outlasts_timeout CHECK (unrenewed_lease >= 3 * unrenewed_timeout),
	CONSTRAINT farol_works_its_own_stages CHECK ((worker = 'farol') = (stage IN ('Receive', 'Validate', 'Reingest Check',
		'Copy To Staging', 'Format Identification', 'Store', 'Storage Validation', 'Record', 'Cleanup', 'Requested')))
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
	('Glacier Restore', 'Requested',    1, 'restore_glacier',                3, NULL, '20 seconds', '60 seconds'),
	('Export',          'Requested',    1, 'export_records',                 3, NULL, '20 seconds', '60 seconds'); -- large exports are work items

CREATE TABLE size_bands (
	band         smallint PRIMARY KEY,
	min_size     bigint   NOT NULL UNIQUE CHECK (min_size >= 0),
	virtual_time bigint   NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO size_bands VALUES (0, 0), (1, 64 << 20), (2, 1 << 30), (3, 64::bigint << 30);

-- Start-time fair queueing (Goyal et al. 1996): a new item starts, in virtual time,
-- where its institution's items before it end, or at the virtual time of the band if
-- that is later, and ends later by its own size. An institution that floods the queue
-- so delays itself, and one that comes seldom is served next.
-- A row is added for each item, since a counter would be a chain of dead tuples in a
-- transaction that adds many; upkeep deletes all but the last.
CREATE TABLE institution_virtual_times (
	institution_id bigint   NOT NULL REFERENCES institutions,
	size_band      smallint NOT NULL,
	virtual_finish bigint   NOT NULL
);
CREATE INDEX institution_virtual_times_last ON institution_virtual_times (institution_id, size_band, virtual_finish);

-- The columns are in an order that keeps a transition cheap. An UPDATE that finds space
-- on the row's own page logs what lies between the first and the last byte that it
-- changes, so what a transition leaves alone is at both ends; and a column is found at
-- once if none before it is NULL or of varying width.
CREATE TABLE work_items (
	id                     bigint        GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	institution_id         bigint        NOT NULL REFERENCES institutions,
	size                   byte_count    NOT NULL,
	virtual_start          bigint        NOT NULL DEFAULT 0,
	bag_date               moment        NOT NULL,
	date_processed         moment        NOT NULL DEFAULT now(),
	created_at             moment        NOT NULL DEFAULT now(),
	size_band              smallint      NOT NULL DEFAULT 0,
	priority               work_priority NOT NULL DEFAULT 0,
	attempt                attempt_count NOT NULL DEFAULT 0,
	claim_token            bigint        NOT NULL DEFAULT 0,
	entered_token          bigint        NOT NULL DEFAULT 0,
	run_at                 due_time      NOT NULL DEFAULT now(),
	updated_at             moment        NOT NULL DEFAULT now(),
	retry                  boolean       NOT NULL DEFAULT true,
	needs_admin_review     boolean       NOT NULL DEFAULT false,
	stage                  work_stage    NOT NULL,
	status                 work_status   NOT NULL DEFAULT 'Pending',
	lease_expires_at       moment,
	stage_started_at       moment,
	pid                    integer,
	node                   text,
	worker                 text,
	note                   text          NOT NULL DEFAULT '',
	outcome                text          NOT NULL DEFAULT '',
	error_code             text          NOT NULL DEFAULT '',
	waits_for              bigint        REFERENCES work_items,
	intellectual_object_id bigint,
	generic_file_id        bigint        REFERENCES generic_files,
	queued_at              moment,
	name                   object_key    NOT NULL,
	etag                   object_etag   NOT NULL,
	bucket                 object_key    NOT NULL,
	action                 work_action   NOT NULL,
	object_identifier      text          NOT NULL,
	storage_option         storage_option_name,
	"user"                 user_email    NOT NULL DEFAULT 'system@aptrust.org',
	inst_approver          text,
	aptrust_approver       text,
	deletion_request_id    bigint        CONSTRAINT work_items_deletion_request REFERENCES deletion_requests,
	memory_need            bigint        NOT NULL DEFAULT 0,

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
	fillfactor = 60, -- space for the next version of the row on its own page
	autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0,
	autovacuum_analyze_scale_factor = 0.2, autovacuum_analyze_threshold = 50000
);
-- What the claim walks, exactly in its order.
CREATE INDEX work_items_ready ON work_items (stage, size_band, priority, virtual_start, run_at, id) WHERE status = 'Pending' AND retry;
-- What claims of requests walk: as work_items_ready, but each action by itself.
CREATE INDEX work_items_requested ON work_items (action, size_band, priority, virtual_start, run_at, id)
	WHERE status = 'Pending' AND retry AND stage = 'Requested';
-- What the reaper and the caps walk.
CREATE INDEX work_items_lease ON work_items (stage, lease_expires_at) WHERE status = 'Started';
CREATE INDEX work_items_waiting ON work_items (waits_for) WHERE waits_for IS NOT NULL;
CREATE INDEX work_items_memory_need ON work_items (memory_need) WHERE memory_need > 0 AND status = 'Pending' AND retry;
-- Look-ups by people and by the bucket reader; only rows that ended, which transitions leave alone.
CREATE INDEX work_items_ended_bag ON work_items (institution_id, name, etag) WHERE NOT retry;
-- What the archive takes, however much waits.
CREATE INDEX work_items_ended ON work_items (updated_at) WHERE status IN ('Success', 'Cancelled');
-- Items that a person has to look at, whether or not the flag was taken away.
CREATE INDEX work_items_review ON work_items (id) WHERE needs_admin_review OR status IN ('Failed', 'Suspended');
-- The requests in the queue. An ingest is not in it, so its transitions write no more.
CREATE INDEX work_items_requests ON work_items (object_identifier, action) WHERE action <> 'Ingest';
-- The items of a deletion request: each that ends looks whether it is the last.
CREATE INDEX work_items_deletion ON work_items (deletion_request_id, status) WHERE deletion_request_id IS NOT NULL;
-- The items of an object that have ended; each writes it once.
CREATE INDEX work_items_ended_object ON work_items (object_identifier) WHERE NOT retry;

-- Triggers write it at the beginning and end of an item; as an index of work_items it
-- would be written by every transition, and make each a third more expensive.
CREATE TABLE uploads_in_work (
	object_identifier text COLLATE "C" NOT NULL,
	name              text COLLATE "C" NOT NULL,
	etag              text COLLATE "C" NOT NULL,
	work_item_id      bigint NOT NULL,
	CONSTRAINT one_live_ingest PRIMARY KEY (object_identifier, name, etag)
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000);

-- Transactions insert a row, or lock it. Advisory locks would do, but there is space
-- for some thousands only, and a transaction may add a hundred thousand items. A row
-- says nothing else, and is deleted when an item of its object ends.
CREATE TABLE objects_in_work (
	object_identifier text COLLATE "C" PRIMARY KEY
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000);

-- It has no foreign key to work_items, whose row would then be locked once more by
-- every transition.
CREATE TABLE work_item_attempts (
	work_item_id bigint          NOT NULL,
	claim_token  bigint          NOT NULL,
	stage        text            NOT NULL,
	attempt      integer         NOT NULL,
	node         text            NOT NULL,
	pid          integer         NOT NULL,
	worker       text            NOT NULL,
	claimed_at   moment          NOT NULL DEFAULT clock_timestamp(), -- later than the end of the attempt before it, no matter who ended that
	heartbeat_at moment          NOT NULL DEFAULT clock_timestamp(),
	ended_at     moment,
	outcome      attempt_outcome,
	error_code   text            NOT NULL DEFAULT '',
	error        text            NOT NULL DEFAULT '',
	current_file text            NOT NULL DEFAULT '',
	service      text            NOT NULL DEFAULT '',
	PRIMARY KEY (work_item_id, claim_token),
	CHECK ((ended_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 45); -- each row is written twice: both versions find space on one page

-- An attempt that made progress does not count towards the maximum: a worker that is
-- killed again and again in the course of a week's work is not the item's fault, while
-- an item that kills its workers makes no progress and is suspended.
CREATE TABLE attempt_resets (
	work_item_id bigint      NOT NULL, -- no foreign key, as in work_item_attempts
	claim_token  bigint      NOT NULL,
	attempts     integer     NOT NULL,
	reset_at     timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (work_item_id, claim_token)
);

-- No lease depends on it: it shows people the workers, and the reaper what a silent
-- worker died of.
CREATE TABLE worker_processes (
	worker       text        PRIMARY KEY,
	node         text        NOT NULL,
	pid          integer     NOT NULL,
	host         text        NOT NULL,
	pid_started  bigint      NOT NULL,
	pools        jsonb       NOT NULL DEFAULT '[]',
	heartbeat    interval    NOT NULL,
	cgroup       text        NOT NULL DEFAULT '',
	oom_kills    bigint      NOT NULL DEFAULT 0,
	started_at   timestamptz NOT NULL DEFAULT now(),
	heartbeat_at timestamptz NOT NULL DEFAULT now(),
	draining     boolean     NOT NULL DEFAULT false,
	ended_at     timestamptz,
	ending       text        CHECK (ending IN ('stopped', 'killed', 'oom', 'panic', 'silent')),
	CHECK ((ended_at IS NULL) = (ending IS NULL))
) WITH (fillfactor = 50);

CREATE TABLE retired_copies (
	work_item_id    bigint      NOT NULL REFERENCES work_items,
	target          text        NOT NULL,
	bucket          text        NOT NULL,
	key             text        NOT NULL,
	retired_at      timestamptz NOT NULL DEFAULT now(),
	generic_file_id bigint, -- no foreign key: it goes with the row
	url             text        NOT NULL DEFAULT '',
	digest          text        NOT NULL DEFAULT '',
	problem         text        NOT NULL DEFAULT '',
	PRIMARY KEY (work_item_id, target, key)
);

-- Each file of a bag has a uuid of its item's own, which is the key of its copies and of
-- nothing else. The copies are noted before the staging objects that list them are deleted.
-- Copies under the keys of recorded files are distinguished: another version with the same
-- content stores it under the same key, so they are deleted only while no item of the
-- object is in work.
CREATE TABLE unrecorded_copies (
	work_item_id bigint      PRIMARY KEY, -- no foreign key: the item may be archived
	targets      text[]      NOT NULL,
	uuids        uuid[]      NOT NULL,
	noted_at     timestamptz NOT NULL DEFAULT now(),
	keys         text[]      NOT NULL DEFAULT '{}'
);
CREATE INDEX unrecorded_copies_keys ON unrecorded_copies USING gin (keys);

CREATE TABLE work_items_archive (LIKE work_items INCLUDING STORAGE, PRIMARY KEY (id));
CREATE INDEX work_items_archive_bag ON work_items_archive (institution_id, name, etag);
CREATE INDEX work_items_archive_object ON work_items_archive (object_identifier);
-- Lists of items, which registry/browse reads: the archive is written once. Work items in the
-- queue have no such indexes, since each transition of an item would write them.
CREATE INDEX work_items_archive_institution ON work_items_archive (institution_id, id);
CREATE INDEX work_items_archive_unsuccessful ON work_items_archive (id) WHERE status <> 'Success';
CREATE INDEX work_items_archive_institution_unsuccessful ON work_items_archive (institution_id, id) WHERE status <> 'Success';
CREATE INDEX work_items_archive_review ON work_items_archive (id) WHERE needs_admin_review;
CREATE INDEX work_items_archive_institution_review ON work_items_archive (institution_id, id) WHERE needs_admin_review;
CREATE INDEX work_items_archive_deletion ON work_items_archive (deletion_request_id) WHERE deletion_request_id IS NOT NULL;
CREATE INDEX work_items_archive_name ON work_items_archive (name);
-- Restorations and deletions are few among the ingests.
CREATE INDEX work_items_archive_requests ON work_items_archive (id) WHERE action <> 'Ingest';
CREATE INDEX work_items_archive_institution_requests ON work_items_archive (institution_id, id) WHERE action <> 'Ingest';
-- Items come into the archive in the order in which they ended, so that a few pages have the
-- hours that people look at in the history, and the index is tiny.
CREATE INDEX work_items_archive_updated ON work_items_archive USING brin (updated_at) WITH (pages_per_range = 32, autosummarize = on);
CREATE TABLE work_item_attempts_archive (LIKE work_item_attempts INCLUDING STORAGE, PRIMARY KEY (work_item_id, claim_token));

-- One transition of one item, as move_items() takes it. A NULL field leaves what is
-- there, or is the default that is named.
CREATE TYPE work_item_move AS (
	id             bigint,
	token          bigint,      -- claim_token that the caller holds or saw: with another one nothing changes
	stage          text,        -- NULL: stays
	status         text,        -- NULL: Pending
	attempt        integer,     -- NULL: 0
	run_at         timestamptz, -- NULL: now()
	note           text,        -- NULL: stays
	code           text,        -- error_code of the item and of the attempt; NULL: ''
	outcome        text,        -- of the item; NULL: stays
	topic          text,        -- to append a topic message to; NULL or '': none
	-- How the attempt of the token ended.
	ended          text,        -- NULL: no attempt ends
	error          text,        -- NULL: stays
	current_file   text,        -- NULL: stays
	service        text,        -- NULL: stays
	end_code       text,        -- error_code of the attempt where it is not the item's; NULL: code
	-- What was learnt of the item.
	object         bigint,      -- NULL: stays
	storage_option text,        -- NULL: stays
	memory_need    bigint,      -- NULL or 0: stays
	-- What only changes by people need.
	entered_token  bigint,      -- NULL: stays while the stage does, or else the new claim_token
	waits_for      bigint,      -- NULL: waits for none; run_at is 'infinity' while it is set
	virtual_start  bigint,      -- NULL: stays
	review         boolean      -- NULL: status is Failed or Suspended
);

-- A pause is a record of its own: who, why, since when. The flags of stages, of fixity checks
-- and of schedules, which claims read, follow from the records. Services that people hold are
-- the same.
CREATE SEQUENCE pauses_id;
CREATE TABLE pauses (
	number    bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	id        bigint      NOT NULL DEFAULT nextval('pauses_id'), -- of all stages that were paused together
	action    text        NOT NULL COLLATE "C", -- Service: a service is held
	stage     text        NOT NULL COLLATE "C",
	paused_by text        NOT NULL DEFAULT acting_user(),
	paused_at timestamptz NOT NULL DEFAULT now() CHECK (isfinite(paused_at)),
	reason    text,
	of_all    boolean     NOT NULL DEFAULT false,
	in_nsq    boolean     NOT NULL DEFAULT false,
	lifted_by text,
	lifted_at timestamptz,
	CONSTRAINT who_lifts_a_pause CHECK ((lifted_by IS NULL) = (lifted_at IS NULL))
);
ALTER SEQUENCE pauses_id OWNED BY pauses.id;
CREATE UNIQUE INDEX pauses_in_force ON pauses (action, stage, paused_by, of_all, in_nsq) WHERE lifted_at IS NULL;
CREATE INDEX pauses_id_in_force ON pauses (id) WHERE lifted_at IS NULL;

CREATE TYPE stage_pause AS (
	action text, stage text, paused boolean, paused_by text, paused_at timestamptz, pause_reason text, pauses jsonb
);

ANALYZE size_bands, stage_settings;
