package console_test

import (
	"context"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
)

func TestMain(m *testing.M) { testenv.Main(m) }

// site is a server for people with a registry of the test's own and two institutions.
type site struct {
	t        *testing.T
	url      string
	db       *pgxpool.Pool // as a superuser
	registry *registry.Registry
	people   people.Records
	api      *api.API
	table    *ops.API
	asked    *statements // of the server
	test     record.Institution
	other    record.Institution
}

func newSite(t *testing.T, change ...func(*api.API)) *site {
	t.Helper()
	at := testenv.DatabaseURL(t)
	s := &site{t: t, asked: &statements{}}
	pool := func(url string, tracer pgx.QueryTracer) *pgxpool.Pool {
		config := must.Get(pgxpool.ParseConfig(url))(t)
		config.ConnConfig.Tracer = tracer
		db := must.Get(pgxpool.NewWithConfig(context.Background(), config))(t)
		t.Cleanup(db.Close)
		return db
	}
	s.db, s.registry = pool(at, nil), registry.New(pool(testenv.WebURL(t, at), s.asked))
	s.people = people.In(s.registry)
	keys := must.Get(auth.ParseKeys(auth.NewKey()))(t)
	s.api = &api.API{
		Registry: s.registry, Version: "test", Log: slog.New(slog.DiscardHandler), Rate: 100_000, PlanAlone: 3,
		Auth:         auth.New(s.registry, auth.Options{Keys: keys, Issuer: "Farol", HashMemory: 64}),
		ArchiveClass: func(string, bool) string { return "" },
		Next:         func(context.Context, []string, int) ([]int64, error) { return nil, nil },
		Fixity:       api.Fixity{Days: 90, Tries: 3},
		Web:          &access.Web{Tokens: access.NewTokens(s.registry, false), Registry: s.registry, Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
	}
	for _, f := range change {
		f(s.api)
	}
	ctx, stop := context.WithCancel(context.Background())
	carried := make(chan struct{})
	go func() {
		defer close(carried)
		plans.In(s.registry).CarryAll(ctx, s.api.Log)
	}()
	t.Cleanup(func() {
		stop()
		<-carried
	})
	s.api.Stops = ctx.Done()
	handler, table := front.Handler(s.api, access.Guard{}, func(mux *http.ServeMux) http.Handler { return mux })
	s.url, s.table = testenv.Serve(t, handler), table
	t.Cleanup(stop) // before the server waits for its streams
	s.test, s.other = s.institution("test.edu"), s.institution("other.edu")
	return s
}

// statements counts those that a server sends to the database.
type statements struct {
	mu   sync.Mutex
	sent []string
}

// TraceQueryStart is of pgx.QueryTracer.
func (l *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, q.SQL)
	return ctx
}

// TraceQueryEnd is of pgx.QueryTracer.
func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// with returns how many have a text.
func (l *statements) with(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, sql := range l.sent {
		if strings.Contains(sql, text) {
			n++
		}
	}
	return n
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

// item is a work item of an ingest; more is set on it afterwards, such as "status = 'Failed'".
func (s *site) item(name, more string) int64 {
	s.t.Helper()
	id := ask[int64](s, `INSERT INTO work_items (action, stage, name, etag, bucket, bag_date, size, institution_id, object_identifier)
		VALUES ('Ingest', 'Receive', $1, 'e', 'in.test.edu', now(), 2048, $2, $3) RETURNING id`, name, s.test.ID, "test.edu/"+strings.TrimSuffix(name, ".tar"))
	if more != "" {
		s.exec(`UPDATE work_items SET `+more+` WHERE id = $1`, id)
	}
	return id
}

// browser is a browser, and who sits at it.
type browser struct {
	t      *testing.T
	s      *site
	person people.Person
	client *http.Client
	header http.Header
	landed string // where signing in has led to
}

// answer is a page that a browser has got.
type answer struct {
	status int
	path   string // where it led to
	text   string
	header http.Header
}

// in is the browser of a new person who has signed in to the end.
func (s *site) in(role, institution string) *browser {
	s.t.Helper()
	b := s.browser()
	u, err := s.registry.AddUser(context.Background(), record.User{
		Email: fmt.Sprintf("%s-%d@test.edu", role, time.Now().UnixNano()), Name: "Some " + role, Role: role, Institution: institution,
	})
	if err != nil {
		s.t.Fatal(err)
	}
	if b.person, err = s.people.ByID(context.Background(), u.ID); err != nil {
		s.t.Fatal(err)
	}
	b.enters(b.person)
	return b
}

// enters signs a person in by a link.
func (b *browser) enters(p people.Person) {
	b.t.Helper()
	secret := must.Get(b.s.people.MakeLink(context.Background(), p.ID, people.SignIn))(b.t)
	link := people.LinkPath(people.SignIn, secret)
	a := b.send(link, nil)
	if b.landed, b.person = a.path, p; a.path == link || a.path == "/second-factor" {
		b.t.Fatalf("a link does not sign in: %s %s", a.path, a.text)
	}
}

func (s *site) browser() *browser {
	s.t.Helper()
	jar := must.Get(cookiejar.New(nil))(s.t)
	n := addresses.Add(1) // each browser has an address of its own: attempts from one are limited
	return &browser{t: s.t, s: s, client: &http.Client{Jar: jar, Timeout: time.Minute}, header: http.Header{
		"Accept": {"text/html"}, "X-Forwarded-For": {netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}).String()},
	}}
}

