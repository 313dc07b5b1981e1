-- What the tables and columns of queue hold; docs/schema.md is generated from it.

COMMENT ON TABLE stage_names IS 'Every name that a stage has or had; items that ended and the attempt ledger refer to them.';
COMMENT ON COLUMN stage_names.stage IS 'Name of the stage.';
COMMENT ON COLUMN stage_names.followed_by IS 'Stage at which the items of a removed stage go on; NULL: it was not removed.';

COMMENT ON TABLE stage_settings IS 'How each stage is processed. A change takes effect at the next claim.';
COMMENT ON COLUMN stage_settings.action IS 'Action that the stage is part of.';
COMMENT ON COLUMN stage_settings.stage IS 'Name of the stage.';
COMMENT ON COLUMN stage_settings.ordinal IS 'Position among the stages of the action.';
COMMENT ON COLUMN stage_settings.topic IS 'NSQ topic that the mirror publishes its messages to.';
COMMENT ON COLUMN stage_settings.paused IS 'No item of the stage is claimed: a row of pauses is in force.';
COMMENT ON COLUMN stage_settings.max_attempts IS 'Attempts before an item is suspended.';
COMMENT ON COLUMN stage_settings.backoff_first IS 'Wait after the first failed attempt.';
COMMENT ON COLUMN stage_settings.backoff_most IS 'Longest wait between two attempts.';
COMMENT ON COLUMN stage_settings.cap IS 'Most items that may run at once in all processes; NULL: no limit.';
COMMENT ON COLUMN stage_settings.overdue IS 'Wait after which a priority gets half of the claims.';
COMMENT ON COLUMN stage_settings.processing_timeout IS 'Longest time that a worker may take; NULL: no limit.';
COMMENT ON COLUMN stage_settings.heartbeat IS 'Longest time between two heartbeats of a worker.';
COMMENT ON COLUMN stage_settings.lease IS 'Time without a heartbeat after which the worker counts as dead.';
COMMENT ON COLUMN stage_settings.unrenewed_timeout IS 'Processing time of a worker that sends no heartbeats.';
COMMENT ON COLUMN stage_settings.unrenewed_lease IS 'Lease of a worker that sends no heartbeats.';
COMMENT ON COLUMN stage_settings.paused_at IS 'When the first pause that is in force began.';
COMMENT ON COLUMN stage_settings.paused_by IS 'Who paused the stage; several people if there are several pauses.';
COMMENT ON COLUMN stage_settings.pause_reason IS 'Why the stage was paused: the reasons of all pauses in force.';
COMMENT ON COLUMN stage_settings.worker IS 'Who processes the stage: farol work, or programs that ask over HTTP.';
COMMENT ON COLUMN stage_settings.backoff_factor IS 'Each wait is this many times the one before it.';
COMMENT ON COLUMN stage_settings.paused_in_nsq IS 'All pauses in force came from NSQ, which may end them; one that was made in Farol ends in Farol.';

COMMENT ON TABLE size_bands IS 'Bands of sizes that spread work by bytes; the size of an item sets its band, and a pool names the bands that it claims from.';
COMMENT ON COLUMN size_bands.band IS 'Number of the band.';
COMMENT ON COLUMN size_bands.min_size IS 'Smallest size of an item in the band, in bytes.';
COMMENT ON COLUMN size_bands.virtual_time IS 'Virtual time of the band: the latest virtual start time that was claimed in it.';

COMMENT ON TABLE institution_virtual_times IS 'Virtual finish times of the institutions'' items in each band, for fair queueing.';
COMMENT ON COLUMN institution_virtual_times.institution_id IS 'Institution of the item.';
COMMENT ON COLUMN institution_virtual_times.size_band IS 'Band of the item.';
COMMENT ON COLUMN institution_virtual_times.virtual_finish IS 'Virtual time at which the item ends and the next one of the institution starts.';

