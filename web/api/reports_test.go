package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/registry"
)

// counted are sums of two institutions, with prices, as the job would have counted them.
func (s *site) counted() {
	s.t.Helper()
	s.exec(`UPDATE storage_options SET per_gib_month = 2 WHERE name = 'Standard'`)
	s.exec(`INSERT INTO holdings_daily (day, institution_id, storage_option, objects, files, bytes) VALUES
		((now() AT TIME ZONE 'UTC')::date, $1, 'Standard', 3, 5, 1073741824), ((now() AT TIME ZONE 'UTC')::date, $2, 'Wasabi-OR', 7, 9, 2147483648)`, s.test.ID, s.other.ID)
	s.exec(`INSERT INTO daily_outcomes (day, institution_id, action, result, items, bytes) VALUES
		((now() AT TIME ZONE 'UTC')::date, $1, 'Ingest', 'Success', 4, 44), ((now() AT TIME ZONE 'UTC')::date, $2, 'Ingest', 'Success', 8, 88)`, s.test.ID, s.other.ID)
}

// report is what the tests read of any report.
type report struct {
	By, Month string
	Items     []struct {
		Key, Institution      string
		Cost                  *string
		Objects, Files, Items int64
	}
}

// A member sees the sums of the own institution, and staff those of all; what another one
// has is answered as what does not exist.
func TestReportsAreOfTheScope(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.counted()
	staff, auditor, member := s.in("s@archive.org", registry.RoleAdmin, ""), s.in("r@other.edu", registry.RoleAuditor, "other.edu"), s.in("u@test.edu", registry.RoleInstitutionalUser, "test.edu")
	get := func(c *caller, path string) (r report) {
		c.reads(c.wants(http.StatusOK, "GET", "/api/v1/reports/"+path, nil), &r)
		return r
	}
	if r := get(staff, "deposits"); len(r.Items) != 2 || r.By != "institution" || r.Items[1].Key != "test.edu" || r.Items[1].Files != 5 {
		t.Errorf("staff: %+v", r)
	}
	if r := get(member, "deposits?by=option"); len(r.Items) != 1 || r.Items[0].Key != "Standard" || r.Items[0].Objects != 3 {
		t.Errorf("a member: %+v", r)
	}
	if r := get(auditor, "outcomes?by=institution"); len(r.Items) != 1 || r.Items[0].Key != "other.edu" || r.Items[0].Items != 8 {
		t.Errorf("an auditor: %+v", r)
	}
	if r := get(staff, "costs"); len(r.Items) != 2 || r.Items[0].Cost != nil || r.Items[1].Cost == nil || *r.Items[1].Cost != "2.00" {
		t.Errorf("costs: %+v", r)
	}
	if r := get(auditor, "costs"); len(r.Items) != 1 || r.Items[0].Institution != "other.edu" {
		t.Errorf("costs for an auditor: %+v", r)
	}
	if r := get(staff, "costs?month=2020-01"); len(r.Items) != 0 || r.Month != "2020-01" {
		t.Errorf("costs of another month: %+v", r)
	}
	if r := get(staff, "outcomes?to=0001-01-02"); len(r.Items) != 0 {
		t.Errorf("the first days: %+v", r)
	}
	others := member.wants(http.StatusOK, "GET", "/api/v1/reports/deposits?institution=other.edu", nil)
	nobodys := member.wants(http.StatusOK, "GET", "/api/v1/reports/deposits?institution=nobody.edu", nil)
	if others.body != nobodys.body {
		t.Errorf("%s for another institution, and %s for none", others.body, nobodys.body)
	}
	for _, path := range []string{
		"deposits?by=action", "deposits?months=0", "deposits?by=month&months=1000", "costs?month=2026-13", "costs?month=2026", "outcomes?from=yesterday", "outcomes?from=2026-02-02&to=2026-02-01", "outcomes?from=2026-02-30",
		"costs?month=0000-12", "outcomes?from=0000-12-31", "outcomes?to=0000-12-31",
	} {
		if a := staff.wants(http.StatusBadRequest, "GET", "/api/v1/reports/"+path, nil); a.code() != "bad-request" {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

// Costs are for staff and auditors, and for admins of institutions where the setting says so.
func TestMemberCosts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.counted()
	admin, user := s.in("a@test.edu", registry.RoleInstitutionalAdmin, "test.edu"), s.in("u@test.edu", registry.RoleInstitutionalUser, "test.edu")
	for _, c := range []*caller{admin, user} {
		if a := c.wants(http.StatusForbidden, "GET", "/api/v1/reports/costs", nil); a.code() != "not-allowed" {
			t.Errorf("switched off: %s", a.body)
		}
	}
	s.api.Web.Costs, s.api.Web.Tokens.Costs = true, true
	program, without := admin.program("reports.costs"), admin.program("reports.deposits")
	for _, c := range []*caller{admin, program} {
		var r report
		if c.reads(c.wants(http.StatusOK, "GET", "/api/v1/reports/costs", nil), &r); len(r.Items) != 1 || r.Items[0].Institution != "test.edu" {
			t.Errorf("switched on: %+v", r)
		}
	}
	for _, c := range []*caller{user, without} {
		c.wants(http.StatusForbidden, "GET", "/api/v1/reports/costs", nil)
	}
}

// A report is a table for spreadsheets, too, and no cell of it is a formula. What is no
// report is JSON, whatever was asked for.
func TestReportsAreTables(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.counted()
	staff := s.in("s@archive.org", registry.RoleAdmin, "")
	table := func(path string) answer {
		a := staff.wants(http.StatusOK, "GET", "/api/v1/reports/"+path, nil, "Accept", "text/csv")
		if !strings.HasPrefix(a.header.Get("Content-Type"), "text/csv") {
			t.Errorf("%s is %s", path, a.header.Get("Content-Type"))
		}
		return a
	}
	if a := table("deposits?by=option"); !strings.HasPrefix(a.body, "option,day,objects,files,bytes\nStandard,") || !strings.HasSuffix(a.body, ",7,9,2147483648\n") {
		t.Error(a.body)
	}
	if a := table("costs?institution=test.edu"); !strings.HasPrefix(a.body, "institution,storage_option,month,days,bytes,included_tib,per_gib_month,cost\ntest.edu,Standard,") ||
		!strings.HasSuffix(a.body, ",1,1073741824,,2.000000,2.00\n") {
		t.Error(a.body)
	}
	s.exec(`UPDATE daily_outcomes SET action = '=HYPERLINK("x")' WHERE items = 8`)
	if a := table("outcomes"); a.body != "action,result,items,bytes\n\"'=HYPERLINK(\"\"x\"\")\",Success,8,88\nIngest,Success,4,44\n" {
		t.Error(a.body)
	}
	if a := staff.wants(http.StatusBadRequest, "GET", "/api/v1/reports/deposits?by=x", nil, "Accept", "text/csv"); a.code() != "bad-request" {
		t.Errorf("a problem: %s", a.body)
	}
	if a := staff.wants(http.StatusOK, "GET", "/api/v1/me", nil, "Accept", "text/csv"); a.text("email") != "s@archive.org" {
		t.Errorf("what is no table: %s", a.body)
	}
}