var addresses atomic.Uint32 //nolint:gochecknoglobals // a sequence

func (b *browser) do(r *http.Request) answer {
	b.t.Helper()
	for name, values := range b.header {
		r.Header[name] = values
	}
	a, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer a.Body.Close() //nolint:errcheck // read below
	text := must.Get(io.ReadAll(a.Body))(b.t)
	return answer{a.StatusCode, a.Request.URL.Path, string(text), a.Header}
}

// open opens a page.
func (b *browser) open(path string) answer {
	b.t.Helper()
	r := must.Get(http.NewRequestWithContext(context.Background(), http.MethodGet, b.s.url+path, nil))(b.t)
	return b.do(r)
}

// send sends a form.
func (b *browser) send(path string, form url.Values) answer {
	b.t.Helper()
	r := must.Get(http.NewRequestWithContext(context.Background(), http.MethodPost, b.s.url+path, strings.NewReader(form.Encode())))(b.t)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(r)
}

// sees opens a page, and fails the test unless it shows all texts.
func (b *browser) sees(path string, texts ...string) answer {
	b.t.Helper()
	a := b.open(path)
	if a.status != http.StatusOK {
		b.t.Fatalf("%s: %d %s", path, a.status, wordsIn(a.text))
	}
	a.shows(b.t, texts...)
	return a
}

// shows fails the test unless a page shows all texts, as a person reads them.
func (a answer) shows(t *testing.T, texts ...string) {
	t.Helper()
	page := wordsIn(a.text)
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("%s (%d) does not show %q:\n%s", a.path, a.status, text, page)
		}
	}
}

// lacks fails the test if a page shows one of the texts.
func (a answer) lacks(t *testing.T, texts ...string) {
	t.Helper()
	page := wordsIn(a.text)
	for _, text := range texts {
		if strings.Contains(page, text) {
			t.Errorf("%s shows %q:\n%s", a.path, text, page)
		}
	}
}

var (
	tags   = regexp.MustCompile(`<[^>]*>`)
	blanks = regexp.MustCompile(`\s+`)
)

// wordsIn is what a person reads of a page.
func wordsIn(page string) string {
	return strings.TrimSpace(blanks.ReplaceAllString(html.UnescapeString(tags.ReplaceAllString(page, " ")), " "))
}

// form is the form of a page that is sent to an operation, with the values that it has. The
// test fails if there is none.
func (a answer) form(t *testing.T, operation string) url.Values {
	t.Helper()
	begin := strings.Index(a.text, `action="/do/`+operation+`"`)
	if begin < 0 {
		t.Fatalf("%s has no form for %s", a.path, operation)
	}
	text, _, _ := strings.Cut(a.text[begin:], "</form>")
	form := url.Values{}
	for _, field := range inputs.FindAllString(text, -1) {
		name, value := attribute(field, "name"), attribute(field, "value")
		unticked := strings.Contains(field, `type="checkbox"`) && !strings.Contains(field, " checked")
		if name != "" && !unticked {
			form.Add(name, value)
		}
	}
	return form
}

var inputs = regexp.MustCompile(`<input[^>]*>`)

func attribute(tag, name string) string {
	_, rest, found := strings.Cut(tag, " "+name+`="`)
	if !found {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return html.UnescapeString(value)
}
