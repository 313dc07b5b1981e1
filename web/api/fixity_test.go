package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// spoil has every copy known to be bad.
func (s *site) spoil() {
	s.t.Helper()
	s.spoiled(s.test)
	s.spoiled(s.other)
}

// spoiled has the copies of an institution known to be bad.
func (s *site) spoiled(in record.Institution) {
	s.t.Helper()
	s.exec(`INSERT INTO fixity_failures (storage_record_id, generic_file_id, target, provider, url, problem, algorithm, expected, found, found_at, seen_at, quarantined_as)
		SELECT r.id, f.id, target, 'AWS', url, 'altered', 'sha256', 'x', 'y', now(), now(), 'quarantine/' || r.id
		FROM storage_records r JOIN generic_files f ON f.id = generic_file_id WHERE f.institution_id = $1 ORDER BY r.id`, in.ID)
}

// The status of fixity checks, and the bad copies, are those of the caller's institution.
func TestFixityIsShownByScope(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	s.spoil()
	s.exec(`UPDATE storage_records SET fixity_since = now() - interval '100 days' WHERE generic_file_id IN (SELECT id FROM generic_files WHERE institution_id = $1)`, s.test.ID)
	own, staff := s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu"), s.in("staff@archive.org", registry.RoleAdmin, "")
	type status struct {
		Age         *float64 `json:"age_seconds"`
		Institution *struct {
			Bad     int64 `json:"bad_copies"`
			Counted bool  `json:"copies_are_counted"`
			Targets []struct {
				Target, Mode    string
				Days            int
				Copies, Overdue *int64
			}
		}
		Archive *struct {
			Copies, Overdue int64
			Bad             int64 `json:"bad_copies"`
			Worst           []any `json:"most_overdue"`
		}
	}
	var v status
	a := own.wants(200, "GET", "/api/v1/fixity", nil)
	own.reads(a, &v)
	if v.Archive != nil || v.Institution == nil || v.Institution.Bad != 1 || !v.Institution.Counted || v.Age == nil || strings.Contains(a.body, "other.edu") {
		t.Fatal(a.body)
	}
	for _, target := range v.Institution.Targets {
		want := int64(0)
		if target.Target == "Standard-VA" {
			want = 1
		}
		if *target.Copies != want || (target.Mode == "off") != (target.Overdue == nil) || target.Overdue != nil && *target.Overdue != want || target.Days != 90 {
			t.Errorf("%s: %s", target.Target, a.body)
		}
	}
	v = status{}
	a = staff.wants(200, "GET", "/api/v1/fixity", nil)
	staff.reads(a, &v)
	if v.Institution != nil || v.Archive == nil || v.Archive.Copies != 2 || v.Archive.Overdue != 1 || v.Archive.Bad != 2 || len(v.Archive.Worst) != 1 {
		t.Error(a.body)
	}
	bad := own.wants(200, "GET", "/api/v1/fixity/bad", nil)
	if !strings.Contains(bad.body, `"institution":"test.edu"`) || strings.Contains(bad.body, "other.edu") || strings.Contains(bad.body, "quarantine/") || strings.Count(bad.body, `"failure"`) != 1 {
		t.Error(bad.body)
	}
	none := own.wants(200, "GET", "/api/v1/fixity/bad?institution=nothing.edu", nil)
	if theirs := own.wants(200, "GET", "/api/v1/fixity/bad?institution=other.edu", nil); theirs.body != none.body || !strings.Contains(none.body, `"items":[]`) {
		t.Errorf("of another: %s, of nothing: %s", theirs.body, none.body)
	}
	var page struct {
		Items []struct{ File string }
		Next  *string
	}
	staff.reads(staff.wants(200, "GET", "/api/v1/fixity/bad?limit=1", nil), &page)
	if page.Next == nil || len(page.Items) != 1 || page.Items[0].File != "test.edu/bag/data/f" {
		t.Fatalf("%+v", page)
	}
	if a := staff.wants(200, "GET", *page.Next, nil); !strings.Contains(a.body, "other.edu/bag/data/f") || !strings.Contains(a.body, `"next":null`) || !strings.Contains(a.body, "quarantine/") {
		t.Error(a.body)
	}
}

