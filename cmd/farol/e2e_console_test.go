package main

import (
	"fmt"
	"maps"
	"testing"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/testenv"
	chromium "github.com/farol-preservation/farol/internal/testenv/browser"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/auth"
)

// consoleSite is a site with a server for people.
type consoleSite struct {
	*site
	url   string
	proxy *testenv.Proxy // between the processes and S3
}

func newConsoleSite(t *testing.T) *consoleSite {
	t.Helper()
	direct := testenv.DatabaseURL(t)
	c := &consoleSite{site: newSiteIn(t, direct)}
	c.proxy = c.s3Proxy()
	addr := freeAddress(t)
	settings := maps.Clone(c.settings)
	settings["FAROL_DATABASE_URL"] = testenv.WebURL(t, direct)
	settings["FAROL_WEB_ADDR"], settings["FAROL_WEB_KEY"] = addr, auth.NewKey()
	c.url = "http://" + addr
	startProcess(t, c.binary, t.TempDir(), settings, "serve", "--web")
	return c
}

// person opens a browser in which a new person has signed in.
func (c *consoleSite) person(name, role, institution string) *chromium.Tab {
	c.t.Helper()
	ctx := c.t.Context()
	u, err := c.registry.AddUser(ctx, registry.User{Email: name + "@test.edu", Name: name, Role: role, Institution: institution})
	if err != nil {
		c.t.Fatal(err)
	}
	secret, err := people.In(c.registry).MakeLink(ctx, u.ID, people.SignIn)
	if err != nil {
		c.t.Fatal(err)
	}
	tab := chromium.Open(c.t, c.url)
	tab.SignIn(c.url + people.LinkPath(people.SignIn, secret))
	return tab
}

// A depositor watches a bag move to its end, and finds out what is wrong with another one.
// A bag that the system has failed is requeued by staff, and goes on while they look.
func TestConsoleFollowsABag(t *testing.T) {
	t.Parallel()
	c := newConsoleSite(t)
	c.exec(`UPDATE stage_settings SET paused = true WHERE stage = 'Store'`)
	c.deposit(sampleBag("good"), bagtest.Spec{Name: "torn", Files: pages("data/log", 4), Corrupt: []string{"data/log-003.txt"}})
	good, torn := ask[int64](t, c.db, `SELECT id FROM work_items WHERE name = 'good.tar'`), ask[int64](t, c.db, `SELECT id FROM work_items WHERE name = 'torn.tar'`)
	depositor, staff := c.person("ana", registry.RoleInstitutionalUser, "test.edu"), c.person("sam", registry.RoleOperator, "")

	depositor.Go(fmt.Sprintf("/items/%d", good))
	worker := c.worker()
	depositor.Shows("paused")
	c.exec(`UPDATE stage_settings SET paused = false`)
	depositor.Shows("The bag was ingested")
	depositor.Screenshot("story-bag-ingested")

	depositor.Go("/items?tab=failed")
	depositor.Click("link", fmt.Sprint(torn))
	depositor.Shows("Whose fault: the bag's")
	depositor.Shows("data/log-003.txt")
	depositor.Shows("Have the bag corrected and uploaded again")
	depositor.Screenshot("story-bag-explained")

	worker.kill()
	unlucky := c.unlucky()
	staff.Go("/items?tab=review")
	staff.Click("link", fmt.Sprint(unlucky))
	staff.Shows("Whose fault: the system's")
	staff.Click("button", "Requeue")
	staff.Shows("Done: requeue an item")
	c.worker()
	staff.Shows("The bag was ingested")
	if n := ask[int](t, c.db, `SELECT count(*) FROM actions WHERE operation = 'items.requeue' AND outcome = 'done' AND actor = 'sam@test.edu'`); n != 1 {
		t.Errorf("%d requeueings are on record", n)
	}
}

// unlucky deposits a bag whose worker is killed at its last attempt, and returns its item.
func (c *consoleSite) unlucky() int64 {
	c.t.Helper()
	c.exec(`UPDATE stage_settings SET max_attempts = 1`)
	c.deposit(sampleBag("unlucky"))
	id := ask[int64](c.t, c.db, `SELECT id FROM work_items WHERE name = 'unlucky.tar'`)
	c.proxy.Delay(slowly)
	before := c.proxy.Bytes()
	worker := c.worker()
	worker.eventually("the middle of Receive", func() bool { return c.inTheMiddle(id, "Receive", c.proxy.Bytes()-before) })
	worker.kill()
	c.proxy.Delay(0)
	next := c.worker()
	next.eventually("the death to be found", func() bool { return c.item(id).Status == registry.Suspended })
	c.terminate(next)
	return id
}

// The death of a worker is in the timeline of the item, with its cause, and the item goes on.
func TestConsoleShowsTheDeathOfAWorker(t *testing.T) {
	t.Parallel()
	c := newConsoleSite(t)
	id := c.depositSample()
	const stage = "Store"
	c.exec(`UPDATE stage_settings SET paused = (stage = $1), backoff_first = '100 milliseconds', backoff_most = '200 milliseconds'`, stage)
	staff := c.person("sam", registry.RoleOperator, "")
	staff.Go(fmt.Sprintf("/items/%d", id))
	worker := c.worker()
	worker.eventually("the item to come to "+stage, func() bool { return string(c.item(id).Stage) == stage })
	c.proxy.Delay(slowly)
	c.exec(`UPDATE stage_settings SET paused = false`)
	worker.eventually("the middle of "+stage, func() bool { return c.inTheMiddle(id, stage, 0) })
	staff.Shows("In progress")
	worker.kill()
	c.proxy.Delay(0)
	worker = c.worker()
	staff.Shows("its worker was killed")
	staff.Shows("The bag was ingested")
	staff.Screenshot("story-worker-killed")
	c.atRest(worker)
	c.intact(id)
}
