package registry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// standing makes an item of bag.tar in one of the states there are, at Store if it
// is live or parked.
func (a *archive) standing(state string) int64 {
	a.t.Helper()
	return a.standingAs("bag.tar", state)
}

func (a *archive) standingAs(key, state string) int64 {
	a.t.Helper()
	if state == "waiting" {
		a.start(a.upload(etag1, time.Now(), part(1))[0], 2, "Store")
		id := a.upload(etag1, time.Now(), part(2))[0]
		a.exec(`UPDATE work_items SET claim_token = 3, entered_token = 3, stage = 'Store' WHERE id = $1`, id)
		return id
	}
	id := a.upload(etag1, time.Now(), key)[0]
	a.start(id, 4, "Store")
	const free = `lease_expires_at = NULL, node = NULL, pid = NULL, worker = NULL`
	end := func(outcome, set string) {
		a.exec(`UPDATE work_items SET claim_token = 5, `+free+`, `+set+` WHERE id = $1`, id)
		a.exec(`UPDATE work_item_attempts SET ended_at = now(), outcome = $2, error_code = 'timeout', error = 'Storage is slow.' WHERE work_item_id = $1`, id, outcome)
	}
	switch state {
	case "Started":
	case "Pending":
		end("released", `status = 'Pending', attempt = 0`)
	case "delayed":
		end("transient", `status = 'Pending', run_at = now() + interval '1 hour', note = 'Storage is slow.', error_code = 'timeout'`)
	case "Success":
		end("done", `status = 'Success', stage = 'Cleanup', retry = false`)
	case "Cancelled":
		end("cancelled", `status = 'Cancelled', retry = false, note = 'No longer wanted.'`)
	default:
		end("fatal", `status = '`+state+`', retry = false, needs_admin_review = true, note = 'Storage denies access.', error_code = 'storage-denied'`)
	}
	return id
}

func states() []string {
	return []string{"Pending", "delayed", "waiting", "Started", "Success", "Failed", "Suspended", "Cancelled"}
}

// typo is a statement, with $ for the item, and what comes of it: by state, or ""
// for all others. What begins with an exclamation mark is a refusal; else it is
// stage, status and what else is worth telling.
type typo map[string]string

const (
	ended   = "!has ended"
	queues  = "!only the queue writes "
	same    = "as it was"
	anewAt  = "Store Pending, 0 attempts, anew, audited, announced"
	earlier = "Validate Pending, 0 attempts, anew, audited, announced"
)

