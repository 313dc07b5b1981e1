package main

import (
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
	"github.com/farol-preservation/farol/web/auth"
)

// A server for people starts although an OpenID provider is away, and signs people in at
// another one.
func TestServeSignsInAtProviders(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "farol")
	must.Do(t, linkSelf(binary))
	direct := testenv.DatabaseURL(t)
	db := must.Get(dial.Connect(t.Context(), direct, "test"))(t)
	t.Cleanup(db.Close)
	must.Get(registry.New(db).AddUser(t.Context(), record.User{Email: "auditor@archive.org", Name: "An Auditor", Role: registry.RoleAuditor}))(t)
	away, campus := testenv.NewOpenID(t), testenv.NewOpenID(t)
	away.Close()
	campus.Answers(testenv.OpenIDAnswer{Claims: map[string]any{"email": "auditor@archive.org", "email_verified": true}})
	addr := freeAddress(t)
	p := startProcess(t, binary, t.TempDir(), map[string]string{
		"FAROL_DATABASE_URL": testenv.WebURL(t, direct), "FAROL_WEB_ADDR": addr, "FAROL_WEB_KEY": auth.NewKey(),
		"FAROL_OIDC_AWAY_ISSUER": away.URL, "FAROL_OIDC_AWAY_CLIENT_ID": "x", "FAROL_OIDC_AWAY_DOMAINS": "archive.org",
		"FAROL_OIDC_TEST_EDU_ISSUER": campus.URL, "FAROL_OIDC_TEST_EDU_CLIENT_ID": testenv.OpenIDClient,
		"FAROL_OIDC_TEST_EDU_CLIENT_SECRET": testenv.OpenIDSecret, "FAROL_OIDC_TEST_EDU_DOMAINS": "archive.org",
	}, "serve", "--web")
	p.eventually("the pages", func() bool { return strings.Contains(p.said(), `msg=serving api="the REST API"`) })
	jar := must.Get(cookiejar.New(nil))(t)
	browser := &http.Client{Jar: jar, Timeout: testenv.Patience}
	for _, tc := range []struct{ path, at, shows string }{
		{"/sign-in", "/sign-in", `href="/oidc/away"`},
		{"/oidc/away", "/oidc/away", "This sign-in service does not answer"},
		{"/oidc/test-edu", "/", ">An Auditor</a>"},
		{"/api/v1/me", "/api/v1/me", `"email":"auditor@archive.org"`},
	} {
		a, err := browser.Get("http://" + addr + tc.path)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(a.Body)
		if err := a.Body.Close(); err != nil {
			t.Error(err)
		}
		if err != nil || a.Request.URL.Path != tc.at || !strings.Contains(string(page), tc.shows) {
			t.Errorf("%s led to %s, which shows no %q: %v\n%s\n%s", tc.path, a.Request.URL, tc.shows, err, page, p.said())
		}
	}
	if said := p.said(); strings.Contains(said, testenv.OpenIDSecret) || !strings.Contains(said, "an OpenID provider cannot be reached") {
		t.Errorf("the log has a secret, or no word of the provider that is away:\n%s", said)
	}
}

// freeAddress is one of loopback that nothing listens at.
func freeAddress(t *testing.T) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close() //nolint:errcheck // it only was to find the port
	return l.Addr().String()
}
