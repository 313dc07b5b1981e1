package pull

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/web/access"
	"github.com/farol-preservation/farol/web/request"
)

// firstBytes is the memory that a request takes at first.
const firstBytes = 1 << 10

// reader is a server whose memory for requests can be looked at.
type reader struct {
	t   *testing.T
	api *API
	web *httptest.Server
}

func newReader(t *testing.T, o Options, limits request.Limits) *reader {
	t.Helper()
	api := New(testenv.Database(t), o)
	limits.MostBody = api.o.MaxBody
	api.budget = request.NewBudget(limits)
	mux := http.NewServeMux()
	api.Routes(mux)
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	return &reader{t, api, web}
}

// send begins a request, and sends some of its body.
func (r *reader) send(head, body string) net.Conn {
	r.t.Helper()
	conn := must.Get(net.Dial("tcp", r.web.Listener.Addr().String()))(r.t)
	r.t.Cleanup(func() { conn.Close() }) //nolint:errcheck // it may be closed already
	must.Get(fmt.Fprintf(conn, "POST /post HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n%s", head, body))(r.t)
	return conn
}

func (r *reader) post(size int) (status int, retryAfter string) {
	r.t.Helper()
	body := fmt.Sprintf(`{"messages": {"q": [%q]}}`, strings.Repeat("x", size))
	response, err := http.Post(r.web.URL+"/post", "application/json", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	return response.StatusCode, response.Header.Get("Retry-After")
}

// Callers that announce much and send nothing, or little, hold up nobody.
func TestIdleConnectionsTakeNoMemory(t *testing.T) {
	t.Parallel()
	r := newReader(t, Options{MaxBody: 32 << 20}, request.Limits{})
	for range 50 {
		r.send(fmt.Sprintf("Content-Length: %d", 32<<20), "")
		r.send("Transfer-Encoding: chunked", "1\r\n{\r\n")
	}
	testenv.Eventually(t, "all are being read", func() bool { return r.api.budget.Used() >= 100*firstBytes })
	if used := r.api.budget.Used(); used > 100*firstBytes {
		t.Errorf("they have %d bytes, want %d", used, 100*firstBytes)
	}
	for _, size := range []int{10, 1 << 20, 20 << 20} {
		if status, _ := r.post(size); status != http.StatusOK {
			t.Errorf("a message of %d bytes: %d", size, status)
		}
	}
}

// One that is slower than the least rate is cut, whether it says how much it sends or
// not, and what it had is free.
func TestTricklesAreCut(t *testing.T) {
	t.Parallel()
	r := newReader(t, Options{MaxBody: 1 << 20}, request.Limits{Grace: 200 * time.Millisecond, Rate: 1000})
	for _, c := range []struct{ head, first, more string }{
		{"Content-Length: 100000", `{"messages": `, " "},
		{"Transfer-Encoding: chunked", "1\r\n{\r\n", "1\r\n \r\n"},
	} {
		conn := r.send(c.head, c.first)
		answered := make(chan string, 1)
		go func() {
			answer, _ := io.ReadAll(conn)
			answered <- string(answer)
		}()
		tick := time.NewTicker(20 * time.Millisecond) // 50 bytes in a second
		defer tick.Stop()
		end := time.After(testenv.Patience)
		for answer := ""; answer == ""; {
			select {
			case <-tick.C:
				io.WriteString(conn, c.more) //nolint:errcheck // it is cut at some time
			case answer = <-answered:
				if !strings.HasPrefix(answer, "HTTP/1.1 408") || !strings.Contains(answer, "too slowly") || !strings.Contains(answer, "Connection: close") {
					t.Errorf("%s: it is answered %q", c.head, answer)
				}
			case <-end:
				t.Fatalf("%s: it is never cut", c.head)
			}
		}
		testenv.Eventually(t, "its memory is free", func() bool { return r.api.budget.Used() == 0 })
	}
}

// With no memory left a request is refused at once, with the time to come again; a
// caller that has its share holds up no other, and small requests go on.
func TestNoMemoryIsAnAnswer(t *testing.T) {
	t.Parallel()
	who := ""
	var mu sync.Mutex
	r := newReader(t, Options{MaxBody: 4 << 20, Caller: func(*http.Request) (access.Caller, error) {
		mu.Lock()
		defer mu.Unlock()
		return access.Caller{Name: who}, nil
	}}, request.Limits{Large: 3 << 20})
	as := func(name string) {
		mu.Lock()
		defer mu.Unlock()
		who = name
	}
	as("greedy")
	conn := r.send(fmt.Sprintf("Content-Length: %d", 1100<<10), strings.Repeat(" ", 1090<<10))
	testenv.Eventually(t, "it has sent it", func() bool { return r.api.budget.Used() > 1000<<10 })
	if status, after := r.post(1100 << 10); status != http.StatusServiceUnavailable || after != "1" {
		t.Errorf("beyond the share of a caller: %d, Retry-After %q; want 503 and 1", status, after)
	}
	if status, _ := r.post(1000); status != http.StatusOK {
		t.Errorf("a small request of the same caller: %d", status)
	}
	as("other")
	if status, _ := r.post(1100 << 10); status != http.StatusOK {
		t.Errorf("another caller: %d", status)
	}
	if status, after := r.post(3 << 20); status != http.StatusServiceUnavailable || after != "1" {
		t.Errorf("beyond all: %d, Retry-After %q; want 503 and 1", status, after)
	}
	conn.Close() //nolint:errcheck // the request is given up
	testenv.Eventually(t, "its memory is free", func() bool { return r.api.budget.Used() == 0 })
}

// Requests of every size arrive as they were sent, announced or not, and one that is
// too large is refused before it is read.
func TestBodiesArriveWhole(t *testing.T) {
	t.Parallel()
	r := newReader(t, Options{MaxBody: 1 << 20}, request.Limits{})
	var want []int
	for _, size := range []int{0, 1, firstBytes - 27, firstBytes - 26, firstBytes - 25, 2 * firstBytes, request.SmallBody, request.SmallBody + 1, 1 << 19} {
		body := fmt.Sprintf(`{"messages": {"q": [%q]}}`, strings.Repeat("x", size))
		for _, announced := range []bool{true, false} {
			var from io.Reader = strings.NewReader(body)
			if !announced {
				from = io.MultiReader(from)
			}
			response, err := http.Post(r.web.URL+"/post", "application/json", from)
			if err != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%d bytes: %v, %v", size, response, err)
			}
			response.Body.Close() //nolint:errcheck // only read
			want = append(want, size)
		}
	}
	given := must.Get(r.api.broker.pull(t.Context(), "r", broughtResults{}, []wanted{{Queue: "q", Max: 100, RetryNum: 1}}, 0))(t)
	var got []int
	for _, m := range given[0] {
		got = append(got, len(m.Message))
	}
	if a, b := mustJSON(t, got), mustJSON(t, want); a != b {
		t.Errorf("the messages have %s bytes, want %s", a, b)
	}
	line, err := bufio.NewReader(r.send("Content-Length: 1048577", "")).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "HTTP/1.1 413") {
		t.Errorf("one that is too large is answered %q, %v", line, err)
	}
	if used := r.api.budget.Used(); used != 0 {
		t.Errorf("%d bytes are held by nobody", used)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text := must.Get(json.Marshal(v))(t)
	return string(text)
}