func typos() map[string]typo {
	is := func(everywhere string) typo { return typo{"": everywhere} }
	set := func(what string) string { return `UPDATE work_items SET ` + what + ` WHERE id = $` }
	return map[string]typo{
		// Stage and status.
		set(`status = 'Pending'`): {
			"": anewAt, "Pending": same, "delayed": same, "waiting": same, "Success": ended, "Cancelled": ended,
		},
		set(`stage = 'Validate', status = 'Pending'`): {"": earlier, "Success": ended, "Cancelled": ended},
		set(`stage = 'Validate', status = 'Pending', retry = true, attempt = 9, node = NULL, pid = NULL, needs_admin_review = true`): {
			"": earlier, "Success": ended, "Cancelled": ended,
		},
		set(`stage = 'Validate', status = 'Pending', waits_for = 99999, virtual_start = 999999999, size_band = 3, entered_token = 0, run_at = 'infinity'`): {
			"": earlier, "Success": ended, "Cancelled": ended,
		},
		set(`status = 'Suspended', waits_for = 99999, virtual_start = 999999999, size_band = 3, entered_token = 0, attempt = 9, worker = 'mine', note = ''`): {
			"": "Store Suspended, audited, note ", "Suspended": queues, "Success": ended, "Cancelled": ended,
		},
		set(`stage = 'Validate'`): {
			"": earlier, "Success": ended, "Cancelled": ended, "Failed": "!cannot change its stage", "Suspended": "!cannot change its stage",
		},
		set(`stage = 'Record', status = 'Pending'`):    {"": "!has only come to Store", "Success": ended, "Cancelled": ended},
		set(`stage = 'Requested', status = 'Pending'`): {"": "!no stage 'Requested'; the stages of Ingest are: Receive, ", "Success": ended, "Cancelled": ended},
		set(`stage = 'store', status = 'Pending'`):     is("!no stage 'store'; the stages are: Receive, "),
		set(`stage = NULL, status = 'Pending'`):        is("!no stage NULL"),
		set(`status = 'pending'`):                      is("!no status 'pending'; the statuses are: Pending, Started"),
		set(`status = 'Pendign'`):                      is("!no status 'Pendign'"),
		set(`status = NULL`):                           is("!no status NULL"),
		set(`status = 'Started'`):                      {"": "!cannot be set to Started by hand", "Started": same, "Success": ended, "Cancelled": ended},
		set(`status = 'Success', stage = 'Cleanup'`):   {"": "!cannot be set to Success by hand", "Success": same, "Cancelled": ended},
		set(`status = 'Cancelled'`): {
			"": "Store Cancelled, audited, note Cancelled by me", "Success": ended, "Cancelled": same,
		},
		set(`status = 'Suspended', note = 'Wait for the depositor.'`): {
			"": "Store Suspended, audited, note Wait for the depositor.", "Suspended": "as it was, audited, note Wait for the depositor.",
			"Success": ended, "Cancelled": ended,
		},
		// The functions.
		`SELECT requeue($)`: {
			"": anewAt, "Pending": same, "delayed": "as it was, audited, due", "waiting": same, "Success": ended, "Cancelled": ended,
		},
		`SELECT requeue($, 'Store')`: {
			"": anewAt, "Pending": same, "delayed": "as it was, audited, due", "waiting": same, "Success": ended, "Cancelled": ended,
		},
		`SELECT requeue($, 'Validate')`:  {"": earlier, "Success": ended, "Cancelled": ended},
		`SELECT requeue($, 'Record')`:    {"": "!has only come to Store", "Success": ended, "Cancelled": ended},
		`SELECT requeue($, 'store')`:     is("!no stage 'store'; the stages of Ingest are: Receive, "),
		`SELECT requeue($, 'Requested')`: is("!no stage 'Requested'; the stages of Ingest are: "),
		`SELECT requeue($, '')`:          is("!no stage ''"),
		`SELECT requeue($ + 99)`:         is("!there is no item"),
		`SELECT requeue(NULL)`:           is("!there is no item NULL"),
		`SELECT cancel($ + 99)`:          is("!there is no item"),
		`SELECT cancel($, NULL)`:         {"": "Store Cancelled, audited, note Cancelled by me", "Success": ended, "Cancelled": same},
		`SELECT cancel($, '')`:           {"": "Store Cancelled, audited, note ", "Success": ended, "Cancelled": same},
		`SELECT release($ + 99)`:         is("!there is no item"),
		`SELECT set_priority($ + 99, 1)`: is("!there is no item"),
		`SELECT set_priority($, NULL)`:   is("!there is no priority NULL"),
		`SELECT pause_stage('Store')`:    is(same),
		`TRUNCATE work_items CASCADE`:    is("!cannot be truncated"),
		`TRUNCATE work_item_attempts`:    is("!cannot be truncated"),
		`DELETE FROM uploads_in_work WHERE work_item_id = $`: {
			"": "!only the queue writes uploads_in_work", "Success": same, "Failed": same, "Suspended": same, "Cancelled": same,
		},
		set(`status = ''`):                    is("!no status ''"),
		set(`status = 'Canceled'`):            is("!no status 'Canceled'"),
		set(`stage = '', status = 'Pending'`): is("!no stage ''"),
		`SELECT cancel($, 'No.')`:             {"": "Store Cancelled, audited, note No.", "Success": ended, "Cancelled": same},
		`SELECT release($)`:                   {"": "!does not run", "Started": "Store Pending, 0 attempts, audited"},
		`SELECT set_priority($, -5)`:          {"": "as it was, audited, priority -5", "Success": ended, "Cancelled": ended},
		`SELECT set_priority($, 101)`:         is("!there is no priority 101"),
		// What a person may change, too.
		set(`priority = -10`):              {"": "as it was, audited, priority -10", "Success": ended, "Cancelled": ended},
		set(`note = 'Ask the depositor.'`): is("as it was, audited, note Ask the depositor."),
		set(`note = NULL`):                 is("as it was, audited, note "),
		set(`needs_admin_review = false`):  {"": same, "Failed": "as it was, audited, reviewed", "Suspended": "as it was, audited, reviewed"},
		set(`priority = 101`):              is("!there is no priority 101"),
		set(`priority = NULL`):             is("!there is no priority NULL"),
		set(`priority = 99999`):            is("!smallint out of range"),
		// What is the queue's.
		set(`retry = NOT retry`):                         is(queues),
		set(`attempt = -1`):                              is("!0 to a million"),
		set(`attempt = attempt + 1`):                     is(queues),
		set(`claim_token = claim_token - 1`):             is("!claim_token of item"),
		set(`claim_token = 9223372036854775807`):         is("!claim_token of item"),
		set(`claim_token = NULL`):                        is("!claim_token of item"),
		set(`entered_token = 99`):                        is(queues),
		set(`size_band = 3`):                             is(queues),
		set(`virtual_start = -1`):                        is(queues),
		set(`waits_for = id`):                            is(queues),
		set(`waits_for = 99999, run_at = 'infinity'`):    is(queues),
		set(`waits_for = NULL, run_at = now()`):          {"": "as it was, audited, due", "waiting": queues},
		set(`node = 'mine'`):                             is(queues),
		set(`pid = NULL, worker = NULL, node = NULL`):    {"": same, "Started": queues},
		set(`stage_started_at = 'infinity'`):             is("!is no point in time"),
		set(`lease_expires_at = NULL`):                   {"": same, "Started": "!only its worker renews the lease"},
		set(`lease_expires_at = 'infinity'`):             is("!is no point in time"),
		set(`lease_expires_at = now() + '3 years'`):      is("!only its worker renews the lease"),
		set(`run_at = 'infinity'`):                       {"": "!would never be claimed", "waiting": same},
		set(`run_at = '-infinity'`):                      is("!is no point in time"),
		set(`run_at = NULL`):                             is("!NULL is no point in time"),
		set(`size = -1`):                                 is("!-1 bytes is not a possible size"),
		set(`size = NULL`):                               is("!NULL bytes is not a possible size"),
		set(`size = 9223372036854775807`):                is("!9223372036854775807 bytes is not a possible size"),
		set(`storage_option = 'Attic'`):                  is("!no storage option 'Attic'"),
		set(`intellectual_object_id = 99`):               is("!object_is_the_institutions"),
		set(`queued_at = 'infinity'`):                    is("!is no point in time"),
		set(`created_at = '-infinity'`):                  is("!is no point in time"),
		set(`id = DEFAULT`):                              is("!its id cannot be changed"),
		set(`institution_id = institution_id + 1`):       is("!its institution_id cannot be changed"),
		set(`action = 'Delete'`):                         is("!its action cannot be changed"),
		set(`name = 'other.tar'`):                        is("!its name cannot be changed"),
		set(`bucket = 'other', name = 'other.tar'`):      is("!its bucket, name cannot be changed"),
		set(`etag = NULL`):                               is("!its etag cannot be changed"),
		set(`object_identifier = 'test.edu/other'`):      is("!its object_identifier cannot be changed"),
		set(`claim_token = claim_token + 1, etag = 'x'`): is("!its etag cannot be changed"), // not even by the queue
		set(`bag_date = now()`):                          is("!its bag_date cannot be changed"),
		`DELETE FROM work_items WHERE id = $`:            is("!cannot be deleted"),
		`DELETE FROM work_item_attempts`:                 is("!attempts of item"),
		`UPDATE work_item_attempts SET stage = 'Stroe'`:  is("!cannot be changed"),
		`UPDATE work_item_attempts SET ended_at = NULL, outcome = NULL WHERE ended_at IS NOT NULL`: {
			"": "!attempts are permanent records", "Started": same, "waiting": same,
		},
		`UPDATE work_item_attempts SET outcome = 'done' WHERE outcome <> 'done'`: {
			"": "!attempts are permanent records", "Started": same, "waiting": same, "Success": same,
		},
	}
}

