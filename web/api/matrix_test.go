package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

// who may carry out each operation, by the table of roles in docs/security.md: U is an
// institutional_user, A an institutional_admin, R an auditor, O an operator, S an admin; *
// is anyone, also without signing in, + all who have signed in, and ~ also those whose second
// factor is due. b: in a browser only. f: with a fresh proof only.
const mayDo = `
session.begin             *
session.show              ~ b
session.end               ~ b
session.factor            ~ b
session.proof             + b
session.forgot            *
link.show                 *
link.use                  *
link.sign_in              *
me.show                   +
me.set                    + b
me.sessions               + b
me.end_session            + b
me.offer_factor           ~ b
me.set_factor             ~ b
me.set_password           + b
me.tokens                 + b
me.add_token              + b f
me.remove_token           + b
me.mail                   + b
me.set_mail               + b
alerts.list               U A R O S
alerts.show               U A R O S
alerts.read               U A R O S
actions.list              A R O S
tokens.list               S
tokens.add                S b f
tokens.remove             S b f
settings.show             O S
settings.set_storage      S b f
settings.set_requests     S b f
settings.set_prices       S b f
users.list                A R S
users.show                A R S
users.add                 A S b f
users.set                 A S b f
users.activate            A S b f
users.deactivate          A S b f
users.invite              A S b f
users.reset               A S b f
users.reset_factor        A S b f
users.unlink              A S b f
users.unlock              A S b f
items.list                U A R O S
items.show                U A R O S
items.history             U A R O S
items.record              U A R O S
items.next                O S
items.explain             U A R O S
items.requeue_stages      O S
items.requeue             O S
items.cancel              A O S
items.release             O S
items.set                 O S
items.groups              U A R O S
items.progress            U A R O S
items.estimates           U A R O S
items.files               U A R O S
objects.list              U A R S
objects.show              U A R S
objects.by_identifier     U A R S
objects.holdings          U A R S
objects.files             U A R S
objects.events            U A R S
files.events              U A R S
files.list                U A R S
files.sample              U A R S
files.show                U A R S
files.by_identifier       U A R S
files.copies              U A R S
files.checksums           U A R S
events.list               U A R S
plans.list                O S
plans.show                O S
plans.items               O S
plans.make                O S
plans.delete              O S
plans.approve             O S b f
plans.apply               O S
plans.undo                O S
deletions.list            U A R S
deletions.show            U A R S
deletions.review          U A R S
deletions.named           U A R S
deletions.receipts        U A R S
deletions.check           A
deletions.request         A
deletions.approve         A S b f
deletions.cancel          A S
restorations.list         U A R O S
restorations.show         U A R O S
restorations.quote        U A S
restorations.request      U A S
restorations.approve      A S
restorations.cancel       U A S
queues.list               O S
queue.show                U A R O S
queue.matrix              U A R O S
queue.history             U A R O S
stages.list               U A R O S
stages.show               U A R O S
stages.set                O S
stages.set_all            O S
stages.add                O S
stages.remove             O S
services.list             O S
stores.list               O S
services.hold             O S
services.release          O S
stages.pause              O S
stages.resume             O S
stages.pause_all          O S
stages.resume_all         O S
workers.list              O S
workers.ended             O S
workers.drain             O S
mirror.show               O S
schedules.list            O S
schedules.set             O S
schedules.run             O S
fixity.show               U A R O S
fixity.bad                U A R O S
fixity.policies           U A R O S
fixity.check              A S
fixity.set_policy         S
brakes.list               U A R O S
brakes.release            S
health.show               *
health.version            +
reports.deposits          U A R S
reports.costs             R S
reports.outcomes          U A R S
exports.list              U A R S
exports.make              U A R S
exports.show              U A R S
exports.content           U A R S
deposits.check            U A S
deposits.list             U A S
deposits.begin            U A S
deposits.show             U A S
deposits.parts            U A S
deposits.complete         U A S
deposits.abort            U A S
institutions.list         U A R O S
institutions.show         U A R O S
institutions.add          S b f
institutions.set          A S b f
institutions.activate     S b f
institutions.deactivate   S b f
`

var roleOf = map[string]string{ //nolint:gochecknoglobals // a constant, but for Go
	"U": registry.RoleInstitutionalUser, "A": registry.RoleInstitutionalAdmin, "R": registry.RoleAuditor, "O": registry.RoleOperator, "S": registry.RoleAdmin,
}

