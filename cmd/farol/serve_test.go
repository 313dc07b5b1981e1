package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/dial"
)

// otherAddress is one of this machine that is not loopback. A machine without any
// network has none, and serves on all addresses, which is not loopback either.
func otherAddress(t *testing.T) string {
	t.Helper()
	addrs := must.Get(net.InterfaceAddrs())(t)
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLoopback() && ip.IP.To4() != nil {
			return ip.IP.String()
		}
	}
	return "0.0.0.0"
}

// startServe starts farol serve, and returns where it serves.
func startServe(t *testing.T, binary, addr string, settings map[string]string) (p *process, at string) {
	t.Helper()
	settings["FAROL_PULL_ADDR"] = addr + ":0"
	p = startProcess(t, binary, t.TempDir(), settings, "serve", "--pull", "--lease")
	where := regexp.MustCompile(`msg=serving api="the pull API" addr=(\S+)`)
	p.eventually("the address", func() bool { return where.MatchString(p.said()) })
	at = where.FindStringSubmatch(p.said())[1]
	if _, port, err := net.SplitHostPort(at); err == nil && addr == "0.0.0.0" {
		at = "127.0.0.1:" + port
	}
	return p, "http://" + at
}

// send posts a body, and returns the status and the answer.
func send(t *testing.T, url, token, body string, headers ...string) (int, string) {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body)))(t)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	client := http.Client{Timeout: testenv.Patience}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer := must.Get(io.ReadAll(response.Body))(t)
	return response.StatusCode, strings.TrimSpace(string(answer))
}

