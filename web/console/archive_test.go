package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/registry"
)

// kept has a file with a bad copy, an institution that was counted, and other records of what
// is kept. The name of the file is hostile.
func (s *site) kept() {
	s.t.Helper()
	s.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, access, bag_name, etag, storage_option, bagit_profile_identifier)
		VALUES ($1, 'test.edu/bag', 'Bag', 'institution', 'bag', 'e', 'Standard', 'p')`, s.test.ID)
	s.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
		SELECT institution_id, id, identifier || '/data/<script>f' || chr(8238), gen_random_uuid(), 'text/plain', 2048, storage_option, now() FROM intellectual_objects`)
	s.exec(`INSERT INTO holdings_daily (day, institution_id, storage_option, objects, files, bytes) VALUES ((now() AT TIME ZONE 'UTC')::date, $1, 'Standard', 3, 1234, 1073741824)`, s.test.ID)
	s.exec(`INSERT INTO daily_outcomes (day, institution_id, action, result, items, bytes) VALUES ((now() AT TIME ZONE 'UTC')::date, $1, 'Ingest', 'Failed', 77, 1)`, s.test.ID)
	s.exec(`UPDATE storage_options SET per_gib_month = 0.5 WHERE name = 'Standard'`)
	s.exec(`INSERT INTO repair_stops (provider, reason) VALUES ('Wasabi-VA', 'twelve copies failed')`)
}

// The pages show what is on record to those who may see it, and their forms do what they say.
func TestPagesOfTheArchive(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.kept()
	admin, auditor, member := s.in(registry.RoleAdmin, ""), s.in(registry.RoleAuditor, "test.edu"), s.in(registry.RoleInstitutionalUser, "test.edu")
	stays := s.in(registry.RoleInstitutionalAdmin, "other.edu")

	a := admin.sees("/fixity", "Fixity", "Repair has stopped at Wasabi-VA", "twelve copies failed", "Forecast", "becomes due", "Check now", "Promise of a storage target")
	auditor.sees("/fixity", "Repair has stopped").lacks(t, "twelve copies failed", "Check now", "Promise of a storage target", "Let repair continue")
	form := a.form(t, "brakes.release")
	admin.send("/do/brakes.release", form).shows(t, "Done: let repair continue at a provider: Wasabi-VA")
	if n := ask[int](s, `SELECT count(*) FROM repair_stops WHERE released_at IS NULL`); n != 0 {
		t.Errorf("%d stops are left", n)
	}
	form = a.form(t, "fixity.set_policy")
	form.Set("target", "Wasabi-VA")
	form.Set("mode", "report")
	admin.send("/do/fixity.set_policy", form).shows(t, "Done: set how often")
	if mode := ask[string](s, `SELECT mode || coalesce(interval_days, 0) FROM fixity_policies WHERE target = 'Wasabi-VA'`); mode != "report0" {
		t.Errorf("the policy is %s", mode)
	}
	form = a.form(t, "fixity.check")
	form.Set("identifier", "test.edu/nothing")
	admin.send("/do/fixity.check", form).shows(t, "Not done", "There is no such record")

	admin.sees("/reports", "test.edu", "1,234", "1.0 GiB", "77", "Costs of", "0.50")
	auditor.sees("/reports", "1,234")
	member.sees("/reports", "1,234").lacks(t, "Costs")
	stays.sees("/reports").lacks(t, "1,234", "test.edu")
	auditor.sees("/audit", "In storage on a day")
	auditor.sees("/reports?on=2020-01-01", "Nothing was counted until 2020-01-01").lacks(t, "1,234")
	auditor.sees("/reports?on=2999-01-01", "As counted last until 2999-01-01", "1,234")
	auditor.sees("/reports/statement", "For test.edu", "1,073,741,824", "77", "Sum of the costs")
	c := admin.open("/csv/reports/deposits?by=institution")
	if c.status != http.StatusOK || !strings.HasPrefix(c.header.Get("Content-Type"), "text/csv") || !strings.Contains(c.text, ",3,1234,1073741824") {
		t.Errorf("%d %v %s", c.status, c.header, c.text)
	}
	if c := stays.open("/csv/reports/deposits"); strings.Contains(c.text, "1234") {
		t.Error(c.text)
	}
	if c := stays.open("/csv/reports/../me"); c.status != http.StatusNotFound {
		t.Errorf("another operation: %d %s", c.status, c.text)
	}

	d := auditor.sees("/audit/sample?seed=x", `test.edu/bag/data/<script>f\u202e`, "1 files", "Draw it again")
	if strings.Contains(d.text, "<script>f") || strings.Contains(d.text, "\u202e") {
		t.Error("a name is markup")
	}
	stays.sees("/audit/sample?seed=x", "There are no files").lacks(t, "test.edu/bag")
	admin.sees("/audit", "repair.release", "Wasabi-VA", "fixity.set_policy", admin.person.Email)
	admin.sees("/audit?operation=fixity.set_policy&since=2020-01-01", "fixity.set_policy").lacks(t, "repair.release")
	s.exec(`INSERT INTO actions (at, actor, operation, outcome) SELECT now() - n * interval '1 day', 'ann' || n, 'users.set', 'done' FROM generate_series(1, 90) n, generate_series(1, 2)`)
	last := admin.sees("/audit?operation=users.set", "Of the last 31 days", "ann1", "ann25") // there is more, of the same days
	next, _, _ := strings.Cut(last.text[strings.LastIndex(last.text, `href="/audit?after=`)+6:], `"`)
	admin.sees(strings.ReplaceAll(next, "&amp;", "&"), "ann26", "ann30").lacks(t, "ann33", "nothing more")
	admin.sees("/audit?operation=users.set&since=2020-01-01", "ann1").lacks(t, "Of the last 31 days")
	if a := member.open("/audit"); a.status != http.StatusForbidden {
		t.Errorf("a member opens the audit: %d", a.status)
	}
	e := auditor.sees("/exports", "No exports yet", "Evidence pack")
	member.sees("/exports").lacks(t, "Evidence pack")
	form = e.form(t, "exports.make")
	form.Set("kind", "evidence")
	form.Set("scope.object", "test.edu/bag")
	auditor.send("/do/exports.make", form).shows(t, "test.edu/bag", "not downloaded yet", "Download")
	form.Set("scope.object", "other.edu/bag")
	auditor.send("/do/exports.make", form).shows(t, "Not done")
	if n := ask[int](s, `SELECT count(*) FROM exports`); n != 1 {
		t.Errorf("%d exports", n)
	}
}

