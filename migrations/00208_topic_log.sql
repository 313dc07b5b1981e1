-- The topic log: what the pipeline publishes about its items, and what people post to
-- queues; its readers and receivers; and what the NSQ mirror remembers.

-- +goose Up

-- Both kinds of messages are in one log. Those of the pipeline are appended by its
-- transitions and read in the order of (xid, id), up to the oldest transaction that is
-- still open, so that no reader passes over a message that commits late; their ids have
-- gaps. Those that people post are numbered from 1 in each queue without gaps, by the
-- row of their queue, which is locked until the commit: the number is all the order
-- that a reader needs.
-- Partitions make trimming a drop. Each holds the ids of one multiple of
-- log_partition_width(); it is closed by moving the sequence on to the next multiple,
-- so that partitions hold about the same time, whatever comes. What no partition is
-- ready for goes into the default one: that should never happen, and must stop no
-- transition.
CREATE SEQUENCE topic_message_ids;
CREATE SEQUENCE posted_message_ids;
CREATE TABLE topic_messages (
	id           bigint      NOT NULL DEFAULT nextval('topic_message_ids'),
	xid          xid8        NOT NULL DEFAULT pg_current_xact_id(),
	work_item_id bigint, -- no foreign key, as in work_item_attempts
	created_at   timestamptz NOT NULL DEFAULT now(),
	posted       boolean     NOT NULL DEFAULT false,
	topic        text        NOT NULL CONSTRAINT topic_messages_topic_check CHECK (topic <> ''),
	body         text        NOT NULL,
	number       bigint,
	sender       text,
	-- The number of a message is given when it is posted; a receiver that comes to one
	-- before run_at notes it as delayed and goes on.
	run_at       timestamptz,
	CONSTRAINT posted_is_numbered CHECK (posted = (number IS NOT NULL) AND (posted OR sender IS NULL AND body <> '')),
	CONSTRAINT run_at_of_posted CHECK (run_at IS NULL OR posted)
) PARTITION BY LIST (posted);
ALTER SEQUENCE topic_message_ids OWNED BY topic_messages.id;
ALTER SEQUENCE posted_message_ids OWNED BY topic_messages.number;
CREATE TABLE pipeline_messages PARTITION OF topic_messages (PRIMARY KEY (xid, id)) FOR VALUES IN (false) PARTITION BY RANGE (id);
CREATE TABLE posted_messages PARTITION OF topic_messages FOR VALUES IN (true) PARTITION BY RANGE (id);
CREATE INDEX posted_messages_queue ON posted_messages (topic, number);
CREATE TABLE pipeline_messages_rest PARTITION OF pipeline_messages DEFAULT;
CREATE TABLE posted_messages_rest PARTITION OF posted_messages DEFAULT;

CREATE TABLE topic_partitions (
	parent    text        NOT NULL CHECK (parent IN ('pipeline_messages', 'posted_messages')),
	number    bigint      NOT NULL,
	opened_at timestamptz NOT NULL DEFAULT now(),
	closed_at timestamptz,
	PRIMARY KEY (parent, number)
);

CREATE TABLE topic_readers (
	name       text        PRIMARY KEY,
	xid        xid8        NOT NULL DEFAULT '0',
	message_id bigint      NOT NULL DEFAULT 0,
	updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE queues (
	name        text        PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9.@:/-][A-Za-z0-9._@:/-]{0,254}$'),
	last_number bigint      NOT NULL DEFAULT 0,
	created_at  timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE topic_receivers (
	id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	xid       xid8        NOT NULL DEFAULT '0',
	position  bigint      NOT NULL DEFAULT 0,
	pulled_at timestamptz NOT NULL DEFAULT now(),
	topic     text        NOT NULL,
	name      text        NOT NULL CHECK (octet_length(name) BETWEEN 1 AND 255),
	UNIQUE (topic, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE topic_deliveries (
	receiver_id bigint      NOT NULL, -- no foreign key: it would be checked for each message
	message     bigint      NOT NULL,
	created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
	updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
	xid         xid8,
	fail_count  integer     NOT NULL DEFAULT 0,
	status      text        NOT NULL CHECK (status IN ('processing', 'finished', 'failed', 'delayed')),
	result      text        CHECK (octet_length(result) <= 65536),
	run_at      timestamptz,
	PRIMARY KEY (receiver_id, message),
	CONSTRAINT delayed_until CHECK (status <> 'delayed' OR run_at IS NOT NULL)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
-- What may be delivered again, the longest delivered first.
CREATE INDEX topic_deliveries_processing ON topic_deliveries (receiver_id, updated_at) WHERE status = 'processing';
CREATE INDEX topic_deliveries_delayed ON topic_deliveries (receiver_id, run_at) WHERE status = 'delayed';
CREATE INDEX topic_deliveries_failed ON topic_deliveries (receiver_id) WHERE status = 'failed';

-- The statement that ends the attempt writes it. The mirror deletes the rows; where
-- none runs, they are deleted after a day.
CREATE TABLE topic_retries (
	id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	topic        text        NOT NULL,
	work_item_id bigint      NOT NULL, -- no foreign key, as in work_item_attempts
	created_at   timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 2000);
CREATE INDEX topic_retries_old ON topic_retries (created_at);

-- A mirror that shuts down in order leaves the messages of waiting items in their
-- channels. The next one distinguishes them from messages that others published in the
-- meantime by their time and their number.
CREATE TABLE nsq_topics (
	topic         text    PRIMARY KEY,
	paused        boolean NOT NULL DEFAULT false,
	settled       boolean NOT NULL DEFAULT false,
	left_at       timestamptz,
	left_messages bigint  NOT NULL DEFAULT 0
);

CREATE TABLE topic_requests (
	id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	at           timestamptz NOT NULL DEFAULT clock_timestamp(),
	topic        text        NOT NULL,
	message      text        NOT NULL,
	body         text        NOT NULL,
	work_item_id bigint,
	accepted     boolean     NOT NULL,
	answer       text        NOT NULL
);
CREATE UNIQUE INDEX topic_requests_message ON topic_requests (topic, message);
CREATE INDEX topic_requests_at ON topic_requests (at);
CREATE INDEX topic_requests_item ON topic_requests (work_item_id) WHERE work_item_id IS NOT NULL;
