package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/bench/rig"
	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// BenchmarkPull measures the pull API of one server process on one machine, fsync on:
// requests a second to /post and /pull over 1 and 10 connections, the processor time
// that server and database take for one, and how long it takes from a post to the
// answer of a call that waits. nsqd's HTTP API, which keeps its messages in memory, is
// posted to in turn.
func BenchmarkPull(b *testing.B) {
	stack, db := database(b, devstack.NSQ)
	s := startServer(b, stack, db)
	message := `{"messages": {"%s": ["` + strings.Repeat("x", 100) + `"]}}`
	for _, connections := range []int{1, 10} {
		queue := fmt.Sprint("q", connections)
		s.rate("post", connections, func(int) string { return "/post" }, func(int) string { return fmt.Sprintf(message, queue) })
		s.peer(stack, connections)
	}
	// As many messages as can be pulled in the time.
	for queue, n := range map[string]int{"same1": 40, "same10": 40, "many1": 5, "many10": 5} {
		list := strings.TrimSuffix(strings.Repeat(`"`+strings.Repeat("x", 100)+`",`, 1000), ",")
		for range n {
			s.ask("/post", fmt.Sprintf(`{"messages": {"%s": [%s]}}`, queue, list))
		}
	}
	pull := func(int) string { return "/pull" }
	for _, connections := range []int{1, 10} {
		s.rate("pull", connections, pull, func(int) string {
			return fmt.Sprintf(`{"receiver": "r", "timeout": 0, "queues": {"same%d": {}}}`, connections)
		})
		var n atomic.Int64
		s.rate("pull-5-as-many-receivers", connections, pull, func(int) string {
			return fmt.Sprintf(`{"receiver": "r%d", "timeout": 0, "queues": {"many%d": {"max": 5}}}`, n.Add(1)/100, connections)
		})
		s.rate("answer-and-pull", connections, pull, func(i int) string {
			return fmt.Sprintf(`{"receiver": "r", "timeout": 0, "queues": {"same%d": {}}, "results": {"same%d": {"%d": "done"}}}`, connections, connections, 1+i%500)
		})
	}
	s.latency(1)
	s.latency(1000)
}

// httpServer is a `farol serve --pull`, beside the database that it serves.
type httpServer struct {
	*worker

	url        string
	postmaster rig.Postmaster
	client     *http.Client
}

func startServer(b *testing.B, stack *devstack.Stack, db *pgxpool.Pool) *httpServer {
	b.Helper()
	log := filepath.Join(b.TempDir(), "serve.log")
	out, err := os.Create(log)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(build(b, b.TempDir()), "serve", "--pull")
	cmd.Env = []string{"FAROL_DATABASE_URL=" + stack.AdminURL, "FAROL_PULL_ADDR=127.0.0.1:0", "FAROL_HTTP_ADDR=127.0.0.1:0"}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	postmaster, err := rig.FindPostmaster(b.Context(), db)
	if err != nil {
		b.Fatal(err)
	}
	s := &httpServer{postmaster: postmaster, worker: &worker{b: b, cmd: cmd}, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2000}}}
	b.Cleanup(s.stop)
	at := regexp.MustCompile(`msg=serving api="the pull API" addr=(\S+)`)
	for began := time.Now(); s.url == ""; {
		said, _ := os.ReadFile(log)
		if m := at.FindSubmatch(said); m != nil {
			s.url = "http://" + string(m[1])
		}
		if time.Since(began) > 30*time.Second {
			b.Fatalf("no server: %s", said)
		}
	}
	return s
}

func (s *httpServer) ask(path, body string) {
	s.b.Helper()
	response, err := s.client.Post(s.url+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.b.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		s.b.Fatalf("%s %.100s = %d %s, %v", path, body, response.StatusCode, text, err)
	}
}

// rate has so many connections send one request after the other, each as fast as it
// is answered, and reports how many are in a second, and what one costs.
func (s *httpServer) rate(name string, connections int, path, body func(int) string) {
	s.b.Helper()
	serverBefore, databaseBefore := s.cpu(), s.postmaster.CPU()
	n, took := hammer(s.b, strings.TrimPrefix(s.url, "http://"), connections, func(i int) (string, string) { return path(i), body(i) })
	server, database := s.cpu()-serverBefore, s.postmaster.CPU()-databaseBefore
	s.b.ReportMetric(float64(n)/took.Seconds(), fmt.Sprintf("%s-%d-req/s", name, connections))
	s.b.Logf("%s over %d connections: %.0f requests/s; for one %.0f µs of the server's processor time and %.0f µs of the database's",
		name, connections, float64(n)/took.Seconds(), 1e6*server/float64(n), 1e6*database/float64(n))
}

