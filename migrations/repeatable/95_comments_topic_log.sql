-- What the tables and columns of topic log hold; docs/schema.md is generated from it.

COMMENT ON TABLE topic_messages IS 'The topic log: what the pipeline publishes about its items, and what people post to queues.';
COMMENT ON COLUMN topic_messages.id IS 'Number of the message; grows, with gaps.';
COMMENT ON COLUMN topic_messages.xid IS 'Transaction that wrote the message.';
COMMENT ON COLUMN topic_messages.work_item_id IS 'Work item that the message is about.';
COMMENT ON COLUMN topic_messages.created_at IS 'When the row was written.';
COMMENT ON COLUMN topic_messages.posted IS 'A person or program posted the message to a queue.';
COMMENT ON COLUMN topic_messages.topic IS 'Topic of the pipeline, or queue.';
COMMENT ON COLUMN topic_messages.body IS 'Body of the message.';
COMMENT ON COLUMN topic_messages.number IS 'Number of a posted message in its queue.';
COMMENT ON COLUMN topic_messages.sender IS 'Sender that a posted message names.';
COMMENT ON COLUMN topic_messages.run_at IS 'A posted message is delivered to nobody before.';

COMMENT ON TABLE pipeline_messages IS 'Messages of the pipeline, in the topic log.';

COMMENT ON TABLE posted_messages IS 'Messages that people posted to queues, in the topic log.';

COMMENT ON TABLE topic_partitions IS 'Partitions of the topic log, named by parent and number; upkeep creates, closes and drops them.';
COMMENT ON COLUMN topic_partitions.parent IS 'Partitioned table.';
COMMENT ON COLUMN topic_partitions.number IS 'Number of the partition: the multiple of log_partition_width().';
COMMENT ON COLUMN topic_partitions.opened_at IS 'When it was opened.';
COMMENT ON COLUMN topic_partitions.closed_at IS 'When the sequence moved on: it gets no more messages.';

COMMENT ON TABLE topic_readers IS 'How far each reader of the pipeline''s topics has read.';
COMMENT ON COLUMN topic_readers.name IS 'Name of the reader.';
COMMENT ON COLUMN topic_readers.xid IS 'Transaction of the last message that it read.';
COMMENT ON COLUMN topic_readers.message_id IS 'Number of the last message that it read.';
COMMENT ON COLUMN topic_readers.updated_at IS 'When the row was last changed.';

COMMENT ON TABLE queues IS 'Queues that people post to, and the number of the last message in each.';
COMMENT ON COLUMN queues.name IS 'Name of the queue.';
COMMENT ON COLUMN queues.last_number IS 'Number of its last message.';
COMMENT ON COLUMN queues.created_at IS 'When the row was written.';

COMMENT ON TABLE topic_receivers IS 'Receivers of messages over HTTP: calls under one name share the messages, and each name gets every message.';
COMMENT ON COLUMN topic_receivers.id IS 'Number of the row.';
COMMENT ON COLUMN topic_receivers.xid IS 'Transaction of the last message that it passed, of a topic of the pipeline.';
COMMENT ON COLUMN topic_receivers.position IS 'Number of the last message that it passed.';
COMMENT ON COLUMN topic_receivers.pulled_at IS 'When it last asked, to the minute.';
COMMENT ON COLUMN topic_receivers.topic IS 'Topic of the pipeline, or queue.';
COMMENT ON COLUMN topic_receivers.name IS 'Name of the receiver.';

COMMENT ON TABLE topic_deliveries IS 'Messages that were delivered to receivers, and their results.';
COMMENT ON COLUMN topic_deliveries.receiver_id IS 'Receiver.';
COMMENT ON COLUMN topic_deliveries.message IS 'Number of the message in its queue, or its id in a topic of the pipeline.';
COMMENT ON COLUMN topic_deliveries.created_at IS 'When it was first delivered.';
COMMENT ON COLUMN topic_deliveries.updated_at IS 'When it was last delivered, or answered.';
COMMENT ON COLUMN topic_deliveries.xid IS 'Transaction of a message of the pipeline.';
COMMENT ON COLUMN topic_deliveries.fail_count IS 'Number of redeliveries.';
COMMENT ON COLUMN topic_deliveries.status IS 'State of the delivery.';
COMMENT ON COLUMN topic_deliveries.result IS 'Result that the receiver answered.';
COMMENT ON COLUMN topic_deliveries.run_at IS 'When a delayed message is delivered.';

COMMENT ON TABLE topic_retries IS 'Attempts after which the item is tried again at the same stage; the mirror shows them in nsqd.';
COMMENT ON COLUMN topic_retries.id IS 'Number of the row.';
COMMENT ON COLUMN topic_retries.topic IS 'Topic of the stage.';
COMMENT ON COLUMN topic_retries.work_item_id IS 'Work item that is tried again.';
COMMENT ON COLUMN topic_retries.created_at IS 'When the row was written.';

COMMENT ON TABLE nsq_topics IS 'What the mirror remembers of each topic of nsqd.';
COMMENT ON COLUMN nsq_topics.topic IS 'Topic.';
COMMENT ON COLUMN nsq_topics.paused IS 'Pause that Farol and nsqd last agreed on: the side that differs has changed.';
COMMENT ON COLUMN nsq_topics.settled IS 'The last mirror shut down in order: it published all its messages before left_at.';
COMMENT ON COLUMN nsq_topics.left_at IS 'When the last mirror shut down, by nsqd''s clock; NULL: it left no message.';
COMMENT ON COLUMN nsq_topics.left_messages IS 'Number of its own messages that it left.';

COMMENT ON TABLE topic_requests IS 'Orders that came through NSQ, and what became of each: messages that others published on the pipeline''s topics, pauses, and topics that were emptied.';
COMMENT ON COLUMN topic_requests.id IS 'Number of the row.';
COMMENT ON COLUMN topic_requests.at IS 'When the order came.';
COMMENT ON COLUMN topic_requests.topic IS 'Topic of the order.';
COMMENT ON COLUMN topic_requests.message IS 'nsqd''s id of the message: one that comes twice is one order.';
COMMENT ON COLUMN topic_requests.body IS 'Beginning of the message.';
COMMENT ON COLUMN topic_requests.work_item_id IS 'Work item that the message names; NULL: none.';
COMMENT ON COLUMN topic_requests.accepted IS 'The order was carried out.';
COMMENT ON COLUMN topic_requests.answer IS 'What was done, or why nothing was.';

COMMENT ON TABLE api_tokens IS 'Programs that may use the HTTP APIs, and for what; only the digest of a token is stored.';
COMMENT ON COLUMN api_tokens.id IS 'Number of the row.';
COMMENT ON COLUMN api_tokens.name IS 'Name of the token.';
COMMENT ON COLUMN api_tokens.digest IS 'SHA-256 of the token.';
COMMENT ON COLUMN api_tokens.institution_id IS 'Institution whose items it may lease; NULL: all.';
COMMENT ON COLUMN api_tokens.rights IS 'What it may do.';
COMMENT ON COLUMN api_tokens.stages IS 'Stages that it may lease; empty: all that are processed over HTTP.';
COMMENT ON COLUMN api_tokens.created_at IS 'When the row was written.';
COMMENT ON COLUMN api_tokens.created_by IS 'Who made the token.';
COMMENT ON COLUMN api_tokens.expires_at IS 'When it expires; NULL: never.';
COMMENT ON COLUMN api_tokens.used_at IS 'When it was last used, to the minute.';
