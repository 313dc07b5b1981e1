package registry

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Server is what a database says of itself.
type Server struct {
	Version    string    // of PostgreSQL, such as "17.6"
	Number     int       // the same for comparisons, such as 170006
	User       string    // as whom we are connected
	Standby    bool      // it replays the log of another
	ReadOnly   bool      // our transactions may not write
	Clock      time.Time // by its own clock
	Migrations []int64   // versions that are applied, in their order; nil: none, or we may not read them
	Hidden     bool      // we may not read them
}

// Server asks the database for what a process has to know before it starts.
func (r *Registry) Server(ctx context.Context) (s Server, err error) {
	var readable *bool // NULL: there is no such table
	err = r.db.QueryRow(ctx, `
		SELECT current_setting('server_version'), current_setting('server_version_num')::integer, current_user, pg_is_in_recovery(),
			current_setting('transaction_read_only') = 'on', clock_timestamp(), has_table_privilege(to_regclass('goose_db_version'), 'SELECT')`).
		Scan(&s.Version, &s.Number, &s.User, &s.Standby, &s.ReadOnly, &s.Clock, &readable)
	s.Hidden = readable != nil && !*readable
	if err != nil || readable == nil || s.Hidden {
		return s, wrapped("ask the database for its state", err)
	}
	rows, _ := r.db.Query(ctx, `SELECT DISTINCT version_id FROM goose_db_version WHERE is_applied AND version_id > 0 ORDER BY version_id`)
	s.Migrations, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	return s, wrapped("read the database's migrations", err)
}

