package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/console"
	"github.com/farol-preservation/farol/web/permission"
)

// Every page is for those who hold its permission, and for nobody else; and the list of pages
// has what a person may open, and nothing else.
func TestPagesAreForTheirRoles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.item("one.tar", "")
	for _, role := range []string{registry.RoleInstitutionalUser, registry.RoleInstitutionalAdmin, registry.RoleAuditor, registry.RoleOperator, registry.RoleAdmin} {
		for _, institution := range []string{"test.edu", ""} {
			staff := role == registry.RoleAdmin || role == registry.RoleOperator
			if staff == (institution != "") && role != registry.RoleAuditor {
				continue
			}
			b := s.in(role, institution)
			first := b.open("/items")
			for _, sheet := range console.Sheets() {
				path := strings.TrimSuffix(strings.ReplaceAll(sheet.Path, "{id}", fmt.Sprint(id)), "{$}")
				if strings.Contains(path, "{") {
					continue
				}
				may := (sheet.Needs == "" || has(permission.Of(role, institution != ""), sheet.Needs)) && (!sheet.Staff || institution == "")
				a := b.open(path)
				if refused := a.status == http.StatusForbidden; refused == may || a.status >= 500 && a.status != http.StatusServiceUnavailable {
					t.Errorf("%s of %q opens %s: %d, and may: %v\n%s", role, institution, path, a.status, may, wordsIn(a.text))
				}
				if listed := strings.Contains(first.text, `<li><a href="`+path+`"`); sheet.Nav != "" && listed != may {
					t.Errorf("%s of %q: %s is listed %v, and may %v", role, institution, path, listed, may)
				}
			}
		}
	}
	stranger := s.browser()
	for _, sheet := range console.Sheets() {
		if a := stranger.open(strings.TrimSuffix(strings.ReplaceAll(sheet.Path, "{id}", "1"), "{$}")); a.path != "/sign-in" {
			t.Errorf("%s without signing in leads to %s", sheet.Path, a.path)
		}
	}
}

func has(list []permission.Permission, one permission.Permission) bool {
	for _, p := range list {
		if p == one {
			return true
		}
	}
	return false
}

// What a browser is sent may load nothing from elsewhere and run nothing within the page, and
// stays in no cache.
func TestPagesAreGuarded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.in(registry.RoleAdmin, "")
	a := b.sees("/items", "No items yet")
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		"Cross-Origin-Opener-Policy": "same-origin", "Referrer-Policy": "same-origin", "Permissions-Policy": "camera=()",
	} {
		if got := a.header.Get(name); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if !strings.Contains(a.header.Get("Content-Security-Policy"), "require-trusted-types-for 'script'") {
		t.Error("scripts may make elements of any text")
	}
	b.header.Set("Origin", "https://evil.example")
	if got := b.send("/do/items.cancel", url.Values{"id": {"1"}, "reason": {"x"}}); got.status != http.StatusForbidden {
		t.Errorf("a page of another origin decides: %d", got.status)
	}
	b.header.Del("Origin")
	b.header.Set("Authorization", "Bearer x")
	if got := b.open("/items"); got.status != http.StatusBadRequest {
		t.Errorf("a program gets a page: %d", got.status)
	}
	if got := s.browser().open("/assets/console.js"); got.status != http.StatusOK || len(got.text) > 12<<10 {
		t.Errorf("the script: %d, %d bytes", got.status, len(got.text))
	}
}

// After signing in a person is where they wanted to go, and never elsewhere.
func TestSigningInLeadsBack(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.item("one.tar", "")
	b := s.browser()
	if a := b.open(fmt.Sprintf("/items/%d", id)); a.path != "/sign-in" {
		t.Fatal(a.path)
	}
	b.enters(s.in(registry.RoleAdmin, "").person)
	if b.landed != fmt.Sprintf("/items/%d", id) {
		t.Errorf("signing in leads to %s", b.landed)
	}
	for _, page := range []string{"//evil.example", "https://evil.example/", `/\evil.example`, "javascript:alert(1)"} {
		other := s.browser()
		other.header.Set("Cookie", "farol-next="+url.QueryEscape(page))
		other.enters(b.person)
		if other.landed != "/" {
			t.Errorf("signing in leads to %s", other.landed)
		}
	}
}

