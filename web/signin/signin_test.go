package signin_test

import (
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pquerna/otp/totp"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/oidc"
	"github.com/farol-preservation/farol/web/signin"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// visitor is a browser at pages of the test's own.
type visitor struct {
	t        *testing.T
	url      string
	client   *http.Client
	registry *registry.Registry
	db       *pgxpool.Pool
}

// visit opens a browser at pages. Each provider signs people in there.
func visit(t *testing.T, providers ...oidc.Config) *visitor {
	t.Helper()
	return visitAt(t, time.Now, providers...)
}

// visitAt is visit with a clock of providers.
func visitAt(t *testing.T, now func() time.Time, providers ...oidc.Config) *visitor {
	t.Helper()
	at := testenv.DatabaseURL(t)
	db := must.Get(pgxpool.New(t.Context(), at))(t)
	t.Cleanup(db.Close)
	web := must.Get(pgxpool.New(t.Context(), testenv.WebURL(t, at)))(t)
	t.Cleanup(web.Close)
	r := registry.New(web)
	keys := must.Get(auth.ParseKeys(auth.NewKey()))(t)
	mux, log := http.NewServeMux(), slog.New(slog.DiscardHandler)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	pages := &signin.Pages{
		Auth: auth.New(r, auth.Options{Keys: keys, Issuer: "Farol", HashMemory: 64}), Log: log,
		Web:       &access.Web{Tokens: access.NewTokens(r, false), Registry: r, Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		Providers: oidc.New(providers, oidc.Options{Keys: keys, Base: server.URL, Log: log, Now: now, Patience: time.Second}),
	}
	pages.Routes(mux)
	mux.HandleFunc("GET /{$}", home(pages.Web))
	v := &visitor{t, server.URL, nil, r, db}
	v.anotherBrowser()
	return v
}

// home stands for the first page of the console: it leads to sign in, and says who has.
func home(web *access.Web) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := web.Caller(r)
		switch {
		case err != nil || !c.Browser():
			http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
		case !c.Full():
			http.Redirect(w, r, "/second-factor", http.StatusSeeOther)
		default:
			fmt.Fprintf(w, "You are %s (%s), and may %v", html.EscapeString(c.Person.Name), c.Person.Email, c.Permissions)
		}
	}
}

// anotherBrowser has no cookies, and an address of its own: attempts from one are limited.
func (v *visitor) anotherBrowser() {
	v.t.Helper()
	jar := must.Get(cookiejar.New(nil))(v.t)
	v.client = &http.Client{Jar: jar, Timeout: time.Minute, Transport: from(addresses.Add(1))}
}

var addresses atomic.Uint32 //nolint:gochecknoglobals // a sequence

// from is a browser behind a proxy that says its address.
type from uint32

func (f from) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Forwarded-For", netip.AddrFrom4([4]byte{10, byte(f >> 16), byte(f >> 8), byte(f)}).String())
	return http.DefaultTransport.RoundTrip(r)
}

// invited registers a person and returns the path of the invitation.
func (v *visitor) invited(email, name, role string) string {
	v.t.Helper()
	u := must.Get(v.registry.AddUser(v.t.Context(), record.User{Email: email, Name: name, Role: role}))(v.t)
	secret := must.Get(people.In(v.registry).MakeLink(v.t.Context(), u.ID, people.Invite))(v.t)
	return people.LinkPath(people.Invite, secret)
}

// sees opens a page, or sends a form to it, and fails the test unless it leads to a path
// and shows a text.
func (v *visitor) sees(path string, form url.Values, at, text string) string {
	v.t.Helper()
	var a *http.Response
	var err error
	if form == nil {
		a, err = v.client.Get(v.url + path)
	} else {
		a, err = v.client.PostForm(v.url+path, form)
	}
	if err != nil {
		v.t.Fatal(err)
	}
	defer a.Body.Close() //nolint:errcheck // read below
	page := must.Get(io.ReadAll(a.Body))(v.t)
	if a.Request.URL.Path != at || !strings.Contains(string(page), text) {
		v.t.Fatalf("%s led to %s (%d), which shows no %q:\n%s", path, a.Request.URL.Path, a.StatusCode, text, page)
	}
	return string(page)
}

