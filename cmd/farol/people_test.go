package main

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pquerna/otp/totp"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/auth"
)

const testPassword = "correct horse battery staple"

// webSite is a server in a process of its own, which people use over HTTP, with a database
// of the test's own. A server that is started after another has its address.
type webSite struct {
	t        *testing.T
	binary   string
	at       string // URL of the REST API
	settings map[string]string
	db       *pgxpool.Pool // as a superuser
	registry *registry.Registry
	server   *process
	moments  map[string]int // at which servers were killed
}

func newWebSite(t *testing.T) *webSite {
	t.Helper()
	direct := testenv.DatabaseURL(t)
	db := must.Get(pgxpool.New(t.Context(), direct))(t)
	t.Cleanup(db.Close)
	addr := freeAddr(t)
	a := &webSite{t: t, binary: testenv.Binary(t), at: "http://" + addr, db: db, registry: registry.New(db), moments: map[string]int{}}
	a.settings = map[string]string{
		"FAROL_DATABASE_URL": testenv.WebURL(t, direct), "FAROL_WEB_ADDR": addr, "FAROL_WEB_KEY": auth.NewKey(), "FAROL_PLAN_SECOND": "100000",
	}
	return a
}

// start starts a server that ends with the test, or before.
func (a *webSite) start(args ...string) {
	a.t.Helper()
	a.server = startProcess(a.t, a.binary, a.t.TempDir(), a.settings, append([]string{"serve"}, args...)...)
	a.server.eventually("the server", func() bool { return strings.Contains(a.server.said(), `msg=serving api="the REST API"`) })
}

// address is where the server serves what its log calls so.
func (a *webSite) address(what string) string {
	a.t.Helper()
	where := regexp.MustCompile(what + ` addr=(\S+)`)
	a.server.eventually("the address", func() bool { return where.MatchString(a.server.said()) })
	return "http://" + where.FindStringSubmatch(a.server.said())[1]
}

// everything starts a server of all APIs, and returns where the queues and the health are.
func (a *webSite) everything() (programs, health string) {
	a.t.Helper()
	a.settings["FAROL_PULL_ADDR"], a.settings["FAROL_HTTP_ADDR"] = "127.0.0.1:0", "127.0.0.1:0"
	a.start()
	return a.address(`api="the pull API"`), a.address(`serving metrics and health"`)
}

func (a *webSite) exec(sql string, args ...any) {
	a.t.Helper()
	testenv.Exec(a.t, a.db, sql, args...)
}

// browser is that of a person.
type browser struct {
	a      *webSite
	client *http.Client
}

func (a *webSite) browser() *browser {
	a.t.Helper()
	jar := must.Get(cookiejar.New(nil))(a.t)
	own := &http.Transport{}
	a.t.Cleanup(own.CloseIdleConnections)
	return &browser{a, &http.Client{Jar: jar, Transport: own, Timeout: testenv.Patience}}
}

// httpAnswer is what a server has answered.
type httpAnswer struct {
	status int
	header http.Header
	body   string
	err    error // there is no answer
}

func (b *browser) do(method, path, body string, headers ...string) (r httpAnswer) {
	request, err := http.NewRequestWithContext(b.a.t.Context(), method, b.a.at+path, strings.NewReader(body))
	if err != nil {
		return httpAnswer{err: err}
	}
	request.GetBody = nil // so that the transport sends it once
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	answer, err := b.client.Do(request)
	if err != nil {
		return httpAnswer{err: err}
	}
	defer answer.Body.Close() //nolint:errcheck // read below
	text, err := io.ReadAll(answer.Body)
	return httpAnswer{answer.StatusCode, maps.Clone(answer.Header), string(text), err}
}

// wants fails the test unless the answer has a status, and reads it.
func (b *browser) wants(status int, method, path, body string, into any) {
	b.a.t.Helper()
	r := b.do(method, path, body)
	if r.status != status {
		b.a.t.Fatalf("%s %s: %d %s, %v, want %d", method, path, r.status, r.body, r.err, status)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(r.body), into); err != nil {
			b.a.t.Fatalf("%s %s: %s: %v", method, path, r.body, err)
		}
	}
}

// person registers a person who has signed in, with a second factor if it is required.
func (a *webSite) person(email, role, institution string) *browser {
	a.t.Helper()
	u := must.Get(a.registry.AddUser(a.t.Context(), record.User{Email: email, Name: "Some Person", Role: role, Institution: institution}))(a.t)
	secret := must.Get(people.In(a.registry).MakeLink(a.t.Context(), u.ID, people.Invite))(a.t)
	b := a.browser()
	var next struct{ Next string }
	b.wants(http.StatusOK, "POST", "/api/v1/password-links/use", asJSON(map[string]string{"secret": secret, "password": testPassword}), &next)
	if next.Next == "" {
		return b
	}
	var offer struct{ Secret, Pending string }
	b.wants(http.StatusOK, "POST", "/api/v1/me/factor", "", &offer)
	code := must.Get(totp.GenerateCode(offer.Secret, time.Now()))(a.t)
	b.wants(http.StatusOK, "POST", "/api/v1/me/factor/confirm", asJSON(map[string]string{"pending": offer.Pending, "code": code}), nil)
	return b
}

func asJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
