package console_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	chrome "github.com/farol-preservation/farol/internal/rigs/testenv/browser"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/console"
	"github.com/farol-preservation/farol/web/permission"
)

// paths are the addresses of all pages for a role. Of a page about one record, they are those
// of all records of the scene.
func paths(t *testing.T, role string, member bool, r records) (list []string) {
	t.Helper()
	for _, sheet := range console.Sheets() {
		if sheet.Needs != "" && !has(permission.Of(role, member), sheet.Needs) || sheet.Staff && member {
			continue
		}
		path := strings.NewReplacer("{$}", "", "{action}/{stage}", "Ingest/Record").Replace(sheet.Path)
		if !strings.Contains(path, "{") {
			list = append(list, path)
			continue
		}
		kind, _, _ := strings.Cut(path[1:], "/")
		if r != nil && len(r[kind]) == 0 {
			t.Errorf("%s: the scene has no %s", sheet.Path, kind)
		}
		shown := r[kind]
		if member && len(shown) > 1 { // the others are as staff sees them
			shown = shown[:1]
		}
		for _, id := range shown {
			list = append(list, strings.ReplaceAll(path, "{id}", fmt.Sprint(id)))
		}
	}
	return list
}

// answers are pages that are not in the list of pages, or that show more when they are asked.
func answers(r records) []string {
	return []string{
		"/items?tab=review", "/items?tab=ended", "/items?stage=Store&tab=review", "/items?updated_after=yesterday", fmt.Sprintf("/items/%d?all", r["items"][0]),
		"/plans/new?error_code=timeout&stage=Store", "/restorations/new?object=test.edu/photographs&days=5&tier=Bulk", "/files?identifier_prefix=test.edu/photographs",
		"/events?recorded_after=2020-01-01T00:00:00Z&recorded_before=2026-01-01T00:00:00Z", "/audit/sample?seed=x", "/alerts?unread=true",
		"/search?q=" + strings.Repeat("a1", 32), "/search?q=test.edu/", "/search?q=nothing.tar", "/items/999999", "/no-such-page", "/accessibility",
	}
}

// plain is what axe does not look for: a page has one title, its headings are in order and its
// identifiers are its own, tables have names, and their cells say on a phone what they are. What
// is kept up to date is so as a whole.
const plain = `(() => {
	const all = css => [...document.querySelectorAll(css)], say = (what, e) => what + ": " + e.outerHTML.slice(0, 160), faults = []
	const ids = all("[id]").map(e => e.id)
	ids.filter((id, i) => ids.indexOf(id) != i).forEach(id => faults.push("two elements have the ID " + id))
	if (all("h1").length != 1) faults.push("a page has one h1, this one has " + all("h1").length)
	let level = 0
	for (const h of all("main :is(h1, h2, h3, h4)")) {
		if (h.tagName[1] - level > 1) faults.push(say("a heading leaves out a level", h))
		level = Number(h.tagName[1])
	}
	all("table:not(:has(> caption))").forEach(e => faults.push(say("a table has no caption", e)))
	all("table.rows tbody td:not([data-label])").filter(e => e.innerText.trim() && !e.querySelector("form, details, input, button")).forEach(e => faults.push(say("a cell does not say what it is", e)))
	all("table.rows:has(thead)").forEach(table => [...table.tHead.rows[0].cells].forEach((h, i) => {
		const cells = [...table.tBodies[0].rows].filter(r => r.cells.length == table.tHead.rows[0].cells.length).map(r => r.cells[i]).filter(c => c.innerText.trim() && c.tagName == "TD")
		if (!cells.length) return
		const figures = cells.every(c => /^\d[\d,]*(\.\d+)?( %| [KMGT]?i?B)?$/.test(c.innerText.trim()) && !c.querySelector("a, input"))
		if (figures && !h.matches(".n")) faults.push(say("figures are not in columns", h))
		if (cells.some(c => h.matches(".n") != c.matches(".n"))) faults.push(say("a heading is not above its figures", h))
	}))
	if (document.body.dataset.watch || document.querySelector("main").dataset.every) {
		const kept = "[data-part], .said, .filters, table:has([data-item])"
		all("main :is(table, dl, .figure, form)").filter(e => !e.closest(kept) && !e.querySelector("[data-item]")).forEach(e => faults.push(say("a page that is kept up to date leaves it as it was", e)))
		if (all("#updates").length != 1 && !document.body.querySelector("#wall")) faults.push("updates cannot be paused")
	}
	all(":is(button, .button):empty:not([hidden])").forEach(e => faults.push(say("a button says nothing", e)))
	if (document.body.innerText.includes("<no value>") || document.body.innerText.includes("%!")) faults.push("a value is missing")
	return faults
})()`

