package testenv_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// A time that is compared with the database's clock has to be thought of when that
// is set: see clamp_times. New columns belong into one of these two lists.
func TestEveryStoredTimeIsConsidered(t *testing.T) {
	t.Parallel()
	// Times that something is due or was last heard of, and when that was set: moved back
	// with the clock, by clamp_times, clamp_waiting or the statement that reads it.
	clamped := strings.Fields(`
		fixity_checks.run_at fixity_checks.set_at fixity_feed.drained_at fixity_feed.fed_at fixity_policies.paused_until fixity_policies.set_at
		mail_outbox.created_at mail_outbox.due_at repair_stops.released_at retrievals.woken_at schedules.began_at schedules.held_until schedules.next_run_at service_reports.since
		topic_deliveries.updated_at topic_partitions.closed_at topic_partitions.opened_at topic_readers.updated_at topic_receivers.pulled_at
		work_item_attempts.claimed_at work_item_attempts.heartbeat_at work_items.lease_expires_at work_items.run_at work_items.updated_at
		worker_processes.heartbeat_at`)
	// What happened when: it stays as it was written. Where it is compared with now()
	// the difference is of days, or the answer is for people.
	var unconsidered []string
	facts := strings.Fields(timesThatStay)
	all := testenv.TimeColumns(t, testenv.Database(t))
	for _, c := range all {
		if !slices.Contains(clamped, c) && !slices.Contains(facts, c) {
			unconsidered = append(unconsidered, c)
		}
	}
	if len(unconsidered) > 0 {
		t.Errorf("no list says what becomes of these when the clock is set: %s", strings.Join(unconsidered, " "))
	}
	for _, c := range slices.Concat(clamped, facts) {
		if !slices.Contains(all, c) {
			t.Errorf("there is no %s", c)
		}
	}
}

const timesThatStay = `
	admins_left.left_at alert_reads.read_at idempotency_keys.at links.created_at links.ends_at links.used_at plans.approved_at recovery_codes.used_at sessions.begun_at
	sessions.ends_at sessions.seen_at sessions.strong_at sign_in_failures.failed_at sign_in_failures.locked_until users.password_set_at users.signed_in_at
	exports.completed_at exports.created_at exports.taken_at found_copies.found_at registry_restores.last_change registry_restores.noted_at registry_restores.reconciled_at
	alerts.created_at alerts.last_at alert_repeats.at mail_outbox.gave_up_at mail_outbox.sent_at api_tokens.created_at api_tokens.expires_at api_tokens.used_at attempt_resets.reset_at
	deletion_receipts.absent_at deletion_receipts.begun_at deletion_receipts.removed_at deletion_receipts.seen_at deletion_requests.begins_at
	event_records.created_at event_records.times event_records.updated_at file_digests.created_at file_digests.datetime file_digests.updated_at
	deletion_requests.approved_at deletion_requests.cancelled_at deletion_requests.requested_at fixity_checks.created_at
	fixity_done.minute fixity_feed.paused_at fixity_failures.closed_at fixity_failures.found_at fixity_failures.noted_at fixity_failures.seen_at
	generic_files.created_at generic_files.format_identified_at generic_files.last_fixity_check generic_files.mod_time
	generic_files.updated_at institutions.created_at institutions.deactivated_at institutions.updated_at
	intellectual_objects.created_at intellectual_objects.updated_at known_services.alerted_for known_services.held_at
	known_services.released_at means_given.at nsq_topics.left_at pauses.lifted_at pauses.paused_at pipeline_messages.created_at pipeline_messages.run_at plans.applied_at
	plans.begun_at plans.created_at plans.undone_at posted_messages.created_at posted_messages.run_at
	queues.created_at removals.at repair_stops.stopped_at retired_copies.retired_at retrievals.approved_at retrievals.readable_until
	schedules.ended_at schedules.paused_at schema_repeatables.applied_at service_reports.probe_at spot_restores.ended_at spot_restores.requested_at stage_settings.paused_at stage_settings_audit.at
	storage_records.created_at storage_records.fixity_since storage_records.last_fixity_at storage_records.stored_at storage_records.updated_at
	storage_records.verified_at stores.measured_at stores.seen_at topic_deliveries.created_at topic_deliveries.run_at topic_requests.at topic_retries.created_at unrecorded_copies.noted_at work_item_lists.written_at
	users.created_at users.deactivated_at users.updated_at work_item_attempts.ended_at work_item_attempts_archive.claimed_at
	work_item_attempts_archive.ended_at work_item_attempts_archive.heartbeat_at work_item_audit.at work_items.bag_date
	work_items.created_at work_items.date_processed work_items.queued_at work_items.stage_started_at work_items_archive.bag_date
	work_items_archive.created_at work_items_archive.date_processed work_items_archive.lease_expires_at work_items_archive.queued_at
	work_items_archive.run_at work_items_archive.stage_started_at work_items_archive.updated_at worker_processes.ended_at
	worker_processes.started_at`