COMMENT ON TABLE work_items IS 'The queue: one row for each item, with its stage, status and lease.';
COMMENT ON COLUMN work_items.id IS 'Number of the row.';
COMMENT ON COLUMN work_items.institution_id IS 'Institution that the item belongs to.';
COMMENT ON COLUMN work_items.size IS 'Size of the tar, object or file in bytes.';
COMMENT ON COLUMN work_items.virtual_start IS 'Virtual start time in its band; the lowest is claimed first.';
COMMENT ON COLUMN work_items.bag_date IS 'When the tar was uploaded.';
COMMENT ON COLUMN work_items.date_processed IS 'When the work was requested.';
COMMENT ON COLUMN work_items.created_at IS 'When the row was written.';
COMMENT ON COLUMN work_items.size_band IS 'Band of its size.';
COMMENT ON COLUMN work_items.priority IS 'Priority from -100, which is claimed first, to 100.';
COMMENT ON COLUMN work_items.attempt IS 'Attempts of its stage that count.';
COMMENT ON COLUMN work_items.claim_token IS 'Fencing token; grows with every transition, and a write with an older one is refused.';
COMMENT ON COLUMN work_items.entered_token IS 'claim_token at which the item came to its stage; progress belongs to it.';
COMMENT ON COLUMN work_items.run_at IS 'Not claimed before; infinity while waits_for is set.';
COMMENT ON COLUMN work_items.updated_at IS 'When the row was last changed.';
COMMENT ON COLUMN work_items.retry IS 'Pending or Started; false: no worker claims it before a person requeues it.';
COMMENT ON COLUMN work_items.needs_admin_review IS 'A person has to look at the item.';
COMMENT ON COLUMN work_items.stage IS 'Stage that the item is at.';
COMMENT ON COLUMN work_items.status IS 'State of the item at its stage.';
COMMENT ON COLUMN work_items.lease_expires_at IS 'When the lease of its worker expires; NULL: none has it.';
COMMENT ON COLUMN work_items.stage_started_at IS 'When a worker last claimed it.';
COMMENT ON COLUMN work_items.pid IS 'Process number of its worker.';
COMMENT ON COLUMN work_items.node IS 'Machine of its worker.';
COMMENT ON COLUMN work_items.worker IS 'Worker that has it: one process start; two starts never share a name.';
COMMENT ON COLUMN work_items.note IS 'What happened last, for people.';
COMMENT ON COLUMN work_items.outcome IS 'Result of the item, for people.';
COMMENT ON COLUMN work_items.error_code IS 'Code of what ended or delayed it last.';
COMMENT ON COLUMN work_items.waits_for IS 'Earlier item of the same object that must end first.';
COMMENT ON COLUMN work_items.intellectual_object_id IS 'Object that the item is about, once it is recorded.';
COMMENT ON COLUMN work_items.generic_file_id IS 'File that a request is about.';
COMMENT ON COLUMN work_items.queued_at IS 'When the item came into the queue.';
COMMENT ON COLUMN work_items.name IS 'Key of the tar in the receiving bucket.';
COMMENT ON COLUMN work_items.etag IS 'ETag of the tar.';
COMMENT ON COLUMN work_items.bucket IS 'Bucket of the tar.';
COMMENT ON COLUMN work_items.action IS 'What is to be done.';
COMMENT ON COLUMN work_items.object_identifier IS 'Identifier of the object.';
COMMENT ON COLUMN work_items.storage_option IS 'Storage option of the object; NULL: the bag has not been read.';
COMMENT ON COLUMN work_items."user" IS 'Person who requested the work.';
COMMENT ON COLUMN work_items.inst_approver IS 'Person of the institution who approved a deletion.';
COMMENT ON COLUMN work_items.aptrust_approver IS 'Person of the archive who approved a deletion.';
COMMENT ON COLUMN work_items.deletion_request_id IS 'Deletion request that the item belongs to.';
COMMENT ON COLUMN work_items.memory_need IS 'Memory in bytes that a worker needs for the bag; 0: any worker has enough.';

COMMENT ON TABLE uploads_in_work IS 'Uploads that have a live ingest: an upload has one at most, and live items of one object run one after the other.';
COMMENT ON COLUMN uploads_in_work.object_identifier IS 'Identifier of the object.';
COMMENT ON COLUMN uploads_in_work.name IS 'Key of the tar.';
COMMENT ON COLUMN uploads_in_work.etag IS 'ETag of the tar.';
COMMENT ON COLUMN uploads_in_work.work_item_id IS 'Live work item of the upload.';

COMMENT ON TABLE objects_in_work IS 'Locks by which transactions that add items of one object wait for each other.';
COMMENT ON COLUMN objects_in_work.object_identifier IS 'Identifier of the object.';

COMMENT ON TABLE work_item_attempts IS 'The attempt ledger: one row for each claim, written at its start and its end.';
COMMENT ON COLUMN work_item_attempts.work_item_id IS 'Work item that was claimed.';
COMMENT ON COLUMN work_item_attempts.claim_token IS 'claim_token of the claim.';
COMMENT ON COLUMN work_item_attempts.stage IS 'Stage that was attempted.';
COMMENT ON COLUMN work_item_attempts.attempt IS 'Number of the attempt at the stage.';
COMMENT ON COLUMN work_item_attempts.node IS 'Machine of the worker.';
COMMENT ON COLUMN work_item_attempts.pid IS 'Process number of the worker.';
COMMENT ON COLUMN work_item_attempts.worker IS 'Worker that claimed the item.';
COMMENT ON COLUMN work_item_attempts.claimed_at IS 'When the item was claimed.';
COMMENT ON COLUMN work_item_attempts.heartbeat_at IS 'Last heartbeat of the worker.';
COMMENT ON COLUMN work_item_attempts.ended_at IS 'When the attempt ended; NULL: it runs.';
COMMENT ON COLUMN work_item_attempts.outcome IS 'How the attempt ended; NULL: it runs.';
COMMENT ON COLUMN work_item_attempts.error_code IS 'Code of the error.';
COMMENT ON COLUMN work_item_attempts.error IS 'Error, for people.';
COMMENT ON COLUMN work_item_attempts.current_file IS 'File that was in progress last.';
COMMENT ON COLUMN work_item_attempts.service IS 'Service that failed, of an attempt that ended as held.';

