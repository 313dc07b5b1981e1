package outbox_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// recipients are who gets a mail at once for each type, if it is of university A, and if
// it is of no institution.
func recipients() map[string][2]string {
	const all, admins, restoring, staff, machinery = "a-admin, a-auditor, a-second, a-user", "a-admin, a-second", "a-admin, a-second, a-user", "staff", "operator, staff"
	return map[string][2]string{
		"Deletion Cancelled": {admins, staff}, "Deletion Completed": {admins, staff}, "Deletion Confirmed": {admins, staff}, "Deletion Requested": {admins, staff},
		"Restoration Completed": {restoring, staff}, "Spot Restoration Completed": {restoring, staff}, "Spot Restoration Failed": {restoring, staff},
		"Restoration Ready Soon To Expire": {restoring, staff}, "Approval Waits": {admins, staff},
		"Failed Fixity Check": {all, staff}, "Fixity Promise Broken": {all, staff}, "Repair Stopped": {all, staff},
		"Item Failed": {restoring, machinery}, "Item Suspended": {restoring, machinery}, "Worker Lost": {restoring, machinery},
		"Queue Overdue": {restoring, machinery}, "Service Held": {restoring, machinery}, "Mail Not Delivered": {restoring, staff},
		"Account Locked": {restoring, staff}, "New Sign-in": {restoring, staff}, "Password Changed": {restoring, staff},
		"Token Made": {restoring, staff}, "Second Factor Changed": {restoring, staff},
	}
}

// An alert reaches the people whom it concerns, and none of another institution.
func TestRecipientsByRoleInstitutionAndType(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	rows, _ := h.db.Query(t.Context(), `SELECT (regexp_matches(pg_get_constraintdef(oid), '''([^'']+)''', 'g'))[1] FROM pg_constraint WHERE conname = 'alerts_type_check'`)
	types, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(types) != len(recipients()) {
		t.Fatalf("%d types, %v; expectations for %d", len(types), err, len(recipients()))
	}
	for _, kind := range types {
		want, known := recipients()[kind]
		if !known {
			t.Errorf("%s: nobody has said who gets it", kind)
		}
		for i, institution := range []int64{1001, 0} {
			if got := h.mailedTo(h.alert(kind, institution)); got != want[i] {
				t.Errorf("%s of institution %d goes to %s, want %s", kind, institution, got, want[i])
			}
		}
		other := h.mailedTo(h.alert(kind, 1002))
		for name := range strings.SplitSeq(other, ", ") {
			if !strings.HasPrefix(name, "b-") {
				t.Errorf("%s of university B goes to %s", kind, other)
			}
		}
		own := value[int64](h, `INSERT INTO alerts (type, institution_id, user_id, subject, content)
			SELECT $1, 1001, id, 'Own', 'Text' FROM users WHERE email = 'a-user@a.edu' RETURNING id`, kind)
		if got := h.mailedTo(own); got != "a-user" {
			t.Errorf("%s for one person goes to %s", kind, got)
		}
	}
}

// Each choice of a person is about its own types. What concerns the account is sent anyway.
func TestPeopleChooseWhatTheyGet(t *testing.T) {
	t.Parallel()
	choices := map[string]string{
		"Deletion Requested": "deletions", "Restoration Completed": "restorations", "Spot Restoration Failed": "restorations",
		"Failed Fixity Check": "fixity", "Item Failed": "problems", "Account Locked": "",
	}
	h := newHouse(t)
	for _, column := range []string{"deletions", "restorations", "fixity", "problems"} {
		for _, choice := range []string{"now", "daily", "never"} {
			h.exec(`DELETE FROM mail_settings`)
			h.exec(`INSERT INTO mail_settings (user_id, ` + column + `) SELECT id, '` + choice + `' FROM users WHERE email = 'a-admin@a.edu'`)
			for kind, of := range choices {
				want := "a-admin"
				if of == column {
					want = map[string]string{"now": "a-admin", "daily": "a-admin daily", "never": ""}[choice]
				}
				got := strings.Split(h.mailedTo(h.alert(kind, 1001)), ", ")
				got = slices.DeleteFunc(got, func(name string) bool { return !strings.HasPrefix(name, "a-admin") })
				if strings.Join(got, "") != want {
					t.Errorf("%s = %s: %s comes as %q, want %q", column, choice, kind, got, want)
				}
			}
		}
	}
}

