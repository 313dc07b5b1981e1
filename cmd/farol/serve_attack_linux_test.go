package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/testenv"
	"github.com/farol-preservation/farol/registry"
)

// everything starts a server of all APIs, and returns where the queues and the health are.
func (a *webSite) everything() (programs, health string) {
	a.t.Helper()
	a.settings["FAROL_PULL_ADDR"], a.settings["FAROL_HTTP_ADDR"] = "127.0.0.1:0", "127.0.0.1:0"
	a.start()
	return a.address(`api="the pull API"`), a.address(`serving metrics and health"`)
}

// slowClient sends a byte a second of a request that never ends.
type slowClient struct {
	kind  string
	conn  net.Conn
	ended atomic.Bool // by the server
}

// slowClients connect, send the beginning of a request, and then a byte at each tick until
// the test ends.
func slowClients(t *testing.T, n int, starts []slowStart) (list []*slowClient) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	t.Cleanup(func() {
		stop()
		for _, c := range list {
			c.conn.Close() //nolint:errcheck // the server may have closed it
		}
		group.Wait()
	})
	for i := range n {
		start := starts[i%len(starts)]
		conn, err := net.Dial("tcp", strings.TrimPrefix(start.at, "http://"))
		if err == nil {
			_, err = io.WriteString(conn, start.text)
		}
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		c := &slowClient{kind: start.kind, conn: conn}
		list = append(list, c)
		group.Go(func() {
			io.Copy(io.Discard, conn) //nolint:errcheck // however it ends
			c.ended.Store(true)
		})
	}
	group.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for _, c := range list {
				c.conn.Write([]byte("x")) //nolint:errcheck // the server may have closed it
			}
		}
	})
	return list
}

type slowStart struct{ kind, at, text string }

func endless(kind, at, request, headers string) slowStart {
	return slowStart{kind, at, request + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers}
}

// A thousand slow clients keep no other from being answered, take little memory, and are sent
// away: whatever they ask for, and whether or not anybody reads it.
func TestSlowClientsHoldUpNobody(t *testing.T) {
	t.Parallel()
	a := newWebSite(t)
	programs, _ := a.everything()
	const long, chunked = "Content-Length: 9000\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1000\r\n{"
	var starts []slowStart
	for _, at := range []string{a.at, programs} {
		starts = append(starts,
			slowStart{"a request line", at, "GET /"},
			endless("headers", at, "GET /", "X-Long: "),
			endless("a body for no operation", at, "POST /made/up", long),
			endless("a body in chunks for no operation", at, "POST /made/up", chunked),
			slowStart{"a body of another origin", at, "POST /post HTTP/1.1\r\nHost: evil.example\r\n" + long})
	}
	starts = append(starts,
		endless("a sign-in", a.at, "POST /api/v1/session", long),
		slowStart{"a form", a.at, "POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n" + long},
		endless("a body that is no JSON", a.at, "POST /api/v1/session", "Content-Type: text/plain\r\n"+long),
		endless("a request of nobody", a.at, "POST /api/v1/deletions", chunked),
		endless("a read with a body", a.at, "GET /api/v1/health", long),
		endless("a post", programs, "POST /post", long),
		endless("a pull", programs, "POST /pull", chunked),
		endless("a claim", programs, "POST /v1/claim", long))
	good := a.person("good@archive.org", registry.RoleAuditor, "").client
	slow := slowClients(t, 1000, starts)
	patient := make(chan httpAnswer, 1)
	queues := &browser{&webSite{t: t, at: programs}, &http.Client{Timeout: testenv.Patience}}
	go func() {
		patient <- queues.do("POST", "/pull", `{"receiver": "patient", "timeout": 15, "queues": {"q": {}}}`)
	}()
	var took []time.Duration
	last := time.Now()
	a.server.eventually("the end of all slow clients", func() bool {
		if time.Since(last) < 100*time.Millisecond { // as often as a person may ask
			return false
		}
		last = time.Now()
		took = append(took, timed(t, good, "GET", a.at+"/api/v1/me", http.StatusOK))
		took = append(took, timed(t, good, "POST", programs+"/pull", http.StatusNoContent))
		return !slices.ContainsFunc(slow, func(c *slowClient) bool { return !c.ended.Load() })
	})
	if r := <-patient; r.status != http.StatusNoContent {
		t.Errorf("who waits for longer than a request may take to arrive: %d %s, %v", r.status, r.body, r.err)
	}
	slices.Sort(took)
	median, most := took[len(took)/2], took[len(took)-1]
	t.Logf("%d good requests took %v, %v at most", len(took), median, most)
	if median > time.Second || most > testenv.AtOnce {
		t.Errorf("%d good requests took %v, %v at most", len(took), median, most)
	}
	a.fits(256)
}

// A flood of sign-ins takes the memory of two hashes, and not that of all.
func TestFloodOfSignInsTakesLittleMemory(t *testing.T) {
	t.Parallel()
	a := newWebSite(t)
	a.start("--web")
	var group sync.WaitGroup
	var later atomic.Int32
	for range 100 {
		b := a.browser()
		group.Go(func() {
			switch r := b.do("POST", "/api/v1/session", asJSON(map[string]string{"email": "nobody@test.edu", "password": testPassword})); r.status {
			case http.StatusUnauthorized:
			case http.StatusServiceUnavailable, http.StatusTooManyRequests:
				later.Add(1)
			default:
				t.Errorf("%d %s, %v", r.status, r.body, r.err)
			}
		})
	}
	group.Wait()
	if later.Load() == 0 {
		t.Error("a hundred sign-ins at once were all carried out")
	}
	a.fits(224)
}

// fits fails the test if the server has had more memory, in MiB. The race detector takes as
// much again and more.
func (a *webSite) fits(most int64) {
	a.t.Helper()
	had := peak(a.t, a.server.Process.Pid) >> 20
	a.t.Logf("the server had %d MiB at most", had)
	info, ok := debug.ReadBuildInfo()
	race := ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
	if had > most && !race {
		a.t.Errorf("the server had %d MiB, want %d at most", had, most)
	}
}

// timed sends a request to a good server, and returns how long its answer took.
func timed(t *testing.T, client *http.Client, method, url string, want int) time.Duration {
	t.Helper()
	began := time.Now()
	body := `{"receiver": "good", "timeout": 0, "queues": {"q": {}}}`
	if method == http.MethodGet {
		body = ""
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // read below
	if text, err := io.ReadAll(answer.Body); err != nil || answer.StatusCode != want {
		t.Fatalf("%s %s: %d %s, %v", method, url, answer.StatusCode, text, err)
	}
	return time.Since(began)
}

// peak is the most memory that a process has had.
func peak(t *testing.T, pid int) (bytes int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &bytes); err != nil {
		t.Fatal(err)
	}
	return bytes << 10
}

// A server that is told to stop finishes what is under way and takes nothing new. Until then
// its health is served, and says so.
func TestServerFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	a := newWebSite(t)
	programs, health := a.everything()
	tx, err := a.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background()) //nolint:errcheck // it may have ended
	if _, err := tx.Exec(t.Context(), `LOCK TABLE users`); err != nil {
		t.Fatal(err)
	}
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
	if err := syscall.Kill(a.server.Process.Pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
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
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-answered; r.status != http.StatusUnauthorized {
		t.Errorf("what was under way: %d %s, %v", r.status, r.body, r.err)
	}
	if err := a.server.wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func fetch(t *testing.T, url string) (int, string) {
	t.Helper()
	answer, err := http.Get(url) //nolint:noctx // it is answered at once
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close() //nolint:errcheck // read below
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
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