func wrapped(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// missingRightsSQL names what our role may not do, as GRANT takes it. Tables,
// functions and sequences that are not there are another matter: the schema is of
// another version.
const missingRightsSQL = `
WITH home AS (
	SELECT relnamespace AS oid FROM pg_class WHERE oid = to_regclass('work_items')
), wanted AS (
	SELECT privilege, c.oid, c.oid::regclass::text AS name
	FROM unnest(@privileges::text[], @tables::text[]) AS need (privilege, of)
	JOIN pg_class c ON c.oid = to_regclass(need.of)
	UNION
	SELECT 'SELECT', c.oid, c.oid::regclass::text FROM pg_class c JOIN home ON home.oid = c.relnamespace
	WHERE c.relkind IN ('r', 'p', 'v') AND NOT (c.relispartition AND c.relkind = 'r')
		AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
)
SELECT 'USAGE ON SCHEMA ' || home.oid::regnamespace FROM home WHERE NOT has_schema_privilege(home.oid, 'USAGE')
UNION ALL
SELECT 'TEMPORARY ON DATABASE ' || quote_ident(current_database()) WHERE NOT has_database_privilege(current_database(), 'TEMPORARY')
UNION ALL
(SELECT privilege || ' ON ' || name FROM wanted WHERE NOT CASE privilege
	WHEN 'DELETE' THEN has_table_privilege(oid, privilege) ELSE has_any_column_privilege(oid, privilege) END ORDER BY name, privilege)
UNION ALL
(SELECT 'EXECUTE ON FUNCTION ' || p.oid::regprocedure FROM pg_proc p JOIN home ON home.oid = p.pronamespace
	WHERE p.proname = ANY (@functions) AND NOT has_function_privilege(p.oid, 'EXECUTE') ORDER BY 1)
UNION ALL
(SELECT 'USAGE ON SEQUENCE ' || c.oid::regclass FROM pg_class c JOIN home ON home.oid = c.relnamespace
	WHERE c.relkind = 'S' AND c.relname = ANY (@sequences) AND NOT has_sequence_privilege(c.oid, 'USAGE') ORDER BY 1)`

// MissingRights names the rights that the role of our connections lacks for some
// processes ("work", "schedule", "serve", "mirror"), each as GRANT takes it, such as
// "INSERT ON alerts". The owner of the schema lacks none. Rights to read are asked of
// every table and view.
func (r *Registry) MissingRights(ctx context.Context, processes ...string) ([]string, error) {
	var privileges, tables, functions []string
	for _, p := range processes {
		need := rightsOf(p)
		for line := range strings.Lines(need.tables) {
			name, list, _ := strings.Cut(strings.TrimSpace(line), " ")
			for _, privilege := range strings.Fields(list) {
				privileges, tables = append(privileges, privilege), append(tables, name)
			}
		}
		functions = append(functions, strings.Fields(need.functions)...)
	}
	rows, _ := r.db.Query(ctx, missingRightsSQL, pgx.NamedArgs{
		"privileges": privileges, "tables": tables, "functions": functions,
		"sequences": []string{"fixity_tokens", "premis_events_id_seq", "checksums_id_seq", "topic_message_ids", "posted_message_ids"},
	})
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return list, wrapped("ask the database for our rights", err)
}

// needs are the rights of a process beyond those to read: tables with what is done
// to their rows, and functions that not everybody may call. What triggers do is done
// with the rights of the schema's owner. SELECT … FOR UPDATE needs UPDATE.
type needs struct{ tables, functions string }

// What every process that works the queue does, and the functions of its upkeep.
const (
	queueRights = `
work_items UPDATE
work_items_archive INSERT
work_item_attempts INSERT UPDATE DELETE
work_item_lists INSERT UPDATE DELETE
work_item_attempts_archive INSERT
worker_processes INSERT UPDATE DELETE
size_bands UPDATE
institution_virtual_times DELETE
topic_messages INSERT
topic_retries INSERT UPDATE DELETE
attempt_resets INSERT
known_services INSERT UPDATE
service_reports INSERT UPDATE DELETE
alerts INSERT
fixity_checks UPDATE
fixity_policies UPDATE
fixity_feed UPDATE
retrievals UPDATE
topic_deliveries UPDATE
topic_receivers UPDATE
topic_readers UPDATE
topic_partitions UPDATE`
	peopleRights = `
api_tokens INSERT UPDATE DELETE
users INSERT UPDATE
institutions INSERT UPDATE
sessions INSERT UPDATE DELETE
links INSERT UPDATE
recovery_codes INSERT UPDATE DELETE
sign_in_failures INSERT UPDATE DELETE
idempotency_keys INSERT UPDATE DELETE
stage_settings UPDATE
schedules UPDATE
fixity_checks INSERT
repair_stops UPDATE
mail_outbox INSERT
mail_settings INSERT UPDATE
alert_reads INSERT
storage_options UPDATE
request_settings UPDATE
retrieval_prices UPDATE
plans UPDATE DELETE
work_items INSERT
retrievals INSERT
deletion_requests INSERT UPDATE
deletion_requests_intellectual_objects INSERT
deletion_requests_generic_files INSERT
deletion_receipts UPDATE
exports INSERT UPDATE`
	peopleFunctions = "note_action item_to_change requeue cancel release note_item set_priority pause_stage resume_stage pause_all resume_all pause_schedule lift_pause drain_worker " +
		"plan_store plan_begin plan_apply plan_undo add_stage remove_stage hold_service release_service acting_user_id two_people whom_to_ask retrieval_requester "
	queueUpkeep = "note_origin lock_object moved move_items record_moves move_stranded report_service tell_of_services backoff_of failed_attempts clamp_waiting clamp_times park_memory_needs "
)

// foundRights are the janitor's to what a reconciliation has left.
const foundRights = `
found_copies DELETE`

func rightsOf(process string) needs {
	return map[string]needs{
		"work": {tables: queueRights + `
intellectual_objects INSERT UPDATE
generic_files INSERT UPDATE
file_digests INSERT UPDATE
storage_records INSERT UPDATE DELETE
premis_events INSERT
event_records INSERT
event_texts INSERT
retired_copies INSERT DELETE
unrecorded_copies INSERT UPDATE DELETE
deletion_receipts INSERT UPDATE
fixity_checks INSERT DELETE
fixity_done INSERT UPDATE DELETE
fixity_failures INSERT UPDATE
repair_stops INSERT
retrievals INSERT
exports UPDATE
`, functions: queueUpkeep + "lock_institution event_number files_deleted object_deleted deletion_was_late"},
		"schedule": {tables: foundRights + `
work_items INSERT UPDATE
premis_events INSERT
schedules INSERT UPDATE
sessions DELETE
links DELETE
sign_in_failures DELETE
idempotency_keys DELETE
fixity_feed UPDATE
fixity_checks INSERT UPDATE
objects_in_work DELETE
removals INSERT
work_item_lists DELETE
retired_copies DELETE
unrecorded_copies DELETE
institutions UPDATE
spot_restores INSERT
alerts INSERT UPDATE
alert_repeats UPDATE DELETE
mail_outbox INSERT UPDATE DELETE
object_holdings INSERT UPDATE DELETE
holdings_daily INSERT DELETE
daily_outcomes INSERT DELETE`, functions: "note_origin open_action_partitions lock_object lock_institution rotate_log_partitions trim_log trim_receivers wake_retrieval " +
			"count_repeats raise_due_alerts alert_staff alert_of_requests gets_mail mail_choice second_person_is_staff second_people retrieval_requester cost_is_for_staff"},
		"serve": {tables: queueRights + peopleRights + `
queues INSERT UPDATE
topic_receivers INSERT
topic_deliveries INSERT DELETE
pipeline_messages UPDATE`, functions: queueUpkeep + peopleFunctions + "receiver_locked receiver_begins place_receiver take_messages take_delayed take_again move_in_topic next_in_topic post_messages save_results answer_and_take renumber_log"},
		"mirror": {tables: `
topic_readers INSERT UPDATE
nsq_topics INSERT UPDATE
topic_requests INSERT DELETE
work_item_audit INSERT
topic_retries UPDATE DELETE
pipeline_messages UPDATE
topic_receivers UPDATE
topic_deliveries UPDATE`, functions: "note_origin topic_request renumber_log pause_from_nsq fixity_due"},
	}[process]
}