// Whatever is typed in psql, even by the owner of the tables, is completed or
// refused with a way out, in whatever state the item is.
func TestWhateverIsTypedIsCompletedOrRefused(t *testing.T) {
	t.Parallel()
	table := typos()
	const groups = 6 // each with a database
	for group := range groups {
		t.Run(fmt.Sprint(group), func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			for i, statement := range slices.Sorted(maps.Keys(table)) {
				if i%groups == group {
					a.everywhere(statement, table[statement])
				}
			}
		})
	}
}

// everywhere runs a statement against an item in each state.
func (a *archive) everywhere(statement string, outcome typo) {
	a.t.Helper()
	for _, state := range states() {
		want, ok := outcome[state]
		if !ok {
			want = outcome[""]
		}
		got := a.typed(strings.ReplaceAll(statement, "$", fmt.Sprint(a.standing(state))))
		refusal, refused := strings.CutPrefix(want, "!")
		if right := got == want || refused && got[0] == '!' && strings.Contains(got, refusal); !right {
			a.t.Errorf("%s when %s: %q, want %q", statement, state, got, want)
		}
		a.fit(a.t, statement+" when "+state)
		if state == "delayed" {
			a.seen(a.t, statement)
		}
		a.scene(`DELETE FROM work_items; DELETE FROM work_item_attempts; DELETE FROM uploads_in_work`)
	}
}

