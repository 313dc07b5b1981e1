package signin_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/oidc"
)

// at is a provider that people of test.edu sign in at.
func at(o *testenv.OpenID) oidc.Config {
	return oidc.Config{
		Provider: auth.Provider{Name: "campus", Institution: "test.edu", Domains: []string{"test.edu"}},
		Issuer:   o.URL, ClientID: testenv.OpenIDClient, Secret: func() string { return testenv.OpenIDSecret },
	}
}

func (v *visitor) exec(sql string, args ...any) {
	v.t.Helper()
	if _, err := v.db.Exec(v.t.Context(), sql, args...); err != nil {
		v.t.Fatalf("%s: %v", sql, err)
	}
}

func (v *visitor) count(sql string, args ...any) (n int) {
	v.t.Helper()
	if err := v.db.QueryRow(v.t.Context(), sql, args...).Scan(&n); err != nil {
		v.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// registered registers a person of an institution, or of the staff, who has no password.
func (v *visitor) registered(email, role, institution string) people.Person {
	v.t.Helper()
	if institution != "" {
		v.exec(`INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', $1, 'in.' || $1, 'out.' || $1) ON CONFLICT DO NOTHING`, institution)
	}
	u := must.Get(v.registry.AddUser(v.t.Context(), record.User{Email: email, Name: "Some Person", Role: role, Institution: institution}))(v.t)
	p := must.Get(people.In(v.registry).ByID(v.t.Context(), u.ID))(v.t)
	return p
}

// back goes to the provider and returns where that sends the browser back to, without going
// there.
func (v *visitor) back(path string) string {
	v.t.Helper()
	var to string
	client := *v.client
	client.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasSuffix(r.URL.Path, "/callback") {
			to = r.URL.RequestURI()
			return http.ErrUseLastResponse
		}
		return nil
	}
	a, err := client.Get(v.url + path)
	if err != nil {
		v.t.Fatal(err)
	}
	if err := a.Body.Close(); err != nil || to == "" {
		v.t.Fatalf("%s: %d, %v", path, a.StatusCode, err)
	}
	return to
}

func claims(more ...any) map[string]any {
	c := map[string]any{"email": "ann@test.edu", "email_verified": true}
	for i := 0; i < len(more); i += 2 {
		c[more[i].(string)] = more[i+1] //nolint:forcetypeassert // of this file
	}
	return c
}

// A person is found by a verified e-mail address once, and by the subject from then on.
func TestProviderSignsIn(t *testing.T) {
	t.Parallel()
	o := testenv.NewOpenID(t)
	v := visit(t, at(o))
	ann := v.registered("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	v.sees("/sign-in", nil, "/sign-in", `href="/oidc/campus"`)
	o.Answers(testenv.OpenIDAnswer{Claims: claims("email", "Ann@Test.edu", "email_verified", "true")})
	v.sees("/oidc/campus", nil, "/", "You are Some Person")
	if n := v.count(`SELECT count(*) FROM users WHERE id = $1 AND oidc_issuer = $2`, ann.ID, o.URL); n != 1 {
		t.Error("the person is not linked to the provider")
	}
	if asked := o.Asked(); asked.Get("scope") != "openid email" || asked.Get("code_challenge") == "" || asked.Has("prompt") {
		t.Errorf("the provider was asked %v", asked)
	}
	const onRecord = `SELECT count(*) FROM actions WHERE operation = 'me.bind_provider' AND outcome = 'done' AND user_id = $1 AND actor_institution_id = institution_id`
	if n := v.count(onRecord, ann.ID); n != 1 {
		t.Errorf("the link is on record %d times", n)
	}
	if n := v.count(`SELECT count(*) FROM alerts WHERE user_id = $1 AND type = 'New Sign-in'`, ann.ID); n != 1 {
		t.Errorf("%d alerts", n)
	}
	v.anotherBrowser()
	o.Answers(testenv.OpenIDAnswer{Algorithm: "RS256", Claims: map[string]any{"email": "ann.married@elsewhere.example", "email_verified": false}})
	v.sees("/oidc/campus", nil, "/", "You are Some Person")
	if n := v.count(onRecord, ann.ID); n != 1 {
		t.Errorf("the second sign-in has linked again: %d", n)
	}

	// Another account there with the same e-mail address takes nothing over.
	v.anotherBrowser()
	o.Answers(testenv.OpenIDAnswer{Claims: claims("sub", "subject 2")})
	v.sees("/oidc/campus", nil, "/oidc/campus/callback", "no account of Farol belongs")
	v.sees("/", nil, "/sign-in", "Sign in")
	if n := v.count(`SELECT count(*) FROM actions WHERE operation = 'me.bind_provider' AND outcome = 'refused' AND user_id = $1`, ann.ID); n != 1 {
		t.Errorf("the attempt is on record %d times", n)
	}

	// Staff takes the link away: sessions end, and the next sign-in makes another one.
	if err := people.In(v.registry).Unbind(t.Context(), ann.ID); err != nil || v.count(`SELECT count(*) FROM sessions`) != 0 {
		t.Errorf("sessions outlive the link: %v", err)
	}
	v.sees("/oidc/campus", nil, "/", "You are Some Person")
	if n := v.count(`SELECT count(*) FROM users WHERE oidc_subject = 'subject 2'`); n != 1 {
		t.Error("the person is not linked again")
	}
}

// An address that the ID token lacks is asked for, of the same subject.
func TestProviderIsAskedForTheAddress(t *testing.T) {
	t.Parallel()
	o := testenv.NewOpenID(t)
	v := visit(t, at(o))
	v.registered("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	o.Answers(testenv.OpenIDAnswer{Info: claims("sub", "subject 2")})
	v.sees("/oidc/campus", nil, "/oidc/campus/callback", "was not completed")
	o.Answers(testenv.OpenIDAnswer{Info: claims("sub", "subject 1")})
	v.sees("/oidc/campus", nil, "/", "You are")
}

// A person who is not registered, or whom the provider does not vouch for, gets one answer and no
// session; and so does a token that was not made for this sign-in.
func TestProviderIsNotBelieved(t *testing.T) {
	t.Parallel()
	const unknown, vain = "no account of Farol belongs", "was not completed"
	o := testenv.NewOpenID(t)
	v := visit(t, at(o))
	for email, institution := range map[string]string{
		"ann@test.edu": "test.edu", "kate@test.edu": "test.edu", "bob@other.edu": "other.edu", "cat@test.edu": "other.edu", "gone@test.edu": "test.edu",
		"guest@elsewhere.example": "test.edu", "żoë@test.edu": "test.edu",
	} {
		v.registered(email, registry.RoleInstitutionalUser, institution)
	}
	v.exec(`UPDATE users SET deactivated_at = now() WHERE email = 'gone@test.edu'`)
	v.registered("staff@test.edu", registry.RoleAdmin, "")
	for name, tc := range map[string]struct {
		answer testenv.OpenIDAnswer
		shows  string
	}{
		"a nonce of another sign-in":   {testenv.OpenIDAnswer{Claims: claims("nonce", "another")}, vain},
		"no nonce":                     {testenv.OpenIDAnswer{Claims: claims("nonce", nil)}, vain},
		"another audience":             {testenv.OpenIDAnswer{Claims: claims("aud", "another client")}, vain},
		"made for another client":      {testenv.OpenIDAnswer{Claims: claims("aud", []string{"farol", "another client"}, "azp", "another client")}, vain},
		"two clients, and for neither": {testenv.OpenIDAnswer{Claims: claims("aud", []string{"farol", "another client"})}, vain},
		"another issuer":               {testenv.OpenIDAnswer{Claims: claims("iss", "https://elsewhere.example")}, vain},
		"no subject":                   {testenv.OpenIDAnswer{Claims: claims("sub", nil)}, vain},
		"expired":                      {testenv.OpenIDAnswer{Claims: claims("exp", time.Now().Add(-time.Minute).Unix())}, vain},
		"not signed":                   {testenv.OpenIDAnswer{Claims: claims(), Algorithm: "none"}, vain},
		"signed with the secret":       {testenv.OpenIDAnswer{Claims: claims(), Algorithm: "HS256"}, vain},
		"signed by another":            {testenv.OpenIDAnswer{Claims: claims(), Key: testenv.NewSigner(t)}, vain},
		"another state":                {testenv.OpenIDAnswer{Claims: claims(), Back: map[string]string{"state": "another"}}, vain},
		"no state":                     {testenv.OpenIDAnswer{Claims: claims(), Back: map[string]string{"state": ""}}, vain},
		"of another provider":          {testenv.OpenIDAnswer{Claims: claims(), Back: map[string]string{"iss": "https://elsewhere.example"}}, vain},
		"a code that is not":           {testenv.OpenIDAnswer{Claims: claims(), Back: map[string]string{"code": "x"}}, vain},
		"the person has said no":       {testenv.OpenIDAnswer{Back: map[string]string{"code": "", "error": "access_denied"}}, vain},
		"an unverified address":        {testenv.OpenIDAnswer{Claims: claims("email_verified", false)}, unknown},
		"nothing of verified":          {testenv.OpenIDAnswer{Claims: claims("email_verified", nil)}, unknown},
		"an address of another domain": {testenv.OpenIDAnswer{Claims: claims("email", "bob@other.edu")}, unknown},
		"a domain within another":      {testenv.OpenIDAnswer{Claims: claims("email", "ann@test.edu@elsewhere.example")}, unknown},
		"a person of another":          {testenv.OpenIDAnswer{Claims: claims("email", "cat@test.edu")}, unknown},
		"staff":                        {testenv.OpenIDAnswer{Claims: claims("email", "staff@test.edu")}, unknown},
		"not registered":               {testenv.OpenIDAnswer{Claims: claims("email", "nobody@test.edu")}, unknown},
		"deactivated":                  {testenv.OpenIDAnswer{Claims: claims("email", "gone@test.edu")}, unknown},
		"a guest's address":            {testenv.OpenIDAnswer{Claims: claims("email", "guest@elsewhere.example")}, unknown},
		"letters of other cases":       {testenv.OpenIDAnswer{Claims: claims("email", "żoë@test.edu")}, unknown},
		"the sign of kelvin":           {testenv.OpenIDAnswer{Claims: claims("email", "\u212Aate@test.edu")}, unknown},
		"no address":                   {testenv.OpenIDAnswer{Claims: claims("email", "")}, vain},
	} {
		v.anotherBrowser()
		o.Answers(tc.answer)
		func() {
			defer func() { v.exec(`DELETE FROM sessions`) }()
			a, err := v.client.Get(v.url + "/oidc/campus")
			if err != nil {
				t.Fatal(err)
			}
			page := read(t, a)
			if !strings.Contains(page, tc.shows) || a.StatusCode < 400 {
				t.Errorf("%s: %s %d shows no %q:\n%s", name, a.Request.URL.Path, a.StatusCode, tc.shows, page)
			}
			if n := v.count(`SELECT (SELECT count(*) FROM sessions) + (SELECT count(*) FROM users WHERE oidc_subject IS NOT NULL)`); n != 0 {
				t.Errorf("%s: there is a session, or a link", name)
			}
		}()
		v.exec(`UPDATE users SET oidc_issuer = NULL, oidc_subject = NULL`)
	}
}

// What a browser has begun no other ends, and it ends once, within ten minutes.
func TestSignInAtProviderIsOfOneBrowser(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	o := testenv.NewOpenID(t)
	twin := at(o)
	twin.Name = "staff"
	v := visitAt(t, func() time.Time { return time.Now().Add(time.Duration(later.Load())) }, at(o), twin)
	v.registered("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	o.Answers(testenv.OpenIDAnswer{Claims: claims("exp", time.Now().Add(time.Hour).Unix())})

	stolen := v.back("/oidc/campus")
	own := v.client
	v.anotherBrowser()
	v.sees(stolen, nil, "/oidc/campus/callback", "was not completed")
	if to := v.back("/oidc/campus"); to == stolen {
		t.Fatal("two sign-ins have one state")
	}
	v.sees(stolen, nil, "/oidc/campus/callback", "was not completed") // with the cookie of another sign-in

	v.client = own
	at := must.Get(url.Parse(v.url + "/oidc/campus/callback"))(t)
	kept := own.Jar.Cookies(at)
	v.sees(stolen, nil, "/", "You are")
	v.anotherBrowser()
	v.client.Jar.SetCookies(at, kept)
	v.sees(stolen, nil, "/oidc/campus/callback", "was not completed") // the provider takes a code once

	v.anotherBrowser()
	late := v.back("/oidc/campus")
	later.Store(int64(11 * time.Minute))
	v.sees(late, nil, "/oidc/campus/callback", "was not completed")
	v.anotherBrowser()
	later.Store(0)
	other := strings.Replace(v.back("/oidc/campus"), "/campus/", "/staff/", 1)
	v.sees(other, nil, "/oidc/staff/callback", "was not completed") // what was begun at one provider
}

// A second factor at the provider counts if it is trusted with that. A proof is fresh if the
// provider says when it was given.
func TestSecondFactorAtProvider(t *testing.T) {
	t.Parallel()
	o := testenv.NewOpenID(t)
	trusted := at(o)
	trusted.Provider = auth.Provider{Name: "trusted", Domains: []string{"archive.org"}}
	trusted.TrustMFA = true
	other := trusted
	other.Name, other.TrustMFA = "other", false
	v := visit(t, trusted, other)
	staff := v.registered("staff@archive.org", registry.RoleOperator, "")
	for _, tc := range []struct {
		by, leads string
		claims    []any
	}{
		{"other", "/second-factor", []any{"amr", []string{"mfa"}}},
		{"trusted", "/second-factor", []any{"amr", []string{"pwd"}}},
		{"trusted", "/second-factor", nil},
		{"trusted", "/", []any{"amr", []string{"pwd", "otp"}}},
		{"trusted", "/", []any{"acr", "https://refeds.org/profile/mfa"}},
		{"trusted", "/", []any{"amr", []string{"mfa"}, "auth_time", time.Now().Add(-time.Hour).Unix()}},
		{"trusted", "/", []any{"amr", []string{"mfa"}, "auth_time", time.Now().Unix(), "is fresh", true}},
	} {
		v.anotherBrowser()
		v.exec(`DELETE FROM sessions`)
		o.Answers(testenv.OpenIDAnswer{Claims: claims(append(tc.claims, "email", staff.Email)...)})
		v.sees("/oidc/"+tc.by, nil, tc.leads, "staff@archive.org")
		level, fresh := people.LevelPassword, 0
		if tc.leads == "/" {
			level = people.LevelFull
		}
		if len(tc.claims) == 6 {
			fresh = 1
		}
		if n := v.count(`SELECT count(*) FROM sessions WHERE level = $1 AND (strong_at IS NOT NULL)::int = $2`, level, fresh); n != 1 {
			t.Errorf("%+v: the session is of another level, or fresh", tc)
		}
	}
	v.sees("/oidc/trusted?again", nil, "/", "You are")
	v.needsItsFactor(staff)
	if asked := o.Asked(); asked.Get("prompt") != "login" || asked.Get("max_age") != "0" {
		t.Errorf("for a fresh proof the provider was asked %v", asked)
	}
}

// needsItsFactor: who has found out, or has set, the password of a person whose second factor
// is at a provider does not set up another one.
func (v *visitor) needsItsFactor(p people.Person) {
	v.t.Helper()
	kept := v.client
	v.anotherBrowser()
	v.entersByLink(p.Email)
	page := v.sees("/", nil, "/second-factor", "Set it up")
	field := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(page)
		if m == nil {
			v.t.Fatal(page)
		}
		return m[1]
	}
	code := must.Get(totp.GenerateCode(field(`Key: <code>([A-Z2-7]+)</code>`), time.Now()))(v.t)
	form := url.Values{"pending": {field(`name="pending" value="([^"]+)"`)}, "code": {code}}
	v.sees("/second-factor/set-up", form, "/second-factor/set-up", "Your second factor is at http")
	if n := v.count(`SELECT count(*) FROM users WHERE totp_sealed IS NOT NULL`); n != 0 {
		v.t.Error("a password was enough to set up a second factor")
	}
	must.Do(v.t, people.In(v.registry).Unbind(v.t.Context(), p.ID))
	v.entersByLink(p.Email)
	v.sees("/second-factor/set-up", form, "/second-factor/set-up", "Recovery codes")
	v.client = kept
}

// No parameter says where a sign-in leads.
func TestProviderLeadsNowhereElse(t *testing.T) {
	t.Parallel()
	o := testenv.NewOpenID(t)
	v := visit(t, at(o))
	v.registered("ann@test.edu", registry.RoleInstitutionalUser, "test.edu")
	o.Answers(testenv.OpenIDAnswer{Claims: claims()})
	const evil = "https://evil.example/"
	back := v.back("/oidc/campus?next=" + evil + "&redirect_uri=" + evil + "&return_to=" + evil)
	client := *v.client
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	a, err := client.Get(v.url + back + "&next=" + evil + "&redirect_uri=" + evil)
	if err != nil {
		t.Fatal(err)
	}
	read(t, a)
	if to := a.Header.Get("Location"); to != "/" {
		t.Errorf("the sign-in leads to %q", to)
	}
}

// A provider that is away, or does not answer, is a sentence on the page.
func TestProviderThatIsAway(t *testing.T) {
	t.Parallel()
	away, other := testenv.NewOpenID(t), testenv.NewOpenID(t)
	silent := at(other)
	silent.Name, silent.Issuer = "silent", testenv.SilentServer(t, other.URL, "/.well-known/openid-configuration", 100)
	away.Close()
	v := visit(t, at(away), silent)
	v.sees("/sign-in", nil, "/sign-in", "Sign in by campus")
	v.sees("/oidc/campus", nil, "/oidc/campus", "does not answer")
	v.sees("/oidc/nobody/callback?state=x&code=y", nil, "/oidc/nobody/callback", "was not completed")
	v.sees("/oidc/nobody", nil, "/oidc/nobody", "does not answer")
	began := time.Now()
	for range 8 { // only the first waits, for a second
		v.sees("/oidc/silent", nil, "/oidc/silent", "does not answer")
	}
	if spent := time.Since(began); spent > 5*time.Second {
		t.Errorf("people wait for %s", spent)
	}
}
