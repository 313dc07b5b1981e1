package pull

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/web/reply"
)

// server is a process that serves the pull API.
type server struct {
	t      *testing.T
	db     *pgxpool.Pool
	api    *API
	url    string
	client *http.Client
}

// serve starts one, until the test ends.
func serve(t *testing.T, db *pgxpool.Pool) *server {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	api := New(db, Options{MaxBody: 8 << 20, Stop: ctx, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	var running sync.WaitGroup
	running.Go(func() {
		if err := api.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	mux := http.NewServeMux()
	api.Routes(mux)
	web := httptest.NewServer(mux)
	client := &http.Client{Timeout: 2 * testenv.Patience, Transport: &http.Transport{MaxIdleConnsPerHost: 2000}}
	t.Cleanup(func() {
		cancel()
		client.CloseIdleConnections()
		web.Close()
		running.Wait()
	})
	return &server{t: t, db: db, api: api, url: web.URL, client: client}
}

// ask sends a request, and returns the status and the body of the answer.
func (s *server) ask(path, body string) (status int, answer string) {
	s.t.Helper()
	status, answer, err := s.try(context.Background(), path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	return status, answer
}

func (s *server) try(ctx context.Context, path, body string) (status int, answer string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	response, err := s.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	got, err := io.ReadAll(response.Body)
	return response.StatusCode, strings.TrimSpace(string(got)), err
}

// post posts messages to one queue and wants them to be numbered from first on.
func (s *server) post(queue string, first int64, messages ...string) {
	s.t.Helper()
	body := must.Get(json.Marshal(map[string]any{"sender": "s", "messages": map[string][]string{queue: messages}}))(s.t)
	status, answer := s.ask("/post", string(body))
	var ids []string
	for i := range messages {
		ids = append(ids, fmt.Sprint(first+int64(i)))
	}
	if want := fmt.Sprintf(`{%q:[%s]}`, queue, strings.Join(ids, ",")); status != http.StatusOK || answer != want {
		s.t.Fatalf("post = %d %s, want %s", status, answer, want)
	}
}

// given reads what an answer to a pull has given: "queue: id text, id text; ...", or
// "nothing".
func given(status int, answer string) string {
	if status == http.StatusNoContent && answer == "" {
		return "nothing"
	}
	var got struct {
		Messages map[string][]struct {
			ID          int64
			Message     string
			CreatedTime time.Time `json:"created_time"`
		}
	}
	d := json.NewDecoder(strings.NewReader(answer))
	if err := d.Decode(&got); err != nil || status != http.StatusOK || len(got.Messages) == 0 {
		return fmt.Sprintf("%d %s", status, answer)
	}
	var parts []string
	for _, queue := range slices.Sorted(maps.Keys(got.Messages)) {
		var list []string
		for _, m := range got.Messages[queue] {
			if time.Since(m.CreatedTime) > time.Hour || m.CreatedTime.IsZero() {
				return fmt.Sprintf("message %d was created at %v", m.ID, m.CreatedTime)
			}
			list = append(list, fmt.Sprint(m.ID, " ", m.Message))
		}
		parts = append(parts, queue+": "+strings.Join(list, ", "))
	}
	return strings.Join(parts, "; ")
}

// pull pulls once and does not wait, unless options say otherwise.
func (s *server) pull(receiver, queue, options string) string {
	s.t.Helper()
	return given(s.ask("/pull", fmt.Sprintf(`{"receiver": %q, "timeout": 0, "queues": {%q: {%s}}}`, receiver, queue, options)))
}

// refusal reads the problem in an answer, and returns its text: programs of NQ find it
// under the key _error.
func refusal(t *testing.T, answer string) string {
	t.Helper()
	var p reply.Problem
	if err := json.Unmarshal([]byte(answer), &p); err != nil || p.NQ == "" || p.NQ != p.Detail || p.Type != "urn:farol:problem:"+p.Code {
		t.Errorf("%s is not a problem: %v", answer, err)
	}
	return p.NQ
}

func (s *server) wants(what, got, want string) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestPostNumbersFromOneInEachQueue(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	for _, step := range []struct{ body, want string }{
		{`{"sender": "sender1", "messages": {"queue2": ["a"], "queue1": ["b"]}}`, `{"queue1":[1],"queue2":[1]}`},
		{`{"sender": "sender1", "messages": {"queue1": ["c", "d"], "empty": [], "queue2": ["e"]}}`, `{"queue1":[2,3],"queue2":[2]}`},
		{`{"messages": {"queue1": [""]}}`, `{"queue1":[4]}`},
		{`{"sender": null, "messages": {"queue1": ["\u00e9 \ud83d\ude00 \\ud800 <&>"]}}`, `{"queue1":[5]}`},
	} {
		if status, got := s.ask("/post", step.body); status != http.StatusOK || got != step.want {
			t.Errorf("post %s = %d %s, want %s", step.body, status, got, step.want)
		}
	}
	_, answer := s.ask("/pull", `{"receiver": "r", "queues": {"queue1": {"max": 9}}}`)
	var got struct{ Messages map[string][]message }
	must.Do(t, json.Unmarshal([]byte(answer), &got))
	var texts []string
	for _, m := range got.Messages["queue1"] {
		texts = append(texts, fmt.Sprintf("%d %s %s", m.ID, m.Sender, m.Message))
	}
	want := []string{"1 sender1 b", "2 sender1 c", "3 sender1 d", "4  ", `5  é 😀 \ud800 <&>`}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

func TestWrongRequestsAreRefusedAndLeaveNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"/post", ``, 400, "not a JSON object"},
		{"/post", `{"messages": {"q": ["a"]}`, 400, "not a JSON object"},
		{"/post", `[]`, 400, "not an object"},
		{"/post", `{}`, 400, "nothing to post"},
		{"/post", `{"messages": {}}`, 400, "nothing to post"},
		{"/post", `{"messages": {"q": [], "p": []}}`, 400, "nothing to post"},
		{"/post", `{"messages": ["a"]}`, 400, "messages: "},
		{"/post", `{"messages": {"q": "a"}}`, 400, "messages.q is"},
		{"/post", `{"messages": {"q": null}}`, 400, "messages.q is"},
		{"/post", `{"messages": {"q": ["a", 1]}}`, 400, "messages.q[1] is 1"},
		{"/post", `{"messages": {"q": ["a", null]}}`, 400, "messages.q[1] is null"},
		{"/post", `{"messages": {"q": ["a"], "q": ["b"]}}`, 400, "twice"},
		{"/post", `{"messages": {"_error": ["a"]}}`, 400, "queue name"},
		{"/post", `{"messages": {"": ["a"]}}`, 400, "queue name"},
		{"/post", `{"messages": {"two words": ["a"]}}`, 400, "queue name"},
		{"/post", `{"messages": {"` + strings.Repeat("q", 256) + `": ["a"]}}`, 400, "queue name"},
		{"/post", `{"sender": 7, "messages": {"q": ["a"]}}`, 400, "sender is 7"},
		{"/post", `{"sender": "` + strings.Repeat("s", 256) + `", "messages": {"q": ["a"]}}`, 400, "sender is 256 bytes"},
		{"/post", `{"messages": {"q": ["a\u0000b"]}}`, 400, "U+0000"},
		{"/post", `{"messages": {"q": ["\ud800"]}}`, 400, "surrogate"},
		{"/post", `{"messages": {"q": ["\ud800\n"]}}`, 400, "surrogate"},
		{"/post", `{"messages": {"q": ["\udc00\ud800"]}}`, 400, "surrogate"},
		{"/post", "{\"messages\": {\"q\": [\"\xff\"]}}", 400, "UTF-8"},
		{"/post", `{"messages": {"q": ["` + strings.Repeat("x", 9<<20) + `"]}}`, 413, "larger than 8388608"},
		{"/post", `{"messages": {"q": ["a"], "ingest08_record": ["1"]}}`, 403, "ingest08_record is a topic of the pipeline"},
		{"/post", `{"messages": {"fixity_check": ["1"]}}`, 403, "topic of the pipeline"},
		{"/pull", `{"queues": {"q": {}}}`, 400, "receiver is missing"},
		{"/pull", `{"receiver": "", "queues": {"q": {}}}`, 400, "receiver"},
		{"/pull", `{"receiver": "a\nb", "queues": {"q": {}}}`, 400, "receiver"},
		{"/pull", `{"receiver": "r"}`, 400, "the request is empty"},
		{"/pull", `{"receiver": "r", "queues": {}}`, 400, "the request is empty"},
		{"/pull", `{"receiver": "r", "queues": {"q": 1}}`, 400, "queues.q"},
		{"/pull", `{"receiver": "r", "queues": {"q": {}}, "timeout": -1}`, 400, "timeout is -1"},
		{"/pull", `{"receiver": "r", "queues": {"q": {}}, "timeout": "1"}`, 400, "timeout is"},
		{"/pull", `{"receiver": "r", "queues": {"q": {"start": -3}}}`, 400, "queues.q.start is -3"},
		{"/pull", `{"receiver": "r", "queues": {"q": {"start": 1.5}}}`, 400, "queues.q.start is 1.5"},
		{"/pull", `{"receiver": "r", "queues": {"q": {"max": 0}}}`, 400, "queues.q.max is 0"},
		{"/pull", `{"receiver": "r", "queues": {"q": {"retry_num": -1}}}`, 400, "queues.q.retry_num is -1"},
		{"/pull", `{"receiver": "r", "queues": {"q": {"fail_timeout": -1}}}`, 400, "queues.q.fail_timeout is -1"},
		{"/pull", `{"receiver": "r", "results": {"q": {"x": "done"}}}`, 400, "not the id of a message"},
		{"/pull", `{"receiver": "r", "results": {"q": {"1": [5]}}}`, 400, "results.q.1 is [5]"},
		{"/pull", `{"receiver": "r", "results": {"q": {"1": "` + strings.Repeat("x", 64<<10+1) + `"}}}`, 400, "results.q.1 is 65537 bytes"},
		{"/pull", `{"receiver": "r", "results": {"q": {"1": "done"}}}`, 400, "1 of 1 results are for messages that were not delivered to r"},
	} {
		status, answer := s.ask(c.path, c.body)
		if status != c.status || !strings.Contains(refusal(t, answer), c.says) {
			t.Errorf("%s %.80s = %d %s, want %d with an _error that says %q", c.path, c.body, status, answer, c.status, c.says)
		}
	}
	var left int
	if err := s.db.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM queues) + (SELECT count(*) FROM topic_messages) + (SELECT count(*) FROM topic_deliveries)`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows are left, %v", left, err)
	}
	for _, path := range []string{"/post", "/pull"} {
		response, err := s.client.Get(s.url + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("GET %s = %s", path, response.Status)
		}
	}
}

func TestNamesShareAndEachNameGetsAll(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	s.post("q", 1, "a", "b", "c")
	s.wants("r1", s.pull("r1", "q", ""), "q: 1 a")
	s.wants("r1 again", s.pull("r1", "q", `"max": 10`), "q: 2 b, 3 c")
	s.wants("r1 at the end", s.pull("r1", "q", ""), "nothing")
	s.wants("r2", s.pull("r2", "q", `"max": 2`), "q: 1 a, 2 b")
	s.wants("another queue", s.pull("r2", "p", ""), "nothing")
}

func TestWhereAPullStarts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		steps []string // post:MESSAGE, or START=WHAT COMES
	}{
		{"from n", []string{"post:a", "post:b", "post:c", "2=q: 2 b", "1=q: 3 c", "1=nothing"}},
		{"from one that is to come", []string{"post:a", "3=nothing", "post:b", "0=q: 1 a", "post:c", "3=q: 3 c"}},
		{"from a number that was passed", []string{"post:a", "post:b", "0=q: 1 a", "1=q: 2 b", "1=nothing"}},
		{"going on", []string{"0=nothing", "post:a", "0=q: 1 a", "0=nothing", "post:b", "0=q: 2 b"}},
		{"the newest", []string{"post:a", "post:b", "-1=q: 2 b", "-1=nothing", "0=nothing", "post:c", "post:d", "-1=q: 4 d", "0=nothing"}},
		{"the newest of none", []string{"-1=nothing", "post:a", "-1=q: 1 a"}},
		{"new ones only", []string{"post:a", "-2=nothing", "0=nothing", "post:b", "0=q: 2 b", "post:c", "-2=nothing", "0=nothing"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, testenv.Database(t))
			next := int64(1)
			for _, step := range c.steps {
				if m, ok := strings.CutPrefix(step, "post:"); ok {
					s.post("q", next, m)
					next++
					continue
				}
				start, want, _ := strings.Cut(step, "=")
				s.wants(step, s.pull("r", "q", `"start": `+start+`, "retry_num": 0`), want)
			}
		})
	}
}

// Messages that came before a call began are passed over by it, those that come
// while it waits are not.
func TestNewMessagesReachWhoWaitsForThem(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	s.post("q", 1, "old")
	for i, start := range []string{"-2", "-1", "0", "5"} {
		if start == "-1" {
			s.wants("the newest", s.pull("r-1", "q", `"start": -1`), fmt.Sprintf("q: %d new%d", i+1, i-1))
		}
		if start == "0" {
			s.wants("all", s.pull("r0", "q", `"max": 10`), "q: 1 old, 2 new0, 3 new1")
		}
		came := make(chan string)
		go func() {
			status, answer, err := s.try(context.Background(), "/pull",
				fmt.Sprintf(`{"receiver": "r%s", "timeout": 60, "queues": {"q": {"start": %s, "max": 3}}}`, start, start))
			if err != nil {
				answer = err.Error()
			}
			came <- given(status, answer)
		}()
		testenv.Eventually(t, "a call that waits", func() bool { return s.api.Waiting() == 1 && s.settled() })
		s.post("q", int64(i+2), fmt.Sprint("new", i))
		s.wants("start "+start, <-came, fmt.Sprintf("q: %d new%d", i+2, i))
	}
}

// settled reports whether every receiver that waits has made its first fetch.
func (s *server) settled() bool {
	var n int
	must.Do(s.t, s.db.QueryRow(context.Background(), `SELECT count(*) FROM topic_receivers`).Scan(&n))
	return n >= len(s.api.broker.waits.queues())
}

// The example of NQ's rules.
func TestRetriesAreLazyAndCounted(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	const options = `"fail_timeout": 600, "retry_num": 2`
	rows := func() string {
		var list string
		must.Do(t, s.db.QueryRow(t.Context(), `SELECT string_agg(concat_ws(' ', message, status, fail_count), ', ' ORDER BY message) FROM deliveries`).Scan(&list))
		return list
	}
	wait := func() {
		testenv.Exec(t, s.db, `UPDATE topic_deliveries SET updated_at = updated_at - interval '601 seconds'`)
	}
	step := func(want, row string) {
		t.Helper()
		s.wants("pull", s.pull("r", "q", options), want)
		s.wants("rows", rows(), row)
	}
	s.post("q", 1, "foo")
	step("q: 1 foo", "1 processing 0")
	step("nothing", "1 processing 0")
	wait()
	s.post("q", 2, "bar")
	step("q: 2 bar", "1 processing 0, 2 processing 0")
	step("q: 1 foo", "1 processing 1, 2 processing 0")
	wait()
	step("q: 1 foo", "1 failed 2, 2 processing 0")
	step("q: 2 bar", "1 failed 2, 2 processing 1")
	wait()
	step("q: 2 bar", "1 failed 2, 2 failed 2")
	wait()
	step("nothing", "1 failed 2, 2 failed 2")
	// An answer finishes, also what has failed.
	if status, answer := s.ask("/pull", `{"receiver": "r", "results": {"q": {"1": "done", "2": ""}}}`); status != 200 || answer != `{"messages":{}}` {
		t.Errorf("results = %d %s", status, answer)
	}
	s.wants("rows", rows(), "1 finished 2, 2 finished 2")
}

func TestWithoutRetriesAMessageHasFailedUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	s.post("q", 1, "foo")
	const options = `"fail_timeout": 0, "retry_num": 0`
	s.wants("pull", s.pull("r", "q", options), "q: 1 foo")
	s.wants("again", s.pull("r", "q", options), "nothing")
	state := func() (row string) {
		must.Do(t, s.db.QueryRow(t.Context(), `SELECT concat_ws(' ', queue, message, receiver, status, fail_count, result, took > '0') FROM deliveries`).Scan(&row))
		return row
	}
	s.wants("before", state(), "q 1 r failed 0")
	s.ask("/pull", `{"receiver": "r", "results": {"q": {"1": "got it"}}}`)
	s.wants("after", state(), "q 1 r finished 0 got it t")
}

// A call may answer and ask in one, and what is finished never comes again.
func TestAnsweredMessagesDoNotComeAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	s.post("q", 1, "a", "b")
	s.wants("first", s.pull("r", "q", `"fail_timeout": 0.1`), "q: 1 a")
	began := time.Now()
	s.wants("answer and ask", given(s.ask("/pull", `{"receiver": "r", "timeout": 0, "results": {"q": {"1": "ok"}}, "queues": {"q": {"fail_timeout": 0.1}}}`)), "q: 2 b")
	s.wants("nothing left but b", given(s.ask("/pull", `{"receiver": "r", "timeout": 10, "results": {"q": {"1": "ok"}}, "queues": {"q": {"fail_timeout": 0.4}}}`)), "q: 2 b")
	if took := time.Since(began); took < 250*time.Millisecond || took > testenv.AtOnce {
		t.Errorf("b came again after %v, want it about 0.4 s after it was given", took)
	}
	began = time.Now()
	s.wants("all done", given(s.ask("/pull", `{"receiver": "r", "timeout": 0.5, "results": {"q": {"2": "ok"}}, "queues": {"q": {"fail_timeout": 0.1}}}`)), "nothing")
	if took := time.Since(began); took < 500*time.Millisecond || took > testenv.AtOnce {
		t.Errorf("204 came after %v, want 0.5 s", took)
	}
}

func TestSeveralQueuesInOneCall(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	s.post("b", 1, "b1", "b2", "b3")
	s.post("a", 1, "a1")
	const both = `{"receiver": "r", "timeout": 30, "queues": {"b": {"max": 2}, "a": {}, "c": {}}}`
	s.wants("what there is", given(s.ask("/pull", both)), "a: 1 a1; b: 1 b1, 2 b2")
	s.wants("the rest", given(s.ask("/pull", both)), "b: 3 b3")
	came := make(chan string)
	go func() {
		status, answer, err := s.try(context.Background(), "/pull", both)
		if err != nil {
			answer = err.Error()
		}
		came <- given(status, answer)
	}()
	testenv.Eventually(t, "a call that waits", func() bool { return s.api.Waiting() == 1 })
	s.post("c", 1, "c1")
	s.wants("the first to have something", <-came, "c: 1 c1")
}

// Of many calls that wait under one name each message reaches exactly one, whichever
// process it waits in; of names, each is given each message.
func TestThousandCallsWait(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	processes := []*server{serve(t, db), serve(t, db)}
	const calls, others = 1000, 20
	var mu sync.Mutex
	got := map[string]int{}
	var waiting sync.WaitGroup
	call := func(i int, receiver string) {
		waiting.Go(func() {
			status, answer, err := processes[i%2].try(context.Background(), "/pull", fmt.Sprintf(`{"receiver": %q, "timeout": 110, "queues": {"q": {}}}`, receiver))
			if err != nil {
				answer = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			name, _, _ := strings.Cut(receiver, "-")
			got[name+" "+given(status, answer)]++
		})
	}
	for i := range calls {
		call(i, "same")
	}
	for i := range others {
		call(i, fmt.Sprint("other-", i))
	}
	testenv.Eventually(t, "all calls waiting", func() bool { return processes[0].api.Waiting()+processes[1].api.Waiting() == calls+others })
	processes[0].post("q", 1, "m1")
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if t.Failed() {
			for what, n := range got {
				t.Logf("%d times %.200q", n, what)
			}
		}
	})
	testenv.Eventually(t, "one call answered of each name", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return got["same q: 1 m1"] == 1 && got["other q: 1 m1"] == others && len(got) == 2
	})
	for n := int64(2); n <= calls; {
		batch := min(calls-n+1, 1+n%7)
		var messages []string
		for i := range batch {
			messages = append(messages, fmt.Sprint("m", n+i))
		}
		processes[n%2].post("q", n, messages...)
		n += batch
	}
	waiting.Wait()
	for n := 1; n <= calls; n++ {
		if of := got[fmt.Sprintf("same q: %d m%d", n, n)]; of != 1 {
			t.Fatalf("message %d was given to %d calls", n, of)
		}
	}
	if len(got) != calls+1 {
		t.Errorf("%d kinds of answers: %v", len(got), got)
	}
}

// Anyone who has gone is given nothing.
func TestCallThatWasGivenUpTakesNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	ctx, cancel := context.WithCancel(t.Context())
	var gone sync.WaitGroup
	for range 5 {
		gone.Go(func() {
			if _, _, err := s.try(ctx, "/pull", `{"receiver": "r", "queues": {"q": {}}}`); err == nil {
				t.Error("a call that was given up was answered")
			}
		})
	}
	testenv.Eventually(t, "five calls waiting", func() bool { return s.api.Waiting() == 5 })
	cancel()
	gone.Wait()
	testenv.Eventually(t, "no call waiting", func() bool { return s.api.Waiting() == 0 })
	s.post("q", 1, "a")
	s.wants("who is there", s.pull("r", "q", ""), "q: 1 a")
}

func TestMessagesOfAMebibyteAndMore(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	large := []string{strings.Repeat("ab", 1<<19), strings.Repeat("\"\n", 1<<20), ""}
	for i, m := range large {
		s.post("q", int64(i+1), m)
	}
	_, answer := s.ask("/pull", `{"receiver": "r", "queues": {"q": {"max": 3}}}`)
	var got struct{ Messages map[string][]message }
	if err := json.Unmarshal([]byte(answer), &got); err != nil || len(got.Messages["q"]) != 3 {
		t.Fatalf("%d bytes of an answer, %v", len(answer), err)
	}
	for i, m := range got.Messages["q"] {
		if m.Message != large[i] {
			t.Errorf("message %d came as %d bytes, was %d", i+1, len(m.Message), len(large[i]))
		}
	}
}

// Posters in several processes, to several queues at once: no number is given twice
// or left out, and a receiver is given all in order.
func TestPostersNeverShareOrSkipANumber(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	processes := []*server{serve(t, db), serve(t, db)}
	var mu sync.Mutex
	numbers := map[string][]int64{}
	var posting sync.WaitGroup
	for p := range 8 {
		posting.Go(func() {
			for n := range 40 {
				body := fmt.Sprintf(`{"messages": {"a": ["%d.%d"], "b": ["x", "y"], "c%d": ["z"]}}`, p, n, n%3)
				status, answer, err := processes[p%2].try(context.Background(), "/post", body)
				var ids map[string][]int64
				if err != nil || status != http.StatusOK || json.Unmarshal([]byte(answer), &ids) != nil {
					t.Errorf("post = %d %s, %v", status, answer, err)
					return
				}
				mu.Lock()
				for queue, list := range ids {
					numbers[queue] = append(numbers[queue], list...)
				}
				mu.Unlock()
			}
		})
	}
	posting.Wait()
	for queue, list := range numbers {
		slices.Sort(list)
		for i, n := range list {
			if n != int64(i+1) {
				t.Fatalf("%s: number %d is given where %d should be", queue, n, i+1)
			}
		}
		last := int64(0)
		for last < int64(len(list)) {
			_, answer := processes[0].ask("/pull", fmt.Sprintf(`{"receiver": "r", "timeout": 0, "queues": {%q: {"max": 50}}}`, queue))
			var got struct{ Messages map[string][]message }
			if err := json.NewDecoder(bytes.NewReader([]byte(answer))).Decode(&got); err != nil {
				t.Fatalf("%s after %d of %d: %s", queue, last, len(list), answer)
			}
			for _, m := range got.Messages[queue] {
				if m.ID != last+1 {
					t.Fatalf("%s: message %d came after %d", queue, m.ID, last)
				}
				last = m.ID
			}
		}
	}
	if len(numbers["a"]) != 320 || len(numbers["b"]) != 640 {
		t.Errorf("%d and %d messages were posted, want 320 and 640", len(numbers["a"]), len(numbers["b"]))
	}
}

// A connection may have a deadline from an earlier answer: none is written under it.
func TestAnswersAreWrittenInTheirOwnTime(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	New(testenv.Database(t), Options{}).Routes(mux)
	testenv.CallLate(
		t, mux,
		testenv.Call{Method: "POST", Path: "/post", Body: `{"messages": {"q": ["a"]}}`, Status: 200},
		testenv.Call{Method: "POST", Path: "/post", Body: `{}`, Status: 400},
		testenv.Call{Method: "POST", Path: "/pull", Body: `{"receiver": "r", "timeout": 0, "queues": {"q": {}}}`, Status: 200},
		testenv.Call{Method: "POST", Path: "/pull", Body: `{"receiver": "r", "timeout": 0.1, "queues": {"q": {}}}`, Status: 204},
	)
}
