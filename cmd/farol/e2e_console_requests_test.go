package main

import (
	"fmt"
	"strings"
	"testing"

	chromium "github.com/farol-preservation/farol/internal/rigs/testenv/browser"
	"github.com/farol-preservation/farol/registry"
)

// still fails the test if a page was loaded again since it was marked.
func still(t *testing.T, tab *chromium.Tab) {
	t.Helper()
	if !chromium.Value[bool](tab, `window.marked === true`) {
		t.Error("the page was loaded again; it should be kept up to date")
	}
}

// marked marks the page that is shown, once it is loaded.
func marked(tab *chromium.Tab) {
	tab.Until("the page to be loaded", `document.readyState == "complete" && (window.marked = true)`)
}

// lead waits for a text in the first sentence of a page.
func lead(tab *chromium.Tab, text string) {
	tab.Until("the first sentence to say "+text, fmt.Sprintf(`document.querySelector(".lead")?.innerText.includes(%q)`, text))
}

// forged sends a form that no page offers to the person, and returns what it is answered.
func forged(tab *chromium.Tab, operation, fields string) string {
	tab.Expect(1, "status of 4", "/do/"+operation)
	return chromium.Value[string](tab, fmt.Sprintf(`fetch("/do/%s", {method: "POST", body: new URLSearchParams(%q)}).then(a => a.text())`, operation, fields))
}

// A thousand items that failed alike are requeued by a plan, which a second person approves,
// and are as before when it is undone.
func TestConsoleRequeuesAThousand(t *testing.T) {
	t.Parallel()
	c := newConsoleSite(t)
	const items = alone + 1
	c.exec(`INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, size, bag_date)
		SELECT $1, 'Ingest', 'Receive', n || '.tar', 'in', 'e', n, now() FROM generate_series(1, $2::int) n`, c.in.ID, items)
	c.exec(`UPDATE work_items SET stage = 'Store', status = 'Suspended', retry = false, needs_admin_review = true, claim_token = 7, entered_token = 5,
		attempt = 3, note = 'Note of ' || id, error_code = 'timeout'`)
	stood := `SELECT md5(string_agg((to_jsonb(w) - '{claim_token,updated_at,virtual_start}'::text[])::text, ' ' ORDER BY id)) FROM work_items w`
	before := ask[string](t, c.db, stood)

	maker, second := c.person("sam", registry.RoleOperator, ""), c.invited("kim", registry.RoleOperator, "")
	maker.Go("/")
	maker.Click("link", "Groups of failures")
	maker.Shows("1,000 items wait for a person, in 1 group.")
	maker.Click("link", "Plan for this group of timeout at Store")
	maker.Click("button", "Plan to requeue")
	lead(maker, "it changes 1,000 items; above 999, another person has to approve it first")
	maker.Shows("You have made this plan, so you cannot approve it")
	if text := forged(maker, "plans.approve", "id=1"); !strings.Contains(text, "Nobody approves a plan of their own") {
		t.Errorf("the maker approves: %s", text)
	}
	second.Click("link", "Plans")
	second.Shows("waits for a second person")
	c.later()
	second.Click("link", "1")
	second.Click("button", "Approve")
	second.proves()
	second.Shows("Done: approve a large plan")
	second.Click("button", "Apply")
	second.Shows("Done: have a server apply a plan")
	marked(second.Tab)
	lead(second.Tab, "✓ applied")
	still(t, second.Tab)
	counts(t, c.db, map[string]int{
		`SELECT count(*) FROM work_items WHERE status = 'Pending' AND stage = 'Store' AND retry`:                              items,
		`SELECT count(*) FROM plans WHERE state = 'applied' AND created_by = 'sam@test.edu' AND approved_by = 'kim@test.edu'`: 1,
	})
	second.Click("button", "Undo the plan")
	second.Shows("Done: have a server undo a plan")
	marked(second.Tab)
	lead(second.Tab, "undone")
	still(t, second.Tab)
	if ask[string](t, c.db, stood) != before {
		t.Error("the items are not what they were")
	}
}