COMMENT ON TABLE attempt_resets IS 'Attempts at which the attempt counter was reset because those before it had made progress.';
COMMENT ON COLUMN attempt_resets.work_item_id IS 'Work item of the attempt.';
COMMENT ON COLUMN attempt_resets.claim_token IS 'claim_token of the attempt that found the progress.';
COMMENT ON COLUMN attempt_resets.attempts IS 'Number of attempts that no longer count.';
COMMENT ON COLUMN attempt_resets.reset_at IS 'When the counter was reset.';

COMMENT ON TABLE worker_processes IS 'Worker processes: one row for each start.';
COMMENT ON COLUMN worker_processes.worker IS 'Name of the start; two starts never share it.';
COMMENT ON COLUMN worker_processes.node IS 'Machine.';
COMMENT ON COLUMN worker_processes.pid IS 'Process number.';
COMMENT ON COLUMN worker_processes.host IS 'Boot and process namespace. Processes that share them can see whether this one still runs.';
COMMENT ON COLUMN worker_processes.pid_started IS 'Start time of the process by the kernel, since process numbers are reused.';
COMMENT ON COLUMN worker_processes.pools IS 'Pools of the process: what it claims, with slots and memory.';
COMMENT ON COLUMN worker_processes.heartbeat IS 'Time between two heartbeats.';
COMMENT ON COLUMN worker_processes.cgroup IS 'Control group of the process.';
COMMENT ON COLUMN worker_processes.oom_kills IS 'Out-of-memory kills of its control group at the last heartbeat.';
COMMENT ON COLUMN worker_processes.started_at IS 'When the process started.';
COMMENT ON COLUMN worker_processes.heartbeat_at IS 'Last heartbeat.';
COMMENT ON COLUMN worker_processes.draining IS 'It was asked to stop.';
COMMENT ON COLUMN worker_processes.ended_at IS 'When it ended.';
COMMENT ON COLUMN worker_processes.ending IS 'How it ended; silent: its heartbeats stopped.';

COMMENT ON TABLE retired_copies IS 'Copies that a re-ingest has replaced; Cleanup of the item deletes them.';
COMMENT ON COLUMN retired_copies.work_item_id IS 'Work item of the re-ingest.';
COMMENT ON COLUMN retired_copies.target IS 'Storage target of the copy.';
COMMENT ON COLUMN retired_copies.bucket IS 'Bucket of the copy.';
COMMENT ON COLUMN retired_copies.key IS 'Key of the copy.';
COMMENT ON COLUMN retired_copies.retired_at IS 'When it was replaced.';
COMMENT ON COLUMN retired_copies.generic_file_id IS 'File that the copy was of.';
COMMENT ON COLUMN retired_copies.url IS 'Address of the copy.';
COMMENT ON COLUMN retired_copies.digest IS 'Recorded digest, as algorithm:digest.';
COMMENT ON COLUMN retired_copies.problem IS 'altered or missing, if that was known.';

COMMENT ON TABLE work_item_lists IS 'What the stages of an ingest leave for each other, if it is small; the rows are deleted when the item ends.';
COMMENT ON COLUMN work_item_lists.work_item_id IS 'Work item of the list.';
COMMENT ON COLUMN work_item_lists.name IS 'Name of the list, as in the staging bucket.';
COMMENT ON COLUMN work_item_lists.content IS 'Compressed rows; NULL: the list is in the staging bucket.';
COMMENT ON COLUMN work_item_lists.staged IS 'Whether the staging bucket has it, or one of the same name by an earlier pass.';
COMMENT ON COLUMN work_item_lists.written_at IS 'When the stage ended that made the list.';
COMMENT ON TABLE unrecorded_copies IS 'Copies that an item may have made and that were never recorded; the row is deleted when the item has ended and its copies are deleted.';
COMMENT ON COLUMN unrecorded_copies.work_item_id IS 'Work item that made the copies.';
COMMENT ON COLUMN unrecorded_copies.targets IS 'Storage targets of the copies.';
COMMENT ON COLUMN unrecorded_copies.uuids IS 'Keys of the copies under uuids of the item''s own.';
COMMENT ON COLUMN unrecorded_copies.noted_at IS 'When the row was written.';
COMMENT ON COLUMN unrecorded_copies.keys IS 'Keys of the copies under uuids of recorded files.';

COMMENT ON TABLE work_items_archive IS 'Items that ended for good and left the queue; the view all_work_items has both.';

COMMENT ON TABLE work_item_attempts_archive IS 'Attempts of archived items; the view attempts has both.';
