package memberapi_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/people"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/api"
	"github.com/farol-preservation/farol/web/auth"
	"github.com/farol-preservation/farol/web/front"
)

// Times are answered in UTC wherever the server is.
func TestMain(m *testing.M) {
	time.Local = time.FixedZone("", 5*60*60)
	testenv.Main(m)
}

// sceneSQL makes the same records for each of two institutions.
//
//go:embed testdata/scene.sql
var sceneSQL string

const eventsSQL = `
INSERT INTO premis_events (identifier, institution_id, intellectual_object_id, generic_file_id, event_type, date_time, detail, outcome, outcome_detail,
	outcome_information, object, agent, created_at)
SELECT md5('e' || o.id || ' ' || n)::uuid, o.institution_id, o.id, CASE WHEN n > 2 THEN (SELECT min(f.id) FROM generic_files f WHERE f.intellectual_object_id = o.id) END,
	CASE n WHEN 1 THEN 'ingestion' WHEN 2 THEN 'access assignment' WHEN 3 THEN 'fixity check' ELSE 'message digest calculation' END,
	'2026-01-01Z'::timestamptz - n * interval '1 day', 'Detail', CASE n WHEN 3 THEN 'Failure' ELSE 'Success' END, 'd', 'i', 'ob', 'ag',
	'2026-01-02Z'::timestamptz + n * interval '1 second'
FROM intellectual_objects o CROSS JOIN generate_series(1, 4) n WHERE o.id IN (1, 46)`

// site is a server for people, with a tool of a depositor's at each of two institutions and
// one of the staff's.
type site struct {
	t        *testing.T
	url      string
	db       *pgxpool.Pool // as a superuser
	registry *registry.Registry

	ann, other, staff tool
}

// tool is a program of a depositor's.
type tool struct {
	s      *site
	person record.User
	header http.Header
}

func newSite(t *testing.T) *site {
	t.Helper()
	return newSiteAt(t, 100_000)
}

// newSiteAt lets each caller send a number of requests a second.
func newSiteAt(t *testing.T, rate int) *site {
	t.Helper()
	at := testenv.DatabaseURL(t)
	pool := func(url string) *pgxpool.Pool {
		db := must.Get(pgxpool.New(context.Background(), url))(t)
		t.Cleanup(db.Close)
		return db
	}
	s := &site{t: t, db: pool(at)}
	s.registry = registry.New(pool(testenv.WebURL(t, at)))
	keys := must.Get(auth.ParseKeys(auth.NewKey()))(t)
	handlers := &api.API{
		Registry: s.registry, Version: "test", Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Rate: rate, Auth: auth.New(s.registry, auth.Options{Keys: keys, Issuer: "Farol", HashMemory: 64}),
		Web: &access.Web{Tokens: access.NewTokens(s.registry, false), Registry: s.registry},
	}
	handler, _ := front.Handler(handlers, access.Guard{}, func(mux *http.ServeMux) http.Handler { return mux })
	s.url = testenv.Serve(t, handler)
	for _, identifier := range []string{"test.edu", "other.edu"} {
		must.Get(s.registry.AddInstitution(t.Context(), record.Institution{
			Name: "The " + identifier, Identifier: identifier, ReceivingBucket: "in." + identifier, RestoreBucket: "out." + identifier,
		}))(t)
	}
	all := []string{"items.read", "objects.read", "files.read", "copies.read", "events.read", "checksums.read", "deletions.read", "alerts.read"}
	s.ann = s.tool("Ann@test.edu", registry.RoleInstitutionalAdmin, "test.edu", all...)
	s.other = s.tool("otto@other.edu", registry.RoleInstitutionalAdmin, "other.edu", all...)
	s.staff = s.tool("staff@example.org", registry.RoleAdmin, "", all...)
	testenv.Scene(t, s.db, sceneSQL)
	must.Get(s.db.Exec(t.Context(), eventsSQL+`; ANALYZE`))(t)
	return s
}

// tool registers a person, with a personal token.
func (s *site) tool(email, role, institution string, permissions ...string) tool {
	s.t.Helper()
	u := must.Get(s.registry.AddUser(context.Background(), record.User{Email: email, Name: "Some Person", Role: role, Institution: institution}))(s.t)
	return s.key(u, permissions...)
}

// key is a tool with another token of a person's.
func (s *site) key(u record.User, permissions ...string) tool {
	s.t.Helper()
	_, secret, err := s.registry.AddToken(context.Background(), record.Token{Name: strconv.FormatInt(time.Now().UnixNano(), 10), UserID: u.ID, Permissions: permissions})
	if err != nil {
		s.t.Fatal(err)
	}
	return tool{s, u, http.Header{"X-Pharos-Api-User": {u.Email}, "X-Pharos-Api-Key": {secret}, "Accept": {"application/json"}}}
}

// with is the same tool with other headers; "" drops one.
func (u tool) with(headers ...string) tool {
	u.header = u.header.Clone()
	for i := 0; i < len(headers); i += 2 {
		u.header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			u.header.Del(headers[i])
		}
	}
	return u
}

// answer is what a request was answered.
type answer struct {
	status int
	header http.Header
	text   string
	body   map[string]any
}

// do sends a request. Redirects are not followed.
func (u tool) do(method, path string) (a answer) {
	u.s.t.Helper()
	r := must.Get(http.NewRequestWithContext(context.Background(), method, u.s.url+path, nil))(u.s.t)
	r.Header = u.header
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answered, err := client.Do(r)
	if err != nil {
		u.s.t.Fatal(err)
	}
	defer answered.Body.Close()
	text := must.Get(io.ReadAll(answered.Body))(u.s.t)
	a = answer{answered.StatusCode, answered.Header, string(text), nil}
	json.Unmarshal(text, &a.body)
	return a
}

// gets reads a path of the member API.
func (u tool) gets(path string) answer {
	u.s.t.Helper()
	a := u.do("GET", "/member-api/v3/"+path)
	if a.status != http.StatusOK || a.header.Get("Content-Type") != "application/json" {
		u.s.t.Fatalf("%s: %d %s", path, a.status, a.text)
	}
	return a
}

// results are the records of a list.
func (a answer) results() (list []map[string]any) {
	results, _ := a.body["results"].([]any)
	for _, r := range results {
		record, _ := r.(map[string]any)
		list = append(list, record)
	}
	return list
}

// each is a field of all records of a list.
func (a answer) each(field string) (list []any) {
	for _, r := range a.results() {
		list = append(list, r[field])
	}
	return list
}

func (a answer) field(name string) string {
	text, _ := a.body[name].(string)
	return text
}

// session is the cookie of a browser in which a person has signed in.
func (s *site) session(u record.User) string {
	s.t.Helper()
	var secret string
	p, err := people.In(s.registry).ByID(context.Background(), u.ID)
	if err == nil {
		secret, err = people.In(s.registry).BeginSession(context.Background(), p, people.LevelFull, true, netip.Addr{}, "")
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return "farol=" + secret
}
