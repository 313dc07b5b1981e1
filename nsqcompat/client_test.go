package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/testenv"
)

// unreliable is a server in front of another, of which every third answer is lost.
func unreliable(t *testing.T, to string) string {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(u)
	var calls atomic.Int64
	proxy.ModifyResponse = func(*http.Response) error {
		if calls.Add(1)%3 == 0 {
			return errors.New("lost")
		}
		return nil
	}
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	web := httptest.NewServer(proxy)
	t.Cleanup(web.Close)
	return web.URL
}

func newClient(t *testing.T, url string, o client.Options) *client.Client {
	t.Helper()
	o.HTTP = &http.Client{Transport: &http.Transport{}}
	t.Cleanup(o.HTTP.CloseIdleConnections)
	c, err := client.New(url, o)
	if err != nil {
		t.Fatal(err)
	}
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
		messages, err := c.Pull(t.Context(), receiver, map[string]client.Want{"q": want}, 0, results)
		if err != nil {
			t.Fatal(err)
		}
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
	if err := s.db.QueryRow(t.Context(), `SELECT string_agg(concat_ws(' ', receiver, message, status, result), ', ' ORDER BY receiver, message) FROM deliveries`).Scan(&states); err != nil {
		t.Fatal(err)
	}
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
	c := newClient(t, unreliable(t, s.url), client.Options{})
	const messages = 60
	for n := range messages {
		if _, err := s.queues.Post(t.Context(), nil, []Posting{{"q", []string{fmt.Sprint(n)}}}); err != nil {
			t.Fatal(err)
		}
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
	eventually(t, "all messages answered", func() bool {
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

// A worker that is told to stop ends what it has begun, and answers it.
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
