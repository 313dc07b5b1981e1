package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// slowClient sends a byte a second of a request that never ends.
type slowClient struct {
	slowStart

	conn  net.Conn
	said  bytes.Buffer // by the server, until it has ended
	ended atomic.Bool  // by the server
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
		c := &slowClient{slowStart: start, conn: conn}
		list = append(list, c)
		group.Go(func() {
			io.Copy(&c.said, conn) //nolint:errcheck // however it ends
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

// slowStart is the beginning of a request, and what it is answered in the end; "": nothing.
type slowStart struct{ kind, answer, at, text string }

func endless(kind, answer, at, request, headers string) slowStart {
	return slowStart{kind, answer, at, request + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers}
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
			slowStart{"a request line", "400 Bad Request", at, "GET /"},
			endless("headers", "", at, "GET /", "X-Long: "),
			endless("a body for no operation", "404 Not Found", at, "POST /made/up", long),
			endless("a body in chunks for no operation", "404 Not Found", at, "POST /made/up", chunked),
			slowStart{"a body of another origin", "403 Forbidden", at, "POST /post HTTP/1.1\r\nHost: evil.example\r\n" + long})
	}
	starts = append(starts,
		endless("a sign-in", "408 Request Timeout", a.at, "POST /api/v1/session", long),
		slowStart{"a form", "400 Bad Request", a.at, "POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n" + long},
		slowStart{"a body that is no JSON", "415 Unsupported Media Type", a.at, "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n" + long},
		endless("a request of nobody", "401 Unauthorized", a.at, "POST /api/v1/deletions", chunked),
		endless("a read with a body", "200 OK", a.at, "GET /api/v1/health", long),
		endless("a post", "408 Request Timeout", programs, "POST /post", long),
		endless("a pull", "408 Request Timeout", programs, "POST /pull", chunked),
		endless("a claim", "408 Request Timeout", programs, "POST /v1/claim", long))
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
	answeredAs(t, slow)
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
	a.fits(256)
}

// Large requests that never end take the memory that requests of one person may have, and not
// what they announce.
func TestLargeRequestsTakeTheirShareOfMemory(t *testing.T) {
	t.Parallel()
	a := newWebSite(t)
	a.start("--web")
	must.Get(a.registry.AddInstitution(t.Context(), record.Institution{Name: "Test", Identifier: "test.edu", ReceivingBucket: "in", RestoreBucket: "out"}))(t)
	admin := a.person("admin@test.edu", registry.RoleInstitutionalAdmin, "test.edu")
	u := must.Get(url.Parse(a.at))(t)
	cookie := admin.client.Jar.Cookies(u)[0].String()
	const announced = 15 << 20
	start := endless("a large request", "", a.at, "POST /api/v1/deletions/check", "Cookie: "+cookie+"\r\nContent-Length: "+fmt.Sprint(announced)+"\r\n\r\n")
	slow := slowClients(t, 40, []slowStart{start})
	var group sync.WaitGroup
	part := bytes.Repeat([]byte(" "), announced-1<<10)
	for _, c := range slow {
		group.Go(func() { c.conn.Write(part) }) //nolint:errcheck // most are refused
	}
	group.Wait()
	a.server.eventually("most to be refused", func() bool {
		n := 0
		for _, c := range slow {
			if c.ended.Load() {
				n++
			}
		}
		return n >= 37
	})
	admin.wants(http.StatusOK, "POST", "/api/v1/deletions/check", `{"identifiers": ["test.edu/none"]}`, nil)
	a.fits(256)
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

// answeredAs fails the test unless clients of each kind were answered as they should be. Those
// beyond the limit of their address are answered that.
func answeredAs(t *testing.T, slow []*slowClient) {
	t.Helper()
	right := map[string]int{}
	for _, c := range slow {
		said, _, _ := strings.Cut(c.said.String(), "\r\n")
		switch {
		case strings.TrimPrefix(said, "HTTP/1.1 ") == c.answer:
			right[c.kind]++
		case !strings.Contains(said, "429"):
			t.Errorf("%s was answered %q, want %s", c.kind, said, c.answer)
		}
	}
	for _, c := range slow {
		if right[c.kind] == 0 {
			t.Errorf("%s was never answered %q", c.kind, c.answer)
			right[c.kind] = -1
		}
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
	r := must.Get(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
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
	status := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)))(t)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	must.Get(fmt.Sscan(rest, &bytes))(t)
	return bytes << 10
}
