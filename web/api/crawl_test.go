package api_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/progress"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/ops"
)

// crawl has a request for each operation that is carried out, in an order in which all are:
// who sends it (as in mayDo; B is a second institutional admin, T a second admin, * nobody who
// is signed in), the operation, values for its path and its query, and its body. What stands
// behind > names the record in the answer for the lines that follow.
const crawl = `
* health.show
U health.version
U me.show
U me.sessions
U me.set {"time_zone": "Europe/Lisbon", "color_scheme": "dark"}
S me.add_token {"name": "crawl", "permissions": ["items.read"], "days": 7} > token
S me.tokens
S me.remove_token id=token
U me.mail
U me.set_mail {"problems": "daily"}
U session.show
S alerts.list count=true
U alerts.list unread=true limit=1
U alerts.show id=1
U alerts.read {"ids": [1, 2, 3]}
S tokens.add {"name": "crawl", "institution_identifier": "test.edu", "permissions": ["items.read"]} > service
S tokens.list
S tokens.remove id=service
S settings.show
S settings.set_storage name=Standard {"retention_days": 0}
S settings.set_requests {"retrieval_cap_usd": "100.00"}
S settings.set_prices storage_class=GLACIER tier=Standard {"per_gib_usd": "0.01", "takes_seconds": 18000}
S institutions.list state=A limit=1
S institutions.add {"name": "The New One", "identifier": "new.edu"} > institution
S institutions.show id=institution
S institutions.set id=institution {"spot_restore_days": 90}
S institutions.deactivate id=institution
S institutions.activate id=institution
S users.add {"email": "new@test.edu", "name": "New Person", "role": "institutional_user", "institution_identifier": "test.edu"} > user
S users.list institution=test.edu active=true limit=1
S users.show id=user
S users.set id=user {"name": "Another Name", "time_zone": "Europe/Lisbon"}
S users.deactivate id=user
S users.activate id=user
S users.invite id=user
S users.reset id=user
S users.reset_factor id=user
S users.unlink id=user
S users.unlock id=user
S items.list count=true limit=1
U items.list status=Pending status=Failed institution=test.edu
S items.show id=running
S items.history id=parked
U items.record id=parked
S items.next limit=1
S items.explain id=parked
S items.requeue_stages id=parked
U items.explain id=running
S items.groups
U items.progress id=running
U items.estimates id=running id=parked
S items.files id=running limit=1
S items.set id=parked {"priority": 5, "note": "Look at this."}
S items.requeue id=parked {"stage": "Receive"}
S items.cancel id=parked {"reason": "Trials."}
S items.release id=running
U objects.list count=true
U objects.show id=object
U objects.by_identifier identifier=test.edu/bag
U files.list institution=test.edu limit=1
U files.sample seed=crawl n=10
S files.sample seed=crawl
U files.show id=file
U files.by_identifier identifier=test.edu/bag/data/f
U files.copies id=file
U files.checksums id=file
U files.events id=file
U objects.holdings id=object
U objects.files id=object
U objects.events id=object
U events.list object=object
S plans.make {"action": "set priority", "priority": 3, "filter": {"institution": "other.edu", "error_code": "timeout"}} > plan
S plans.list state=ready
S plans.show id=plan
S plans.items id=plan limit=1
T plans.approve id=plan
S plans.apply id=plan {}
S plans.undo id=plan
S plans.make {"action": "cancel", "filter": {"name": "1.tar"}} > plan
S plans.delete id=plan
U restorations.quote {"object": "test.edu/bag"}
U restorations.request {"file": "test.edu/bag/data/f"} > restoration
U restorations.list count=true
U restorations.show id=restoration
B restorations.approve id=costly
U restorations.cancel id=restoration {"reason": "Not needed."}
A deletions.check {"identifiers": ["other.edu/bag", "test.edu/bag"]}
A deletions.request {"identifiers": ["test.edu/old"]} > deletion
A deletions.cancel id=deletion {"reason": "Kept."}
A deletions.request {"identifiers": ["test.edu/old"]} > deletion
B deletions.approve id=deletion
A deletions.list count=true
A deletions.show id=deletion
A deletions.review id=deletion
A deletions.named id=deletion
A deletions.receipts id=deletion
S queues.list
S queue.show
U queue.show
U queue.matrix
U queue.history hours=24
U stages.list
U stages.show action=Ingest stage=Receive
S stages.set action=Ingest stage=Receive {"cap": 7}
S stages.set_all {"stage": "Receive", "cap": 8}
S stages.pause action=Ingest stage=Receive {"reason": "Trials."}
S stages.resume action=Ingest stage=Receive {}
S stages.pause_all {"reason": "Trials."}
S stages.resume_all {}
S stages.add {"name": "Sift", "after": "Receive"}
S stages.remove action=Ingest stage=Sift
S services.list
S stores.list
S services.hold service=s3:Wasabi%20OR {"reason": "Trials."}
S services.release service=s3:Wasabi%20OR {}
S workers.list
S workers.ended
S workers.drain worker=node-1-7
S mirror.show
S schedules.list
S schedules.set job=janitor {"paused": false}
S schedules.run job=janitor
S fixity.show
U fixity.show
S fixity.bad limit=1
S fixity.policies
S fixity.check {"identifier": "test.edu/bag"}
S fixity.set_policy target=Wasabi-VA {"mode": "report", "days": null}
S brakes.list
S brakes.release provider=Wasabi-VA
S reports.deposits by=option
U reports.deposits
S reports.costs
U reports.outcomes by=day
A exports.make {"kind": "inventory", "scope": {"object": "test.edu/bag"}} > export
A exports.list limit=1
A exports.show id=export
A exports.content id=export
U deposits.check {"name": "~.tar", "size": 0, "outline": "AA=="}
U deposits.begin {"name": "crawl.tar", "size": 7}
U deposits.list
U deposits.parts id=upload {"name": "bag.tar", "size": 1000, "parts": [{"number": 1, "sha256": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}]}
U deposits.show id=upload name=bag.tar
U deposits.complete id=upload {"name": "bag.tar", "size": 1000}
A deposits.abort id=aborted {"name": "bag.tar"}
S actions.list since=2026-01-01T00:00:00Z count=true
`

