package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// page is an answer with a list.
type page struct {
	Items []struct {
		ID          int64          `json:"id"`
		Subject     string         `json:"subject"`
		Operation   string         `json:"operation"`
		Actor       string         `json:"actor"`
		SubjectID   string         `json:"subject_id"`
		Institution string         `json:"institution_identifier"`
		IP          string         `json:"ip"`
		ReadAt      *time.Time     `json:"read_at"`
		Detail      map[string]any `json:"detail"`
	}
	Next  *string
	Count struct{ Value int }
}

// all reads a list to its end, by pages of a few rows.
func (c *caller) all(path string, filter ...string) (p page) {
	c.s.t.Helper()
	q := url.Values{"limit": {"2"}}
	for i := 0; i < len(filter); i += 2 {
		q.Set(filter[i], filter[i+1])
	}
	for next := path + "?" + q.Encode(); next != ""; {
		var one page
		c.reads(c.wants(http.StatusOK, "GET", next, nil), &one)
		p.Items = append(p.Items, one.Items...)
		next = ""
		if one.Next != nil {
			next = *one.Next
		}
	}
	return p
}

func (p page) subjects() string {
	var list []string
	for _, i := range p.Items {
		list = append(list, i.Subject)
	}
	return strings.Join(list, " ")
}

func (s *site) alert(subject string, institution record.Institution, user int64) int64 {
	s.t.Helper()
	return ask[int64](s, `INSERT INTO alerts (type, subject, content, institution_id, user_id) VALUES ('Item Failed', $1, 'c', nullif($2, 0::bigint), nullif($3, 0::bigint)) RETURNING id`,
		subject, institution.ID, user)
}

