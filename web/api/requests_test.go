package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/permission"
)

// old makes what is stored old enough to be deleted.
func (s *site) old() {
	s.t.Helper()
	s.exec(`UPDATE storage_options SET retention_days = 0`)
}

// A deletion takes two people, each signed in; what one institution asks for, no other sees.
func TestDeletionTakesTwoPeople(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.old()
	first, second := s.in("first@test.edu", registry.RoleInstitutionalAdmin, "test.edu"), s.in("second@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	other, staff := s.in("admin@other.edu", registry.RoleInstitutionalAdmin, "other.edu"), s.in("staff@archive.org", registry.RoleAdmin, "")
	named := `{"identifiers": ["test.edu/bag/data/f"]}`
	if a := first.do("POST", "/api/v1/deletions", named); a.status != 400 || !strings.Contains(a.body, "Idempotency-Key") {
		t.Errorf("without a key: %d %s", a.status, a.body)
	}
	var d struct {
		ID                     int64
		Files, Objects, Items  int64
		RequestedAs            string `json:"requested_as"`
		ApprovedBy, ApprovedAs string `json:"-"`
	}
	first.reads(first.wants(http.StatusCreated, "POST", "/api/v1/deletions", named, "Idempotency-Key", "one"), &d)
	if d.Files != 1 || d.Objects != 0 || d.Items != 0 || d.RequestedAs != "first@test.edu" {
		t.Errorf("request = %+v", d)
	}
	if a := first.do("POST", "/api/v1/deletions", named, "Idempotency-Key", "one"); a.header.Get("Idempotency-Replayed") != "true" ||
		ask[int](s, `SELECT count(*) FROM deletion_requests`) != 1 {
		t.Errorf("sent twice: %d %s", a.status, a.body)
	}
	at := fmt.Sprint("/api/v1/deletions/", d.ID)
	absent := other.do("GET", "/api/v1/deletions/999999", nil)
	for _, path := range []string{"", "/named", "/receipts"} {
		if a := other.do("GET", at+path, nil); a.status != 404 || a.body != absent.body {
			t.Errorf("another sees %s: %d %s", path, a.status, a.body)
		}
	}
	for _, path := range []string{"/approve", "/cancel"} {
		missing := other.do("POST", "/api/v1/deletions/999999"+path, nil)
		if a := other.do("POST", at+path, nil); a.status != 404 || a.body != missing.body {
			t.Errorf("another decides %s: %d %s", path, a.status, a.body)
		}
	}
	if a := other.wants(200, "GET", "/api/v1/deletions?count=true", nil); strings.Contains(a.body, "test.edu") || !strings.Contains(a.body, `"value":0`) {
		t.Errorf("another lists %s", a.body)
	}
	if a := first.do("POST", at+"/approve", nil); a.status != 409 {
		t.Errorf("the own request: %d %s", a.status, a.body)
	}
	if a := staff.do("POST", at+"/approve", nil); a.status != 409 {
		t.Errorf("staff, where there is a second admin: %d %s", a.status, a.body)
	}
	if a := first.wants(200, "GET", at, nil); a.text("whom_to_ask") != "Ask second@test.edu to approve it." {
		t.Errorf("whom to ask: %s", a.body)
	}
	s.exec(`INSERT INTO means_given (to_user, by_user, what) VALUES ($1, $2, 'links')`, second.person.ID, first.person.ID)
	if a := second.do("POST", at+"/approve", nil); a.status != 409 || !strings.Contains(a.text("detail"), "how the other signs in") ||
		!strings.Contains(a.text("detail"), "Nobody may approve it before ") || !strings.Contains(a.text("detail"), ", when second@test.edu may") {
		t.Errorf("in one hand: %d %s", a.status, a.body)
	}
	s.exec(`UPDATE means_given SET at = now() - interval '7 days'`)
	s.exec(`UPDATE sessions SET strong_at = now() - interval '11 minutes' WHERE user_id = $1`, second.person.ID)
	if a := second.do("POST", at+"/approve", nil); a.code() != "fresh-proof-needed" {
		t.Errorf("without a fresh proof: %d %s", a.status, a.body)
	}
	s.exec(`UPDATE sessions SET strong_at = now() WHERE user_id = $1`, second.person.ID)
	if a := second.program(string(permission.DeletionsApprove)).do("POST", at+"/approve", nil); a.status != 403 {
		t.Errorf("with a token: %d %s", a.status, a.body)
	}
	if a := second.wants(200, "POST", at+"/approve", nil); !strings.Contains(a.body, `"approved_as":"second@test.edu"`) || !strings.Contains(a.body, `"items":1`) {
		t.Errorf("approved: %s", a.body)
	}
	if a := second.do("POST", at+"/approve", nil); a.status != 409 || ask[int](s, `SELECT count(*) FROM work_items WHERE action = 'Delete'`) != 1 {
		t.Errorf("approved twice: %d %s", a.status, a.body)
	}
	if a := first.wants(200, "GET", at+"/named", nil); !strings.Contains(a.body, `"kind":"file"`) || !strings.Contains(a.body, "test.edu/bag/data/f") {
		t.Errorf("named: %s", a.body)
	}
	s.exec(`INSERT INTO deletion_receipts (work_item_id, generic_file_id, target, bucket, key, url)
		SELECT w.id, w.generic_file_id, t, 'b', 'k' || n, 'u' FROM work_items w, unnest('{A,B}'::text[]) t, generate_series(1, 2) n WHERE w.action = 'Delete'`)
	seen, next := "", at+"/receipts?limit=1"
	for range 4 {
		var page struct {
			Items []struct{ Target, Key string }
			Next  *string
		}
		first.reads(first.wants(200, "GET", next, nil), &page)
		for _, r := range page.Items {
			seen += r.Target + r.Key + " "
		}
		if page.Next != nil {
			next = *page.Next
		}
	}
	if seen != "Ak1 Ak2 Bk1 Bk2 " {
		t.Errorf("receipts page by page: %s", seen)
	}
	if got := ask[string](s, `SELECT string_agg(operation || ' ' || actor || ' ' || outcome, ', ' ORDER BY id) FROM actions WHERE operation LIKE 'deletions.%' AND outcome = 'done'`); got !=
		"deletions.request first@test.edu done, deletions.approve second@test.edu done" {
		t.Errorf("actions: %s", got)
	}
}

// What staff decide about a deletion is on record with the institution, which so sees it.
func TestStaffsApprovalIsOnTheInstitutionsRecord(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.old()
	first, staff := s.in("first@test.edu", registry.RoleInstitutionalAdmin, "test.edu"), s.in("staff@archive.org", registry.RoleAdmin, "")
	var d struct{ ID int64 }
	first.reads(first.wants(http.StatusCreated, "POST", "/api/v1/deletions", `{"identifiers": ["test.edu/bag/data/f"]}`, "Idempotency-Key", "one"), &d)
	staff.wants(200, "POST", fmt.Sprintf("/api/v1/deletions/%d/approve", d.ID), nil)
	if a := first.wants(200, "GET", fmt.Sprintf("/api/v1/actions?subject_type=deletion&subject_id=%d", d.ID), nil); !strings.Contains(a.body, "staff@archive.org") {
		t.Errorf("the institution sees: %s", a.body)
	}
	if a := staff.do("POST", fmt.Sprintf("/api/v1/deletions/%d/approve", d.ID), nil); a.status != 409 {
		t.Errorf("approved twice: %d %s", a.status, a.body)
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE operation = 'deletions.approve' AND institution_id = $1`, s.test.ID); n != 2 {
		t.Errorf("%d actions with the institution, want an approval and a refusal", n)
	}
	// Of a record that is not there for the actor, no institution is looked up.
	other := s.in("admin@other.edu", registry.RoleInstitutionalAdmin, "other.edu")
	if a := other.do("POST", fmt.Sprintf("/api/v1/deletions/%d/approve", d.ID), nil); a.status != 404 {
		t.Errorf("another institution's: %d %s", a.status, a.body)
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE user_id = $1 AND subject_id = $2 AND outcome = 'refused' AND institution_id IS DISTINCT FROM $3`, other.person.ID, fmt.Sprint(d.ID), s.test.ID); n != 1 {
		t.Errorf("%d refusals that are not on the institution's record, want 1: %s", n, ask[string](s, `SELECT coalesce(string_agg(a::text, ' '), '') FROM actions a WHERE user_id = $1`, other.person.ID))
	}
}

// A check says what a request would be refused for, and leaves nothing behind.
func TestDeletionIsChecked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	first := s.in("first@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	var c struct {
		Objects, Files, Bytes int64
		Unknown               []string
		Refused               []struct{ Identifier, Why string }
	}
	check := func(body string) answer { return first.wants(200, "POST", "/api/v1/deletions/check", body) }
	s.exec(`UPDATE storage_options SET retention_days = 30`)
	first.reads(check(`{"identifiers": ["test.edu/bag", "other.edu/bag", "test.edu/nothing"]}`), &c)
	if c.Objects != 1 || c.Bytes != 7 || strings.Join(c.Unknown, " ") != "other.edu/bag test.edu/nothing" || len(c.Refused) != 1 ||
		c.Refused[0].Identifier != "test.edu/bag" || !strings.Contains(c.Refused[0].Why, "must be kept for 30 days") {
		t.Errorf("check = %+v", c)
	}
	s.old()
	first.reads(check(`{"identifiers": ["test.edu/bag/data/f"]}`), &c)
	if c.Files != 1 || c.Bytes != 7 || len(c.Refused) != 0 || len(c.Unknown) != 0 {
		t.Errorf("check = %+v", c)
	}
	if n := ask[int](s, `SELECT (SELECT count(*) FROM deletion_requests) + (SELECT count(*) FROM alerts WHERE type LIKE 'Deletion%')`); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	first.reads(check(`{"identifiers": ["test.edu/bag/data/f", "test.edu/bag"]}`), &c)
	if c.Bytes != 7 || len(c.Refused) != 1 || c.Refused[0].Why != "its object is named too" {
		t.Errorf("check of a file and its object = %+v", c)
	}
	for body, why := range map[string]string{`{"identifiers": []}`: "identifiers", `{}`: "identifiers", `{"identifiers": ["a\u0000"]}`: "NUL"} {
		if a := first.do("POST", "/api/v1/deletions/check", body); a.status != 400 && a.status != 409 || !strings.Contains(a.body, why) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if a := first.do("POST", "/api/v1/deletions", `{"identifiers": ["other.edu/bag"]}`, "Idempotency-Key", "x"); a.status != 404 {
		t.Errorf("another's object: %d %s", a.status, a.body)
	}
}

// A service decides nothing that a person has to.
func TestServicesDecideNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var all []string
	for _, p := range permission.All() {
		all = append(all, string(p))
	}
	_, secret, err := s.registry.AddToken(t.Context(), record.Token{Name: "service", Institution: "test.edu", Permissions: all})
	if err != nil {
		t.Fatal(err)
	}
	c := s.browser()
	c.token = secret
	for _, path := range []string{"deletions", "deletions/check", "deletions/1/cancel", "restorations", "restorations/quote", "restorations/1/approve"} {
		if a := c.do("POST", "/api/v1/"+path, `{}`, "Idempotency-Key", "k"); a.status != 403 || !strings.Contains(a.body, "a person decides it") {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	c.wants(200, "GET", "/api/v1/deletions", nil)
}

// Restorations are requested by their depositors, and of others there is nothing.
func TestRestoration(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	user, admin := s.in("user@test.edu", registry.RoleInstitutionalUser, "test.edu"), s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	other := s.in("admin@other.edu", registry.RoleInstitutionalAdmin, "other.edu")
	var q struct {
		Files, Bytes  int64
		Price         string `json:"price_usd"`
		NeedsApproval bool   `json:"needs_approval"`
	}
	user.reads(user.wants(200, "POST", "/api/v1/restorations/quote", `{"object": "test.edu/bag"}`), &q)
	if q.Files != 1 || q.Bytes != 7 || q.Price != "0.00" || q.NeedsApproval {
		t.Errorf("quote = %+v", q)
	}
	var r struct {
		Item struct {
			ID     int64
			Status string
		}
	}
	user.reads(user.wants(http.StatusCreated, "POST", "/api/v1/restorations", `{"file": "test.edu/bag/data/f"}`, "Idempotency-Key", "1"), &r)
	if got := ask[string](s, `SELECT action || ' ' || status || ' ' || "user" FROM work_items WHERE id = $1`, r.Item.ID); got != "Restore File Pending user@test.edu" {
		t.Errorf("item = %s", got)
	}
	at := fmt.Sprint("/api/v1/restorations/", r.Item.ID)
	if a := user.wants(200, "GET", at, nil); !strings.Contains(a.body, `"file":"test.edu/bag/data/f"`) {
		t.Errorf("restoration: %s", a.body)
	}
	absent := other.do("GET", "/api/v1/restorations/999999", nil)
	if a := other.do("GET", at, nil); a.status != 404 || a.body != absent.body {
		t.Errorf("another sees it: %d %s", a.status, a.body)
	}
	if a := other.wants(200, "GET", "/api/v1/restorations?count=true", nil); !strings.Contains(a.body, `"value":0`) {
		t.Errorf("another lists %s", a.body)
	}
	for _, body := range []string{`{"object": "%s/bag"}`, `{"file": "%s/bag/data/f"}`} {
		theirs, none := fmt.Sprintf(body, "test.edu"), fmt.Sprintf(body, "none.edu")
		a, b := other.do("POST", "/api/v1/restorations", theirs, "Idempotency-Key", "t"+body[2:6]), other.do("POST", "/api/v1/restorations", none, "Idempotency-Key", "n"+body[2:6])
		if a.status != 404 || a.body != b.body {
			t.Errorf("of another: %d %s, of nothing: %d %s", a.status, a.body, b.status, b.body)
		}
	}
	ingest := s.ids(s.test)["items"]
	user.wants(404, "GET", fmt.Sprint("/api/v1/restorations/", ingest), nil)
	s.cancels(r.Item.ID, ingest, user, other)
	for body, why := range map[string]string{
		`{}`: "an object or a file", `{"object": "a", "file": "b"}`: "not both", `{"object": "test.edu/bag", "tier": "Slow"}`: "tier",
		`{"object": "test.edu/bag", "days": 0}`: "days", `{"object": "test.edu/bag", "from_archive": true}`: "no archived copy",
		`{"object": "test.edu/bag", "by": "x@y"}`: "by",
	} {
		if a := user.do("POST", "/api/v1/restorations", body, "Idempotency-Key", body); a.status != 400 && a.status != 409 || !strings.Contains(a.body, why) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	s.approvals(user, admin, other)
}

// cancels has a restoration cancelled, which a worker has at first.
func (s *site) cancels(id, ingest int64, user, other *caller) {
	s.t.Helper()
	at, because := fmt.Sprint("/api/v1/restorations/", id, "/cancel"), `{"reason": "Asked for by mistake."}`
	absent := other.do("POST", "/api/v1/restorations/999999/cancel", because)
	if a := other.do("POST", at, because); a.status != 404 || a.body != absent.body {
		s.t.Errorf("another cancels: %d %s", a.status, a.body)
	}
	if a := user.do("POST", fmt.Sprint("/api/v1/restorations/", ingest, "/cancel"), because); a.status != 404 || a.body != absent.body {
		s.t.Errorf("an ingest: %d %s", a.status, a.body)
	}
	if status := ask[string](s, `SELECT status FROM all_work_items WHERE id = $1`, ingest); status != "Pending" {
		s.t.Errorf("an ingest that was no restoration is %s", status)
	}
	s.exec(`UPDATE work_items SET status = 'Started', claim_token = claim_token + 1, attempt = 1, worker = 'w1', node = 'n1', pid = 1, stage_started_at = now(), lease_expires_at = now() + interval '1 hour' WHERE id = $1`, id)
	if a := user.do("POST", at, because); a.status != 409 || !strings.Contains(a.body, "a worker has begun it") {
		s.t.Errorf("one that runs: %d %s", a.status, a.body)
	}
	s.exec(`SELECT release($1)`, id)
	s.exec(`UPDATE work_items SET "user" = DEFAULT WHERE id = $1`, id)
	if a := user.do("POST", at, because); a.status != 409 || !strings.Contains(a.body, "the archive has asked for it") {
		s.t.Errorf("one that the archive has drawn: %d %s", a.status, a.body)
	}
	s.exec(`UPDATE work_items SET "user" = 'user@test.edu' WHERE id = $1`, id)
	user.wants(200, "POST", at, because)
	if got := ask[string](s, `SELECT status || ': ' || note FROM all_work_items WHERE id = $1`, id); got != "Cancelled: Cancelled by user@test.edu. Asked for by mistake." {
		s.t.Errorf("the item is %s", got)
	}
	if got := ask[string](s, `SELECT string_agg(outcome, ' ' ORDER BY id) FROM actions WHERE operation = 'restorations.cancel' AND subject_id = $1`, fmt.Sprint(id)); !strings.HasSuffix(got, "refused done") {
		s.t.Errorf("on record: %s", got)
	}
}

// approvals has a restoration that costs more than the cap.
func (s *site) approvals(user, admin, other *caller) {
	s.t.Helper()
	s.exec(`UPDATE work_items SET status = 'Cancelled', retry = false WHERE action LIKE 'Restore%'`)
	s.exec(`WITH o AS (UPDATE intellectual_objects SET storage_option = 'Glacier-VA')
		UPDATE generic_files SET storage_option = 'Glacier-VA', size = 1000000000000000`)
	var r struct {
		Item  struct{ ID int64 }
		Quote struct {
			NeedsApproval bool `json:"needs_approval"`
		}
	}
	admin.reads(admin.wants(http.StatusCreated, "POST", "/api/v1/restorations", `{"object": "test.edu/bag"}`, "Idempotency-Key", "cost"), &r)
	if !r.Quote.NeedsApproval {
		s.t.Errorf("restoration = %+v", r)
	}
	at := fmt.Sprint("/api/v1/restorations/", r.Item.ID, "/approve")
	missing := other.do("POST", "/api/v1/restorations/999999/approve", nil)
	if a := other.do("POST", at, nil); a.status != 404 || a.body != missing.body {
		s.t.Errorf("another approves: %d %s", a.status, a.body)
	}
	if a := admin.do("POST", at, nil); a.status != 409 {
		s.t.Errorf("the own request: %d %s", a.status, a.body)
	}
	if a := user.do("POST", at, nil); a.status != 403 {
		s.t.Errorf("a user approves: %d %s", a.status, a.body)
	}
	second := s.in("second@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	if a := second.wants(200, "POST", at, nil); !strings.Contains(a.body, `"status":"Pending"`) {
		s.t.Errorf("approved: %s", a.body)
	}
}

// Who may approve a deletion refuses it for a reason, which stays on record and reaches the
// requester: another admin of the institution, or, where there is none, one of the archive.
func TestDeletionIsRefusedForAReason(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.old()
	first, staff := s.in("first@test.edu", registry.RoleInstitutionalAdmin, "test.edu"), s.in("staff@archive.org", registry.RoleAdmin, "")
	other := s.in("admin@other.edu", registry.RoleInstitutionalAdmin, "other.edu")
	request := func(key string) string {
		var d struct{ ID int64 }
		first.reads(first.wants(http.StatusCreated, "POST", "/api/v1/deletions", `{"identifiers": ["test.edu/bag/data/f"]}`, "Idempotency-Key", key), &d)
		return fmt.Sprint("/api/v1/deletions/", d.ID, "/cancel")
	}
	at, because := request("one"), `{"reason": "The retention is disputed."}`
	absent := other.do("POST", "/api/v1/deletions/999999/cancel", because)
	if a := other.do("POST", at, because); a.status != 404 || a.body != absent.body {
		t.Errorf("an admin of another institution: %d %s", a.status, a.body)
	}
	a := staff.wants(200, "POST", at, because)
	if a.text("cancel_reason") != "The retention is disputed." || a.text("cancelled_by") != "staff@archive.org" {
		t.Error(a.body)
	}
	if got := ask[string](s, `SELECT content FROM alerts WHERE type = 'Deletion Cancelled'`); got != "staff@archive.org has cancelled it. Nothing was deleted. Reason: The retention is disputed." {
		t.Errorf("the alert says %s", got)
	}
	at = request("two")
	second := s.in("second@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	if a := staff.do("POST", at, because); a.status != 409 || !strings.Contains(a.body, "the institution has another admin") {
		t.Errorf("staff, where another admin decides: %d %s", a.status, a.body)
	}
	second.wants(200, "POST", at, because)
	first.wants(200, "POST", request("three"), nil) // without a body, as before
}
