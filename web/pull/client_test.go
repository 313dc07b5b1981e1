package pull

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

func newClient(t *testing.T, url string, o client.Options) *client.Client {
	t.Helper()
	o.HTTP = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(o.HTTP.CloseIdleConnections)
	c := must.Get(client.New(url, o))(t)
	return c
}

func TestClientPostsAndPulls(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	c := newClient(t, s.url, client.Options{})
	ids, err := c.Post(t.Context(), "me", map[string][]string{"q": {"a", "b"}, "p": {"c"}})
	if diff := cmp.Diff(map[string][]int64{"q": {1, 2}, "p": {1}}, ids); err != nil || diff != "" {
		t.Fatalf("ids (-want +got):\n%s%v", diff, err)
	}
	pull := func(receiver string, want client.Want, results map[string]map[int64]string) (texts []string) {
		t.Helper()
		messages := must.Get(c.Pull(t.Context(), receiver, map[string]client.Want{"q": want}, 0, results))(t)
		for _, m := range messages {
			texts = append(texts, fmt.Sprint(m.Queue, m.ID, m.Text, m.Sender, m.CreatedTime.IsZero()))
		}
		return texts
	}
	got := slices.Concat(
		pull("r", client.Want{FailTimeout: time.Nanosecond, Retries: 1}, nil),
		pull("r", client.Want{Start: client.OnlyNew, FailTimeout: time.Hour}, nil),
		pull("r", client.Want{FailTimeout: time.Nanosecond, Retries: 1}, nil), // now it has failed
		pull("r", client.Want{FailTimeout: time.Nanosecond}, nil),
		pull("n", client.Want{Start: client.Newest, NoRetries: true}, nil),
		pull("all", client.Want{Max: 9}, nil),
	)
	want := []string{"q1amefalse", "q1amefalse", "q2bmefalse", "q1amefalse", "q2bmefalse"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	pull("n", client.Want{}, map[string]map[int64]string{"q": {2: "ok"}})
	var states string
	must.Do(t, s.db.QueryRow(t.Context(), `SELECT string_agg(concat_ws(' ', receiver, message, status, result), ', ' ORDER BY receiver, message) FROM deliveries`).Scan(&states))
	if want := "all 1 processing, all 2 processing, n 2 finished ok, r 1 failed"; states != want {
		t.Errorf("deliveries are %q, want %q", states, want)
	}
	var answer *client.Error
	if _, err := c.Post(t.Context(), "", map[string][]string{"two words": {"a"}}); !errors.As(err, &answer) || answer.Status != 400 || !strings.Contains(answer.Text, "two words") {
		t.Errorf("a bad name: %v", err)
	}
	if err := c.Work(t.Context(), client.Worker{Receiver: "", Wants: map[string]client.Want{"q": {}}}, nil); !errors.As(err, &answer) || answer.Status != 400 {
		t.Errorf("a worker without a name: %v", err)
	}
	for _, bad := range []string{"", "127.0.0.1:4180", "ftp://host", "http://"} {
		if _, err := client.New(bad, client.Options{}); err == nil {
			t.Errorf("New(%q) has no error", bad)
		}
	}
}

// Workers on a line that loses every third answer: each message is worked on at
// least once, and all are answered; a function that fails has its message again.
func TestClientsWorkThroughTrouble(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	c := newClient(t, testenv.LossyServer(t, s.url), client.Options{})
	const messages = 60
	for n := range messages {
		must.Get(s.api.broker.post(t.Context(), postRequest{postings: []posting{{"q", []string{fmt.Sprint(n)}}}}))(t)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	worked := map[string]int{}
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			err := c.Work(ctx, client.Worker{
				Receiver: "r", Slots: 2, Wants: map[string]client.Want{"q": {FailTimeout: 200 * time.Millisecond, Retries: 100}},
			}, func(_ context.Context, m client.Message) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				worked[m.Text]++
				if m.ID%10 == 0 && worked[m.Text] == 1 {
					return "", errors.New("for once")
				}
				return "did " + m.Text, nil
			})
			if err != nil {
				t.Errorf("Work = %v", err)
			}
		})
	}
	testenv.Eventually(t, "all messages answered", func() bool {
		var n int
		err := s.db.QueryRow(t.Context(), `SELECT count(*) FROM deliveries d JOIN topic_messages m ON m.topic = d.queue AND m.number = d.message
			WHERE status = 'finished' AND result = 'did ' || body`).Scan(&n)
		return err == nil && n == messages
	})
	cancel()
	running.Wait()
	for n := range messages {
		least := 1
		if (n+1)%10 == 0 {
			least = 2
		}
		if worked[fmt.Sprint(n)] < least {
			t.Errorf("message %d was worked on %d times", n, worked[fmt.Sprint(n)])
		}
	}
	if len(slices.Collect(maps.Keys(worked))) != messages {
		t.Errorf("%d messages were worked on", len(worked))
	}
}