// typed runs a statement and says what came of it for the newest item.
func (a *archive) typed(statement string) string {
	a.t.Helper()
	a.exec(`DELETE FROM topic_messages`)
	a.exec(`DELETE FROM work_item_audit`)
	const all = `SELECT jsonb_agg(to_jsonb(w) ORDER BY id)::text FROM work_items w`
	was, before := a.item(value[int64](a, `SELECT max(id) FROM work_items`)), value[string](a, all)
	if _, err := a.db.Exec(context.Background(), statement); err != nil {
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Hint == "" && pg.Code == "23514" && pg.ConstraintName == "" {
			a.t.Errorf("%s: %v, without a way out", statement, err)
		}
		if after := value[string](a, all); after != before {
			a.t.Errorf("%s was refused, and changed something", statement)
		}
		return "!" + err.Error()
	}
	is := a.item(was.ID)
	said := same
	if is.Stage != was.Stage || is.Status != was.Status {
		said = fmt.Sprint(is.Stage, " ", is.Status) + value[string](a, `
			SELECT CASE WHEN status = 'Pending' THEN ', ' || attempt || ' attempts' || CASE WHEN entered_token = claim_token THEN ', anew' ELSE '' END ELSE '' END
				|| CASE WHEN claim_token <= $2 OR worker IS NOT NULL OR lease_expires_at IS NOT NULL THEN ', and a worker could still write' ELSE '' END
			FROM work_items WHERE id = $1`, is.ID, was.ClaimToken)
	}
	if who := value[string](a, `SELECT coalesce(string_agg(session_user_is || ' ' || (before->>'status') || ' ' || (after->>'status'), ', '), '') FROM work_item_audit`); who == value[string](a, `SELECT session_user::text`)+fmt.Sprint(" ", was.Status, " ", is.Status) {
		said += ", audited"
	} else if who != "" {
		said += ", audited as " + who
	}
	if n := value[int](a, `SELECT count(*) FROM topic_messages WHERE work_item_id = $1 AND topic = (SELECT topic FROM stage_settings WHERE stage = $2)`, is.ID, is.Stage); n == 1 {
		said += ", announced"
	}
	is.Note = strings.ReplaceAll(is.Note, value[string](a, `SELECT session_user::text`), "me")
	switch {
	case is.Priority != was.Priority:
		said += fmt.Sprint(", priority ", is.Priority)
	case is.NeedsAdminReview != was.NeedsAdminReview && said[:len(same)] == same:
		said += ", reviewed"
	case is.Note != was.Note && is.Status != "Pending" || is.Note != was.Note && strings.HasPrefix(said, same):
		said += ", note " + is.Note
	case said != same && strings.HasPrefix(said, same) && is.RunAt != nil && !is.RunAt.After(is.UpdatedAt):
		said += ", due"
	}
	return said
}

// Two parts of one object that a single statement brings back stand in line.
func TestPartsBroughtBackTogetherStandInLine(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	for _, name := range []string{"bag.b01.of02.tar", "bag.b02.of02.tar"} {
		a.upload(etag1, time.Now(), name)
	}
	a.exec(`UPDATE work_items SET status = 'Suspended'`)
	a.exec(`UPDATE work_items SET status = 'Pending', stage = 'Receive'`)
	got := value[string](a, `SELECT string_agg(concat_ws(' ', id, status, waits_for), ', ' ORDER BY id) FROM work_items`)
	if got != "1 Pending, 2 Pending 1" && got != "1 Pending 2, 2 Pending" {
		t.Errorf("the parts are %s; want one to wait for the other", got)
	}
}