// What a request brings is in memory until its results are saved, and not for as
// long as the call waits.
func TestCallsThatWaitHoldNoMemory(t *testing.T) {
	t.Parallel()
	stopping, stop := context.WithCancel(t.Context())
	defer stop()
	r := newReader(t, Options{Stop: stopping}, request.Limits{})
	must.Get(r.api.broker.post(t.Context(), postRequest{postings: []posting{{"q", []string{"a"}}}}))(t)
	must.Get(r.api.broker.pull(t.Context(), "r", broughtResults{}, []wanted{{Queue: "q", Max: 1, RetryNum: 1}}, 0))(t)
	var waiting sync.WaitGroup
	for n, body := range []string{
		`{"receiver": "r", "timeout": 60, "queues": {"q": {}}, "results": {"q": {"1": "done"}}}`,
		`{"receiver": "r", "timeout": 60, "queues": {"p": {}}, "results": {"q": {"1": "done"}}}`,
		`{"receiver": "r", "timeout": 60, "queues": {"q": {}, "p": {}}}` + strings.Repeat(" ", request.SmallBody),
	} {
		waiting.Go(func() {
			response, err := r.web.Client().Post(r.web.URL+"/pull", "application/json", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			response.Body.Close() //nolint:errcheck // it has none
			if response.StatusCode != http.StatusNoContent {
				t.Errorf("pull = %s", response.Status)
			}
		})
		testenv.Eventually(t, "a call that waits, without its memory", func() bool { return r.api.Waiting() == n+1 && r.api.budget.Used() == 0 })
	}
	stop()
	waiting.Wait()
}