// Each person has the alerts of the institution, or of the staff, and those that are for
// nobody else, as new until they are read.
func TestAlertsAreForThosePeople(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ann, bob := s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu"), s.in("bob@test.edu", registry.RoleInstitutionalUser, "test.edu")
	eve, auditor := s.in("eve@other.edu", registry.RoleInstitutionalAdmin, "other.edu"), s.in("auditor@test.edu", registry.RoleAuditor, "test.edu")
	operator, staff := s.in("operator@archive.org", registry.RoleOperator, ""), s.in("staff@archive.org", registry.RoleAdmin, "")
	program := ann.program("alerts.read")
	s.exec(`DELETE FROM alerts`)
	none := record.Institution{}
	s.alert("t1", s.test, 0)
	hers := s.alert("ann", none, ann.person.ID)
	foreign := s.alert("o1", s.other, 0)
	s.alert("bobs", s.test, bob.person.ID)
	s.alert("staff", none, 0)
	s.alert("t2", s.test, 0)
	s.alert("staffs", none, staff.person.ID)
	for name, tc := range map[string]struct {
		c    *caller
		want string
	}{
		"a person":  {ann, "t2 ann t1"},
		"another":   {bob, "t2 bobs t1"},
		"eve":       {eve, "o1"},
		"auditor":   {auditor, "t2 t1"},
		"operator":  {operator, "staff"},
		"staff":     {staff, "staffs t2 staff o1 t1"},
		"a program": {program, "t2 ann t1"},
	} {
		if got := tc.c.all("/api/v1/alerts").subjects(); got != tc.want {
			t.Errorf("%s reads %q, want %q", name, got, tc.want)
		}
	}
	if got := ann.all("/api/v1/alerts", "institution", "other.edu").subjects() + staff.all("/api/v1/alerts", "institution", "other.edu").subjects(); got != "o1" {
		t.Errorf("of the other institution: %q", got)
	}
	if got := staff.all("/api/v1/alerts", "type", "Token Made").subjects(); got != "" {
		t.Errorf("of another type: %q", got)
	}

	// What is not hers is not marked, and answered as what does not exist.
	not := ann.wants(200, "POST", "/api/v1/alerts/read", map[string]any{"ids": []int64{foreign}})
	if nothing := ann.wants(200, "POST", "/api/v1/alerts/read", map[string]any{"ids": []int64{999999}}); not.body != nothing.body {
		t.Errorf("%s and %s say what there is", not.body, nothing.body)
	}
	if a := ann.wants(200, "POST", "/api/v1/alerts/read", map[string]any{"ids": []int64{hers, foreign, hers}}); a.body != `{"read":1}`+"\n" {
		t.Error(a.body)
	}
	if a := operator.wants(200, "POST", "/api/v1/alerts/read", map[string]any{"before": time.Now().Add(time.Hour)}); a.body != `{"read":1}`+"\n" {
		t.Errorf("an operator has read %s", a.body)
	}
	if got := ann.all("/api/v1/alerts", "unread", "true").subjects() + " " + bob.all("/api/v1/alerts", "unread", "true").subjects(); got != "t2 t1 t2 bobs t1" {
		t.Errorf("unread: %q", got)
	}
	for _, i := range ann.all("/api/v1/alerts").Items {
		if (i.ReadAt != nil) != (i.ID == hers) {
			t.Errorf("%s was read at %v", i.Subject, i.ReadAt)
		}
	}
	bob.wants(200, "POST", "/api/v1/alerts/read", map[string]any{"before": time.Now().Add(time.Hour)})
	if n := ask[int](s, `SELECT count(*) FROM alert_reads WHERE user_id = $1`, bob.person.ID); n != 3 {
		t.Errorf("bob has read %d", n)
	}
	s.exec(`UPDATE alerts SET created_at = now() - interval '2 days' WHERE subject = 't1'`)
	since, before := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), time.Now().Add(-24*time.Hour).UTC().Format(time.RFC3339)
	if got := bob.all("/api/v1/alerts", "since", since).subjects() + "," + bob.all("/api/v1/alerts", "before", before).subjects(); got != "t2 bobs,t1" {
		t.Errorf("in windows: %q", got)
	}
	for _, wrong := range []any{map[string]any{}, map[string]any{"ids": []int64{1}, "before": time.Now()}, map[string]any{"id": 1}, `{"ids": ["x"]}`} {
		if a := ann.do("POST", "/api/v1/alerts/read", wrong); a.status != 400 {
			t.Errorf("%v: %d %s", wrong, a.status, a.body)
		}
	}
	first := ann.wants(200, "GET", "/api/v1/alerts?limit=1&count=true", nil)
	var p page
	ann.reads(first, &p)
	if p.Count.Value != 3 || p.Next == nil {
		t.Fatal(first.body)
	}
	if a := bob.do("GET", *p.Next, nil); a.status != 400 {
		t.Errorf("the cursor of another person: %d %s", a.status, a.body)
	}
}

// The token of a service is no person: it lists, and reads nothing.
func TestServiceReadsNoAlerts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	staff := s.in("staff@archive.org", registry.RoleAdmin, "")
	s.exec(`DELETE FROM alerts`)
	s.alert("t1", s.test, 0)
	s.alert("o1", s.other, 0)
	s.alert("staffs", record.Institution{}, staff.person.ID)
	service := s.serviceBy(staff, map[string]any{"name": "dashboard", "institution_identifier": "test.edu", "permissions": []string{"alerts.read"}})
	if got := service.all("/api/v1/alerts").subjects(); got != "t1" {
		t.Errorf("it reads %q", got)
	}
	if a := service.do("GET", "/api/v1/alerts?unread=true", nil); a.status != 400 {
		t.Errorf("unread: %d %s", a.status, a.body)
	}
	if a := service.do("POST", "/api/v1/alerts/read", map[string]any{"ids": []int64{1}}); a.status != 403 {
		t.Errorf("it marks: %d %s", a.status, a.body)
	}
}