// looks fails the test for what is wrong with the page that a tab shows: at the width of a phone
// and at that of a screen, one of them in the dark. Which of them is by the length of its name, so
// that what pages have in common is seen in all four ways. FAROL_TEST_SCREENSHOTS names a directory
// for its pictures; nobody would see them elsewhere.
func looks(t *testing.T, b *chrome.Tab, name string) {
	t.Helper()
	found := map[string]bool{}
	darkAt := []int64{1440, 320}[len(name)%2]
	for _, width := range []int64{1440, 320} {
		b.Size(width, 900)
		b.Dark(width == darkAt)
		if width == 1440 { // it was loaded when the window was narrow
			b.Until("the list of pages on "+name, `document.querySelector(".pages a")?.checkVisibility() ?? true`)
		}
		for _, wide := range b.Sideways() {
			t.Errorf("%s at %d: sideways: %s", name, width, wide)
		}
		for _, v := range b.Axe() {
			if !found[v.Rule+v.Selector] {
				t.Errorf("%s at %d, dark %v: %s", name, width, width == darkAt, v)
			}
			found[v.Rule+v.Selector] = true
		}
		if os.Getenv("FAROL_TEST_SCREENSHOTS") != "" {
			b.Screenshot(fmt.Sprint(name, " ", width))
		}
	}
	for _, fault := range chrome.Value[[]string](b, plain) {
		t.Errorf("%s: %s", name, fault)
	}
	for _, problem := range b.Problems() {
		if !strings.Contains(problem, "Failed to load resource: the server responded with a status of 40") { // the page itself, which says why
			t.Errorf("%s: %s", name, problem)
		}
	}
}

// of is the site for a part of its test.
func (s *site) of(t *testing.T) *site {
	t.Helper()
	part := *s
	part.t = t
	return &part
}

// Every page can be used by everybody: as staff and as a member, with data and without.
func TestEveryPageInABrowser(t *testing.T) {
	t.Parallel()
	full, r := furnished(t)
	empty := newSite(t)
	for _, c := range []struct {
		name, role, institution string
		site                    *site
		records                 records
	}{
		{"staff", registry.RoleAdmin, "", full, r},
		{"staff, the other half", registry.RoleAdmin, "", full, r},
		{"member", registry.RoleInstitutionalAdmin, "test.edu", full, r},
		{"staff without data", registry.RoleAdmin, "", empty, nil},
		{"member without data", registry.RoleInstitutionalAdmin, "test.edu", empty, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := c.site.of(t).tab(c.site.url, c.role, c.institution)
			list := paths(t, c.role, c.institution != "", c.records)
			switch half := len(list) / 2; c.name {
			case "staff":
				list = list[:half]
			case "staff, the other half":
				list = append(list[half:], answers(r)...)
			}
			if strings.HasPrefix(c.name, "staff,") || c.name == "member" {
				defer c.site.of(t).looksAtForms(b, c.role, r)
			}
			for _, path := range list {
				b.Go(path)
				looks(t, b, path)
			}
		})
	}
}