// A server in a process of its own: with tokens on a network, without on loopback,
// and callers that wait are answered when it is stopped.
func TestServeLetsInWhoMay(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "farol")
	must.Do(t, linkSelf(binary))
	settings := map[string]string{"FAROL_DATABASE_URL": testenv.DatabaseURL(t), "FAROL_PULL_MAX_BODY": "1048576"}
	db := must.Get(dial.Connect(t.Context(), settings["FAROL_DATABASE_URL"], "test"))(t)
	t.Cleanup(db.Close)
	reg := registry.New(db)
	token := func(name string, t2 record.Token) string {
		t.Helper()
		t2.Name = name
		_, secret, err := reg.AddToken(t.Context(), t2)
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	soon := time.Now().Add(-time.Second)
	both := token("both", record.Token{Rights: []string{"post", "pull"}})
	pull := token("pull", record.Token{Rights: []string{"pull"}})
	over := token("over", record.Token{Rights: []string{"post", "pull"}, ExpiresAt: &soon})
	const post, ask = `{"messages": {"q": ["a"]}}`, `{"receiver": "r", "timeout": 0, "queues": {"q": {}}}`

	served, far := startServe(t, binary, otherAddress(t), settings)
	for _, c := range []struct {
		what, token, path, body string
		status                  int
	}{
		{"no token", "", "/post", post, 401},
		{"a wrong token", "farol_WRONG", "/post", post, 401},
		{"a token that is over", over, "/post", post, 401},
		{"a token that may pull", pull, "/post", post, 403},
		{"a token that may", both, "/post", post, 200},
		{"a token that may pull", pull, "/pull", ask, 200},
		{"another path", both, "/pup", ask, 404},
		{"too much", both, "/post", `{"messages": {"q": ["` + strings.Repeat("x", 1<<20) + `"]}}`, 413},
	} {
		if status, answer := send(t, far+c.path, c.token, c.body); status != c.status {
			t.Errorf("%s to %s with %s: %d %s, want %d", c.what, c.path, c.token, status, answer, c.status)
		}
	}
	must.Do(t, reg.RemoveToken(t.Context(), 0, "both"))
	testenv.Eventually(t, "a token that was removed to be refused", func() bool {
		status, _ := send(t, far+"/pull", both, ask)
		return status == 401
	})
	if said := served.said(); strings.Contains(said, both) || strings.Contains(said, pull) {
		t.Errorf("a token is in the log:\n%s", said)
	}

	p, near := startServe(t, binary, "127.0.0.1", settings)
	for _, c := range []struct {
		what    string
		token   string
		headers []string
		status  int
	}{
		{"a program of this machine", "", nil, 204},
		{"under its name", "", []string{"Host", "localhost:1"}, 204},
		{"a page of another site", "", []string{"Origin", "https://evil.example"}, 403},
		{"a page of another site", "", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		{"a name that leads here", "", []string{"Host", "evil.example"}, 403},
		{"a wrong token", "x", nil, 401},
		{"no bearer", "", []string{"Authorization", "Basic eA=="}, 401},
	} {
		if status, answer := send(t, near+"/pull", c.token, ask, c.headers...); status != c.status {
			t.Errorf("%s: %d %s, want %d", c.what, status, answer, c.status)
		}
	}

	type result struct {
		status int
		answer string
	}
	waited := make(chan result)
	go func() {
		status, answer := send(t, near+"/pull", "", `{"receiver": "waits", "queues": {"q": {"start": -2}}}`)
		waited <- result{status, answer}
	}()
	p.eventually("a call that waits", func() bool {
		var n int
		return db.QueryRow(t.Context(), `SELECT count(*) FROM topic_receivers WHERE name = 'waits'`).Scan(&n) == nil && n == 1
	})
	must.Do(t, syscall.Kill(p.Process.Pid, syscall.SIGTERM))
	if got := <-waited; got.status != 204 {
		t.Errorf("who waited was answered %d %s", got.status, got.answer)
	}
	<-p.ended
	if p.err != nil {
		t.Errorf("serve ended with %v", p.err)
	}
	metricsAreServed(t, binary, settings)
}

func metricsAreServed(t *testing.T, binary string, settings map[string]string) {
	t.Helper()
	settings["FAROL_HTTP_ADDR"] = "127.0.0.1:0"
	p, near := startServe(t, binary, "127.0.0.1", settings)
	where := regexp.MustCompile(`serving metrics and health" addr=(\S+)`)
	p.eventually("the address of metrics", func() bool { return where.MatchString(p.said()) })
	send(t, near+"/pull", "", `{"receiver": "r", "timeout": 0, "queues": {"none": {}}}`)
	send(t, near+"/made/up", "", "")
	response, err := http.Get("http://" + where.FindStringSubmatch(p.said())[1] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text := must.Get(io.ReadAll(response.Body))(t)
	for _, want := range []string{
		`farol_http_requests_total{code="204",method="post",path="POST /pull"} 1`, `farol_http_requests_total{code="404",method="post",path=""} 1`,
		"farol_pull_waiting 0", "farol_http_request_seconds_count", "farol_queue_items",
		`farol_pull_queue_depth{queue="q"} 1`, `farol_pull_queue_failed{queue="q"} 0`, `farol_pull_queue_oldest_seconds{queue="q"}`,
		`farol_pull_receiver_lag{queue="q",receiver="waits"} 0`, `farol_pull_receiver_processing{queue="q",receiver="r"} 1`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

// The examples of docs/pull.md are run as they are written there.
func TestPullExamplesOfTheDocs(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "farol")
	must.Do(t, linkSelf(binary))
	text := must.Get(os.ReadFile(filepath.Join("..", "..", "docs", "pull.md")))(t)
	_, at := startServe(t, binary, "127.0.0.1", map[string]string{"FAROL_DATABASE_URL": testenv.DatabaseURL(t)})
	example := regexp.MustCompile(`(?s)curl -s localhost:4180(/\w+) -d '(.*?)'\n(.*?)\n` + "```")
	found := example.FindAllStringSubmatch(string(text), -1)
	if len(found) < 4 {
		t.Fatalf("%d examples", len(found))
	}
	times := regexp.MustCompile(`"created_time": ?"[^"]*"`)
	for _, e := range found {
		status, answer := send(t, at+e[1], "", e[2])
		got := times.ReplaceAllString(answer, `"created_time":"T"`)
		want := times.ReplaceAllString(strings.TrimSpace(e[3]), `"created_time":"T"`)
		if status == http.StatusNoContent {
			got = ""
		}
		if !sameJSON(got, want) {
			t.Errorf("%s %s\n= %d %s\nwant %s", e[1], e[2], status, got, want)
		}
	}
}

func sameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return a == b
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}