// Where an institution has one admin, an admin of the archive approves, and has to know.
func TestTheSecondPersonIsMailed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	request := func(by string) int64 {
		return value[int64](h, `INSERT INTO deletion_requests (institution_id, requested_by) SELECT institution_id, id FROM users WHERE email = $1 RETURNING id`, by)
	}
	alert := func(kind string, request int64) string {
		return h.mailedTo(value[int64](h, `INSERT INTO alerts (institution_id, type, subject, content, deletion_request_id)
			SELECT institution_id, $1, 'S', 'C', id FROM deletion_requests WHERE id = $2 RETURNING id`, kind, request))
	}
	a, b := request("a-admin@a.edu"), request("b-admin@b.edu")
	for _, c := range []struct {
		kind    string
		request int64
		want    string
	}{
		{"Deletion Requested", a, "a-admin, a-second"},
		{"Approval Waits", a, "a-second"}, // the requester has nothing to do
		{"Deletion Requested", b, "b-admin, staff"},
		{"Approval Waits", b, "staff"},
		{"Deletion Cancelled", b, "b-admin"},
	} {
		if got := alert(c.kind, c.request); got != c.want {
			t.Errorf("%s of request %d goes to %s, want %s", c.kind, c.request, got, c.want)
		}
	}
}

// The cost of a retrieval is approved by an admin of the institution who has not requested it,
// and without one by an admin of the archive.
func TestWhoMayApproveACostIsMailed(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	for _, c := range []struct{ by, name, want string }{
		{"a-admin@a.edu", "a-admin@a.edu", "a-second"},
		{"a-admin@a.edu", "earlier@a.edu", "a-second"},
		{"", "a-admin@a.edu", "a-second"}, // from before there was a column for it
		{"a-user@a.edu", "a-user@a.edu", "a-admin, a-second"},
		{"staff@archive.org", "staff@archive.org", "a-admin, a-second"},
		{"b-admin@b.edu", "b-admin@b.edu", "staff"},
		{"b-user@b.edu", "b-user@b.edu", "b-admin"},
	} {
		institution := 1001
		if strings.HasPrefix(c.by, "b-") {
			institution = 1002
		}
		testenv.Scene(t, h.db, `WITH item AS (
				INSERT INTO work_items (institution_id, action, stage, status, retry, name, bucket, etag, size, bag_date, object_identifier, "user")
				VALUES ($1, 'Glacier Restore', 'Requested', 'Suspended', false, 'x.tar', 'b', 'e', 1, now(), 'x', $2) RETURNING id)
			INSERT INTO retrievals (work_item_id, storage_class, tier, days, files, bytes, price, cap, requested_by)
			SELECT id, 'GLACIER', 'Bulk', 5, 1, 1, 200, 100, (SELECT id FROM users WHERE email = $3) FROM item`, institution, c.name, c.by)
		got := h.mailedTo(value[int64](h, `INSERT INTO alerts (institution_id, type, subject, content, work_item_id)
			SELECT $1::bigint, 'Approval Waits', 'S', 'C', max(id) FROM work_items RETURNING id`, institution))
		if got != c.want {
			t.Errorf("the cost of a request by %q (%s) goes to %s, want %s", c.by, c.name, got, c.want)
		}
	}
}

// An alert and its mails are written together, or not at all.
func TestAlertAndMailAreOneTransaction(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	tx, err := h.db.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), `INSERT INTO alerts (type, subject, content) VALUES ('Service Held', 'S', 'C')`)
	}
	if err != nil {
		t.Fatal(err)
	}
	if n := value[int64](h, `SELECT count(*) FROM mail_outbox`); n != 0 {
		t.Errorf("%d mails before the commit", n)
	}
	must.Do(t, tx.Rollback(t.Context()))
	if n := value[int64](h, `SELECT (SELECT count(*) FROM mail_outbox) + (SELECT count(*) FROM alerts)`); n != 0 {
		t.Errorf("%d rows after a rollback", n)
	}
	h.alert("Service Held", 0)
	if n := value[int64](h, `SELECT count(*) FROM mail_outbox`); n != 2 {
		t.Errorf("%d mails after the commit, want 2", n)
	}
}

// A digest is due at 07:00 of the person, and nobody goes without one for a wrong zone.
func TestDigestsAreDueInTheMorning(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	h.exec(`INSERT INTO mail_settings (user_id, problems) SELECT id, 'daily' FROM users`)
	for zone, hours := range map[string]string{"America/New_York": "America/New_York", "Asia/Kolkata": "Asia/Kolkata", "UTC": "UTC", "Nowhere/None": "UTC"} {
		h.exec(`UPDATE users SET time_zone = $1`, zone)
		alert := h.alert("Service Held", 0)
		due := value[string](h, `SELECT DISTINCT to_char(due_at AT TIME ZONE $2, 'HH24:MI:SS') FROM mail_outbox WHERE alert_id = $1`, alert, hours)
		ahead := value[time.Duration](h, `SELECT DISTINCT due_at - now() FROM mail_outbox WHERE alert_id = $1`, alert)
		if due != "07:00:00" || ahead <= 0 || ahead > 25*time.Hour {
			t.Errorf("%s: due at %s, in %v", zone, due, ahead)
		}
	}
}
