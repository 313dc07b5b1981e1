package registry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/registry/requests"
)

// refuses fails the test unless a constraint refuses a statement.
func (a *archive) refuses(sql, constraint string) {
	a.t.Helper()
	_, err := a.db.Exec(context.Background(), sql)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.ConstraintName != constraint {
		a.t.Errorf("%s: %v, want it refused by %q", sql, err, constraint)
	}
}

// Anyone who writes to the database, these rows cannot be in it.
func TestRowsThatCannotBe(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.institution("other.edu")
	item, _ := a.ingested(etag1, fileRecord("data/a.txt", 1), fileRecord("data/b.txt", 1))
	live := a.upload(etag2, a.in.CreatedAt, "live.tar")[0]
	const another = ` SELECT institution_id, action, stage, name, bucket, etag, size, bag_date FROM work_items WHERE name = 'live.tar'`
	const restore = `INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, object_identifier, status, retry)
		SELECT institution_id, 'Restore Object', 'Receive', name, bucket, etag, size, bag_date, 'o', 'Failed', false FROM work_items`
	for sql, constraint := range map[string]string{
		`UPDATE institutions SET restore_bucket = 'one' `:                                               "institutions_restore_bucket_key",
		`UPDATE institutions SET type = 'SubscriptionInstitution'`:                                      "institutions_check1",
		`UPDATE institutions SET member_institution_id = id`:                                            "institutions_check1",
		`UPDATE institutions SET state = 'X'`:                                                           "institutions_state_check",
		`UPDATE intellectual_objects SET access = 'public'`:                                             "intellectual_objects_access_check",
		`UPDATE intellectual_objects SET title = ''`:                                                    "intellectual_objects_title_check",
		`UPDATE intellectual_objects SET storage_option = 'Attic'`:                                      "intellectual_objects_storage_option_check",
		`UPDATE intellectual_objects SET storage_option = 'Glacier-VA'`:                                 "generic_files_intellectual_object_id_storage_option_fkey",
		`UPDATE generic_files SET storage_option = 'Glacier-VA'`:                                        "generic_files_intellectual_object_id_storage_option_fkey",
		`UPDATE generic_files SET institution_id = institution_id + 1`:                                  "generic_files_intellectual_object_id_institution_id_fkey",
		`UPDATE generic_files SET uuid = (SELECT min(uuid::text)::uuid FROM generic_files)`:             "generic_files_uuid_key",
		`UPDATE generic_files SET size = -1`:                                                            "generic_files_size_check",
		`UPDATE checksums SET digest = left(digest, -1)`:                                                "checksums_check",
		`UPDATE checksums SET digest = repeat('F', length(digest))`:                                     "checksums_check",
		`UPDATE checksums SET algorithm = 'crc32'`:                                                      "checksums_algorithm_check",
		`UPDATE storage_records SET url = 'ftp://host/key'`:                                             "storage_records_url_check",
		`UPDATE storage_records SET url = 'xhttp://host/key'`:                                           "storage_records_url_check",
		`UPDATE storage_records SET url = 'http:/host/key'`:                                             "storage_records_url_check",
		`UPDATE storage_records SET url = 'host/key'`:                                                   "storage_records_url_check",
		`UPDATE storage_records SET url = (SELECT min(url) FROM storage_records)`:                       "storage_records_generic_file_id_url_key",
		`UPDATE premis_events SET outcome = 'Failed'`:                                                   "premis_events_outcome_check",
		`UPDATE premis_events SET event_type = 'deposit'`:                                               "premis_events_event_type_check",
		`UPDATE premis_events SET institution_id = institution_id + 1`:                                  "premis_events_intellectual_object_id_institution_id_fkey",
		`UPDATE premis_events SET identifier = (SELECT min(identifier::text)::uuid FROM premis_events)`: "premis_events_identifier_key",
		`DELETE FROM checksums; DELETE FROM generic_files`:                                              "storage_records_generic_file_id_fkey",
		`DELETE FROM storage_records; DELETE FROM generic_files`:                                        "premis_events_generic_file_id_fkey",
		`DELETE FROM storage_records; DELETE FROM premis_events; DELETE FROM generic_files`:             "checksums_generic_file_id_fkey",
		`UPDATE storage_records SET generic_file_id = 999`:                                              "storage_records_generic_file_id_fkey",
		`UPDATE checksums SET generic_file_id = 999`:                                                    "checksums_generic_file_id_fkey",
		`UPDATE premis_events SET generic_file_id = 999`:                                                "premis_events_generic_file_id_fkey",
		`UPDATE premis_events SET intellectual_object_id = 999`:                                         "premis_events_intellectual_object_id_institution_id_fkey",
		`INSERT INTO storage_records (generic_file_id, url, target, bucket, key, stored_at, verified_at) VALUES (999, 'https://h', 't', 'b', 'k', now(), now())`:                 "storage_records_generic_file_id_fkey",
		`INSERT INTO event_records (generic_file_id, intellectual_object_id, institution_id, key, texts, times, facts) VALUES (999, 1, 1, gen_random_uuid(), '{1}', '{}', '{}')`: "premis_events_generic_file_id_fkey",
		`INSERT INTO file_digests (generic_file_id, datetime) VALUES (999, now())`:                                                                                               "checksums_generic_file_id_fkey",
		`INSERT INTO checksums (generic_file_id, algorithm, digest, datetime) SELECT generic_file_id, algorithm, digest, now() FROM checksums LIMIT 1`:                           "checksums_generic_file_id_algorithm_digest_key",
		`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)` + another:                                                                   "one_live_ingest",
		restore: "stage_fits_action",
		`INSERT INTO work_item_attempts VALUES (1, 1, 'Store', 1, 'n', 1, 'w', 'infinity')`:                  "",
		`UPDATE stage_settings SET topic = 'two words'`:                                                      "stage_settings_topic_check",
		`UPDATE stage_settings SET max_attempts = 0`:                                                         "stage_settings_max_attempts_check",
		`UPDATE stage_settings SET max_attempts = 1001`:                                                      "stage_settings_max_attempts_check",
		`UPDATE stage_settings SET backoff_most = '2 years'`:                                                 "times_are_finite",
		`UPDATE stage_settings SET backoff_most = '1 millisecond'`:                                           "stage_settings_check",
		`UPDATE stage_settings SET backoff_first = '-1 second'`:                                              "stage_settings_backoff_first_check",
		`UPDATE stage_settings SET cap = 0`:                                                                  "stage_settings_cap_check",
		`UPDATE stage_settings SET overdue = '0'`:                                                            "stage_settings_overdue_check",
		`UPDATE stage_settings SET processing_timeout = '0'`:                                                 "stage_settings_processing_timeout_check",
		`UPDATE stage_settings SET heartbeat = '0'`:                                                          "stage_settings_heartbeat_check",
		`UPDATE stage_settings SET heartbeat = '11 seconds'`:                                                 "lease_outlasts_heartbeats",
		`UPDATE stage_settings SET lease = '29 seconds'`:                                                     "lease_outlasts_heartbeats",
		`UPDATE stage_settings SET lease = '101 days'`:                                                       "times_are_finite",
		`UPDATE stage_settings SET unrenewed_timeout = '1 hour'`:                                             "unrenewed_lease_outlasts_timeout",
		`UPDATE stage_settings SET unrenewed_lease = '1 second'`:                                             "unrenewed_lease_outlasts_timeout",
		`UPDATE stage_settings SET unrenewed_lease = '200 days'`:                                             "times_are_finite",
		`UPDATE stage_settings SET paused = NULL`:                                                            "",
		`INSERT INTO work_item_attempts VALUES (1, 1, 'Store', 1, 'n', 1, 'w', now(), now(), now())`:         "work_item_attempts_check",
		`INSERT INTO work_item_attempts VALUES (1, 1, 'Store', 1, 'n', 1, 'w', now(), now(), now(), 'lost')`: "how an attempt ends",
	} {
		a.refuses(sql, constraint)
	}
	for set, constraint := range map[string]string{
		`status = 'Success', retry = false WHERE name = 'live.tar'`:            "success_is_at_the_end",
		`status = 'Failed' WHERE name = 'live.tar'`:                            "retry_is_live",
		`status = 'Started' WHERE name = 'live.tar'`:                           "started_is_leased",
		`waits_for = (SELECT min(id) FROM work_items) WHERE name = 'live.tar'`: "waiting_is_pending",
		`run_at = 'infinity' WHERE name = 'live.tar'`:                          "waiting_is_pending",
		`waits_for = id, run_at = 'infinity' WHERE name = 'live.tar'`:          "waits_for_another",
		`waits_for = 99, run_at = 'infinity' WHERE name = 'live.tar'`:          "work_items_waits_for_fkey",
		`attempt = -1`:                    "0 to a million",
		`attempt = 1000001`:               "0 to a million",
		`entered_token = claim_token + 2`: "entered_before",
		`intellectual_object_id = 99`:     "object_is_the_institutions",
		`stage = 'Stroe'`:                 "", // the rest by their types, which say so themselves
		`status = 'pending'`:              "",
		`priority = 101`:                  "",
		`size = -1`:                       "",
		`size = 1::bigint << 54`:          "",
		`storage_option = 'Attic'`:        "",
		`run_at = '-infinity'`:            "",
		`queued_at = 'infinity'`:          "",
		`stage_started_at = 'infinity'`:   "",
	} {
		a.refuses(`UPDATE work_items SET claim_token = claim_token + 1, `+set, constraint) // by the engine's way, with the token
	}
	if a.item(item).Status != "Success" || a.item(live).Status != "Pending" {
		t.Error("an item has changed")
	}
}

