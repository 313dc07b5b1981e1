package pull

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/topiclog"
	"github.com/farol-preservation/farol/web/request"
)

// do sends a request of any method.
func (s *server) do(method, path, body string) (status int, answer string) {
	s.t.Helper()
	r := must.Get(http.NewRequestWithContext(context.Background(), method, s.url+path, strings.NewReader(body)))(s.t)
	response, err := s.client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	got := must.Get(io.ReadAll(response.Body))(s.t)
	return response.StatusCode, strings.TrimSpace(string(got))
}

// queues reads GET /queues, one line for each queue and each receiver.
func (s *server) shown() (list []string) {
	s.t.Helper()
	_, answer := s.do(http.MethodGet, "/queues", "")
	var got struct{ Queues []record.Queue }
	if err := json.Unmarshal([]byte(answer), &got); err != nil {
		s.t.Fatalf("%s: %v", answer, err)
	}
	for _, q := range got.Queues {
		list = append(list, fmt.Sprint(q.Queue, ": last ", q.Last, ", kept ", q.Messages, ", depth ", q.Depth, ", failed ", q.Failed, ", old ", q.Oldest >= 3600))
		for _, r := range q.Receivers {
			list = append(list, fmt.Sprint(" ", r.Receiver, " at ", r.Position, ": ", r.Waiting, " wait, ", r.Processing, " processing, ",
				r.Delayed, " delayed, ", r.Failed, " failed, old ", r.Oldest >= 3600))
		}
	}
	return list
}

// The figures of a queue are those of its receivers: what each has yet to end.
func TestQueuesAreShown(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	if status, answer := s.do(http.MethodGet, "/queues", ""); status != http.StatusOK || answer != `{"queues":[]}` {
		t.Errorf("no queues = %d %s", status, answer)
	}
	s.post("b", 1, "x", "y")
	s.post("a", 1, "1", "2", "3", "4", "5")
	testenv.Exec(t, s.db, `UPDATE posted_messages SET created_at = now() - interval '2 hours' WHERE topic = 'a' AND number = 4`)
	s.ask("/post", `{"messages": {"b": ["z"]}, "delay": 3600}`)
	s.wants("two", s.pull("r", "a", `"max": 2`), "a: 1 1, 2 2")
	s.ask("/pull", `{"receiver": "r", "results": {"a": {"1": ""}}}`)
	s.wants("failed at once", s.pull("r", "a", `"retry_num": 0`), "a: 3 3")
	s.wants("all", s.pull("quick", "a", `"start": -2`), "nothing")
	s.wants("with a delayed one", s.pull("r", "b", `"start": 3`), "nothing")
	testenv.PutMessages(t, s.db, "fixity_check", "7", "8")
	s.readable()
	s.wants("a topic", s.pull("r", "fixity_check", ""), "fixity_check: 1 7")
	want := []string{
		"a: last 5, kept 5, depth 3, failed 1, old true",
		" quick at 5: 0 wait, 0 processing, 0 delayed, 0 failed, old false",
		" r at 3: 2 wait, 1 processing, 0 delayed, 1 failed, old true",
		"b: last 3, kept 3, depth 1, failed 0, old false",
		" r at 3: 0 wait, 0 processing, 1 delayed, 0 failed, old false",
		"fixity_check: last 0, kept 0, depth 2, failed 0, old false",
		" r at 1: 1 wait, 1 processing, 0 delayed, 0 failed, old false",
	}
	if diff := cmp.Diff(want, s.shown()); diff != "" {
		t.Errorf("queues (-want +got):\n%s", diff)
	}
	if status, answer := s.do(http.MethodGet, "/queues/a", ""); status != http.StatusOK || !strings.HasPrefix(answer, `{"queue":"a","pipeline":false,"last_number":5,`) {
		t.Errorf("one queue = %d %s", status, answer)
	}
	if status, answer := s.do(http.MethodGet, "/queues/nowhere", ""); status != http.StatusNotFound || !strings.Contains(answer, "there is no queue nowhere") {
		t.Errorf("no queue = %d %s", status, answer)
	}
}

// A sender learns what has become of a message with each receiver.
func TestWhatBecameOfAMessage(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	s.post("dir/q", 1, "m", "n")
	for name, options := range map[string]string{"behind": `"start": 9`, "done": "", "failing": `"retry_num": 0`, "over": `"start": -2`, "working": ""} {
		s.pull(name, "dir/q", options)
	}
	s.ask("/pull", `{"receiver": "done", "results": {"dir/q": {"1": "300 words"}}}`)
	s.do(http.MethodPut, "/queues/dir%2Fq/receivers/behind", `{"position": 0}`)
	status, answer := s.do(http.MethodGet, "/queues/dir%2Fq/messages/1", "")
	var m record.PostedMessage
	if err := json.Unmarshal([]byte(answer), &m); err != nil || status != http.StatusOK || m.Sender != "s" || m.Number != 1 || m.RunAt != nil {
		t.Fatalf("message = %d %s, %v", status, answer, err)
	}
	var got []string
	for _, r := range m.Receivers {
		result := "none"
		if r.Result != nil {
			result = *r.Result
		}
		got = append(got, fmt.Sprint(r.Receiver, " ", r.Status, " ", r.FailCount, " ", result, " ", r.GivenAt != nil))
	}
	want := []string{"behind waiting 0 none false", "done finished 0 300 words true", "failing failed 0 none true", "over passed 0 none false", "working processing 0 none true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("receivers (-want +got):\n%s", diff)
	}
	for path, want := range map[string]int{"/queues/dir%2Fq/messages/3": 404, "/queues/p/messages/1": 404, "/queues/p/messages/0": 400, "/queues/p/messages/x": 400} {
		if status, answer := s.do(http.MethodGet, path, ""); status != want || strings.Contains(answer, "strconv") {
			t.Errorf("%s = %d %s, want %d", path, status, answer, want)
		}
	}
}