// crawled is a site with a record of each kind, its people, and the names of records.
type crawled struct {
	*site
	people map[string]*caller
	names  map[string]any
	done   map[string]bool // operations that were carried out
	sent   int

	unmodified int // answers whose tag was that of an earlier one
}

func newCrawled(t *testing.T) *crawled {
	t.Helper()
	s := newSite(t)
	s.stock()
	s.old()
	s.spoil()
	s.parked(s.test, 2)
	s.parked(s.other, 2)
	store := must.Get(progress.Connect(t.Context(), testenv.RedisURL(t), progress.Prefix))(t)
	t.Cleanup(func() { store.Close() }) //nolint:errcheck // the test is over
	s.interimOf(func(context.Context) (*progress.Store, error) { return store, nil })
	c := &crawled{site: s, people: map[string]*caller{}, names: map[string]any{}, done: map[string]bool{}}
	for letter, who := range map[string][2]string{
		"U": {registry.RoleInstitutionalUser, "test.edu"}, "A": {registry.RoleInstitutionalAdmin, "test.edu"}, "B": {registry.RoleInstitutionalAdmin, "test.edu"},
		"S": {registry.RoleAdmin, ""}, "T": {registry.RoleAdmin, ""},
	} {
		c.people[letter] = s.in(strings.ToLower(letter)+"@archive.org", who[0], who[1])
	}
	c.people["*"] = s.browser()
	s.receive()
	upload := c.people["U"].deposits("bag.tar", noise(1000))
	upload.sends(1)
	c.names["upload"], c.names["aborted"] = upload.id, c.people["U"].deposits("bag.tar", noise(1000)).id
	c.names["running"] = s.running(store)
	s.exec(`INSERT INTO worker_processes (worker, node, host, pid, pid_started, heartbeat, pools)
		VALUES ('node-1-7', 'node-1', 'host', 7, 1, interval '1 minute', '[{"name": "all", "slots": 4}]')`)
	s.exec(`INSERT INTO known_services (service) VALUES ('s3:Wasabi OR')`)
	s.exec(`INSERT INTO repair_stops (provider, reason) VALUES ('Wasabi-VA', '12 copies failed')`)
	s.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, access, bag_name, etag, storage_option, bagit_profile_identifier)
		VALUES ($1, 'test.edu/old', 'Old', 'institution', 'old', 'e', 'Standard', 'p'), ($1, 'test.edu/cold', 'Cold', 'institution', 'cold', 'e', 'Glacier-VA', 'p')`, s.test.ID)
	s.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
		SELECT institution_id, id, identifier || '/data/f', gen_random_uuid(), 'text/plain', CASE storage_option WHEN 'Standard' THEN 7 ELSE 1000000000000000 END, storage_option, now()
		FROM intellectual_objects WHERE identifier IN ('test.edu/old', 'test.edu/cold')`)
	for in, name := range map[record.Institution]string{s.test: "t1", s.other: "o1"} {
		s.alert(name, in, 0)
	}
	s.alert("staff", record.Institution{}, 0)
	var costly struct{ Item struct{ ID int64 } }
	a := c.people["A"]
	a.reads(a.wants(http.StatusCreated, "POST", "/api/v1/restorations", `{"object": "test.edu/cold"}`, "Idempotency-Key", "costly"), &costly)
	c.names["costly"] = costly.Item.ID
	ids := s.ids(s.test)
	c.names["object"], c.names["file"] = ids["objects"], ids["files"]
	c.names["parked"] = ask[int64](s, `SELECT max(id) FROM work_items WHERE name LIKE 'parked-%' AND institution_id = $1`, s.test.ID)
	return c
}

