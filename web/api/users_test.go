package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/registry"
)

// What is another institution's is answered with the bytes of what does not exist, in every
// operation on one record.
func TestOthersAreAsIfTheyWereNot(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	other := s.person("victim@other.edu", registry.RoleInstitutionalUser, "other.edu")
	staff := s.person("staff@archive.org", registry.RoleAdmin, "")
	ids := map[string][]int64{"users": {other.person.ID, staff.person.ID}, "institutions": {s.other.ID}}
	before := ask[string](s, `SELECT string_agg(u::text, E'\n' ORDER BY id) FROM users u WHERE email <> 'admin@test.edu'`)
	for _, o := range s.table.Rows() {
		kind, _, _ := strings.Cut(o.ID, ".")
		if !strings.Contains(o.Path, "{id}") || ids[kind] == nil {
			continue
		}
		var body any
		if o.Method == "PATCH" {
			body = map[string]any{"name": "Another Name"}
		}
		there := func(id int64) answer { return c.do(o.Method, strings.ReplaceAll(o.Path, "{id}", fmt.Sprint(id)), body) }
		absent := there(987654321)
		for _, id := range ids[kind] {
			if got := there(id); got.status != absent.status || got.body != absent.body || len(got.header) != len(absent.header) {
				t.Errorf("%s of another: %d %s, and of nothing: %d %s", o.ID, got.status, got.body, absent.status, absent.body)
			}
		}
	}
	if after := ask[string](s, `SELECT string_agg(u::text, E'\n' ORDER BY id) FROM users u WHERE email <> 'admin@test.edu'`); after != before {
		t.Errorf("something has changed:\n%s\nwas\n%s", after, before)
	}
	a := c.wants(200, "GET", "/api/v1/users", nil)
	if strings.Contains(a.body, "other.edu") || strings.Contains(a.body, "archive.org") || !strings.Contains(a.body, "admin@test.edu") {
		t.Error(a.body)
	}
	for _, query := range []string{"?institution=other.edu", "?role=admin", "?active=false"} {
		if a := c.wants(200, "GET", "/api/v1/users"+query, nil); !strings.Contains(a.body, `"items":[]`) {
			t.Errorf("%s: %s", query, a.body)
		}
	}
}