// A worker that is asked to stop ends what it has begun, and answers it.
func TestClientEndsWhatItHasBegun(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	c := newClient(t, s.url, client.Options{})
	s.post("q", 1, "a", "b")
	ctx, cancel := context.WithCancel(t.Context())
	err := c.Work(ctx, client.Worker{Receiver: "r", Wants: map[string]client.Want{"q": {}}}, func(ctx context.Context, m client.Message) (string, error) {
		cancel()
		return "done", ctx.Err()
	})
	if err != nil {
		t.Errorf("Work = %v", err)
	}
	var states string
	if err := s.db.QueryRow(t.Context(), `SELECT string_agg(concat_ws(' ', message, status), ', ' ORDER BY message) FROM deliveries`).Scan(&states); err != nil || states != "1 finished" {
		t.Errorf("deliveries are %q, %v", states, err)
	}
}

// A server that says nothing is asked again, as one that is away.
func TestClientAsksASilentServerAgain(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	const answer = 3 * time.Second // a slow machine answers in it, or the message is posted twice
	c := newClient(t, testenv.SilentServer(t, s.url, "/post", 2), client.Options{AnswerTimeout: answer})
	if ids, err := c.Post(t.Context(), "", map[string][]string{"q": {"a"}}); err != nil || !slices.Equal(ids["q"], []int64{1}) {
		t.Errorf("Post = %v, %v", ids, err)
	}
	c = newClient(t, testenv.SilentServer(t, s.url, "/post", 1), client.Options{AnswerTimeout: answer, RetryFor: -1})
	if ids, err := c.Post(t.Context(), "", map[string][]string{"q": {"a"}}); err == nil || !strings.Contains(err.Error(), "does not answer within 3s") {
		t.Errorf("Post = %v, %v", ids, err)
	}
	// What it is asked to wait it may be silent, too.
	if messages, err := c.Pull(t.Context(), "r", map[string]client.Want{"p": {}}, 400*time.Millisecond, nil); err != nil || len(messages) > 0 {
		t.Errorf("Pull = %v, %v", messages, err)
	}
}

// However short calls are tried, a server that is away is not called without a pause.
func TestClientPausesBetweenCallsThatFail(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	web.Close()
	c := newClient(t, web.URL, client.Options{RetryFor: -1})
	for name, work := range map[string]func(context.Context, func()) error{
		"Work": func(ctx context.Context, failed func()) error {
			return c.Work(ctx, client.Worker{Receiver: "r", Wants: map[string]client.Want{"q": {}}, Failed: func(client.Message, error) { failed() }}, nil)
		},
		"WorkStage": func(ctx context.Context, failed func()) error {
			return c.WorkStage(ctx, client.StageWorker{Failed: func(client.Item, error) { failed() }}, nil)
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		began, failures := time.Now(), 0
		err := work(ctx, func() {
			if failures++; failures == 4 {
				cancel()
			}
		})
		cancel()
		if took := time.Since(began); err != nil || took < 350*time.Millisecond { // half of 100, 200 and 400 ms
			t.Errorf("%s failed %d times in %v, %v", name, failures, took, err)
		}
	}
}