// request makes the path and the body of a line of crawl.
func (c *crawled) request(o ops.Row, values []string) (path, body string) {
	path = o.Path
	query := []string{}
	for i, v := range values {
		name, value, is := strings.Cut(v, "=")
		if strings.HasPrefix(v, "{") || !is {
			body = strings.Join(values[i:], " ")
			break
		}
		if known, ok := c.names[value]; ok {
			value = fmt.Sprint(known)
		}
		if strings.Contains(path, "{"+name+"}") {
			path = strings.ReplaceAll(path, "{"+name+"}", value)
		} else {
			query = append(query, name+"="+value)
		}
	}
	return path + "?" + strings.Join(query, "&"), body
}

// sends carries out a line of crawl.
func (c *crawled) sends(line string, table map[string]ops.Row) {
	c.t.Helper()
	line, name, _ := strings.Cut(line, " > ")
	words := strings.Fields(line)
	o, known := table[words[1]]
	if !known {
		c.t.Errorf("there is no operation %s", words[1])
		return
	}
	path, text := c.request(o, words[2:])
	headers := []string{}
	c.sent++
	if o.Once {
		headers = append(headers, "Idempotency-Key", fmt.Sprint("crawl ", c.sent))
	}
	var body any
	if text != "" {
		body = text
	}
	a := c.people[words[0]].do(o.Method, path, body, headers...)
	if a.status/100 != 2 {
		c.t.Errorf("%s: %s %s: %d %s", line, o.Method, path, a.status, a.body)
		return
	}
	c.done[o.ID] = true
	if name != "" {
		var made struct {
			ID   int64
			Item struct{ ID int64 }
		}
		if err := json.Unmarshal([]byte(a.body), &made); err != nil {
			c.t.Error(err)
		}
		c.names[strings.TrimSpace(name)] = max(made.ID, made.Item.ID)
	}
	if strings.HasPrefix(o.ID, "plans.") && a.status == http.StatusAccepted {
		testenv.Eventually(c.t, "the plan is carried out", func() bool {
			return ask[bool](c.site, `SELECT carry IS NULL FROM plans WHERE id = $1`, c.names["plan"])
		})
	}
}

// Each operation is carried out once at least, and its answer is as the document describes
// it: that is compared with every answer in the tests of this package. A new operation is
// carried out with the examples of its fields; one without a command, or whose examples need
// more than the records there are, needs a line in crawl.
func TestEveryOperationIsCarriedOutAsDocumented(t *testing.T) {
	t.Parallel()
	c := newCrawled(t)
	table := map[string]ops.Row{}
	for _, o := range c.table.Rows() {
		table[o.ID] = o
	}
	for line := range strings.Lines(c.lines()) {
		if line = strings.TrimSpace(line); line != "" {
			c.sends(line, table)
		}
	}
	c.signsIn()
	for id := range table {
		if !c.done[id] {
			t.Errorf("%s is not carried out: it needs a line in crawl", id)
		}
	}
}

// lines are crawl, and a line for each command's operation that it does not have.
func (c *crawled) lines() string {
	text := crawl
	for _, o := range c.table.Rows() {
		if o.Command != "" && !strings.Contains(crawl, " "+o.ID) {
			text += c.exampleOf(o) + "\n"
		}
	}
	return text
}

