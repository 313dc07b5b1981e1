package console_test

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	chrome "github.com/farol-preservation/farol/internal/rigs/testenv/browser"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/console/words"
)

// sends sends a form that the page does not have.
func sends(b *chrome.Tab, path string, form map[string]string) {
	fields := ""
	for name, text := range form {
		fields += fmt.Sprintf("add(%s, %s);", strconv.Quote(name), strconv.QuoteToASCII(text))
	}
	chrome.Value[bool](b, `(() => {
		const form = document.createElement("form"), add = (name, text) => {
			const field = document.createElement("textarea")
			field.name = name
			field.value = text
			form.append(field)
		}
		form.method = "post"
		form.action = `+strconv.Quote(path)+`
		`+fields+`
		document.body.append(form)
		form.submit()
		return true
	})()`)
}

// looksAtForms looks at the pages that answer a form which is not carried out, or whose answer
// is shown once.
func (s *site) looksAtForms(b *chrome.Tab, role string, r records) {
	s.t.Helper()
	const proved = `UPDATE sessions SET strong_at = $2 WHERE user_id IN (SELECT id FROM users WHERE name = $1)`
	sent := func(path, heading string, form map[string]string) {
		sends(b, path, form)
		b.Until("the answer to "+path, "document.readyState == 'complete' && document.querySelector('h1')?.innerText.startsWith("+strconv.Quote(heading)+")")
		looks(s.t, b, "form "+heading)
	}
	b.Go("/")
	s.exec(proved, "Some "+role, nil)
	sent("/do/deletions.approve", "Prove once more", map[string]string{"id": fmt.Sprint(r["deletions"][0])})
	b.Go("/account")
	s.exec(proved, "Some "+role, time.Now())
	sent("/do/me.add_token", "Done: create a personal token", map[string]string{"name": "laptop", "days": "7"})
	b.Go("/")
	if role == registry.RoleInstitutionalAdmin {
		sent("/deletions/check", "Request a deletion", map[string]string{"identifiers": "test.edu/photographs\nother.edu/maps\n" + long})
	} else {
		sent("/do/items.requeue", "Not done", map[string]string{"id": fmt.Sprint(r["items"][0]), "stage": "Nowhere", "reason": long})
	}
}

// A person who was invited sets a password, a second factor, and signs in with both; each page
// of the way can be used by everybody.
func TestSigningInInABrowser(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	u := must.Get(s.registry.AddUser(t.Context(), record.User{Email: "ann@test.edu", Name: "Ann", Role: registry.RoleAdmin}))(t)
	secret := must.Get(s.people.MakeLink(t.Context(), u.ID, people.Invite))(t)
	b := chrome.Open(t, s.url)
	for name, path := range map[string]string{"sign in": "/items", "forgot": "/forgot", "link that was used": "/sign-in/none", "accessibility": "/accessibility"} {
		b.Go(path)
		looks(t, b, name)
	}
	const password = "correct horse battery staple"
	b.Go(people.LinkPath(people.Invite, secret))
	looks(t, b, "password")
	b.Fill("New password", password)
	b.Press("\r")
	b.Shows("Scan this code")
	looks(t, b, "set-up")
	code := must.Get(totp.GenerateCode(chrome.Value[string](b, `document.querySelector("main p > code").innerText`), time.Now()))(t)
	b.Fill("Code", code)
	b.Press("\r")
	b.Shows("Recovery codes")
	looks(t, b, "recovery codes")
	recovery := chrome.Value[string](b, `document.querySelector(".codes code").innerText`)
	b.Go("/account")
	b.Click("button", "Sign out")
	b.Fill("E-mail", "ann@test.edu")
	b.Fill("Password", "wrong horse battery staple")
	b.Press("\r")
	b.Shows("is wrong")
	looks(t, b, "wrong password")
	b.Fill("E-mail", "ann@test.edu")
	b.Fill("Password", password)
	b.Press("\r")
	b.Shows("six digits")
	looks(t, b, "second factor")
	b.Fill("Code", recovery)
	b.Press("\r")
	b.Shows("No items yet") // where the person was led away from
	b.Go("/second-factor/set-up")
	looks(t, b, "another second factor")
}

// The reference of the API is made of articles that are alike: the first are looked at.
func TestReferenceInABrowser(t *testing.T) {
	t.Parallel()
	b := chrome.Open(t, newSite(t).url)
	b.Go("/api")
	chrome.Value[bool](b, `document.querySelectorAll("main > section:not(:first-of-type), article:nth-of-type(n+5)").forEach(e => e.remove()) == null`)
	looks(t, b, "api")
}

