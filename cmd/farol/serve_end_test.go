package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// A server that is told to stop finishes what is under way and takes nothing new. Until then
// its health is served, and says so.
func TestServerFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	a := newWebSite(t)
	programs, health := a.everything()
	tx := must.Get(a.db.Begin(t.Context()))(t)
	defer tx.Rollback(context.Background()) //nolint:errcheck // it may have ended
	must.Get(tx.Exec(t.Context(), `LOCK TABLE users`))(t)
	answered := make(chan httpAnswer, 1)
	b := a.browser()
	go func() {
		answered <- b.do("POST", "/api/v1/session", asJSON(map[string]string{"email": "nobody@test.edu", "password": testPassword}))
	}()
	a.server.eventually("a request that is under way", func() bool {
		return ask[bool](t, a.db, `SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'users'::regclass AND NOT granted)`)
	})
	if status, text := fetch(t, health+"/readyz"); status != http.StatusOK {
		t.Errorf("before: %d %s", status, text)
	}
	must.Do(t, syscall.Kill(a.server.Process.Pid, syscall.SIGTERM))
	for _, at := range []string{a.at, programs} {
		a.server.eventually("new connections to be refused", func() bool {
			conn, err := net.Dial("tcp", strings.TrimPrefix(at, "http://"))
			if err == nil {
				conn.Close() //nolint:errcheck // nothing was sent
			}
			return errors.Is(err, syscall.ECONNREFUSED)
		})
	}
	if status, text := fetch(t, health+"/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(text, "stopping") {
		t.Errorf("while it stops: %d %s", status, text)
	}
	if status, text := fetch(t, health+"/healthz"); status != http.StatusOK {
		t.Errorf("while it stops: %d %s", status, text)
	}
	must.Do(t, tx.Rollback(t.Context()))
	if r := <-answered; r.status != http.StatusUnauthorized {
		t.Errorf("what was under way: %d %s, %v", r.status, r.body, r.err)
	}
	if err := a.server.wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // read below
	text := must.Get(io.ReadAll(answer.Body))(t)
	return answer.StatusCode, string(text)
}

// Pages of other origins change nothing on this machine, in whatever way a browser lets them
// try: under a name that was bent to lead here, with a form, or with a script.
func TestPagesOfOtherOriginsChangeNothing(t *testing.T) {
	t.Parallel()
	a := newWebSite(t)
	programs, _ := a.everything()
	for _, api := range []struct {
		name, url, body string
		plain           bool // it takes JSON that is not said to be JSON, as curl sends it
		reached         int  // status of a program's request
	}{
		{"REST", a.at + "/api/v1/session", `{"email": "nobody@test.edu", "password": "x"}`, false, http.StatusUnauthorized},
		{"pull", programs + "/post", `{"messages": {"q": ["a"]}}`, true, http.StatusOK},
		{"lease", programs + "/v1/claim", `{"stage": "Made Up", "worker": "w"}`, true, http.StatusBadRequest},
	} {
		text := http.StatusUnsupportedMediaType
		if api.plain {
			text = api.reached
		}
		for name, tc := range map[string]struct {
			want    int
			headers []string
		}{
			"a program":                    {api.reached, []string{"Content-Type", "application/json"}},
			"a program that names no type": {text, []string{"Content-Type", "text/plain"}},
			"a bent name":                  {403, []string{"Content-Type", "application/json", "Host", "evil.example"}},
			"a bent name with a port":      {403, []string{"Content-Type", "application/json", "Host", "evil.example:4180"}},
			"a bent name, of its own origin": {403, []string{
				"Content-Type", "application/json", "Host", "evil.example", "Origin", "http://evil.example", "Sec-Fetch-Site", "same-origin",
			}},
			"a name that begins well": {403, []string{"Content-Type", "application/json", "Host", "localhost.evil.example"}},
			"another origin":          {403, []string{"Content-Type", "application/json", "Origin", "https://evil.example"}},
			"no origin":               {403, []string{"Content-Type", "application/json", "Origin", "null"}},
			"another site":            {403, []string{"Content-Type", "application/json", "Sec-Fetch-Site", "cross-site"}},
			"another port": {403, []string{
				"Content-Type", "application/json", "Origin", "http://127.0.0.1:1", "Sec-Fetch-Site", "same-site",
			}},
			"a form": {403, []string{
				"Content-Type", "text/plain", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate",
			}},
			"a form that hides its origin":   {403, []string{"Content-Type", "text/plain", "Origin", "null"}},
			"a form of an old browser":       {403, []string{"Content-Type", "text/plain", "Origin", "http://evil.example"}},
			"a page that navigates, posting": {403, []string{"Content-Type", "text/plain", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}},
		} {
			posted := ask[int](t, a.db, `SELECT count(*) FROM topic_messages`)
			if status, answer := send(t, api.url, "", api.body, tc.headers...); status != tc.want {
				t.Errorf("%s: %s: %d %s, want %d", api.name, name, status, answer, tc.want)
			}
			if n := ask[int](t, a.db, `SELECT count(*) FROM topic_messages`); n != posted && tc.want != http.StatusOK {
				t.Errorf("%s: %s has posted a message", api.name, name)
			}
		}
	}
}
