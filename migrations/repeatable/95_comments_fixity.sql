-- What the tables and columns of fixity hold; docs/schema.md is generated from it.

COMMENT ON TABLE fixity_policies IS 'How often the copies in each storage target are checked, and how. A change takes effect at once.';
COMMENT ON COLUMN fixity_policies.target IS 'Storage target.';
COMMENT ON COLUMN fixity_policies.provider IS 'Provider of the target: what fails together.';
COMMENT ON COLUMN fixity_policies.mode IS 'How copies are checked: by reading, by reports of the provider alone, or not at all.';
COMMENT ON COLUMN fixity_policies.interval_days IS 'Days between two checks; NULL: MAX_DAYS_SINCE_LAST_FIXITY.';
COMMENT ON COLUMN fixity_policies.failures IS 'Failures in a row that no copy is to blame for.';
COMMENT ON COLUMN fixity_policies.paused_until IS 'Nothing is read in the target before, because the provider does not answer.';
COMMENT ON COLUMN fixity_policies.pause_reason IS 'Error that paused the target.';
COMMENT ON COLUMN fixity_policies.set_at IS 'When paused_until was written.';

COMMENT ON TABLE fixity_checks IS 'Fixity checks in progress, requested by a person, or waiting for another attempt; other copies have no row.';
COMMENT ON COLUMN fixity_checks.storage_record_id IS 'Copy to check.';
COMMENT ON COLUMN fixity_checks.target IS 'Storage target of the copy.';
COMMENT ON COLUMN fixity_checks.requested IS 'A person requested the check, or an S3 Inventory has the copy otherwise: it goes before all others.';
COMMENT ON COLUMN fixity_checks.token IS 'Fencing token of its last claim; NULL: it was never claimed.';
COMMENT ON COLUMN fixity_checks.worker IS 'Worker that checks the copy; empty: none.';
COMMENT ON COLUMN fixity_checks.run_at IS 'Not claimed before: the end of a lease, or of a backoff.';
COMMENT ON COLUMN fixity_checks.attempts IS 'Attempts that failed for a reason that may pass.';
COMMENT ON COLUMN fixity_checks.error IS 'Error of the last of them.';
COMMENT ON COLUMN fixity_checks.created_at IS 'When the row was written.';
COMMENT ON COLUMN fixity_checks.set_at IS 'When run_at was written.';

COMMENT ON TABLE fixity_feed IS 'How many more copies may be claimed until the scheduler gives a new allowance, and whether fixity checks are paused; one row.';
COMMENT ON COLUMN fixity_feed.only_one IS 'Keeps the table at one row.';
COMMENT ON COLUMN fixity_feed.allowance IS 'Copies that may still be claimed.';
COMMENT ON COLUMN fixity_feed.fed IS 'Allowance that the scheduler gave last.';
COMMENT ON COLUMN fixity_feed.every IS 'Time between two allowances.';
COMMENT ON COLUMN fixity_feed.fed_at IS 'When the scheduler gave the last allowance.';
COMMENT ON COLUMN fixity_feed.drained_at IS 'When a claim last found fewer copies than it could have taken.';
COMMENT ON COLUMN fixity_feed.paused IS 'No copy is claimed.';
COMMENT ON COLUMN fixity_feed.paused_at IS 'When the first pause that is in force began.';
COMMENT ON COLUMN fixity_feed.paused_by IS 'Who paused them; several people if there are several pauses.';
COMMENT ON COLUMN fixity_feed.pause_reason IS 'Why they were paused: the reasons of all pauses in force.';
COMMENT ON COLUMN fixity_feed.paused_in_nsq IS 'All pauses in force came from NSQ, which may end them.';

COMMENT ON TABLE fixity_done IS 'Checks that were done, by minute, for a few days.';
COMMENT ON COLUMN fixity_done.target IS 'Storage target.';
COMMENT ON COLUMN fixity_done.minute IS 'Minute.';
COMMENT ON COLUMN fixity_done.checks IS 'Copies that were read completely, or seen to be missing.';
COMMENT ON COLUMN fixity_done.failures IS 'Of these, copies that are bad.';
COMMENT ON COLUMN fixity_done.wavered IS 'Copies that were read twice with two results.';
COMMENT ON COLUMN fixity_done.bytes IS 'Bytes that were read.';

COMMENT ON TABLE fixity_failures IS 'Copies that failed a fixity check, and what became of them; the row stays when the copy is good again.';
COMMENT ON COLUMN fixity_failures.id IS 'Number of the row.';
COMMENT ON COLUMN fixity_failures.storage_record_id IS 'Copy; NULL: it was replaced, or its file deleted.';
COMMENT ON COLUMN fixity_failures.generic_file_id IS 'File that the copy is of.';
COMMENT ON COLUMN fixity_failures.target IS 'Storage target of the copy.';
COMMENT ON COLUMN fixity_failures.provider IS 'Provider of the target.';
COMMENT ON COLUMN fixity_failures.url IS 'Address of the copy.';
COMMENT ON COLUMN fixity_failures.problem IS 'What is wrong with the copy.';
COMMENT ON COLUMN fixity_failures.algorithm IS 'Digest algorithm.';
COMMENT ON COLUMN fixity_failures.expected IS 'Recorded digest.';
COMMENT ON COLUMN fixity_failures.found IS 'Digest of what was read; empty: there was nothing.';
COMMENT ON COLUMN fixity_failures.found_at IS 'When the failure was first seen.';
COMMENT ON COLUMN fixity_failures.seen_at IS 'When the failure was last seen.';
COMMENT ON COLUMN fixity_failures.noted_at IS 'When Farol learnt of it; a report may be older.';
COMMENT ON COLUMN fixity_failures.state IS 'What became of the copy.';
COMMENT ON COLUMN fixity_failures.closed_at IS 'When the failure was closed.';
COMMENT ON COLUMN fixity_failures.quarantined_as IS 'Where the bad bytes are kept; written before they are replaced.';
COMMENT ON COLUMN fixity_failures.repaired_from IS 'Address of the good copy; written before the repair.';

COMMENT ON TABLE repair_stops IS 'Providers at which repair stopped by itself, why, and who released it; nothing is repaired there in between.';
COMMENT ON COLUMN repair_stops.id IS 'Number of the row.';
COMMENT ON COLUMN repair_stops.provider IS 'Provider at which repair stopped.';
COMMENT ON COLUMN repair_stops.reason IS 'Why repair stopped.';
COMMENT ON COLUMN repair_stops.stopped_at IS 'When repair stopped.';
COMMENT ON COLUMN repair_stops.released_by IS 'Admin who let repair continue.';
COMMENT ON COLUMN repair_stops.released_at IS 'When repair continued.';