// focused is what has the focus, in words; it fails where a person could not see it.
const focused = `(() => {
	const e = document.activeElement, style = getComputedStyle(e), box = e.getBoundingClientRect()
	if (e == document.body) return "nothing"
	if (style.outlineStyle == "none" || parseFloat(style.outlineWidth) < 2) return "not seen: " + e.outerHTML
	const x = box.left + Math.min(box.width, innerWidth - box.left) / 2, at = document.elementFromPoint(x, box.top + Math.min(box.height / 2, 12))
	if (!at || !(e.contains(at) || at.contains(e))) return "covered: " + e.outerHTML
	return (e.labels?.[0]?.innerText || e.innerText || e.name || "").trim()
})()`

// tabs presses Tab until something has the focus, and fails the test if the focus is not seen
// on its way, or goes back.
func tabs(t *testing.T, b *chrome.Tab, to string) {
	t.Helper()
	const behind = `(() => { const was = window.was; window.was = document.activeElement; return !was || document.activeElement == document.body || !was.isConnected || was == document.body || !!(was.compareDocumentPosition(document.activeElement) & 4) })()`
	for range 200 {
		b.Press("\t")
		at := chrome.Value[string](b, focused)
		if strings.HasPrefix(at, "not seen") || strings.HasPrefix(at, "covered") {
			t.Errorf("on the way to %q the focus is %s", to, at)
		}
		if !chrome.Value[bool](b, behind) {
			t.Errorf("on the way to %q the focus goes back to %q", to, at)
		}
		if at == to {
			return
		}
	}
	t.Fatalf("Tab does not lead to %q", to)
}

// Items are found, opened and requeued, alerts read and searched with keys alone; the keys can
// be switched off.
func TestKeyboardAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.parked(40)
	first := s.last("work_items")
	b := s.tab(s.url, registry.RoleOperator, "")
	at := func(path string) {
		t.Helper()
		b.Until("the page "+path, `document.readyState == "complete" && location.pathname == `+strconv.Quote(path))
	}
	focus := func(want string) {
		t.Helper()
		if got := chrome.Value[string](b, focused); got != want {
			t.Errorf("the focus is on %q, want %q", got, want)
		}
	}
	b.Go("/items")
	b.Press("jjk")
	focus(strconv.FormatInt(first, 10))
	b.Press("jx")
	focus(strconv.FormatInt(first-1, 10))
	b.Shows("1 chosen")
	b.Press("kx")
	b.Shows("2 chosen")
	b.Press("\r")
	at(fmt.Sprint("/items/", first))
	tabs(t, b, "Skip to the page")
	b.Press("\r")
	tabs(t, b, "From stage")
	b.Press("V") // of Validate
	tabs(t, b, "Requeue")
	b.Press("\r")
	b.Shows("Done: requeue an item")
	if got := ask[string](s, `SELECT status || ' at ' || stage FROM work_items WHERE id = $1`, first); got != "Pending at Validate" {
		t.Errorf("the item is %s", got)
	}
	tabs(t, b, "Sign out")
	b.Press("/")
	focus("Search")
	b.Press("parked-3.tar\r")
	at(fmt.Sprintf("/items/%d", ask[int64](s, `SELECT id FROM work_items WHERE name = 'parked-3.tar'`)))
	b.Shows("parked-3.tar")
	b.Press("gq")
	at("/queue")
	b.Press("?")
	b.Shows("Next and previous row")
	tabs(t, b, "Close")
	b.Press("\x1b")
	b.Until("the list of keys to close", `!document.querySelector("dialog").open`)
	b.Go("/account")
	tabs(t, b, "Show them, or switch them off in this browser")
	b.Press("\r")
	b.Shows("Switch these keys off")
	b.Click("checkbox", "Switch these keys off in this browser")
	b.Go("/items")
	b.Press("j?")
	focus("nothing")
}

// Without scripts each page shows what it has, and offers nothing that only a script can do.
// Its forms are carried out.
func TestPagesWithoutScripts(t *testing.T) {
	t.Parallel()
	s, r := furnished(t)
	b := s.tab(s.url, registry.RoleAdmin, "")
	b.Script(false)
	for _, path := range append(paths(t, registry.RoleAdmin, false, r), answers(r)...) {
		if slices.Contains(answers(r), path) {
			b.Expect(1, "status of 40", path) // there is no such page
		}
		b.Go(path)
		for _, fault := range chrome.Value[[]string](b, `[
			...[...document.querySelectorAll("button, .button")].filter(e => e.checkVisibility() && !e.closest("form") && !e.href).map(e => "only a script can do this: " + e.outerHTML),
			...[...document.querySelectorAll("h1")].every(e => e.checkVisibility()) ? [] : ["its title is not seen"],
			...document.querySelector("main").innerText.length > 20 ? [] : ["it shows nothing"],
		]`) {
			t.Errorf("%s: %s", path, fault)
		}
	}
	failed := r["items"][0]
	s.scene(`UPDATE work_items SET status = 'Failed', stage = 'Store', retry = false, run_at = now(), node = NULL, pid = NULL, worker = NULL, lease_expires_at = NULL, waits_for = NULL WHERE id = $1`, failed)
	b.Go(fmt.Sprint("/items/", failed))
	b.Click("button", "Requeue")
	b.Shows("Done: requeue an item")
	b.Fill("Reason, which depositors read", hostile)
	b.Click("button", "Cancel item")
	b.Shows("Done: cancel an item")
	b.Go("/plans")
	b.Fill("Search", strconv.FormatInt(failed, 10))
	b.Press("\r")
	b.Until("the item", fmt.Sprintf("location.pathname == '/items/%d' && document.readyState == 'complete'", failed))
	b.Go("/alerts")
	b.Click("button", "Mark all as read")
	b.Shows("Done: mark alerts as read")
}