// An institution has what its people did, and what others did to its records.
func TestActionsAreInTheirScope(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	admin, eve := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu"), s.in("eve@other.edu", registry.RoleInstitutionalAdmin, "other.edu")
	operator, staff := s.in("operator@archive.org", registry.RoleOperator, ""), s.in("staff@archive.org", registry.RoleAdmin, "")
	auditor := s.in("auditor@archive.org", registry.RoleAuditor, "")
	for i := range 3 {
		admin.wants(201, "POST", "/api/v1/users", map[string]any{"email": fmt.Sprint("new", i, "@test.edu"), "name": "New Person", "role": registry.RoleInstitutionalUser})
	}
	staff.wants(200, "PATCH", fmt.Sprint("/api/v1/institutions/", s.test.ID), map[string]any{"spot_restore_days": 7})
	staff.wants(200, "PATCH", fmt.Sprint("/api/v1/institutions/", s.other.ID), map[string]any{"spot_restore_days": 7})
	s.exec(`SELECT note_action('items.cancel', 'item', '7', $1, 'done')`, s.other.ID)
	s.exec(`SELECT note_action('fixity.check', 'stage', 'Store', NULL, 'done')`)
	admin.do("POST", "/api/v1/users/999999/deactivate", nil)

	operations := func(c *caller, filter ...string) string {
		t.Helper()
		var list []string
		for _, i := range c.all("/api/v1/actions", filter...).Items {
			if !strings.HasPrefix(i.Operation, "me.") {
				list = append(list, i.Operation)
			}
		}
		return strings.Join(list, " ")
	}
	for name, tc := range map[string]struct {
		c      *caller
		filter []string
		want   string
	}{
		"an admin":            {admin, nil, "users.deactivate institutions.set users.add users.add users.add"},
		"the other":           {eve, nil, "items.cancel institutions.set"},
		"operators":           {operator, nil, "fixity.check items.cancel"},
		"staff":               {staff, nil, "users.deactivate fixity.check items.cancel institutions.set institutions.set users.add users.add users.add"},
		"an auditor":          {auditor, []string{"operation", "institutions.set"}, "institutions.set institutions.set"},
		"of the other":        {staff, []string{"institution", "other.edu"}, "items.cancel institutions.set"},
		"another's":           {admin, []string{"institution", "other.edu"}, ""},
		"by a person":         {staff, []string{"actor", "admin@test.edu", "operation", "users.add"}, "users.add users.add users.add"},
		"by a person, hers":   {admin, []string{"actor", "staff@archive.org"}, "institutions.set"},
		"by another":          {eve, []string{"actor", "admin@test.edu"}, ""},
		"refused":             {admin, []string{"outcome", "refused"}, "users.deactivate"},
		"to a record":         {staff, []string{"subject_type", "institution", "subject_id", fmt.Sprint(s.test.ID)}, "institutions.set"},
		"to another's record": {admin, []string{"subject_type", "institution", "subject_id", fmt.Sprint(s.other.ID)}, ""},
		"in a window":         {staff, []string{"since", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339), "operation", "items.cancel"}, "items.cancel"},
		"in an earlier one":   {staff, []string{"before", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339)}, ""},
	} {
		if got := operations(tc.c, tc.filter...); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	for _, i := range admin.all("/api/v1/actions").Items {
		if own := strings.HasSuffix(i.Actor, "@test.edu"); (i.IP != "") != own {
			t.Errorf("%s by %s came from %q", i.Operation, i.Actor, i.IP)
		}
	}
	if a := admin.do("GET", "/api/v1/actions?subject_id=7", nil); a.status != 409 && a.status != 400 {
		t.Errorf("a subject without its type: %d %s", a.status, a.body)
	}

	// People move; what they did stays with the institution in whose name they did it.
	s.exec(`UPDATE users SET institution_id = $1 WHERE email = 'admin@test.edu'`, s.other.ID)
	if got := operations(eve, "operation", "users.add"); got != "" {
		t.Errorf("with the person the actions have moved: %q", got)
	}
	seen := map[int64]bool{}
	for _, i := range staff.all("/api/v1/actions").Items {
		if seen[i.ID] {
			t.Errorf("action %d is there twice", i.ID)
		}
		seen[i.ID] = true
	}
	if n := ask[int](s, `SELECT count(*) FROM actions`); n != len(seen) {
		t.Errorf("%d of %d actions are on the pages", len(seen), n)
	}
}
