package main

import (
	"fmt"
	"maps"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/farol-preservation/farol/bag/bagtest"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	chromium "github.com/farol-preservation/farol/internal/rigs/testenv/browser"
	"github.com/farol-preservation/farol/internal/rigs/testenv/injure"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/auth"
)

// consoleSite is a site with a server for people.
type consoleSite struct {
	*site
	url             string
	proxy           *injure.Proxy // between the processes and S3
	database, cache *injure.Proxy // between the server and its database, and Redis
}

// alone is how many items a person may change at such a site by a plan that nobody else has
// approved.
const alone = 999

func newConsoleSite(t *testing.T) *consoleSite {
	t.Helper()
	direct := testenv.DatabaseURL(t)
	c := &consoleSite{site: newSiteIn(t, direct)}
	c.proxy = c.s3Proxy()
	addr := freeAddress(t)
	settings := maps.Clone(c.settings)
	c.database, settings["FAROL_DATABASE_URL"] = proxyTo(t, testenv.WebURL(t, direct))
	c.cache, settings["FAROL_REDIS_URL"] = proxyTo(t, settings["FAROL_REDIS_URL"])
	settings["FAROL_PLAN_SECOND"] = strconv.Itoa(alone)
	settings["FAROL_WEB_ADDR"], settings["FAROL_WEB_KEY"] = addr, auth.NewKey()
	c.url = "http://" + addr
	startProcess(t, c.binary, t.TempDir(), settings, "serve", "--web")
	return c
}

// proxyTo puts a proxy in front of the server of a URL, and returns the URL that leads through
// it.
func proxyTo(t *testing.T, to string) (*injure.Proxy, string) {
	t.Helper()
	u := must.Get(url.Parse(to))(t)
	proxy := testenv.NewProxy(t, u.Host)
	u.Host = proxy.Addr()
	return proxy, u.String()
}

// person opens a browser in which a new person has signed in.
func (c *consoleSite) person(name, role, institution string) *chromium.Tab {
	c.t.Helper()
	tab := chromium.Open(c.t, c.url)
	tab.SignIn(c.url + c.link(people.SignIn, name, role, institution))
	return tab
}

// link is the path of a link for a new person.
func (c *consoleSite) link(kind, name, role, institution string) string {
	c.t.Helper()
	ctx := c.t.Context()
	u := must.Get(c.registry.AddUser(ctx, record.User{Email: name + "@test.edu", Name: name, Role: role, Institution: institution}))(c.t)
	secret := must.Get(people.In(c.registry).MakeLink(ctx, u.ID, kind))(c.t)
	return people.LinkPath(kind, secret)
}

// prover is a person who has a second factor, and codes for it.
type prover struct {
	*chromium.Tab
	codes []string // for recovery, none of them used
}

// invited opens a browser in which a new person has followed an invitation, and has set a
// password and a second factor.
func (c *consoleSite) invited(name, role, institution string) *prover {
	c.t.Helper()
	tab := chromium.Open(c.t, c.url)
	tab.Go(c.link(people.Invite, name, role, institution))
	tab.Fill("New password", "green lamps over seven harbours")
	tab.Click("button", "Set the password")
	tab.Until("the key of the second factor", `document.querySelector("code") != null`)
	code := must.Get(totp.GenerateCode(chromium.Value[string](tab, `document.querySelector("code").innerText`), time.Now()))(c.t)
	tab.Fill("Code", code)
	tab.Click("button", "Set it up")
	tab.Shows("Each of these codes replaces your app once")
	p := &prover{tab, chromium.Value[[]string](tab, `[...document.querySelectorAll(".codes code")].map(e => e.innerText)`)}
	tab.Click("link", "Continue")
	return p
}

// proves fills in the form that asks once more who the person is.
func (p *prover) proves() {
	p.Expect(1, "status of 403", "/do/")
	p.Shows("Prove once more who you are")
	p.Fill("Code of your second factor, or a recovery code", p.codes[0])
	p.codes = p.codes[1:]
	p.Click("button", "Continue")
}

// later is some time after all people have proved who they are.
func (c *consoleSite) later() {
	c.t.Helper()
	c.exec(`UPDATE sessions SET strong_at = now() - interval '1 hour'`)
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
