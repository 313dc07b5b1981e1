package api_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/ops"
)

// account is one that the person of a history may hold.
type account struct {
	*caller

	id     int64
	sealed []byte     // the second factor that the person knows of
	since  *time.Time // when the password was set that the person knows
	known  bool       // a password, or from the beginning
}

// history is what one person does who holds one account, wants files gone, and makes or takes
// up to two more. Beside them are an admin of the institution and an admin of the archive, who
// do nothing.
type history struct {
	s     *site
	in    record.Institution
	held  []*account // that the person can sign in to, or could
	about []int64    // people that are there
	links []string   // secrets
	mail  []int64    // people whose address the person reads
	asked []string   // paths to approve
	days  int        // that have passed
	made  int        // accounts and keys
	log   []string
}

// step is one act of a history; its numbers choose among what there is then.
type step struct {
	what    string
	a, b, c int
}

// acts are those operations on people with which a history is made: all of the table but
// those that only read, or concern what is the own and nothing else. A new operation that is
// in neither list fails the test.
const (
	harmless = ` session.begin session.show session.end session.factor session.proof link.show link.sign_in me.show me.sessions me.end_session me.tokens
		me.remove_token me.mail me.set_mail users.list users.show tokens.list tokens.remove institutions.list institutions.show institutions.add `
	acts = ` users.add users.set users.activate users.deactivate users.invite users.reset users.reset_factor users.unlink users.unlock
		session.forgot link.use me.set me.offer_factor me.set_factor me.set_password me.add_token tokens.add institutions.set institutions.activate institutions.deactivate `
	more = ` ask ask approve days `
)

// plays carries out a history, and returns what the person has approved of the own; "": nothing.
func (s *site) plays(role string, steps []step) (won string, log []string) {
	s.t.Helper()
	n := ask[int64](s, `SELECT count(*) + 1 FROM institutions`)
	h := &history{s: s, in: s.institution(fmt.Sprintf("h%d.edu", n))}
	s.stockOf(h.in)
	s.exec(`INSERT INTO intellectual_objects (institution_id, identifier, title, access, bag_name, etag, storage_option, bagit_profile_identifier)
		VALUES ($1, $2 || '/vault', 'A bag', 'institution', 'vault', 'e', 'Glacier-VA', 'p')`, h.in.ID, h.in.Identifier)
	s.exec(`INSERT INTO generic_files (institution_id, intellectual_object_id, identifier, uuid, file_format, size, storage_option, last_fixity_check)
		SELECT institution_id, id, identifier || '/data/f', gen_random_uuid(), 'text/plain', 1000000000000000, 'Glacier-VA', now() FROM intellectual_objects WHERE identifier = $1 || '/vault'`, h.in.Identifier)
	one := func(email, role string) int64 {
		return ask[int64](s, `INSERT INTO users (email, name, role, institution_id, password_hash, totp_sealed)
			VALUES ($1, 'Some Person', $2, CASE WHEN $2 <> 'admin' THEN $3::bigint END, '$argon2id$v=19$m=8,t=1,p=1$' || repeat('A', 22) || '$' || repeat('A', 43), '\x00') RETURNING id`, email, role, h.in.ID)
	}
	h.about = []int64{one("real@"+h.in.Identifier, registry.RoleInstitutionalAdmin), one("keeper@"+h.in.Identifier, registry.RoleAdmin)}
	h.holds(one("boss@"+h.in.Identifier, role)).sealed = []byte{0}
	for _, x := range steps {
		if won = h.does(x); won != "" {
			return won, h.log
		}
	}
	for i := range 3 * len(h.held) {
		h.does(step{"ask", i / 3, i, i})
	}
	for i := range h.held {
		if won = h.does(step{what: "approve", a: i}); won != "" {
			return won, h.log
		}
	}
	return "", h.log
}

func (h *history) holds(id int64) *account {
	a := &account{caller: h.s.browser(), id: id, known: true}
	h.held = append(h.held, a)
	if !slices.Contains(h.about, id) {
		h.about = append(h.about, id)
	}
	return a
}

// address is one of its own for each secret, since an address has few attempts a minute.
func (h *history) address() string {
	return fmt.Sprintf("10.%d.%d.%d", h.in.ID/256%256, h.in.ID%256, h.made%256)
}

