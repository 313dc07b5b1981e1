package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/web/api"
)

// A session is a cookie that scripts cannot read, and that no other site has sent.
func TestSigningInAndOut(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	c := s.browser()
	for body, status := range map[string]int{
		`{"email": "ann@test.edu", "password": "wrong horse battery staple"}`: 401, `{"email": "nobody@test.edu", "password": "` + password + `"}`: 401,
		`{"email": "ann@test.edu"}`: 400, `{"email": "ann@test.edu", "password": "x", "role": "admin"}`: 400, `[]`: 400, `{`: 400, ``: 400,
		`{"email": ["ann@test.edu"], "password": "x"}`: 400, `{"email": "ann@test.edu", "password": "` + strings.Repeat("x", 2000) + `"}`: 400,
		`{"email": "ann@test.edu", "password": "` + strings.Repeat("x", 2<<20) + `"}`: 413,
	} {
		if a := c.do("POST", "/api/v1/session", body); a.status != status || a.header.Get("Set-Cookie") != "" || a.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%.60s: %d %s, want %d", body, a.status, a.body, status)
		}
	}
	wrong := c.do("POST", "/api/v1/session", map[string]string{"email": "ann@test.edu", "password": "wrong horse battery staple"})
	unknown := c.do("POST", "/api/v1/session", map[string]string{"email": "nobody@test.edu", "password": "wrong horse battery staple"})
	if wrong.body != unknown.body {
		t.Errorf("%s\nand\n%s say who is registered", wrong.body, unknown.body)
	}
	a := c.wants(200, "POST", "/api/v1/session", map[string]string{"email": "Ann@test.edu", "password": password})
	for _, part := range []string{"farol=", "HttpOnly", "SameSite=Lax", "Path=/", "Max-Age=43200"} {
		if !strings.Contains(strings.Join(a.header.Values("Set-Cookie"), "\n"), part) {
			t.Errorf("the cookie is %q without %s", a.header.Values("Set-Cookie"), part)
		}
	}
	if a := c.wants(200, "GET", "/api/v1/me", nil); a.text("email") != "ann@test.edu" || a.text("institution_identifier") != "test.edu" {
		t.Error(a.body)
	}
	c.wants(204, "DELETE", "/api/v1/session", nil)
	if a := c.do("GET", "/api/v1/me", nil); a.status != 401 || a.code() != "not-signed-in" {
		t.Errorf("after signing out: %d %s", a.status, a.body)
	}
}

// What a browser was given before it signs in, or before the second factor, opens nothing
// afterwards: who has planted or overheard it is not signed in with the person.
func TestSessionsAreNotFixed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	known := s.in("staff@archive.org", registry.RoleAdmin, "")
	s.exec(`UPDATE users SET totp_last_step = 0`)
	const planted = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	c, thief := s.browser(), s.browser()
	a := c.wants(200, "POST", "/api/v1/session", map[string]string{"email": "staff@archive.org", "password": password}, "Cookie", "farol="+planted)
	half := cookieOf(a)
	if half == "" || half == planted {
		t.Fatalf("the session has the secret %q", half)
	}
	if a := thief.do("GET", "/api/v1/session", nil, "Cookie", "farol="+planted); a.status != 401 {
		t.Errorf("the planted secret opens a session: %d", a.status)
	}
	code := must.Get(totp.GenerateCode(known.secret, time.Now()))(t)
	full := cookieOf(c.wants(200, "POST", "/api/v1/session/factor", map[string]string{"code": code}))
	if full == "" || full == half {
		t.Errorf("after the second factor the secret is %q", full)
	}
	if a := thief.do("GET", "/api/v1/session", nil, "Cookie", "farol="+half); a.status != 401 {
		t.Errorf("the secret of before the second factor opens a session: %d", a.status)
	}
	if a := thief.do("POST", "/api/v1/session/factor", map[string]string{"code": code}, "Cookie", "farol="+full); a.status != 401 {
		t.Errorf("a code is replayed: %d", a.status)
	}
	proved := cookieOf(c.wants(200, "POST", "/api/v1/me/password", map[string]string{"old": password, "new": "another long password"}))
	for name, old := range map[string]string{"this": full, "the first": cookieOf(a)} {
		if a := thief.do("GET", "/api/v1/session", nil, "Cookie", "farol="+old); a.status != 401 || proved == old {
			t.Errorf("after a new password the secret of %s session opens it: %d", name, a.status)
		}
	}
	if a := known.do("GET", "/api/v1/me", nil); a.status != 401 {
		t.Errorf("after a new password the session of another browser goes on: %d", a.status)
	}
	c.wants(200, "GET", "/api/v1/me", nil)
}

// cookieOf is the secret that an answer gives a browser.
func cookieOf(a answer) string {
	for _, line := range a.header.Values("Set-Cookie") {
		if c, err := http.ParseSetCookie(line); err == nil && c.Name == "farol" {
			return c.Value
		}
	}
	return ""
}