// A page and all that it needs are at most 60 kB.
func TestPagesAreLight(t *testing.T) {
	t.Parallel()
	s, r := furnished(t)
	assets := regexp.MustCompile(`(?:href|src)="(/assets/[^"]+)"`)
	sizes := map[string]int{}
	for role, institution := range map[string]string{registry.RoleAdmin: "", registry.RoleInstitutionalAdmin: "test.edu"} {
		b := s.in(role, institution)
		for _, path := range paths(t, role, institution != "", r) {
			a := b.open(path)
			n := len(a.text)
			for _, found := range assets.FindAllStringSubmatch(a.text, -1) {
				if sizes[found[1]] == 0 {
					sizes[found[1]] = len(b.open(found[1]).text)
				}
				n += sizes[found[1]]
			}
			theirs := institution != "" && a.status == http.StatusNotFound // the scene has records of two institutions
			if a.status != http.StatusOK && !theirs || n > 60_000 {
				t.Errorf("%s of %s: %d, %d bytes, %d of them the page", path, role, a.status, n, len(a.text))
			}
		}
	}
}

// A page that the server cannot be reached from says of when it is, and goes on when it can.
// A screen on the wall does so, too.
func TestAPageThatIsCutOffSaysSo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.item("cut.tar", "")
	line := testenv.NewProxy(t, strings.TrimPrefix(s.url, "http://"))
	base := "http://" + line.Addr()
	page, wall := s.tab(base, registry.RoleAdmin, ""), s.tab(base, registry.RoleAdmin, "")
	page.Go(fmt.Sprintf("/items/%d", id))
	page.Shows("Pause updates")
	wall.Go("/wall")
	page.Expect(100, "net::ERR_")
	wall.Expect(100, "net::ERR_")
	line.Cut()
	s.exec(`UPDATE work_items SET status = 'Suspended' WHERE id = $1`, id)
	for _, b := range []*chrome.Tab{page, wall} {
		b.Shows("Farol cannot be reached. This page shows what was at ")
	}
	line.Resume()
	page.Shows("Suspended")
	for _, b := range []*chrome.Tab{page, wall} {
		b.Until("the sentence to go", `!document.body.innerText.includes("cannot be reached")`)
	}
}

// How long ago something was is true for as long as a page is open, in the words of the server.
func TestTimesAreCountedOn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.item("aged.tar", "")
	b := s.tab(s.url, registry.RoleAdmin, "")
	b.Go("/items")
	shown := map[time.Duration]string{58 * time.Second: "1 min ago"} // when it is counted on
	for _, ago := range []time.Duration{58 * time.Second, 150 * time.Second, 90 * time.Minute, 26*time.Hour + time.Minute, 73 * time.Hour, 100*24*time.Hour + time.Hour, 800 * 24 * time.Hour, -90 * time.Minute} {
		shown[ago] = cmp.Or(shown[ago], words.Ago(ago))
		chrome.Value[bool](b, fmt.Sprintf(`(at => { at.dateTime = new Date(Date.now() - %d).toISOString(); document.body.append(at); return true })(document.querySelector("td time").cloneNode(true))`, ago.Milliseconds()))
	}
	for _, want := range shown {
		b.Until(want, fmt.Sprintf(`[...document.querySelectorAll("time")].some(at => at.textContent == %q)`, want))
	}
}

// What a list and the page of an item show of it are true when it has changed.
func TestRowsFollowTheirItems(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.item("followed.tar", "")
	s.exec(`UPDATE work_items SET updated_at = now() - interval '3 hours' WHERE id = $1`, id)
	list, page := s.tab(s.url, registry.RoleAdmin, ""), s.tab(s.url, registry.RoleAdmin, "")
	list.Go("/items")
	list.Shows("3 hours ago")
	page.Go(fmt.Sprintf("/items/%d", id))
	page.Shows("Requeue")
	s.exec(`UPDATE work_items SET status = 'Cancelled', retry = false, note = 'Nobody wants it.', updated_at = now() WHERE id = $1`, id)
	list.Until("the row", `(row => ["Cancelled", "by-hand", "just now"].every(text => row.innerText.includes(text)))(document.querySelector("tbody tr"))`)
	page.Shows("Nobody wants it.")
	page.Until("the decisions to go", `!document.querySelector("#decide").innerText.includes("Requeue")`)
}