// A list of items is saved with the filters of its page, and no cell runs in a spreadsheet.
func TestItemsAreSavedAsATable(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.item("=cmd|'/c calc'!A1.tar", "status = 'Failed'")
	s.item("plain.tar", "")
	admin, stays := s.in(registry.RoleAdmin, ""), s.in(registry.RoleInstitutionalUser, "other.edu")
	a := admin.open("/items.csv")
	if a.status != http.StatusOK || !strings.Contains(a.text, "'=cmd") || !strings.Contains(a.text, "plain.tar") || strings.Count(a.text, "\n") != 3 {
		t.Errorf("%d %s", a.status, a.text)
	}
	if a := admin.open("/items.csv?" + url.Values{"error_code": {"by-hand"}, "status": {"Failed"}}.Encode()); strings.Contains(a.text, "plain.tar") || !strings.Contains(a.text, "by-hand") {
		t.Error(a.text)
	}
	for tab, has := range map[string]bool{"failed": true, "review": true, "live": false, "ended": false} {
		page := admin.open("/items?tab=" + tab + "&error_code=by-hand")
		if a := admin.open("/items.csv?error_code=by-hand&tab=" + tab); strings.Contains(a.text, "by-hand") != has || has && !strings.Contains(page.text, `href="/items.csv?error_code=by-hand&amp;tab=`+tab+`"`) {
			t.Errorf("the tab %s as a table: %s", tab, a.text)
		}
	}
	if a := admin.open("/items.csv?tab=review"); strings.Contains(a.text, "plain.tar") {
		t.Errorf("what needs no one is in the table of what does: %s", a.text)
	}
	if a := stays.open("/items.csv"); strings.Count(a.text, "\n") != 1 {
		t.Errorf("the items of another: %s", a.text)
	}
	admin.open("/items.csv?updated_after=yesterday").shows(t, "updated_after")
}