// signsIn is a session of an account, if what the person knows still opens it. The hash of a
// password costs too much to be computed each time.
func (h *history) signsIn(a *account) bool {
	var sealed []byte
	var since *time.Time
	var open, due bool
	must.Do(h.s.t, h.s.db.QueryRow(context.Background(), `SELECT u.totp_sealed, u.password_set_at, u.deactivated_at IS NULL AND coalesce(i.state, 'A') = 'A', u.role <> 'institutional_user'
		FROM users u LEFT JOIN institutions i ON i.id = u.institution_id WHERE u.id = $1`, a.id).Scan(&sealed, &since, &open, &due))
	same := (since == nil) == (a.since == nil) && (since == nil || since.Equal(*a.since))
	if !open || !same || sealed != nil && string(sealed) != string(a.sealed) {
		return false
	}
	session := func(level string) {
		h.made++
		secret := fmt.Sprintf("%s-%d-%d", h.in.Identifier, a.id, h.made)
		digest := sha256.Sum256([]byte(secret))
		h.s.exec(`INSERT INTO sessions (digest, user_id, level, ends_at, strong_at) VALUES ($1, $2, $3, now() + interval '1 hour', now())`, digest[:], a.id, level)
		a.caller = h.s.browser()
		a.header.Set("Cookie", "farol="+secret)
		a.header.Set("X-Forwarded-For", h.address())
	}
	if sealed == nil && due {
		session(people.LevelPassword)
		a.setUp()
		a.sealed = ask[[]byte](h.s, `SELECT totp_sealed FROM users WHERE id = $1`, a.id)
	}
	session(people.LevelFull)
	return true
}

// does carries out one step.
func (h *history) does(x step) (won string) {
	by := h.held[x.a%len(h.held)]
	if x.what != "link.use" && x.what != "session.forgot" && x.what != "days" && !h.signsIn(by) {
		return ""
	}
	say := func(a answer, text string, args ...any) answer {
		h.log = append(h.log, fmt.Sprintf("%d: %s: %s: %d", by.id, x.what, fmt.Sprintf(text, args...), a.status))
		return a
	}
	switch x.what {
	case "days":
		if n := 1 + x.a%3; h.days+n < 7 {
			h.days += n
			h.s.exec(`UPDATE means_given SET at = at - $1 * interval '1 day'`, n)
			h.s.exec(`UPDATE admins_left SET left_at = left_at - $1 * interval '1 day'`, n)
			say(answer{}, "%d pass", n)
		}
	case "ask":
		h.asks(by, x, say)
	case "approve":
		for _, at := range h.asked {
			if a := by.do("POST", at, nil); a.status == http.StatusOK {
				say(a, "%s", at)
				return at
			} else if a.status >= 500 {
				h.s.t.Fatalf("%s: %d %s", at, a.status, a.body)
			}
		}
	case "link.use", "session.forgot":
		h.takes(x, say)
	case "users.add":
		h.adds(by, x, say)
	default:
		h.acts(by, x, say)
	}
	return ""
}

type sayer func(a answer, text string, args ...any) answer

// asks requests what takes another person to approve.
func (h *history) asks(by *account, x step, say sayer) {
	h.made++
	path, body := "deletions", fmt.Sprintf(`{"identifiers": ["%s/bag/data/f"]}`, h.in.Identifier)
	switch x.b % 3 {
	case 1:
		path, body = "restorations", fmt.Sprintf(`{"object": "%s/vault"}`, h.in.Identifier)
	case 2:
		path, body = "plans", fmt.Sprintf(`{"action": "cancel", "filter": {"institution": "%s"}}`, h.in.Identifier)
	}
	a := say(by.do("POST", "/api/v1/"+path, body, "Idempotency-Key", fmt.Sprint(h.in.Identifier, h.made)), "%s", path)
	var made struct {
		ID   int64
		Item struct{ ID int64 }
	}
	if a.status == http.StatusCreated && json.Unmarshal([]byte(a.body), &made) == nil {
		h.asked = append(h.asked, fmt.Sprintf("/api/v1/%s/%d/approve", path, max(made.ID, made.Item.ID)))
	}
}