// Copies are checked of what there is; the mode and the days of a target are changed by
// staff.
func TestFixityIsDecidedAbout(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.stock()
	o, staff := s.in("operator@archive.org", registry.RoleOperator, ""), s.in("staff@archive.org", registry.RoleAdmin, "")
	own, colleague := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu"), s.in("colleague@archive.org", registry.RoleAdmin, "")
	if a := own.wants(202, "POST", "/api/v1/fixity/checks", `{"identifier": "test.edu/bag"}`); !strings.Contains(a.body, `"copies":1`) {
		t.Error(a.body)
	}
	if n := ask[int](s, `SELECT count(*) FROM fixity_checks WHERE requested`); n != 1 {
		t.Errorf("%d checks are requested", n)
	}
	for body, status := range map[string]int{
		`{"identifier": "test.edu/nothing"}`:                     404,
		`{"identifier": "test.edu/bag", "target": "Glacier-OH"}`: 409,
		`{"identifier": "test.edu/bag", "target": "Nowhere"}`:    409,
		`{"identifier": ""}`:                                     400,
		`{}`:                                                     400,
		`{"identifier": "a\u0000b"}`:                             409,
	} {
		if a := colleague.do("POST", "/api/v1/fixity/checks", body); a.status != status || strings.Contains(a.body, "SQLSTATE") {
			t.Errorf("%s: %d %s, want %d", body, a.status, a.body, status)
		}
	}
	theirs, none := own.do("POST", "/api/v1/fixity/checks", `{"identifier": "other.edu/bag"}`), own.do("POST", "/api/v1/fixity/checks", `{"identifier": "none.edu/bag"}`)
	if theirs.status != 404 || theirs.body != none.body {
		t.Errorf("copies of another: %d %s, of nothing: %s", theirs.status, theirs.body, none.body)
	}
	const at = "/api/v1/fixity/policies/Wasabi-VA"
	if a := o.do("PUT", at, `{"mode": "off", "days": null}`); a.status != 403 {
		t.Errorf("an operator sets a policy: %d", a.status)
	}
	if a := staff.wants(200, "PUT", at, `{"mode": "report", "days": 30}`); !strings.Contains(a.body, `"mode":"report","days":30`) {
		t.Error(a.body)
	}
	if a := staff.wants(200, "PUT", at, `{"mode": "read", "days": null}`); !strings.Contains(a.body, `"mode":"read","days":null`) {
		t.Error(a.body)
	}
	if a := o.wants(200, "GET", "/api/v1/fixity/policies", nil); !strings.Contains(a.body, `"target":"Wasabi-VA","provider":"Wasabi-VA","mode":"read","days":null`) {
		t.Error(a.body)
	}
	for body, status := range map[string]int{`{"mode": "read"}`: 400, `{"mode": "never", "days": null}`: 400, `{"mode": "read", "days": 0}`: 400, `{"mode": "read", "days": 3651}`: 400} {
		if a := staff.do("PUT", at, body); a.status != status {
			t.Errorf("%s: %d %s, want %d", body, a.status, a.body, status)
		}
	}
	if a := staff.do("PUT", "/api/v1/fixity/policies/Nowhere", `{"mode": "read", "days": null}`); a.status != 404 {
		t.Errorf("nowhere: %d %s", a.status, a.body)
	}
	s.onRecord("fixity.set_policy done Wasabi-VA, fixity.set_policy done Wasabi-VA, fixity.set_policy refused Nowhere", "staff@archive.org")
	if got := ask[string](s, `SELECT detail->>'mode' || ' ' || (detail->>'days') FROM actions WHERE operation = 'fixity.set_policy' AND outcome = 'done' ORDER BY id LIMIT 1`); got != "report 30" {
		t.Errorf("the detail is %s", got)
	}
}

// service is a program with a token that is nobody's; "" is of no institution.
func (s *site) service(institution string, permissions ...string) *caller {
	s.t.Helper()
	_, secret, err := s.registry.AddToken(s.t.Context(), record.Token{Name: "service", Institution: institution, Permissions: permissions})
	if err != nil {
		s.t.Fatal(err)
	}
	p := s.browser()
	p.token = secret
	return p
}

// Repair that has stopped goes on when an admin says so, by name.
func TestBrakes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.exec(`INSERT INTO repair_stops (provider, reason) VALUES ('Wasabi-VA', '12 copies failed')`)
	o, u, staff := s.in("operator@archive.org", registry.RoleOperator, ""), s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu"), s.in("staff@archive.org", registry.RoleAdmin, "")
	if a := o.wants(200, "GET", "/api/v1/brakes", nil); !strings.Contains(a.body, "12 copies failed") {
		t.Error(a.body)
	}
	if a := u.wants(200, "GET", "/api/v1/brakes", nil); !strings.Contains(a.body, `"provider":"Wasabi-VA"`) || strings.Contains(a.body, "copies failed") {
		t.Error(a.body)
	}
	for _, c := range []*caller{o, u} {
		if a := c.do("POST", "/api/v1/brakes/Wasabi-VA/release", nil); a.status != 403 {
			t.Errorf("%s: %d", c.person.Email, a.status)
		}
	}
	if a := s.service("", "repair.release").do("POST", "/api/v1/brakes/Wasabi-VA/release", nil); a.status != 403 || !strings.Contains(a.text("detail"), "a person decides it") {
		t.Errorf("a service: %d %s", a.status, a.body)
	}
	staff.wants(204, "POST", "/api/v1/brakes/Wasabi-VA/release", nil)
	if a := staff.do("POST", "/api/v1/brakes/Wasabi-VA/release", nil); a.status != 404 {
		t.Errorf("again: %d %s", a.status, a.body)
	}
	if got := ask[string](s, `SELECT u.email FROM repair_stops r JOIN users u ON u.id = r.released_by`); got != "staff@archive.org" {
		t.Errorf("it was released by %s", got)
	}
	s.onRecord(fmt.Sprintf("repair.release done %[1]s, repair.release refused %[1]s", "Wasabi-VA"), "staff@archive.org")
}

// What is for commands with the registry's own URL is refused over the network, of staff too.
func TestPartsForTheOperatorOfTheRegistryAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	staff := s.in("staff@archive.org", registry.RoleAdmin, "")
	for _, path := range []string{"/api/v1/objects?newer=1", "/api/v1/fixity?worst=11", "/api/v1/fixity?worst=0"} {
		if a := staff.wants(403, "GET", path, nil); !strings.Contains(a.body, "is for commands with the registry's own URL") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	staff.wants(200, "GET", "/api/v1/fixity?worst=10", nil)
	staff.wants(403, "POST", "/api/v1/restorations/quote", map[string]any{"object": "test.edu/bag", "priority": -1})
	staff.wants(404, "POST", "/api/v1/deletions/1/approve/check", nil)
}