// An operation that no page has a form for gets one, with its fields, on the page of the record
// that it is about, for those who may carry it out.
func TestOperationsHaveForms(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	page := fmt.Sprintf("/items/%d", s.item("one.tar", "status = 'Cancelled', retry = false"))
	b := s.in(registry.RoleOperator, "")
	form := b.sees(page, "Add a note to an item", "What colleagues should know").form(t, "items.add_note")
	form.Set("note", "The bag comes again on Monday.")
	b.send("/do/items.add_note", form).shows(t, "Done: add a note to an item")
	b.sees(page, "noted: The bag comes again on Monday.", b.person.Email)
	form.Set("note", "")
	b.send("/do/items.add_note", form).shows(t, "Nothing was changed")
	s.in(registry.RoleInstitutionalUser, "test.edu").open(page).lacks(t, "Add a note to an item")
}

// A form is carried out once, says so, and leads back; what is refused keeps what was typed.
func TestDecisionsAboutAnItem(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.item("one.tar", "status = 'Suspended', needs_admin_review = true")
	page := fmt.Sprintf("/items/%d", id)
	b := s.in(registry.RoleOperator, "")
	a := b.sees(page, "Suspended", "Decide", "From stage", "Receive")

	form := a.form(t, "items.set")
	form.Set("priority", "-7")
	b.send("/do/items.set", form).shows(t, "Done: set the priority", "Undo", fmt.Sprintf("item %d", id))
	if got := ask[int](s, `SELECT priority FROM work_items WHERE id = $1`, id); got != -7 {
		t.Errorf("the priority is %d", got)
	}
	b.open(page).lacks(t, "Done:") // it is said once
	b.send("/do/items.set", url.Values{"id": {fmt.Sprint(id)}, "priority": {"0"}, "back": {page}})

	form.Set("priority", "urgent")
	refused := b.send("/do/items.set", form)
	refused.shows(t, "Nothing was changed", `Priority: "urgent" is no whole number`)
	if refused.status != http.StatusBadRequest || !strings.Contains(refused.text, `value="urgent"`) {
		t.Errorf("%d: what was typed is lost", refused.status)
	}

	form = b.open(page).form(t, "items.requeue")
	form.Set("stage", "Receive")
	b.send("/do/items.requeue", form).shows(t, "Done: requeue an item")
	if got := ask[string](s, `SELECT status FROM work_items WHERE id = $1`, id); got != "Pending" {
		t.Errorf("the item is %s", got)
	}
	s.exec(`UPDATE work_items SET priority = 3 WHERE id = $1`, id) // it is another than on the page
	changed := b.send("/do/items.requeue", form)
	if changed.status != http.StatusPreconditionFailed {
		t.Errorf("a decision on what has changed since: %d", changed.status)
	}

	form = b.open(page).form(t, "items.cancel")
	form.Set("reason", "depositor <b>asked</b>")
	form.Set("back", "https://evil.example/")
	if done := b.send("/do/items.cancel", form); done.path != "/" && done.path != "/items" {
		t.Errorf("a form leads to %s", done.path)
	}
	b.sees(page, "Cancelled", "depositor <b>asked</b>").lacks(t, "Requeue")
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE operation = 'items.cancel' AND outcome = 'done' AND user_id = $1`, b.person.ID); n != 1 {
		t.Errorf("%d cancellations are on record", n)
	}
	member := s.in(registry.RoleInstitutionalUser, "test.edu")
	member.sees(page, "Cancelled").lacks(t, "Decide")
	if a := member.send("/do/items.cancel", form); a.status != http.StatusForbidden {
		t.Errorf("a member cancels: %d", a.status)
	}
	if a := b.send("/do/items.explain", url.Values{"id": {"1"}}); a.status != http.StatusNotFound {
		t.Errorf("a form reads: %d", a.status)
	}
}

// What is another institution's is shown like what there is not.
func TestOthersItemsAreNotThere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.exec(`SELECT setval(pg_get_serial_sequence('work_items', 'id'), 777777)`) // it is in no other text
	id := s.item("secret-plans.tar", "")
	b := s.in(registry.RoleInstitutionalAdmin, "other.edu")
	for _, page := range []string{"/items/%d", "/items/%d/files", "/items/%d/explanation.txt"} {
		there, not := b.open(fmt.Sprintf(page, id)), b.open(fmt.Sprintf(page, 999_999))
		if there.status != http.StatusNotFound || not.status != http.StatusNotFound {
			t.Errorf("%s: %d and %d", page, there.status, not.status)
		}
		if a, b := strings.ReplaceAll(there.text, fmt.Sprint(id), "N"), strings.ReplaceAll(not.text, "999999", "N"); a != b {
			t.Errorf("%s: %s\n%s", page, wordsIn(a), wordsIn(b))
		}
	}
	b.sees("/items").lacks(t, "secret-plans")
	b.sees("/search?q=secret-plans.tar", "Nothing that you may see")
	s.in(registry.RoleInstitutionalUser, "test.edu").sees("/search?q=secret-plans.tar", "secret-plans.tar", "Receive")
}

// hostileNames are what others may call things, and write in notes: what a page could take for
// markup or an address, and what is not seen or is changed on the way.
func hostileNames() (markup, others []string) {
	markup = []string{
		`<script>alert(1)</script>.tar`, `"><img src=x onerror=alert(1)>.tar`, "javascript:alert(1).tar", `' onmouseover='alert(1)`, `" autofocus onfocus="alert(1)`,
		"</title><script>alert(1)</script>", "</textarea><script>alert(1)</script>", "--><script>alert(1)</script>", "<svg/onload=alert(1)>",
		"data:text/html,<script>alert(1)</script>", "//evil.example.org/x.tar", "a\r\nLocation: //evil.example.org", "%00%0d%0aSet-Cookie: a=b",
	}
	others = []string{
		"a\u202egpj.tar", strings.Repeat("long", 60) + ".tar", "a'b.tar", "{{.}}.tar", "a\u200bb.tar", "../../etc/passwd", `..\..\windows.tar`, "%2e%2e%2fx",
		"\x1b[31mred\x1b[0m", "\u2066\u2069\u061c", "\ufeffbom", "\U000e0041tag", "e\u0301\u0301\u0301\u0301", "مرحبا.tar", "写真 🗻.tar",
		"&lt;b&gt;&amp;#x27;", "=1+1|'cmd'!A1", "'; DROP TABLE work_items; --", "{{`{{`}}end}}${7*7}",
	}
	return markup, others
}