// takes opens a link, whoever has it: one that was shown, or one in a mailbox of the person's.
func (h *history) takes(x step, say sayer) {
	if x.what == "session.forgot" {
		if len(h.mail) > 0 {
			user := h.mail[x.b%len(h.mail)]
			if secret, err := h.s.people.MakeLink(context.Background(), user, people.Reset); err == nil { // as the job that sends mail does
				h.links = append(h.links, secret)
				say(answer{}, "mail to %d", user)
			}
		}
		return
	}
	if len(h.links) == 0 {
		return
	}
	i := x.b % len(h.links)
	secret := h.links[i]
	h.links = slices.Delete(h.links, i, i+1)
	var user int64
	if p, err := h.s.people.LinkOf(context.Background(), secret, people.Invite, people.Reset); err == nil {
		user = p.ID
	}
	h.made++
	if a := say(h.s.browser().do("POST", "/api/v1/password-links/use", map[string]any{"secret": secret, "password": password}, "X-Forwarded-For", h.address()), "of %d", user); a.status != http.StatusOK {
		return
	}
	n := slices.IndexFunc(h.held, func(a *account) bool { return a.id == user })
	if n < 0 {
		h.holds(user)
		n = len(h.held) - 1
	}
	since := ask[time.Time](h.s, `SELECT password_set_at FROM users WHERE id = $1`, user)
	h.held[n].since = &since
}

// adds registers a person, of whom there are at most two: three accounts are in one hand.
func (h *history) adds(by *account, x step, say sayer) {
	if h.made++; len(h.about) >= 5 {
		return
	}
	role := []string{registry.RoleInstitutionalAdmin, registry.RoleAdmin, registry.RoleInstitutionalUser, registry.RoleInstitutionalAdmin}[x.b%4]
	body := map[string]any{"email": fmt.Sprintf("n%d@%s", h.made, h.in.Identifier), "name": "Some Person", "role": role}
	if role != registry.RoleAdmin {
		body["institution_identifier"] = h.in.Identifier
	}
	a := say(by.do("POST", "/api/v1/users", body), "%s", role)
	var made struct{ ID int64 }
	if a.status == http.StatusCreated && json.Unmarshal([]byte(a.body), &made) == nil {
		h.about, h.mail = append(h.about, made.ID), append(h.mail, made.ID)
	}
}

// acts carries out any other operation of the table, on a person or on the institution.
func (h *history) acts(by *account, x step, say sayer) {
	i := slices.IndexFunc(h.s.table.Rows(), func(o ops.Row) bool { return o.ID == x.what })
	o, id := h.s.table.Rows()[i], h.about[x.b%len(h.about)]
	if strings.HasPrefix(o.ID, "institutions.") {
		id = h.in.ID
	}
	h.made++
	mail := fmt.Sprintf("m%d@%s", h.made, h.in.Identifier)
	bodies := map[string][]string{
		"users.set": {
			`{"email": "` + mail + `"}`, `{"role": "institutional_user"}`, `{"role": "institutional_admin", "institution_identifier": "` + h.in.Identifier + `"}`,
			`{"role": "admin", "institution_identifier": ""}`, `{"institution_identifier": "other.edu"}`, `{"second_factor_required": true}`, `{"name": "Another"}`,
		},
		"institutions.set": {`{"second_factor_required": false}`, `{"second_factor_required": true}`},
		"me.set":           {`{"name": "Another"}`},
		"me.set_factor":    {`{"pending": "x", "code": "000000"}`},
		"me.set_password":  {`{"old": "x", "new": "` + password + `"}`},
		"me.add_token":     {fmt.Sprintf(`{"name": "t%d", "permissions": ["restorations.approve"]}`, h.made)},
		"tokens.add":       {fmt.Sprintf(`{"name": "%s-%d", "permissions": ["plans.make", "plans.read"]}`, h.in.Identifier, h.made)},
	}[o.ID]
	var body any
	if bodies != nil {
		body = bodies[x.c%len(bodies)]
	}
	a := say(by.do(o.Method, strings.ReplaceAll(o.Path, "{id}", strconv.FormatInt(id, 10)), body), "%d %v", id, body)
	switch {
	case a.status >= 500:
		h.s.t.Fatalf("%s: %d %s", o.ID, a.status, a.body)
	case a.status >= 300:
	case o.ID == "users.set" && strings.Contains(fmt.Sprint(body), mail):
		h.mail = append(h.mail, id)
	case o.ID == "users.invite" || o.ID == "users.reset":
		h.links = append(h.links, a.text("path")[strings.LastIndexByte(a.text("path"), '/')+1:])
	case o.ID == "tokens.add": // a plan of a service is of the hand that has made its token
		p := h.s.browser()
		p.token = a.text("token")
		h.asks(&account{caller: p}, step{b: 2}, say)
	}
}