// Each action has topics of its own, also where its stage is called the same.
func TestNewItemIsAnnouncedOnTheTopicOfItsAction(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.objects(1, "Standard")
	first, second := a.twoAdmins()
	d, err := requests.In(a.Registry).RequestDeletion(context.Background(), first, []string{"test.edu/o1"})
	if err == nil {
		_, err = requests.In(a.Registry).ApproveDeletion(context.Background(), d.ID, second, paper)
	}
	if err != nil {
		t.Fatal(err)
	}
	announced := func(id int64, action, want string) {
		t.Helper()
		got := value[string](a, `SELECT coalesce(string_agg(topic || ' ' || body, ', '), 'none') FROM topic_messages WHERE work_item_id = $1 AND body = $1::text`, id)
		if got != fmt.Sprint(want, " ", id) {
			t.Errorf("%s is announced as %q, want %s", action, got, want)
		}
	}
	announced(value[int64](a, `SELECT id FROM work_items`), "Delete", "delete_item")
	for action, want := range map[string]string{
		"Restore File": "restore_file", "Restore Object": "restore_object", "Glacier Restore": "restore_glacier", "Export": "export_records",
	} {
		id := value[int64](a, `
			INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, object_identifier)
			VALUES ($1, $2::text, 'Requested', 'bag.tar', 'r', 'e', 1, now(), 'test.edu/' || $2::text) RETURNING id`, a.in.ID, action)
		announced(id, action, want)
	}
}