// A receiver can be set anywhere, but for behind the end.
func TestPositionsCanBeSet(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	s.post("q", 1, "a", "b", "c")
	s.ask("/post", `{"messages": {"q": ["late"]}, "delay": 3600}`)
	s.wants("all", s.pull("r", "q", `"max": 9`), "q: 1 a, 2 b, 3 c")
	s.ask("/pull", `{"receiver": "r", "results": {"q": {"1": "x", "2": "x", "3": "x"}}}`)
	place := func(queue, receiver, body string, want int, says string) {
		t.Helper()
		status, answer := s.do(http.MethodPut, "/queues/"+queue+"/receivers/"+receiver, body)
		if status != want || !strings.Contains(answer, says) {
			t.Errorf("%s of %s to %s = %d %s, want %d %s", receiver, queue, body, status, answer, want, says)
		}
	}
	place("q", "r", `{"position": 1}`, 200, `{"position":1,"queue":"q","receiver":"r"}`)
	s.wants("back", s.pull("r", "q", `"max": 9`), "q: 2 b, 3 c")
	if got := value[string](t, s, `SELECT string_agg(concat_ws(' ', message, status, result), ', ' ORDER BY message) FROM deliveries`); got != "1 finished x, 2 processing, 3 processing" {
		t.Errorf("the rows are %s", got)
	}
	place("q", "new", `{"position": 2}`, 200, "")
	s.wants("one that never pulled", s.pull("new", "q", ""), "q: 3 c")
	place("q", "r", `{"position": 5}`, 400, "the last message of q is 4")
	place("q", "r", `{"position": -1}`, 400, "position is -1")
	place("q", "r", `{"start": 1}`, 400, "unknown key \\\"start\\\"")
	place("q", "r", `{}`, 400, "position is missing")
	place("nowhere", "r", `{"position": 0}`, 404, "no queue nowhere")
	place("q", "a%0Ab", `{"position": 0}`, 400, "control characters")
	testenv.PutMessages(t, s.db, "fixity_check", "7", "8")
	s.readable()
	s.wants("a topic", given(s.ask("/pull", `{"receiver": "r", "timeout": 20, "queues": {"fixity_check": {"max": 9}}}`)), "fixity_check: 1 7, 2 8") // it is numbered when no older transaction runs
	place("fixity_check", "r", `{"position": 1}`, 200, "")
	s.wants("a topic, back", s.pull("r", "fixity_check", `"max": 9`), "fixity_check: 2 8")
}

// Receivers that were not heard of are forgotten, unless their answers are on record.
func TestReceiversAreForgotten(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	s.post("q", 1, "a", "b")
	for _, name := range []string{"answered", "silent", "recent"} {
		s.pull(name, "q", "")
	}
	s.pull("passing", "q", `"start": -2`)
	s.ask("/pull", `{"receiver": "answered", "results": {"q": {"1": "x"}}}`)
	testenv.Exec(t, s.db, `UPDATE topic_receivers SET pulled_at = now() - interval '91 days' WHERE name <> 'recent'`)
	names := func() string {
		return value[string](t, s, `SELECT string_agg(name, ' ' ORDER BY name) FROM topic_receivers`)
	}
	for _, step := range []struct {
		keep time.Duration
		want string
	}{{0, "answered passing recent silent"}, {92 * 24 * time.Hour, "answered passing recent silent"}, {90 * 24 * time.Hour, "answered recent"}} {
		must.Get(topiclog.Keep(t.Context(), registry.New(s.db), topiclog.Retention{Pipeline: time.Hour, Receivers: step.keep}))(t)
		s.wants(step.keep.String(), names(), step.want)
	}
	if n := value[int](t, s, `SELECT count(*)::int FROM topic_deliveries`); n != 2 {
		t.Errorf("%d deliveries are left, want 2", n)
	}
	s.wants("one that comes back begins at the first", s.pull("silent", "q", ""), "q: 1 a")
}

// What a pull does not say is a setting of the server.
func TestDefaultsOfPullsAreSettings(t *testing.T) {
	t.Parallel()
	want := pullRequest{receiver: "r", timeout: time.Second, wants: []wanted{{Queue: "q", Max: 7, RetryNum: 0, FailTimeout: time.Hour}}}
	got, err := readPull([]byte(`{"receiver": "r", "queues": {"q": {}}}`), Defaults{time.Second, 7, 0, time.Hour})
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(pullRequest{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	r := newReader(t, Options{Defaults: Defaults{0, 2, 0, time.Hour}}, request.Limits{})
	s := &server{t: t, api: r.api, url: r.web.URL, client: r.web.Client()}
	s.post("q", 1, "a", "b", "c")
	const bare = `{"receiver": "r", "queues": {"q": {}}}`
	s.wants("max", given(s.ask("/pull", bare)), "q: 1 a, 2 b")
	s.wants("the rest", given(s.ask("/pull", bare)), "q: 3 c")
	s.wants("no wait", given(s.ask("/pull", bare)), "nothing")
}