// shortest takes steps out of a history for as long as the person still gets what they want.
func (s *site) shortest(role string, steps []step) []string {
	s.t.Helper()
	for i := len(steps) - 1; i >= 0; i-- {
		less := slices.Delete(slices.Clone(steps), i, i+1)
		if won, _ := s.plays(role, less); won != "" {
			steps = less
		}
	}
	_, log := s.plays(role, steps)
	return log
}

// One person gets nothing done that takes two, whatever accounts that person makes, takes
// over or empties, and whoever else is made to leave: the rule looks at who gave whom the
// means to act. The known ways come first, then ways at random.
func TestOnePersonIsNeverTwo(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(a *api.API) { a.Web.Proxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	s.old()
	var all []string
	for _, o := range s.table.Rows() {
		switch tag, _, _ := strings.Cut(o.ID, "."); {
		case !strings.Contains(" users me session link tokens institutions ", " "+tag+" "):
		case slices.Contains(strings.Fields(acts), o.ID):
			all = append(all, o.ID)
		case !slices.Contains(strings.Fields(harmless), o.ID):
			t.Errorf("%s is an operation on people that no history has", o.ID)
		}
	}
	if len(all) != len(strings.Fields(acts)) {
		t.Errorf("histories are made of %d operations, and the table has %d", len(strings.Fields(acts)), len(all))
	}
	check := func(name, role string, steps []step) {
		t.Helper()
		if won, _ := s.plays(role, steps); won != "" {
			t.Errorf("%s: one %s alone has approved %s:\n%s", name, role, won, strings.Join(s.shortest(role, steps), "\n"))
		}
	}
	const admin, staff = registry.RoleInstitutionalAdmin, registry.RoleAdmin // people: 0 the real admin, 1 staff, 2 the person, 3 whom the person makes
	check("a second admin", admin, []step{{what: "users.add"}, {what: "users.invite", b: 3}, {what: "link.use"}})
	check("the other one's link", admin, []step{{what: "users.reset_factor"}, {what: "users.reset"}, {what: "link.use"}})
	check("an invitation", admin, []step{{what: "users.reset_factor"}, {what: "users.invite"}, {what: "link.use"}})
	check("by the new account", admin, []step{
		{what: "users.add"}, {what: "users.invite", b: 3}, {what: "link.use"}, {what: "users.reset_factor", a: 1}, {what: "users.reset", a: 1}, {what: "link.use"},
	})
	for _, leaves := range []step{{what: "users.deactivate"}, {what: "users.set", c: 1}, {what: "users.set", c: 4}} {
		check("nobody else is left", staff, []step{{what: "users.add"}, {what: "users.invite", b: 3}, {what: "link.use"}, leaves, {what: "days", a: 2}, {what: "days", a: 2}})
		check("and a colleague", staff, []step{
			{what: "users.add"}, {what: "users.invite", b: 3}, {what: "link.use"}, {what: "users.add", b: 1}, {what: "users.invite", b: 4}, {what: "link.use"}, leaves,
		})
	}
	check("a token", staff, []step{{what: "tokens.add"}})
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	likely := append(strings.Fields(acts+more), strings.Fields("users.add users.reset users.reset_factor users.invite link.use link.use link.use users.set users.set")...)
	n := testenv.Soak(400)
	for i := range n {
		var steps []step
		for range 8 + random.IntN(10) {
			steps = append(steps, step{likely[random.IntN(len(likely))], random.IntN(60), random.IntN(60), random.IntN(60)})
		}
		check(fmt.Sprintf("history %d of seed %d", i, seed), []string{admin, staff}[i%2], steps)
		if t.Failed() {
			break
		}
	}
	testenv.Soaked(t, n, "histories of one person with three accounts")
}
