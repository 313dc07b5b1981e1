-- What the tables and columns of upkeep hold; docs/schema.md is generated from it.

COMMENT ON TABLE known_services IS 'Services that workers use, the work that needs each, and what a person decided about it; see the view services.';
COMMENT ON COLUMN known_services.service IS 'Name of the service, such as redis or s3:Standard-VA.';
COMMENT ON COLUMN known_services.of_process IS 'Each process has its own: it is never held for all.';
COMMENT ON COLUMN known_services.scopes IS 'Work that needs the service.';
COMMENT ON COLUMN known_services.held_at IS 'When the first hold that is in force began; see pauses.';
COMMENT ON COLUMN known_services.held_by IS 'Who holds it; several people if there are several holds.';
COMMENT ON COLUMN known_services.held_reason IS 'Why it is held: the reasons of all holds in force.';
COMMENT ON COLUMN known_services.released_at IS 'When a person last released it.';
COMMENT ON COLUMN known_services.released_by IS 'Who last released it.';
COMMENT ON COLUMN known_services.alerted_for IS 'Start of the failure that the last alert was about.';

COMMENT ON TABLE service_reports IS 'How each worker sees each service: ok, failing, or trying one item at a time.';
COMMENT ON COLUMN service_reports.service IS 'Service.';
COMMENT ON COLUMN service_reports.worker IS 'Worker that reports.';
COMMENT ON COLUMN service_reports.state IS 'State of the service for the worker.';
COMMENT ON COLUMN service_reports.since IS 'Since when it is ok, or is not.';
COMMENT ON COLUMN service_reports.code IS 'Code of the error.';
COMMENT ON COLUMN service_reports.said IS 'Answer of the service, in a few words.';
COMMENT ON COLUMN service_reports.detail IS 'Last error.';
COMMENT ON COLUMN service_reports.probe_at IS 'When the worker probes the service again.';
COMMENT ON COLUMN service_reports.place IS 'What the worker takes for the service, such as the bucket of a target.';

COMMENT ON TABLE schedules IS 'The recurring jobs: when each ran last and is due next, who ran it, and its result.';
COMMENT ON COLUMN schedules.job IS 'Name of the job.';
COMMENT ON COLUMN schedules.every IS 'Time between two runs, as the last process was configured.';
COMMENT ON COLUMN schedules.paused IS 'The job runs only when a person starts it. What is written here is done as pause_schedule() does it.';
COMMENT ON COLUMN schedules.paused_by IS 'Who paused it; all of them, if several did: see pauses.';
COMMENT ON COLUMN schedules.paused_at IS 'Since when.';
COMMENT ON COLUMN schedules.pause_reason IS 'Why; all reasons, if several people paused it.';
COMMENT ON COLUMN schedules.next_run_at IS 'When it is due.';
COMMENT ON COLUMN schedules.holder IS 'Process that runs it, or ran it last.';
COMMENT ON COLUMN schedules.held_until IS 'When the lease of the run expires.';
COMMENT ON COLUMN schedules.began_at IS 'When the last run began.';
COMMENT ON COLUMN schedules.ended_at IS 'When a run last ended.';
COMMENT ON COLUMN schedules.result IS 'Result of that run.';
COMMENT ON COLUMN schedules.error IS 'What that run could not do.';
COMMENT ON COLUMN schedules.runs IS 'Number of runs; the fencing token of the run.';
COMMENT ON COLUMN schedules.failures IS 'Runs that could not do everything, or never ended.';

COMMENT ON TABLE removals IS 'What the janitor removed from staging, the registry, Redis, receiving and preservation buckets, when, and why.';
COMMENT ON COLUMN removals.id IS 'Number of the row.';
COMMENT ON COLUMN removals.at IS 'When it was removed.';
COMMENT ON COLUMN removals.work_item_id IS 'Work item that it belonged to; NULL: unknown.';
COMMENT ON COLUMN removals.store IS 'Where it was: staging, registry, redis, receiving, or a storage target.';
COMMENT ON COLUMN removals.what IS 'Kind of what was removed.';
COMMENT ON COLUMN removals.why IS 'Why it was removed.';
COMMENT ON COLUMN removals.name IS 'Name, of a single one.';
COMMENT ON COLUMN removals.count IS 'How many were removed.';
COMMENT ON COLUMN removals.bytes IS 'Size of what was removed.';

COMMENT ON TABLE schema_repeatables IS 'Files of migrations/repeatable that were applied: the newest row of a file is what the database has.';
COMMENT ON COLUMN schema_repeatables.file IS 'Name of the file.';
COMMENT ON COLUMN schema_repeatables.digest IS 'SHA-256 of its content.';
COMMENT ON COLUMN schema_repeatables.applied_at IS 'When it was last applied.';

COMMENT ON TABLE stores IS 'The S3 stores that have buckets of Farol, and what was seen of each: see docs/stores.md.';
COMMENT ON COLUMN stores.endpoint IS 'Where the store is.';
COMMENT ON COLUMN stores.server IS 'Its name, as its answers give it; empty: they do not.';
COMMENT ON COLUMN stores.measured_at IS 'When farol check --write tried all; empty: it did not.';
COMMENT ON COLUMN stores.seen_at IS 'When something of it was last seen to be otherwise.';
COMMENT ON COLUMN stores.ways IS 'What it can do or not, by name: whether it can, when that was seen, and the refusal.';
COMMENT ON COLUMN stores.buckets IS 'Its buckets by name: versions, Object Lock, and when that was seen.';

COMMENT ON TABLE registry_origin IS 'Which database this is, so that one that comes from a backup is known.';
COMMENT ON COLUMN registry_origin.only_one IS 'There is one row.';
COMMENT ON COLUMN registry_origin.origin IS 'Cluster, number of the database in it, and timeline.';

COMMENT ON TABLE registry_restores IS 'Restorations of this database from a backup, and when people brought it up to date.';
COMMENT ON COLUMN registry_restores.id IS 'Number of the restoration.';
COMMENT ON COLUMN registry_restores.noted_at IS 'When the first process found out.';
COMMENT ON COLUMN registry_restores.was IS 'Origin in the backup.';
COMMENT ON COLUMN registry_restores.origin IS 'Origin after it was restored.';
COMMENT ON COLUMN registry_restores.last_change IS 'Last heartbeat of a worker in the backup: what happened since is not on record.';
COMMENT ON COLUMN registry_restores.deletions_stopped IS 'Items of approved deletions that were cancelled.';
COMMENT ON COLUMN registry_restores.pause IS 'Pause of all stages until then.';
COMMENT ON COLUMN registry_restores.reconciled_at IS 'When farol reconcile ended that pause; NULL: it has not yet.';
COMMENT ON COLUMN registry_restores.reconciled_by IS 'Who ran it.';

COMMENT ON TABLE found_copies IS 'Copies that farol reconcile found without a record; the next ingest of their bag takes them over.';
COMMENT ON COLUMN found_copies.object_identifier IS 'Object that they are of, by their metadata.';
COMMENT ON COLUMN found_copies.path IS 'Path of the file in the bag.';
COMMENT ON COLUMN found_copies.key IS 'Key in preservation buckets.';
COMMENT ON COLUMN found_copies.sha256 IS 'SHA-256 of the bytes that were read.';
COMMENT ON COLUMN found_copies.found_at IS 'When.';