// An item that no worker would ever take is not made: one at a stage that is none
// of its action's, or behind an item that has ended.
func TestItemsThatNobodyWouldTakeAreNotMade(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	live := a.upload(etag1, a.in.CreatedAt, "live.tar")[0]
	over := a.standing("Success")
	insert := func(action, stage string, waitsFor int64) error {
		_, err := a.db.Exec(context.Background(), `
			INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date, object_identifier, waits_for)
			VALUES ($1, $2::text, $3, 'new.tar', 'b', 'e', 1, now(), 'test.edu/' || $2::text, nullif($4, 0))`, a.in.ID, action, stage, waitsFor)
		return err
	}
	for _, tc := range []struct {
		action, stage string
		waitsFor      int64
		refused       string // "" if it is made
	}{
		{"Ingest", "Stroe", 0, "there is no stage 'Stroe'; the stages are: Receive, "},
		{"Ingest", "Requested", 0, "there is no stage 'Requested'"},
		{"Delete", "Resolve", 0, "the stages of Delete are: Requested"},
		{"Delete", "Requested", over, "would never be claimed"},
		{"Delete", "Requested", 99, "would never be claimed"},
		{"Delete", "Requested", live, "was not approved"},
		{"Delete", "Requested", 0, "was not approved"},
		{"Restore Object", "Requested", over, "would never be claimed"},
		{"Restore Object", "Requested", 99, "would never be claimed"},
		{"Restore Object", "Requested", live, ""},
		{"Restore File", "Requested", 0, ""},
	} {
		err := insert(tc.action, tc.stage, tc.waitsFor)
		if made := err == nil; made != (tc.refused == "") || !made && !strings.Contains(err.Error(), tc.refused) {
			t.Errorf("%s at %s behind %d: %v, want it refused: %q", tc.action, tc.stage, tc.waitsFor, err, tc.refused)
		}
	}
	a.fit(t, "inserting")
}