// A deletion is asked for by one person and approved by another, and the page proves that
// every copy is gone.
func TestConsoleDeletesByTwoPeople(t *testing.T) {
	t.Parallel()
	c := newConsoleSite(t)
	c.deposit(sampleBag("old"), sampleBag("kept"))
	worker := c.worker()
	c.atRest(worker)
	c.aged()
	first, second := c.person("ann", registry.RoleInstitutionalAdmin, "test.edu"), c.invited("ben", registry.RoleInstitutionalAdmin, "test.edu")
	c.terminate(worker)

	first.Click("link", "Deletions")
	first.Click("link", "Request a deletion")
	first.Fill("Identifiers of objects or files, one a line", "test.edu/old\ntest.edu/olde")
	first.Click("button", "Check")
	first.Shows("Your institution has no object or file with this name")
	first.Fill("Identifiers of objects or files, one a line", "test.edu/old\ntest.edu/kept/data/a.bin")
	first.Click("button", "Check")
	first.Shows("What would be deleted")
	first.Click("button", "Request the deletion")
	first.Shows("You asked for it. It waits for another person.")
	id := ask[int64](t, c.db, `SELECT id FROM deletion_requests`)
	if text := forged(first, "deletions.approve", fmt.Sprintf("id=%d", id)); !strings.Contains(strings.ToLower(text), "nobody approves the own request") {
		t.Errorf("who asked approves: %s", text)
	}

	second.Go("/")
	second.Shows("Waits for your decision")
	second.Click("link", fmt.Sprintf("Deletion %d", id))
	second.Shows("active files go")
	second.Shows("nothing is in work on it")
	c.later()
	second.Click("button", "Approve the deletion")
	second.proves()
	second.Shows("Done: approve a deletion")
	marked(second.Tab)
	c.worker()
	second.Shows("Done: all of it is deleted.")
	second.Shows(fmt.Sprintf("Of all %d copies on this page Farol has seen that they are gone.", 2*(sampleFiles+1)))
	still(t, second.Tab)
	counts(t, c.db, map[string]int{
		`SELECT count(*) FROM generic_files WHERE state = 'A'`:               sampleFiles - 1,
		`SELECT count(*) FROM deletion_receipts WHERE absent_at IS NOT NULL`: 2 * (sampleFiles + 1),
		`SELECT count(*) FROM deletion_requests d JOIN users r ON r.id = d.requested_by JOIN users a ON a.id = d.approved_by WHERE r.name = 'ann' AND a.name = 'ben'`: 1,
	})
	if n := len(keysOf(t, c.targets["Standard-VA"])); n != sampleFiles-1 {
		t.Errorf("%d copies are left", n)
	}
}

// A depositor has an object given back, and is shown where it is.
func TestConsoleRestoresAnObject(t *testing.T) {
	t.Parallel()
	c := newConsoleSite(t)
	c.created(c.in.RestoreBucket)
	c.deposit(sampleBag("sample"))
	worker := c.worker()
	c.atRest(worker)
	c.terminate(worker)
	depositor := c.person("dora", registry.RoleInstitutionalUser, "test.edu")
	depositor.Click("link", "Objects")
	depositor.Click("link", "test.edu/sample")
	depositor.Click("button", "See the price")
	depositor.Shows("The copies can be read as they are, and it begins at once.")
	depositor.Click("button", "Restore")
	depositor.Shows("Done: request the restoration")
	marked(depositor)
	c.worker()
	depositor.Shows("It is ready.")
	depositor.Shows(c.in.RestoreBucket)
	depositor.Shows("test.edu/sample.tar")
	still(t, depositor)
	c.restoredBag("test.edu/sample")
	if n := ask[int](t, c.db, `SELECT count(*) FROM actions WHERE operation = 'restorations.request' AND outcome = 'done' AND actor = 'dora@test.edu'`); n != 1 {
		t.Errorf("%d requests are on record", n)
	}
}