// exampleOf is a line that carries an operation out with samples of what it needs, on the record
// that the others use.
func (c *crawled) exampleOf(o ops.Row) string {
	line, form := "S "+o.ID, url.Values{}
	for _, f := range o.Fields {
		about := strings.TrimSuffix(strings.Split(o.ID, ".")[0], "s")
		switch {
		case f.In == "path" && f.Name == "id":
			line += " id=" + cmp.Or(map[string]string{"item": "parked"}[about], about)
		case f.In == "path" || f.In == "query" && f.Required:
			line += " " + f.Name + "=" + f.Sample()
		case f.In == "body" && f.Required:
			form.Set(f.Name, f.Sample())
		}
	}
	if !o.Changes() {
		return line
	}
	form.Set("id", "1")
	q := must.Get(c.table.FromForm(o.ID, form))(c.t)
	return line + " " + string(q.Body)
}

// signsIn carries out what begins and ends sessions.
func (c *crawled) signsIn() {
	c.t.Helper()
	carry := func(who *caller, status int, operation, method, path string, body any) {
		c.t.Helper()
		c.done[operation] = true
		who.wants(status, method, path, body)
	}
	ctx := context.Background()
	link := func(p people.Person, kind string) map[string]any {
		secret := must.Get(c.site.people.MakeLink(ctx, p.ID, kind))(c.t)
		return map[string]any{"secret": secret, "password": password}
	}
	u, known := c.people["U"], c.people["T"]
	carry(c.browser(), 202, "session.forgot", "POST", "/api/v1/forgotten-passwords", map[string]any{"email": u.person.Email})
	reset := link(u.person, people.Reset)
	carry(c.browser(), 200, "link.show", "POST", "/api/v1/password-links/show", map[string]any{"secret": reset["secret"]})
	carry(u, 200, "link.use", "POST", "/api/v1/password-links/use", reset)
	for _, path := range []string{"password-links/show", "password-links/use", "sign-in-links/use"} {
		body := map[string]any{"secret": reset["secret"]}
		if path == "password-links/use" {
			body = reset
		}
		c.browser().wants(410, "POST", "/api/v1/"+path, body)
	}
	carry(c.browser(), 200, "link.sign_in", "POST", "/api/v1/sign-in-links/use", map[string]any{"secret": link(u.person, people.SignIn)["secret"]})
	carry(u, 200, "session.begin", "POST", "/api/v1/session", map[string]any{"email": u.person.Email, "password": password})
	carry(u, 200, "session.proof", "POST", "/api/v1/session/proof", map[string]any{"proof": password})
	carry(u, 200, "me.set_password", "POST", "/api/v1/me/password", map[string]any{"old": password, "new": "another long password"})
	id := ask[int64](c.site, `SELECT max(id) FROM sessions WHERE user_id = $1`, u.person.ID)
	carry(u, 204, "me.end_session", "DELETE", fmt.Sprint("/api/v1/me/sessions/", id), nil)
	if n := ask[int](c.site, `SELECT count(*) FROM actions WHERE operation = 'me.end_session' AND subject_id = $1 AND outcome = 'done'`, fmt.Sprint(id)); n != 1 {
		c.t.Errorf("%d records of the session that was ended", n)
	}
	b := c.browser()
	b.wants(200, "POST", "/api/v1/session", map[string]any{"email": known.person.Email, "password": password})
	c.exec(`UPDATE users SET totp_last_step = 0`)
	code := must.Get(totp.GenerateCode(known.secret, time.Now()))(c.t)
	carry(b, 200, "session.factor", "POST", "/api/v1/session/factor", map[string]any{"code": code})
	b.setUp()
	c.done["me.offer_factor"], c.done["me.set_factor"] = true, true
	carry(b, 204, "session.end", "DELETE", "/api/v1/session", nil)
}

// With -v, the statuses that the document has and no test has seen.
func unseen() {
	s := theSpec.spec
	if s == nil || !testing.Verbose() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	missing := map[string][]string{}
	for path, item := range s.at("paths") {
		for method := range item.(map[string]any) { //nolint:forcetypeassert,errcheck // huma made it
			for status := range s.at("paths", path, method, "responses") {
				if call := strings.ToUpper(method) + " " + path; !s.seen[call+" "+status] {
					missing[status] = append(missing[status], call)
				}
			}
		}
	}
	for status, calls := range missing {
		slices.Sort(calls)
		fmt.Printf("documented, never answered: %s: %d operations: %s\n", status, len(calls), strings.Join(calls, ", "))
	}
}