// harmless fails the test if a page has a hostile name as markup, or shows what is not seen.
func (a answer) harmless(t *testing.T) {
	t.Helper()
	for _, bad := range []string{"<script>alert", "<img src=x", "<svg/onload", `href="javascript:`, `href="data:`, `href="//`, `" onfocus=`, `' onmouseover=`, `" autofocus`} {
		if strings.Contains(a.text, bad) {
			t.Errorf("%s has %q as it is", a.path, bad)
		}
	}
	if a.header.Get("Set-Cookie") != "" {
		t.Errorf("%s sets a cookie", a.path)
	}
	shown := wordsIn(areas.ReplaceAllString(a.text, "")) // a note is changed as it is
	if at := strings.IndexFunc(shown, func(r rune) bool {
		return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Cc) && r != '\u00ad'
	}); at >= 0 {
		t.Errorf("%s shows a character that is not seen: %q", a.path, shown[max(0, at-60):min(len(shown), at+60)])
	}
}

// Names and notes of others are text, whatever they are.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	b := s.in(registry.RoleAdmin, "")
	markup, others := hostileNames()
	for _, name := range slices.Concat(markup, others) {
		id := ask[int64](s, `INSERT INTO work_items (action, stage, name, etag, bucket, bag_date, size, institution_id, object_identifier, note)
			VALUES ('Ingest', 'Receive', $1, 'e', 'in', now(), 1, $2, 'test.edu/hostile', $3) RETURNING id`, name, s.test.ID, name)
		for _, page := range []string{"/items", fmt.Sprintf("/items/%d", id), "/search?q=" + url.QueryEscape(name)} {
			a := b.open(page)
			if a.status != http.StatusOK {
				t.Fatalf("%s: %d", page, a.status)
			}
			a.harmless(t)
		}
	}
}