// An institutional admin gives no role and no institution that is not the own.
func TestInstitutionalAdminsStayAtHome(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	auditor := s.person("auditor@test.edu", registry.RoleAuditor, "test.edu")
	for body, status := range map[string]int{
		`{"email": "a@test.edu", "name": "Ann", "role": "admin"}`:                                                       403,
		`{"email": "a@test.edu", "name": "Ann", "role": "operator"}`:                                                    403,
		`{"email": "a@test.edu", "name": "Ann", "role": "auditor"}`:                                                     403,
		`{"email": "a@test.edu", "name": "Ann", "role": "institutional_user", "institution_identifier": "other.edu"}`:   404,
		`{"email": "a@test.edu", "name": "Ann", "role": "institutional_user", "institution_identifier": "nothing.edu"}`: 404,
		`{"email": "admin@test.edu", "name": "Ann", "role": "institutional_user"}`:                                      409,
		`{"email": "no address", "name": "Ann", "role": "institutional_user"}`:                                          409,
		`{"email": "a@test.edu", "name": "A\u0000nn", "role": "institutional_user"}`:                                    409,
		`{"email": "a@test.edu", "name": "Ann", "role": "emperor"}`:                                                     400,
		`{"email": "a@test.edu", "name": "Ann", "role": "institutional_user", "version": 1}`:                            400,
	} {
		if a := c.do("POST", "/api/v1/users", body); a.status != status || strings.Contains(a.body, "SQLSTATE") {
			t.Errorf("%s: %d %s, want %d", body, a.status, a.body, status)
		}
	}
	a := c.wants(201, "POST", "/api/v1/users", `{"email": "a@test.edu", "name": "Ann", "role": "institutional_user"}`)
	var made struct{ ID, Version int64 }
	c.reads(a, &made)
	at := fmt.Sprint("/api/v1/users/", made.ID)
	for body, status := range map[string]int{
		`{"role": "admin"}`: 403, `{"institution_identifier": "other.edu"}`: 403, `{"institution_identifier": ""}`: 403, `{"time_zone": "Mars/Olympus"}`: 409,
	} {
		if a := c.do("PATCH", at, body); a.status != status {
			t.Errorf("%s: %d %s, want %d", body, a.status, a.body, status)
		}
	}
	if a := c.do("POST", fmt.Sprintf("/api/v1/users/%d/deactivate", auditor.person.ID), nil); a.status != 403 {
		t.Errorf("the auditor of the institution is deactivated: %d", a.status)
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE operation = 'users.add' AND outcome = 'done' AND actor = 'admin@test.edu' AND institution_id = $1`, s.test.ID); n != 1 {
		t.Errorf("%d are on record", n)
	}
}

// A change that was decided on another version is not made.
func TestIfMatch(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	p := s.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	at := fmt.Sprint("/api/v1/users/", p.person.ID)
	tag := c.wants(200, "GET", at, nil).header.Get("ETag")
	changed := c.wants(200, "PATCH", at, `{"name": "Ann Lee"}`, "If-Match", tag)
	if changed.header.Get("ETag") == tag || tag == "" {
		t.Errorf("the tag is %s, and was %s", changed.header.Get("ETag"), tag)
	}
	if a := c.do("PATCH", at, `{"name": "Eve"}`, "If-Match", tag); a.status != 412 || a.code() != "changed" {
		t.Errorf("an old tag: %d %s", a.status, a.body)
	}
	for _, wrong := range []string{"x", `"-1"`, `"1e9"`} {
		if a := c.do("PATCH", at, `{"name": "Eve"}`, "If-Match", wrong); a.status != 400 {
			t.Errorf("If-Match %s: %d %s", wrong, a.status, a.body)
		}
	}
	if got := ask[string](s, `SELECT name FROM users WHERE id = $1`, p.person.ID); got != "Ann Lee" {
		t.Errorf("the name is %s", got)
	}
}

// A request that is sent again is answered again, and done once.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	const body = `{"email": "a@test.edu", "name": "Ann", "role": "institutional_user"}`
	first := c.wants(201, "POST", "/api/v1/users", body, "Idempotency-Key", "k1")
	again := c.do("POST", "/api/v1/users", body, "Idempotency-Key", "k1")
	if again.status != 201 || again.body != first.body || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("again: %d %s", again.status, again.body)
	}
	if a := c.do("POST", "/api/v1/users", strings.Replace(body, "Ann", "Eve", 1), "Idempotency-Key", "k1"); a.status != 422 || a.code() != "key-reused" {
		t.Errorf("another request with the key: %d %s", a.status, a.body)
	}
	other := s.in("boss@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	if a := other.do("POST", "/api/v1/users", body, "Idempotency-Key", "k1"); a.status != 409 || a.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("the key of another person: %d %s", a.status, a.body)
	}
	if a := c.do("POST", "/api/v1/users", body, "Idempotency-Key", strings.Repeat("k", 101)); a.status != 400 {
		t.Errorf("a long key: %d", a.status)
	}
	if a := c.do("POST", "/api/v1/me/tokens", `{"name": "t"}`, "Idempotency-Key", "k2"); a.status != 400 {
		t.Errorf("a key where the answer has a secret: %d %s", a.status, a.body)
	}
	// A server that dies after the change, and before it keeps the answer.
	s.exec(`UPDATE idempotency_keys SET status = NULL, body = NULL WHERE key = 'k1' AND done`)
	if a := c.do("POST", "/api/v1/users", body, "Idempotency-Key", "k1"); a.status != 409 || a.code() != "answer-lost" {
		t.Errorf("after a lost answer: %d %s", a.status, a.body)
	}
	// One that dies before the change.
	s.exec(`UPDATE idempotency_keys SET done = false WHERE key = 'k1'`)
	if a := c.do("POST", "/api/v1/users", body, "Idempotency-Key", "k1"); a.status != 409 || !strings.Contains(a.body, "in progress") || a.header.Get("Retry-After") == "" {
		t.Errorf("in progress: %d %s", a.status, a.body)
	}
	s.exec(`UPDATE idempotency_keys SET at = now() - interval '61 seconds' WHERE key = 'k1'; `)
	s.exec(`DELETE FROM users WHERE email = 'a@test.edu'`)
	c.wants(201, "POST", "/api/v1/users", body, "Idempotency-Key", "k1")
	if n := ask[int](s, `SELECT count(*) FROM users WHERE email = 'a@test.edu'`); n != 1 {
		t.Errorf("%d people", n)
	}
}

// Pages follow each other without gaps, and a cursor is of its list and filters only.
func TestPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	s.exec(`INSERT INTO users (email, name, role, institution_id) SELECT n || '@test.edu', 'Some Person', 'institutional_user', $1 FROM generate_series(1, 23) n`, s.test.ID)
	s.exec(`INSERT INTO users (email, name, role, institution_id) SELECT n || '@other.edu', 'Some Person', 'institutional_user', $1 FROM generate_series(1, 23) n`, s.other.ID)
	seen := map[int64]bool{}
	next := "/api/v1/users?limit=5&role=institutional_user"
	for pages := 0; next != ""; pages++ {
		var page struct {
			Items []struct{ ID int64 }
			Next  *string
		}
		c.reads(c.wants(200, "GET", next, nil), &page)
		for _, i := range page.Items {
			if seen[i.ID] {
				t.Errorf("person %d is on two pages", i.ID)
			}
			seen[i.ID] = true
		}
		if pages == 0 {
			after := strings.Replace(*page.Next, "role=institutional_user", "role=institutional_admin", 1)
			if a := c.do("GET", after, nil); a.status != 400 {
				t.Errorf("a cursor with other filters: %d %s", a.status, a.body)
			}
		}
		if next = ""; page.Next != nil {
			next = *page.Next
		}
	}
	if len(seen) != 23 {
		t.Errorf("%d people", len(seen))
	}
	for _, query := range []string{"limit=0", "limit=501", "limit=x", "after=x", "after=%00", "nonsense=1", "role=emperor", "role=admin&role=x", "limit=-1"} {
		if a := c.do("GET", "/api/v1/users?"+query, nil); a.status != 400 {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	if a := c.do("GET", "/api/v1/users?nonsense=1", nil); a.code() != "unknown-parameter" || !strings.Contains(a.body, "nonsense") {
		t.Errorf("an unknown parameter: %s", a.body)
	}
}

// The link to a provider is taken away with the sessions that it has begun, and on record.
func TestUnlinkedPersonSignsInAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	admin, ann := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu"), s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	s.exec(`UPDATE users SET oidc_issuer = 'https://login.test.edu', oidc_subject = id::text, oidc_factor = true`)
	at := fmt.Sprint("/api/v1/users/", ann.person.ID)
	if a := admin.wants(200, "GET", at, nil); a.text("oidc_issuer") != "https://login.test.edu" {
		t.Error(a.body)
	}
	admin.wants(204, "POST", at+"/unlink", nil)
	if a := ann.do("GET", "/api/v1/me", nil); a.status != 401 {
		t.Errorf("the session goes on: %d", a.status)
	}
	if n := ask[int](s, `SELECT count(*) FROM users WHERE oidc_subject IS NULL AND NOT oidc_factor AND oidc_issuer IS NULL`); n != 1 {
		t.Errorf("%d people are not linked", n)
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE operation = 'users.unlink' AND outcome = 'done' AND actor = 'admin@test.edu' AND subject_id = $1::bigint::text`, ann.person.ID); n != 1 {
		t.Error("it is not on record")
	}
}

