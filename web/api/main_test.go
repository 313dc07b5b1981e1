package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/pquerna/otp/totp"

	"github.com/farol-preservation/farol/internal/commands/handlers"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/registry/plans"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/front"
	"github.com/farol-preservation/farol/web/ops"
	"github.com/farol-preservation/farol/web/permission"
)

func TestMain(m *testing.M) {
	testenv.AtEnd(unseen)
	testenv.Main(m)
}

const password = "correct horse battery staple"

// site is a server for people with a registry of the test's own: two institutions, a person
// of each role in them, and staff.
type site struct {
	t        *testing.T
	url      string
	db       *pgxpool.Pool // as a superuser
	web      *pgxpool.Pool // the server's
	registry *registry.Registry
	people   people.Records
	table    *ops.API
	api      *api.API
	test     record.Institution
	other    record.Institution
}

func newSite(t *testing.T, change ...func(*api.API)) *site {
	t.Helper()
	at := testenv.DatabaseURL(t)
	pool := func(url string) *pgxpool.Pool {
		db := must.Get(pgxpool.New(context.Background(), url))(t)
		t.Cleanup(db.Close)
		return db
	}
	s := &site{t: t, db: pool(at)}
	s.web = pool(testenv.WebURL(t, at))
	s.registry = registry.New(s.web)
	s.people = people.In(s.registry)
	keys := must.Get(auth.ParseKeys(auth.NewKey()))(t)
	a := &api.API{
		Registry: s.registry, Version: "test", Log: slog.New(slog.DiscardHandler), Rate: 100_000, Auth: auth.New(s.registry, auth.Options{Keys: keys, Issuer: "Farol", HashMemory: 64}),
		PlanAlone: 3, ArchiveClass: func(option string, fromArchive bool) string {
			if option == "Glacier-VA" {
				return "GLACIER"
			}
			return ""
		},
		Next: func(ctx context.Context, given []string, n int) ([]int64, error) {
			return handlers.Next(ctx, s.web, given, n)
		},
		Fixity: api.Fixity{Days: 90, Tries: 3}, Web: &access.Web{Tokens: access.NewTokens(s.registry, false), Registry: s.registry},
	}
	for _, f := range change {
		f(a)
	}
	ctx, stop := context.WithCancel(context.Background())
	carried := make(chan struct{})
	go func() {
		defer close(carried)
		plans.In(s.registry).CarryAll(ctx, a.Log)
	}()
	t.Cleanup(func() {
		stop()
		<-carried
	})
	handler, table := front.Handler(a, access.Guard{}, func(mux *http.ServeMux) http.Handler { return mux })
	s.url, s.table, s.api = testenv.Serve(t, specOf(t, handler).watch(t, handler)), table, a
	s.test, s.other = s.institution("test.edu"), s.institution("other.edu")
	return s
}

func (s *site) institution(identifier string) record.Institution {
	s.t.Helper()
	in := must.Get(s.registry.AddInstitution(context.Background(), record.Institution{
		Name: "The " + identifier, Identifier: identifier, ReceivingBucket: "in." + identifier, RestoreBucket: "out." + identifier,
	}))(s.t)
	return in
}

func (s *site) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(context.Background(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

func ask[T any](s *site, sql string, args ...any) (v T) {
	s.t.Helper()
	if err := s.db.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// caller is a browser or a program.
type caller struct {
	s      *site
	person people.Person
	client *http.Client
	token  string
	secret string // of the second factor
	header http.Header
}

// answer is what a request was answered.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) code() string { return a.text("code") }

func (a answer) text(field string) string {
	var m map[string]any
	if json.Unmarshal([]byte(a.body), &m) != nil {
		return ""
	}
	text, ok := m[field].(string)
	if !ok {
		return ""
	}
	return text
}

func (s *site) browser() *caller {
	s.t.Helper()
	jar := must.Get(cookiejar.New(nil))(s.t)
	return &caller{s: s, client: &http.Client{Jar: jar, Timeout: time.Minute}, header: http.Header{}}
}

func (c *caller) do(method, path string, body any, headers ...string) answer {
	c.s.t.Helper()
	var in io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(b)
	default:
		text := must.Get(json.Marshal(body))(c.s.t)
		in = bytes.NewReader(text)
	}
	r := must.Get(http.NewRequestWithContext(context.Background(), method, c.s.url+path, in))(c.s.t)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	for k, v := range c.header {
		r.Header[k] = v
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	answered, err := c.client.Do(r)
	if err != nil {
		c.s.t.Fatal(err)
	}
	defer answered.Body.Close() //nolint:errcheck // read below
	text := must.Get(io.ReadAll(answered.Body))(c.s.t)
	return answer{answered.StatusCode, answered.Header, string(text)}
}

// wants fails the test unless the answer has a status.
func (c *caller) wants(status int, method, path string, body any, headers ...string) answer {
	c.s.t.Helper()
	a := c.do(method, path, body, headers...)
	if a.status != status {
		c.s.t.Fatalf("%s %s: %d %s, want %d", method, path, a.status, a.body, status)
	}
	return a
}

// person registers a person who sets a password by an invitation.
func (s *site) person(email, role, institution string) *caller {
	s.t.Helper()
	u, err := s.registry.AddUser(context.Background(), record.User{Email: email, Name: "Some Person", Role: role, Institution: institution})
	if err != nil {
		s.t.Fatal(err)
	}
	secret, err := s.people.MakeLink(context.Background(), u.ID, people.Invite)
	if err != nil {
		s.t.Fatal(err)
	}
	c := s.browser()
	c.wants(http.StatusOK, "POST", "/api/v1/password-links/use", map[string]any{"secret": secret, "password": password})
	if c.person, err = s.people.ByID(context.Background(), u.ID); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// in is a person with everything that signing in takes.
func (s *site) in(email, role, institution string) *caller {
	s.t.Helper()
	c := s.person(email, role, institution)
	if c.person.FactorRequired {
		c.setUp()
	}
	return c
}

// setUp sets up a second factor.
func (c *caller) setUp() {
	c.s.t.Helper()
	var offer struct{ Secret, Pending string }
	c.reads(c.wants(http.StatusOK, "POST", "/api/v1/me/factor", nil), &offer)
	code := must.Get(totp.GenerateCode(offer.Secret, time.Now()))(c.s.t)
	c.secret = offer.Secret
	c.wants(http.StatusOK, "POST", "/api/v1/me/factor/confirm", map[string]any{"pending": offer.Pending, "code": code})
}

func (c *caller) reads(a answer, into any) {
	c.s.t.Helper()
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		c.s.t.Fatalf("%s: %v", a.body, err)
	}
}

// program has a token of the person with some permissions.
func (c *caller) program(permissions ...string) *caller {
	c.s.t.Helper()
	var made struct{ Token string }
	name := fmt.Sprint("program ", time.Now().UnixNano())
	if slices.ContainsFunc(permissions, func(p string) bool { return permission.Permission(p).Browser() }) { // an earlier version gave them
		_, secret, err := c.s.registry.AddToken(c.s.t.Context(), record.Token{Name: name, UserID: c.person.ID, Permissions: permissions})
		if err != nil {
			c.s.t.Fatal(err)
		}
		p := c.s.browser()
		p.token, p.person = secret, c.person
		return p
	}
	c.reads(c.wants(http.StatusCreated, "POST", "/api/v1/me/tokens", map[string]any{"name": name, "permissions": permissions}), &made)
	p := c.s.browser()
	p.token, p.person = made.Token, c.person
	return p
}