// Pages of other origins, and names that were bent to lead here, get nothing, with the
// cookie or without.
func TestOtherOriginsAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.person("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	own := s.url
	for name, headers := range map[string][]string{
		"another origin": {"Origin", "https://evil.example"}, "no origin": {"Origin", "null"}, "another port": {"Origin", "http://127.0.0.1:1"},
		"a bent name": {"Host", "evil.example:4181"}, "a bent name with its own origin": {"Host", "evil.example", "Origin", "http://evil.example"},
		"another site": {"Sec-Fetch-Site", "cross-site"}, "another host of the site": {"Sec-Fetch-Site", "same-site", "Origin", own},
		"a form": {"Content-Type", "application/x-www-form-urlencoded"}, "plain text": {"Content-Type", "text/plain"}, "no type": {"Content-Type", ""},
	} {
		if a := c.do("POST", "/api/v1/session/proof", `{"proof": "`+password+`"}`, headers...); a.status != 403 && a.status != 415 || a.header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	c.wants(200, "POST", "/api/v1/session/proof", `{"proof": "`+password+`"}`, "Origin", own, "Sec-Fetch-Site", "same-origin")
	if a := c.do("GET", "/api/v1/me", nil, "Origin", "https://evil.example"); a.status != 403 || a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("reading from another origin: %d", a.status)
	}
	// A link in a mail leads here from another site.
	c.wants(200, "GET", "/api", nil, "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate")
}

// A token that is sent counts, and the cookie does not; a token that is wrong is no cookie.
func TestTokenCountsAloneWhereItIsSent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.in("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	if a := c.do("GET", "/api/v1/me", nil, "Authorization", "Bearer nothing"); a.status != 401 {
		t.Errorf("a wrong token beside a good cookie: %d", a.status)
	}
	p := c.program("users.read")
	if a := p.wants(200, "GET", "/api/v1/me", nil); !strings.Contains(a.body, `"permissions":["users.read"]`) {
		t.Error(a.body)
	}
	if a := p.do("GET", "/api/v1/institutions", nil); a.code() != "not-allowed" {
		t.Errorf("a permission that the token lacks: %d %s", a.status, a.body)
	}
	s.exec(`UPDATE users SET role = 'institutional_user' WHERE id = $1`, c.person.ID)
	if n := ask[int](s, `SELECT count(*) FROM api_tokens WHERE user_id = $1`, c.person.ID); n != 0 {
		t.Errorf("%d tokens outlive a change of role", n)
	}
}

func TestTokensOfAPersonAreFew(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	if a := c.do("POST", "/api/v1/me/tokens", map[string]any{"name": "t", "permissions": []string{"users.write"}}); a.status != 400 {
		t.Errorf("a permission that the person lacks: %d %s", a.status, a.body)
	}
	for range 5 {
		c.program("items.read")
	}
	if a := c.do("POST", "/api/v1/me/tokens", map[string]any{"name": "one too many"}); a.status != 409 || a.code() != "refused" {
		t.Errorf("a sixth token: %d %s", a.status, a.body)
	}
	for _, days := range []int{0, -1, 366} {
		if a := c.do("POST", "/api/v1/me/tokens", map[string]any{"name": "t", "days": days}); a.status != 400 {
			t.Errorf("%d days: %d %s", days, a.status, a.body)
		}
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE operation = 'me.add_token' AND outcome = 'done' AND actor = 'ann@test.edu' AND user_id = $1`, c.person.ID); n != 5 {
		t.Errorf("%d are on record", n)
	}
	if n := ask[int](s, `SELECT count(*) FROM actions WHERE detail::text LIKE '%farol\_%'`); n != 0 {
		t.Error("a secret is on record")
	}
}

// What is no operation is a problem, too.
func TestWhatIsNotThere(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.browser()
	for path, status := range map[string]int{"/nothing": 404, "/api/v1/nothing": 404, "/api/v2/items": 404, "/api/v1/items/../../etc/passwd": 404, "/nothing-api/v3/items": 404} {
		if a := c.do("GET", path, nil); a.status != status || a.header.Get("Content-Type") != "application/problem+json" || a.code() == "" {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	a := c.do("DELETE", "/api/v1/users", nil)
	if a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("a method that is not there: %d %s", a.status, a.header.Get("Allow"))
	}
	for _, header := range []string{"X-Request-Id", "Cache-Control", "X-Content-Type-Options", "Content-Security-Policy"} {
		if a.header.Get(header) == "" {
			t.Errorf("no %s", header)
		}
	}
}

// A session of a person without a second factor needs a fresh proof to set one up.
func TestFirstFactorNeedsAFreshProof(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	c := s.in("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	s.exec(`UPDATE sessions SET strong_at = now() - interval '11 minutes'`)
	var offer struct{ Secret, Pending string }
	c.reads(c.wants(200, "POST", "/api/v1/me/factor", nil), &offer)
	code, err := totp.GenerateCode(offer.Secret, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	body := map[string]any{"pending": offer.Pending, "code": code}
	if a := c.do("POST", "/api/v1/me/factor/confirm", body); a.status != 403 || a.code() != "fresh-proof-needed" {
		t.Errorf("without a fresh proof: %d %s", a.status, a.body)
	}
	c.wants(200, "POST", "/api/v1/session/proof", map[string]any{"proof": password})
	if body["code"], err = totp.GenerateCode(offer.Secret, time.Now()); err != nil { // the first may have expired
		t.Fatal(err)
	}
	c.wants(200, "POST", "/api/v1/me/factor/confirm", body)
}

// Browsers that have come by TLS once come by nothing else.
func TestBrowsersStayWithTLS(t *testing.T) {
	t.Parallel()
	for _, secure := range []bool{true, false} {
		s := newSite(t, func(a *api.API) { a.Web.Secure = secure })
		for path, host := range map[string]string{"/sign-in": "", "/api/v1/health": "", "/": "elsewhere.edu"} {
			a := s.browser().do("GET", path, nil, "Host", host)
			if got := a.header.Get("Strict-Transport-Security"); (got != "") != secure {
				t.Errorf("%s over TLS %v: %q", path, secure, got)
			}
		}
	}
}