// An invitation leads to a password, a second factor and recovery codes; the next time
// password and code are enough.
func TestInvitationToTheEnd(t *testing.T) {
	t.Parallel()
	v := visit(t)
	link := v.invited("ann@archive.org", "Ann <script>alert(1)</script>", registry.RoleAdmin)
	v.sees("/", nil, "/sign-in", "Sign in")
	v.sees(link, nil, link, "ann@archive.org")
	v.sees(link, nil, link, "ann@archive.org") // to look at it uses nothing up
	v.sees(link, url.Values{"password": {"short"}}, link, "it has 5 characters")
	page := v.sees(link, url.Values{"password": {"correct horse battery staple"}}, "/second-factor", "<svg")
	key := regexp.MustCompile(`Key: <code>([A-Z2-7]+)</code>`).FindStringSubmatch(page)
	pending := regexp.MustCompile(`name="pending" value="([^"]+)"`).FindStringSubmatch(page)
	if key == nil || pending == nil {
		t.Fatal(page)
	}
	v.sees("/", nil, "/second-factor", "Set it up")
	v.sees("/second-factor/set-up", url.Values{"pending": {pending[1]}, "code": {"000000"}}, "/second-factor/set-up", "role=\"alert\"")
	code := must.Get(totp.GenerateCode(key[1], time.Now()))(t)
	codes := v.sees("/second-factor/set-up", url.Values{"pending": {pending[1]}, "code": {code}}, "/second-factor/set-up", "Recovery codes")
	recovery := regexp.MustCompile(`<code>([a-z2-7]{4}-[a-z2-7-]+)</code>`).FindStringSubmatch(codes)
	home := v.sees("/", nil, "/", "items.read")
	if strings.Contains(home, "<script>") || recovery == nil {
		t.Errorf("a name is markup, or there is no recovery code:\n%s", home)
	}
	v.sees("/sign-out", url.Values{}, "/sign-in", "Sign in")
	v.sees("/", nil, "/sign-in", "Sign in")
	v.sees(link, nil, link, "was used or has expired")
	v.sees("/sign-in", url.Values{"email": {"ann@archive.org"}, "password": {"wrong horse battery staple"}}, "/sign-in", "is wrong")
	v.sees("/sign-in", url.Values{"email": {"ann@archive.org"}, "password": {"correct horse battery staple"}}, "/second-factor", "six digits")
	v.sees("/second-factor", url.Values{"code": {recovery[1]}}, "/", "You are Ann")
}

// A link to sign in is used by a button, not by opening it.
func TestLinkToSignIn(t *testing.T) {
	t.Parallel()
	v := visit(t)
	v.invited("dev@archive.org", "Developer", registry.RoleAdmin)
	p := must.Get(people.In(v.registry).ByEmail(t.Context(), "dev@archive.org"))(t)
	secret := must.Get(people.In(v.registry).MakeLink(t.Context(), p.ID, people.SignIn))(t)
	// Whatever a link has at its end, its button leads to no other page.
	for _, end := range []string{"..%2Fsign-out", "%2F%2Fother.edu", "x%22%20formaction=%22%2Fsign-out"} {
		path := must.Get(url.PathUnescape("/sign-in/" + end))(t)
		if page := v.sees("/sign-in/"+end, nil, path, "signs you in once"); strings.Contains(page, `action`) {
			t.Errorf("a link chooses where its button leads:\n%s", page)
		}
	}
	path := people.LinkPath(people.SignIn, secret)
	v.sees(path, nil, path, "signs you in once")
	v.sees(path, url.Values{}, "/", "You are Developer")
	v.sees(path, url.Values{}, path, "was used or has expired")
	v.sees("/accessibility", nil, "/accessibility", "Web Content Accessibility Guidelines")
}

// A person who has signed in sets up another second factor, after a fresh proof; a session
// without its second factor does not get that far.
func TestAnotherSecondFactor(t *testing.T) {
	t.Parallel()
	v := visit(t)
	link := v.invited("ann@archive.org", "Ann", registry.RoleAdmin)
	v.sees("/second-factor/set-up", nil, "/sign-in", "Sign in")
	v.sees(link, url.Values{"password": {"correct horse battery staple"}}, "/second-factor", "<svg")
	v.sees("/second-factor/set-up", nil, "/second-factor", "Set it up")
	setUp := func(page string) {
		t.Helper()
		key := regexp.MustCompile(`Key: <code>([A-Z2-7]+)</code>`).FindStringSubmatch(page)
		pending := regexp.MustCompile(`name="pending" value="([^"]+)"`).FindStringSubmatch(page)
		if key == nil || pending == nil {
			t.Fatal(page)
		}
		form := url.Values{"pending": {pending[1]}, "code": {"000000"}}
		v.sees("/second-factor/set-up", form, "/second-factor/set-up", `role="alert"`)
		code := must.Get(totp.GenerateCode(key[1], time.Now()))(t)
		form.Set("code", code)
		v.sees("/second-factor/set-up", form, "/second-factor/set-up", "Recovery codes")
	}
	setUp(v.sees("/second-factor", nil, "/second-factor", "<svg"))
	const sealed = `SELECT count(DISTINCT totp_sealed) FROM users WHERE totp_sealed <> $1`
	var before []byte
	must.Do(t, v.db.QueryRow(t.Context(), `SELECT totp_sealed FROM users`).Scan(&before))
	v.exec(`UPDATE sessions SET strong_at = now() - interval '11 minutes'`)
	v.sees("/second-factor/set-up", nil, "/second-factor/set-up", "Prove first that it is you")
	v.sees("/second-factor/proof", url.Values{"proof": {"000000"}}, "/second-factor/proof", `role="alert"`)
	v.exec(`UPDATE sessions SET strong_at = now()`)
	v.exec(`DELETE FROM sign_in_failures`)
	setUp(v.sees("/second-factor/set-up", nil, "/second-factor/set-up", "replaces the old one"))
	if n := v.count(sealed, before); n != 1 {
		t.Error("the second factor is the old one")
	}
}

func read(t *testing.T, a *http.Response) string {
	t.Helper()
	defer a.Body.Close() //nolint:errcheck // read below
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}