// peer posts the same bytes to nsqd, which answers once they are in its memory.
func (s *httpServer) peer(stack *devstack.Stack, connections int) {
	s.b.Helper()
	body := strings.Repeat("x", 100)
	n, took := hammer(s.b, stack.NSQDHTTPAddr, connections, func(int) (string, string) { return "/pub?topic=bench", body })
	s.b.ReportMetric(float64(n)/took.Seconds(), fmt.Sprintf("nsqd-pub-%d-req/s", connections))
	s.b.Logf("nsqd's /pub over %d connections: %.0f requests/s", connections, float64(n)/took.Seconds())
}

// hammer writes requests and reads answers by hand: a client of the library would take
// most of the processor.
func hammer(b *testing.B, addr string, connections int, request func(int) (path, body string)) (n int, took time.Duration) {
	b.Helper()
	began := time.Now()
	end := began.Add(3 * time.Second)
	counts := make([]int, connections)
	var running sync.WaitGroup
	for i := range connections {
		running.Go(func() {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				b.Error(err)
				return
			}
			defer conn.Close()
			in := make([]byte, 64<<10)
			for time.Now().Before(end) {
				path, body := request(counts[i])
				fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, addr, len(body), body)
				if err := readResponse(conn, in); err != nil {
					b.Errorf("%s %.200s: %v", path, body, err)
					return
				}
				counts[i]++
			}
		})
	}
	running.Wait()
	for _, c := range counts {
		n += c
	}
	return n, time.Since(began)
}

// readResponse reads one response with a Content-Length, which must be a success.
func readResponse(conn net.Conn, in []byte) error {
	have := 0
	for {
		n, err := conn.Read(in[have:])
		if err != nil {
			return err
		}
		have += n
		head, rest, ok := bytes.Cut(in[:have], []byte("\r\n\r\n"))
		if !ok {
			continue
		}
		if !bytes.HasPrefix(head, []byte("HTTP/1.1 200")) {
			return fmt.Errorf("%s %s", head, rest)
		}
		_, length, ok := bytes.Cut(head, []byte("Content-Length: "))
		if !ok {
			return fmt.Errorf("no length: %s", head)
		}
		length, _, _ = bytes.Cut(length, []byte("\r\n"))
		size, err := strconv.Atoi(string(length))
		if err != nil {
			return err
		}
		if len(rest) >= size {
			return nil
		}
	}
}

// latency posts one message after the other while so many calls wait under one name,
// and reports how long it is from before the post to the end of the one answer.
func (s *httpServer) latency(waiting int) {
	s.b.Helper()
	queue := fmt.Sprint("wait", waiting)
	const rounds = 300
	answered := make(chan time.Time, waiting)
	var gone atomic.Bool
	var running sync.WaitGroup
	for range waiting {
		running.Go(func() {
			for !gone.Load() {
				r, err := s.client.Post(s.url+"/pull", "application/json", strings.NewReader(fmt.Sprintf(`{"receiver": "r", "timeout": 5, "queues": {%q: {}}}`, queue)))
				if err != nil {
					return
				}
				io.Copy(io.Discard, r.Body)
				r.Body.Close()
				if r.StatusCode == http.StatusOK {
					answered <- time.Now()
				}
			}
		})
	}
	time.Sleep(2 * time.Second) //nolint:forbidigo // a benchmark may
	var took []time.Duration
	for range rounds {
		began := time.Now()
		s.ask("/post", fmt.Sprintf(`{"messages": {%q: ["x"]}}`, queue))
		took = append(took, (<-answered).Sub(began))
		time.Sleep(5 * time.Millisecond) //nolint:forbidigo // so that the receiver that was answered waits again
	}
	gone.Store(true)
	running.Wait()
	slices.Sort(took)
	s.b.ReportMetric(1e3*took[rounds/2].Seconds(), fmt.Sprintf("post-to-pull-%d-p50-ms", waiting))
	s.b.Logf("from a post to the answer of one of %d that wait: p50 %v, p99 %v", waiting, took[rounds/2], took[rounds*99/100])
}
