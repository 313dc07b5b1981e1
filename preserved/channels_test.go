package preserved_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/commands/archive"
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

// what a channel says of an object.
type said struct {
	State    string
	Files    int64
	Copies   int64
	Bad      int64
	Deleting bool
}

// The API, the command line and the console say of an object what the rows say.
func TestChannelsSayTheSame(t *testing.T) { // with an environment, so not beside others
	at := testenv.DatabaseURL(t)
	w := newWorldIn(t, at)
	t.Setenv("FAROL_DATABASE_URL", at)
	b := newBrowser(t, w, at)
	for _, text := range []string{
		"deposit 0 0; run",
		"deposit 0 0; run; lose 0 0 1; spoil 0 1 0; check 0",
		"deposit 0 0; run; lose 0 0 1; check 0; repair",
		"deposit 0 0; run; ask 0 0",
		"deposit 0 0; run; ask 0 0; approve 0",
		"deposit 0 0; run; ask 0 0; approve 0; deny 0",
		"deposit 0 0; run; ask 0 0; approve 0; kill 20 0",
		"deposit 0 0; run; ask 0 1; approve 0; run",
		"deposit 0 0; run; ask 0 0; approve 0; run",
		"deposit 0 0; run; ask 0 0; approve 0; run; deposit 0 1; run",
		"deposit 0 0; run; ask 0 0; approve 0; cancel 0",
	} {
		l := w.life()
		l.steps(historyOf(t, text))
		if len(l.verdict) > 0 {
			t.Errorf("%s:\n%s", text, texts(l.verdict))
			continue
		}
		want := l.truth(l.object(0))
		for channel, got := range map[string]said{"API": b.api(l.object(0)), "command line": onCommandLine(t, l.object(0))} {
			if got != want {
				t.Errorf("%s: the %s says %+v, and the rows %+v", text, channel, got, want)
			}
		}
		sentence := "Safe since"
		switch {
		case want.State == "D":
			sentence = "Deleted. Its records and events stay."
		case want.Deleting || l.live1(l.object(0), "Delete"):
			sentence = "deletion"
		case want.Bad > 0:
			sentence = "altered or missing."
		}
		if page := b.page(l.object(0)); !strings.Contains(page, sentence) || strings.Contains(page, "Safe since") != (sentence == "Safe since") {
			t.Errorf("%s: the console does not say %q of %+v:\n%.600s", text, sentence, want, page)
		}
		l.leave()
	}
}

// truth is what the rows say.
func (l *life) truth(object string) (s said) {
	l.T.Helper()
	must.Do(l.T, l.DB.QueryRow(context.Background(), `SELECT o.state,
		(SELECT count(*) FROM generic_files f WHERE f.intellectual_object_id = o.id AND f.state = 'A'),
		(SELECT count(*) FROM storage_records s JOIN generic_files f ON f.id = s.generic_file_id WHERE f.intellectual_object_id = o.id AND f.state = 'A'),
		(SELECT count(*) FROM fixity_failures b JOIN generic_files f ON f.id = b.generic_file_id WHERE f.intellectual_object_id = o.id AND b.state = 'open'),
		o.state = 'A' AND o.deleted_by_item IS NOT NULL
		FROM intellectual_objects o WHERE o.identifier = $1`, object).Scan(&s.State, &s.Files, &s.Copies, &s.Bad, &s.Deleting))
	return s
}

// live1 reports whether an item of an action is not over.
func (l *life) live1(object, action string) bool {
	for _, i := range l.items() {
		if i.object == object && i.action == action && i.status != "Success" && i.status != "Cancelled" {
			return true
		}
	}
	return false
}

// objectText is how the API and the command line write an object.
type objectText struct {
	State    string
	Summary  struct{ Files, Copies int64 }
	Copies   struct{ Bad int64 }
	Deletion struct {
		Item *int64 `json:"deleted_by_item"`
	}
}

func read(t *testing.T, text []byte) said {
	t.Helper()
	var o objectText
	if err := json.Unmarshal(text, &o); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return said{o.State, o.Summary.Files, o.Summary.Copies, o.Copies.Bad, o.State == "A" && o.Deletion.Item != nil}
}

func onCommandLine(t *testing.T, object string) said {
	t.Helper()
	var out bytes.Buffer
	c := archive.Object()
	c.SetArgs([]string{"show", object, "--json"})
	c.SetOut(&out)
	must.Do(t, c.ExecuteContext(t.Context()))
	return read(t, out.Bytes())
}

// browser is an institutional admin's, signed in at a server of the test's own.
type browser struct {
	t      *testing.T
	url    string
	client *http.Client
}

func newBrowser(t *testing.T, w *world, at string) *browser {
	t.Helper()
	db := must.Get(pgxpool.New(t.Context(), testenv.WebURL(t, at)))(t)
	t.Cleanup(db.Close)
	r := registry.New(db)
	keys := must.Get(auth.ParseKeys(auth.NewKey()))(t)
	a := &api.API{
		Registry: r, Version: "test", Log: slog.New(slog.DiscardHandler), Rate: 100_000, PlanAlone: 3, Auth: auth.New(r, auth.Options{Keys: keys, Issuer: "Farol", HashMemory: 64}),
		ArchiveClass: func(string, bool) string { return "" }, Next: func(context.Context, []string, int) ([]int64, error) { return nil, nil },
		Fixity: api.Fixity{Days: 90, Tries: 3}, Web: &access.Web{Tokens: access.NewTokens(r, false), Registry: r},
	}
	handler, _ := front.Handler(a, access.Guard{}, func(mux *http.ServeMux) http.Handler { return mux })
	jar := must.Get(cookiejar.New(nil))(t)
	b := &browser{t, testenv.Serve(t, handler), &http.Client{Jar: jar, Timeout: time.Minute}}
	u := must.Get(w.Deps.Registry.AddUser(t.Context(), record.User{Email: "reader@test.edu", Name: "Some Body", Role: registry.RoleInstitutionalUser, Institution: "test.edu"}))(t)
	secret := must.Get(people.In(w.Deps.Registry).MakeLink(t.Context(), u.ID, people.SignIn))(t)
	b.do(http.MethodPost, people.LinkPath(people.SignIn, secret))
	return b
}

func (b *browser) do(method, path string) string {
	b.t.Helper()
	r := must.Get(http.NewRequestWithContext(b.t.Context(), method, b.url+path, nil))(b.t)
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // read below
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		b.t.Fatalf("%s %s: %s %s %v", method, path, answer.Status, text, err)
	}
	return string(text)
}

func (b *browser) object(identifier string) string {
	b.t.Helper()
	return b.do(http.MethodGet, "/api/v1/objects/by-identifier?identifier="+url.QueryEscape(identifier))
}

func (b *browser) api(identifier string) said { return read(b.t, []byte(b.object(identifier))) }

var (
	markup = regexp.MustCompile(`<[^>]*>`)
	blanks = regexp.MustCompile(`\s+`)
)

// page is what a person reads on the page of an object.
func (b *browser) page(identifier string) string {
	b.t.Helper()
	var o struct{ ID int64 }
	must.Do(b.t, json.Unmarshal([]byte(b.object(identifier)), &o))
	_, main, _ := strings.Cut(b.do(http.MethodGet, fmt.Sprintf("/objects/%d", o.ID)), "<h1>")
	return strings.TrimSpace(blanks.ReplaceAllString(html.UnescapeString(markup.ReplaceAllString(main, " ")), " "))
}
