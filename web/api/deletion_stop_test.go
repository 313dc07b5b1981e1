package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// approved is a deletion of the file that stock has put on record.
func (s *site) approved(first, second *caller, key string) (d record.DeletionRequest) {
	s.t.Helper()
	first.reads(first.wants(http.StatusCreated, "POST", "/api/v1/deletions", `{"identifiers": ["test.edu/bag/data/f"]}`, "Idempotency-Key", key), &d)
	second.reads(second.wants(200, "POST", fmt.Sprintf("/api/v1/deletions/%d/approve", d.ID), nil), &d)
	return d
}

// An approved deletion is stopped by those who may, as a whole or item by item, and by nobody
// else; a repetition with the same key is the same stop.
func TestApprovedDeletionIsStopped(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.old()
	s.exec(`UPDATE request_settings SET deletion_wait = '24 hours'`)
	first, second := s.in("first@test.edu", registry.RoleInstitutionalAdmin, "test.edu"), s.in("second@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	staff, other := s.in("staff@archive.org", registry.RoleAdmin, ""), s.in("admin@other.edu", registry.RoleInstitutionalAdmin, "other.edu")
	third := s.in("third@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	reader, auditor := s.in("reader@test.edu", registry.RoleInstitutionalUser, "test.edu"), s.in("auditor@test.edu", registry.RoleAuditor, "test.edu")
	operator := s.in("operator@archive.org", registry.RoleOperator, "")
	for i, c := range []struct {
		by     *caller
		status int
	}{{first, 200}, {second, 200}, {third, 200}, {staff, 200}, {other, 404}, {reader, 403}, {auditor, 403}, {operator, 403}} {
		d := s.approved(first, second, fmt.Sprint("stop ", i))
		at := fmt.Sprint("/api/v1/deletions/", d.ID)
		if d.BeginsAt == nil || d.BeginsAt.Sub(*d.ApprovedAt).Hours() != 24 {
			t.Fatalf("it begins at %v", d.BeginsAt)
		}
		if a := first.wants(200, "GET", "/api/v1/deletions?state=waiting", nil); strings.Count(a.body, `"id":`) != 1 {
			t.Errorf("waiting: %s", a.body)
		}
		if a := c.by.do("POST", at+"/cancel", `{"reason": "a mistake"}`, "Idempotency-Key", "k"); a.status != c.status {
			t.Errorf("%s: %d %s, want %d", c.by.person.Email, a.status, a.body, c.status)
		}
		if c.status == 200 {
			if a := c.by.do("POST", at+"/cancel", `{"reason": "a mistake"}`, "Idempotency-Key", "k"); a.status != 200 || a.header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("%s, repeated: %d %s", c.by.person.Email, a.status, a.body)
			}
		} else {
			first.wants(200, "POST", at+"/cancel", nil)
		}
		if n := ask[int](s, `SELECT count(*) FROM work_items WHERE action = 'Delete' AND status <> 'Cancelled'`); n != 0 {
			t.Fatalf("%s: %d items go on", c.by.person.Email, n)
		}
		if a := first.wants(200, "GET", "/api/v1/deletions?state=approved", nil); strings.Contains(a.body, `"id":`) {
			t.Errorf("stopped, and still approved: %s", a.body)
		}
	}

	// One item of it.
	for i, c := range []struct {
		by     *caller
		status int
	}{{first, 200}, {third, 200}, {staff, 200}, {operator, 200}, {other, 404}, {reader, 403}, {auditor, 403}} {
		d := s.approved(first, second, fmt.Sprint("item ", i))
		item := ask[int64](s, `SELECT id FROM work_items WHERE deletion_request_id = $1`, d.ID)
		if a := c.by.do("POST", fmt.Sprintf("/api/v1/items/%d/cancel", item), `{"reason": "a mistake"}`); c.by == other && a.status != 404 || c.by != other && a.status != c.status {
			t.Errorf("%s cancels the item: %d %s, want %d", c.by.person.Email, a.status, a.body, c.status)
		}
		if c.status != 200 {
			staff.wants(200, "POST", fmt.Sprintf("/api/v1/deletions/%d/cancel", d.ID), nil)
		}
	}
	ingest := ask[int64](s, `INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date) SELECT id, 'Ingest', 'Receive', 'x.tar', receiving_bucket, 'e', 1, now()
		FROM institutions WHERE identifier = 'test.edu' RETURNING id`)
	if a := first.do("POST", fmt.Sprintf("/api/v1/items/%d/cancel", ingest), `{}`); a.status != 403 {
		t.Errorf("an institutional admin cancels an ingest: %d %s", a.status, a.body)
	}
}

// An institution's own admin makes the wait of its deletions longer, and only staff shorter.
func TestWaitOfDeletionsIsAPolicy(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.exec(`UPDATE request_settings SET deletion_wait = '24 hours'`)
	admin, staff := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu"), s.in("staff@archive.org", registry.RoleAdmin, "")
	at := fmt.Sprint("/api/v1/institutions/", s.test.ID)
	for _, c := range []struct {
		by     *caller
		hours  float64
		status int
	}{
		{admin, 23, 409},
		{admin, 24, 200},
		{admin, 48.5, 200},
		{admin, 48, 409},
		{admin, -1, 409},
		{admin, 2161, 400},
		{staff, 12, 200},
		{admin, -1, 200},
		{staff, 0, 200},
		{admin, 1, 200},
	} {
		if a := c.by.do("PATCH", at, map[string]any{"deletion_wait_hours": c.hours}); a.status != c.status {
			t.Errorf("%s sets %v hours: %d %s, want %d", c.by.person.Email, c.hours, a.status, a.body, c.status)
		}
	}
	if a := admin.wants(200, "GET", at, nil); !strings.Contains(a.body, `"deletion_wait_hours":1,`) {
		t.Errorf("it is %s", a.body)
	}
	var now record.Settings
	staff.reads(staff.wants(200, "PATCH", "/api/v1/settings/requests", map[string]any{"deletion_wait_hours": 36}), &now)
	if now.Wait != 36 || now.Cap != "100.00" {
		t.Errorf("settings = %+v", now)
	}
}
