package registry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/registry/plans"
	"github.com/farol-preservation/farol/registry/requests"
)

// decisions is each column that says who decided something.
const decisions = `
	SELECT array_agg(x.what || ': ' || x.who ORDER BY x.what) FROM (
		SELECT 'paused' AS what, paused_by AS who FROM stage_settings WHERE stage = 'Store'
		UNION ALL SELECT 'held', held_by FROM known_services WHERE service = 'held'
		UNION ALL SELECT 'released', released_by FROM known_services WHERE service = 'released'
		UNION ALL SELECT 'planned', created_by FROM plans
		UNION ALL SELECT 'began', begun_by FROM plans
		UNION ALL SELECT 'undid', undone_by FROM plans
		UNION ALL SELECT 'token', created_by FROM api_tokens
		UNION ALL SELECT 'accepted', accepted_by FROM deletion_receipts
		UNION ALL SELECT DISTINCT 'item', concat_ws(' | ', session_user_is, person, application_name) FROM work_item_audit
		UNION ALL SELECT DISTINCT 'stage', concat_ws(' | ', session_user_is, person, application_name) FROM stage_settings_audit
	) x`

// decides makes one decision of each kind.
func (a *archive) decides(as *registry.Registry) {
	a.t.Helper()
	ctx := context.Background()
	item := a.put("bag", "e", "Store", "Pending")
	a.exec(`INSERT INTO known_services (service) VALUES ('held'), ('released')`)
	file := fileRecord("data/a.txt", 1)
	a.ingested(etag1, file)
	a.exec(`INSERT INTO deletion_receipts (work_item_id, generic_file_id, target, bucket, key, url, found_missing)
		SELECT 9, id, 't', 'b', 'k', 'https://t/k', true FROM generic_files`)

	check := func(err error) {
		a.t.Helper()
		if err != nil {
			a.t.Error(err)
		}
	}
	_, err := as.HoldService(ctx, "held", "Maintenance.")
	check(err)
	_, err = as.ReleaseService(ctx, "released")
	check(err)
	_, err = as.SetPriority(ctx, item, 5)
	check(err)
	_, err = as.Pause(ctx, "Store", "Maintenance.")
	check(err)
	p, err := plans.In(as).Make(ctx, plans.Request{Action: "cancel", Where: "name = 'bag.tar' AND stage = 'Store'"})
	check(err)
	signed := &archive{as, a.t, a.db, a.in}
	signed.undo(signed.apply(p))
	_, _, err = as.AddToken(ctx, record.Token{Name: "reader", Rights: []string{"pull"}})
	check(err)
	n, err := requests.In(as).AcceptMissing(ctx, 9, "")
	check(err)
	if n != 1 {
		a.t.Errorf("%d copies accepted, want 1", n)
	}
}

// Who runs a command is on record together with the database role, also behind a pooler, and
// whatever they call themselves, the role stays what it is and stands first.
func TestPersonIsOnRecordBesideTheRole(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		program, person, command string
		pooled                   bool
	}{
		"a person":              {"farol-item ann@archive.org", "ann@archive.org", "farol-item", false},
		"behind a pooler":       {"farol-item ann@archive.org", "ann@archive.org", "farol-item", true},
		"who claims to be more": {"farol-item postgres) (x", "postgres) (x", "farol-item", false},
		"a service":             {"farol-schedule", "", "farol-schedule", false},
		"another program":       {"psql of ann", "", "psql of ann", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArchive(t)
			url, options := a.db.Config().ConnString(), []dial.Option(nil)
			if tc.pooled {
				url, options = testenv.Pooled(t, url), []dial.Option{dial.Through("transaction")}
			}
			db := must.Get(dial.Connect(t.Context(), url, tc.program, options...))(t)
			defer db.Close()
			a.decides(registry.New(db))

			role := value[string](a, `SELECT session_user::text`)
			who, audit := role, role+" | "+tc.command
			if tc.person != "" {
				who, audit = role+" ("+tc.person+")", role+" | "+tc.person+" | "+tc.command
			}
			want := []string{
				"accepted: " + who, "began: " + who, "held: " + who, "item: " + audit, "paused: " + who, "planned: " + who,
				"released: " + who, "stage: " + audit, "token: " + who, "undid: " + who,
			}
			if diff := cmp.Diff(want, value[[]string](a, decisions)); diff != "" {
				t.Errorf("who decided (-want +got):\n%s", diff)
			}
		})
	}
}

// What depositors and operators read of a change by hand names who made it.
func TestNotesNameThePerson(t *testing.T) {
	t.Parallel()
	for program, who := range map[string]string{"farol-item ann@archive.org": " (ann@archive.org)", "psql": ""} {
		a := newArchive(t)
		db := must.Get(dial.Connect(t.Context(), a.db.Config().ConnString(), program))(t)
		defer db.Close()
		who = value[string](a, `SELECT session_user::text`) + who
		for n, change := range []struct{ status, sql, want string }{
			{"Failed", `SELECT cancel($1)`, "Cancelled by " + who},
			{"Failed", `SELECT requeue($1)`, "Requeued for Store by " + who},
			{"Started", `SELECT release($1)`, "Taken from the worker w by " + who},
			{"Pending", `UPDATE work_items SET status = 'Suspended' WHERE id = $1`, "Suspended by " + who},
			{"Pending", `UPDATE work_items SET status = 'Failed' WHERE id = $1`, "Failed by " + who},
		} {
			id := a.put(fmt.Sprint("bag-", n), "e", "Store", change.status)
			if _, err := db.Exec(t.Context(), change.sql, id); err != nil {
				t.Fatalf("%s: %v", change.sql, err)
			}
			if note := value[string](a, `SELECT note FROM work_items WHERE id = $1`, id); note != change.want {
				t.Errorf("%s as %q: the note is %q, want %q", change.sql, program, note, change.want)
			}
			if outcome := value[string](a, `SELECT outcome FROM work_items WHERE id = $1`, id); strings.HasPrefix(change.want, "Failed") && outcome != "Ingest was given up" {
				t.Errorf("the outcome is %q", outcome)
			}
		}
	}
}

// A name that a person is said to have does not replace the role.
func TestAcceptedInAnothersNameNamesTheRole(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.ingested(etag1, fileRecord("data/a.txt", 1))
	a.exec(`INSERT INTO deletion_receipts (work_item_id, generic_file_id, target, bucket, key, url, found_missing)
		SELECT 9, id, 't', 'b', 'k', 'https://t/k', true FROM generic_files`)
	must.Get(requests.In(a.Registry).AcceptMissing(t.Context(), 9, "ann@archive.org"))(t)
	by := value[string](a, `SELECT accepted_by FROM deletion_receipts`)
	if role, ok := strings.CutSuffix(by, " (ann@archive.org)"); !ok || role != value[string](a, `SELECT session_user::text`) {
		t.Errorf("accepted by %q, want the role and the person", by)
	}
}