// Every operation is refused to everyone who is not named above, before anything of the
// request is read; a new operation that needs something else than each of these fails.
func TestOperationsAreForThoseInTheTable(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	expected := expectations()
	stranger, half := s.browser(), s.person("half@archive.org", registry.RoleAdmin, "")
	people, programs, stale := map[string]*caller{}, map[string]*caller{}, map[string]*caller{}
	for letter, role := range roleOf {
		institution := "test.edu"
		if letter == "O" || letter == "S" {
			institution = ""
		}
		people[letter] = s.in("in-"+letter+"@archive.org", role, institution)
		var all []string
		for _, p := range permission.Of(role, institution != "") {
			all = append(all, string(p))
		}
		programs[letter] = people[letter].program(all...)
		stale[letter] = s.in("stale-"+letter+"@archive.org", role, institution)
	}
	s.exec(`UPDATE sessions SET strong_at = now() - interval '11 minutes' WHERE user_id IN (SELECT id FROM users WHERE email LIKE 'stale-%')`)
	for _, o := range s.table.Rows() {
		who, known := expected[o.ID]
		if !known {
			who, known = likeOthers(s.table.Rows(), o.Operation)
		}
		if !known {
			t.Errorf("who may %s? The table above does not say, and it has no operation that needs the same", o.ID)
			continue
		}
		delete(expected, o.ID)
		has := func(w string) bool { return slices.Contains(who, w) }
		check := func(name string, c *caller, may bool) {
			t.Helper()
			if got := allowed(c, o); got != may {
				t.Errorf("%s: %s is allowed: %v, want %v", o.ID, name, got, may)
			}
		}
		check("a stranger", stranger, has("*"))
		if o.ID == "session.end" {
			continue // it ends what is used here; TestSigningOut has it
		}
		check("a session without its second factor", half, has("*") || has("~"))
		for letter := range roleOf {
			may := has("*") || has("+") || has("~") || has(letter)
			check(roleOf[letter], people[letter], may)
			check(roleOf[letter]+" with a token", programs[letter], has("*") || may && !has("b"))
			check(roleOf[letter]+" without a fresh proof", stale[letter], may && !has("f"))
		}
	}
	for id := range expected {
		t.Errorf("there is no operation %s", id)
	}
}

// expectations is mayDo, by operation.
func expectations() map[string][]string {
	expected := map[string][]string{}
	for line := range strings.Lines(mayDo) {
		if words := strings.Fields(line); len(words) > 0 {
			expected[words[0]] = words[1:]
		}
	}
	return expected
}

// likeOthers is who may carry out an operation that mayDo does not have: who may do others that
// need the same.
func likeOthers(rows []ops.Row, o ops.Operation) ([]string, bool) {
	known := expectations()
	for _, other := range rows {
		if who, found := known[other.ID]; found && other.Access == o.Access && other.Needs == o.Needs && other.Or == o.Or &&
			other.Session == o.Session && other.Fresh == o.Fresh && other.Person == o.Person {
			return who, true
		}
	}
	return nil, false
}

// A permission that no operation lets a token use is given to none, so that nobody is handed
// a token whose permissions are refused when it uses them. This goes by the table of operations.
func TestTokensAreGivenWhatTheyCanUse(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	byPeople, byServices := map[permission.Permission]bool{}, map[permission.Permission]bool{}
	for _, o := range s.table.Rows() {
		token := !o.Fresh && !o.Session
		byPeople[o.Needs] = byPeople[o.Needs] || token
		byServices[o.Needs] = byServices[o.Needs] || token && !o.Person
	}
	staff := s.in("staff@archive.org", registry.RoleAdmin, "")
	for _, p := range permission.All() {
		if p.Browser() == byPeople[p] {
			t.Errorf("%s: only in a browser: %t, and an operation takes it from a token: %t", p, p.Browser(), byPeople[p])
		}
		if !p.Personal() && !byServices[p] {
			t.Errorf("%s may be given to services, and no operation takes it from one", p)
		}
		for path, never := range map[string]bool{"tokens": p.Personal(), "me/tokens": p.Browser()} {
			if !slices.Contains(permission.Of(registry.RoleAdmin, false), p) {
				continue
			}
			s.exec(`DELETE FROM api_tokens`)
			a := staff.do("POST", "/api/v1/"+path, map[string]any{"name": path + string(p), "permissions": []string{string(p)}})
			if never != (a.status == 400 && strings.Contains(a.body, "can")) || !never && a.status != 201 {
				t.Errorf("POST /%s with %s: %d %s", path, p, a.status, a.body)
			}
		}
	}
}

// allowed reports whether a caller is let through to an operation: whatever it is answered
// then, it is nothing about rights. The body is no JSON, so that nothing is done.
func allowed(c *caller, o ops.Row) bool {
	path := strings.NewReplacer("{id}", "999999").Replace(o.Path)
	c.s.exec(`DELETE FROM sign_in_failures`)
	var body any
	if o.Method != http.MethodGet && o.Method != http.MethodDelete && !strings.Contains(o.Path, "{id}/") {
		body = "{"
	}
	a := c.do(o.Method, path, body)
	return !slices.Contains([]string{"not-signed-in", "not-allowed", "second-factor-needed", "fresh-proof-needed"}, a.code())
}