// pollute writes names into all columns of texts that take them, of what codes are not kept in,
// and returns the columns. The texts of events are made of those in event_texts.
const pollute = `CREATE FUNCTION pollute(names text[]) RETURNS text[] LANGUAGE plpgsql AS $f$
DECLARE c record; changed text[]; n bigint;
BEGIN
	FOR c IN SELECT table_name, column_name FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
		WHERE table_schema = 'public' AND table_type = 'BASE TABLE' AND data_type = 'text' AND domain_name IS NULL AND table_name <> 'event_texts' ORDER BY 1, 2
	LOOP
		BEGIN
			EXECUTE format('UPDATE %I SET %I = $1[1 + (hashtext(ctid::text) & 65535) %% cardinality($1)] WHERE %2$I IS NOT NULL', c.table_name, c.column_name) USING names;
			GET DIAGNOSTICS n = ROW_COUNT;
			IF n > 0 THEN changed := changed || (c.table_name || '.' || c.column_name); END IF;
		EXCEPTION WHEN OTHERS THEN NULL; -- a rule of the database forbids it
		END;
	END LOOP;
	RETURN changed;
END $f$`

// Every text in the registry that its rules allow to be hostile is shown by the pages as text.
func TestHostileTextsOnEveryPage(t *testing.T) {
	t.Parallel()
	s, r := furnished(t)
	s.exec(pollute)
	b := s.in(registry.RoleAdmin, "")
	markup, others := hostileNames()
	for _, names := range [][]string{markup, others} { // so that each text is once one of both
		if changed := ask[[]string](s, `SELECT pollute($1)`, names); len(changed) < 100 {
			t.Errorf("only %d columns have hostile texts: %q", len(changed), changed)
		}
		for _, path := range append(paths(t, registry.RoleAdmin, false, r), answers(r)...) {
			a := b.open(path)
			if a.status >= http.StatusInternalServerError {
				t.Errorf("%s: %d %s", path, a.status, wordsIn(a.text))
			}
			a.harmless(t)
		}
	}
}

var areas = regexp.MustCompile(`(?s)<textarea.*?</textarea>`)

// A search leads to what a text can be the name of.
func TestSearch(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.item("photographs.tar", "")
	b := s.in(registry.RoleInstitutionalUser, "test.edu")
	if a := b.open(fmt.Sprintf("/search?q=%d", id)); a.path != fmt.Sprintf("/items/%d", id) {
		t.Errorf("a number leads to %s", a.path)
	}
	for _, q := range []string{"photographs.tar", "photographs", "test.edu/photographs"} {
		if a := b.sees("/search?q="+url.QueryEscape(q), "photographs.tar", "Receive"); a.path != fmt.Sprintf("/items/%d", id) {
			t.Errorf("%q leads to %s, and only one item has it", q, a.path)
		}
	}
	s.kept()
	file := ask[string](s, `SELECT identifier FROM generic_files WHERE institution_id = $1 ORDER BY id LIMIT 1`, s.test.ID)
	for q, to := range map[string]string{
		file:                  `SELECT '/files/' || id FROM generic_files WHERE identifier = $1`,
		file[:len(file)-3]:    `SELECT '/search' WHERE $1 <> ''`, // its beginning only
		"test.edu/photograph": `SELECT '/search' WHERE $1 <> ''`,
	} {
		if a := b.open("/search?q=" + url.QueryEscape(q)); a.path != ask[string](s, to, file) {
			t.Errorf("%q leads to %s", q, a.path)
		}
	}
	uuid := ask[string](s, `SELECT uuid::text FROM generic_files WHERE identifier = $1`, file)
	if a := b.open("/search?q=" + uuid); a.path != ask[string](s, `SELECT '/files/' || id FROM generic_files WHERE identifier = $1`, file) {
		t.Errorf("the UUID of a file leads to %s", a.path)
	}
	b.sees("/search?q=", "Type the number of an item")
	for _, q := range []string{"%00", "%ff", strings.Repeat("x", 3000), "d41d8cd98f00b204e9800998ecf8427e", "11111111-2222-4333-8444-555555555555", "%2F%2F", "' OR 1=1"} {
		if a := b.open("/search?q=" + strings.ReplaceAll(q, " ", "+")); a.status != http.StatusOK {
			t.Errorf("a search for %.40q: %d", q, a.status)
		}
	}
}

// Each key leads to one page.
func TestKeysLeadToOnePage(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, s := range console.Sheets() {
		if other := seen[s.Key]; s.Key != "" && other != "" {
			t.Errorf("g %s leads to %s and to %s", s.Key, other, s.Path)
		}
		seen[s.Key] = s.Path
	}
}
