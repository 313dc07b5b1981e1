package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	chromium "github.com/farol-preservation/farol/internal/rigs/testenv/browser"
	"github.com/farol-preservation/farol/registry"
)

// Without a script, and by a bad connection, people find out what is wrong with a bag, and
// requeue another one.
func TestConsoleNeedsNoScript(t *testing.T) {
	t.Parallel()
	c := newConsoleSite(t)
	c.deposit(bagtest.Spec{Name: "torn", Files: pages("data/log", 4), Corrupt: []string{"data/log-003.txt"}}, sampleBag("stuck"))
	c.exec(`UPDATE stage_settings SET paused = true WHERE stage = 'Store'`)
	worker := c.worker()
	id := func(name string) int64 { return ask[int64](t, c.db, `SELECT id FROM work_items WHERE name = $1`, name) }
	torn, stuck := id("torn.tar"), id("stuck.tar")
	worker.eventually("both to have come as far as they can", func() bool {
		return c.item(torn).Status == registry.Failed && c.item(stuck).Stage == "Store"
	})
	c.terminate(worker)
	c.exec(`UPDATE work_items SET status = 'Suspended', retry = false, needs_admin_review = true, error_code = 'timeout', claim_token = claim_token + 1 WHERE id = $1`, stuck)
	depositor, staff := c.person("ana", registry.RoleInstitutionalUser, "test.edu"), c.person("sam", registry.RoleOperator, "")
	depositor.Script(false)
	staff.Script(false)
	staff.Network(chromium.Slow)

	depositor.Go("/items?tab=failed")
	depositor.Click("link", fmt.Sprint(torn))
	depositor.Shows("Whose fault: the bag's")
	depositor.Shows("data/log-003.txt")
	depositor.Shows("Have the bag corrected and uploaded again")
	staff.Go(fmt.Sprintf("/items/%d", stuck))
	staff.Shows("Whose fault: the system's")
	staff.Click("button", "Requeue")
	staff.Shows("Done: requeue an item")
	counts(t, c.db, map[string]int{
		`SELECT count(*) FROM work_items WHERE name = 'stuck.tar' AND status = 'Pending'`:                                1,
		`SELECT count(*) FROM actions WHERE operation = 'items.requeue' AND outcome = 'done' AND actor = 'sam@test.edu'`: 1,
	})
}

// While Redis is away, how far an item is is not known, and the rest of its page is shown.
// While the database is away, staff sees how things were, others are told that nothing is
// lost; all of it comes back without a restart.
func TestConsoleWithoutServers(t *testing.T) {
	t.Parallel()
	c := newConsoleSite(t)
	id := c.depositSample()
	c.exec(`UPDATE work_items SET status = 'Started', claim_token = claim_token + 1, attempt = 1, worker = 'w1', node = 'n1', pid = 1, stage_started_at = now(), lease_expires_at = now() + interval '1 hour' WHERE id = $1`, id)
	staff, depositor := c.person("sam", registry.RoleOperator, ""), c.person("ana", registry.RoleInstitutionalUser, "test.edu")
	item := fmt.Sprintf("/items/%d", id)
	c.cache.Cut()
	depositor.Go(item)
	depositor.Shows("Not known now")
	depositor.Shows("Timeline")
	c.cache.Resume()

	staff.Go("/")
	staff.Shows("1 runs")
	marked(staff)
	depositor.Expect(1, "status of 503", item)
	staff.Expect(100, "status of 503") // it asks again and again
	c.database.Cut()
	depositor.Go(item)
	depositor.Shows("The database does not answer. Nothing is lost")
	other := chromium.Value[string](staff, `fetch("/", {headers: {Accept: "text/html"}}).then(a => a.text())`)
	c.database.Resume()
	for _, text := range []string{"The database does not answer.", "This page is old", "1 runs"} {
		if !strings.Contains(other, text) {
			t.Errorf("without a database, staff does not see %q: %s", text, other)
		}
	}
	depositor.Click("link", "Try again")
	depositor.Shows("Timeline")
	c.exec(`SELECT release($1)`, id)
	staff.Shows("1 item is due")
	still(t, staff)
}