// An unlocked person's failed attempts are forgotten, in each browser, and nobody else's are.
func TestUnlockedPersonTriesAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	admin, ann := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu"), s.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	s.exec(`INSERT INTO sign_in_failures (user_id, device, failures, locked_until) SELECT id, d, 6, now() + interval '1 hour' FROM users, unnest(ARRAY['', 'laptop']) d`)
	at := fmt.Sprint("/api/v1/users/", ann.person.ID)
	if a := admin.wants(200, "GET", at, nil); a.text("locked_until") == "" {
		t.Error(a.body)
	}
	admin.wants(204, "POST", at+"/unlock", nil)
	if a := admin.wants(200, "GET", at, nil); !strings.Contains(a.body, `"locked_until":null`) {
		t.Error(a.body)
	}
	if n := ask[int](s, `SELECT count(*) FROM sign_in_failures WHERE user_id = $1`, ann.person.ID); n != 0 {
		t.Errorf("%d failures of the person are left", n)
	}
	if n := ask[int](s, `SELECT count(*) FROM sign_in_failures`); n == 0 {
		t.Error("the failures of others are gone, too")
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE operation = 'users.unlock' AND outcome = 'done' AND actor = 'admin@test.edu' AND subject_id = $1::bigint::text`, ann.person.ID); n != 1 {
		t.Error("it is not on record")
	}
}

// What staff does to a person of an institution is on the institution's record, too.
func TestWhatIsDoneToPeopleIsOnTheirInstitutionsRecord(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	staff, ann := s.in("staff@archive.org", registry.RoleAdmin, ""), s.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	admin := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	for _, verb := range []string{"unlock", "unlink", "reset-factor", "reset", "deactivate", "activate"} {
		if a := staff.do("POST", fmt.Sprintf("/api/v1/users/%d/%s", ann.person.ID, verb), nil); a.status >= 300 && a.status != 409 {
			t.Errorf("%s: %d %s", verb, a.status, a.body)
		}
	}
	a := admin.wants(200, "GET", "/api/v1/actions?limit=100&actor=staff@archive.org", nil)
	for _, operation := range []string{"users.unlock", "users.unlink", "users.reset_factor", "users.reset", "users.deactivate", "users.activate"} {
		if !strings.Contains(a.body, `"operation":"`+operation+`"`) {
			t.Errorf("%s is not on the institution's record: %s", operation, a.body)
		}
	}
}

// What is for commands with the registry's own URL is refused over the network, or not there.
func TestWhatOnlyCommandsMay(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	staff, ann := s.in("staff@archive.org", registry.RoleAdmin, ""), s.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	at := fmt.Sprint("/api/v1/users/", ann.person.ID)
	staff.wants(403, "POST", at+"/reset?mail=true", nil)
	staff.wants(403, "POST", "/api/v1/tokens", map[string]any{"name": "t", "rights": []string{"pull"}, "seconds": 60})
	for _, path := range []string{at + "/sessions", at + "/mail", "/api/v1/mails"} {
		staff.wants(404, "GET", path, nil)
	}
	if n := ask[int](s, `SELECT (SELECT count(*) FROM mail_outbox WHERE kind = 'reset') + (SELECT count(*) FROM api_tokens)`); n != 0 {
		t.Errorf("%d of them were done", n)
	}
}
