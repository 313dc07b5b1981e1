package pull

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// A message that is for later has its number at once, and is given to each receiver
// when its time has come, also to one that has passed it, or waits for it.
func TestMessagesForLater(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	if status, got := s.ask("/post", `{"messages": {"q": ["late"]}, "delay": 3600}`); status != http.StatusOK || got != `{"q":[1]}` {
		t.Fatalf("post = %d %s", status, got)
	}
	if status, got := s.ask("/post", `{"messages": {"q": ["past"]}, "run_at": "2001-01-01T00:00:00+02:00"}`); status != http.StatusOK || got != `{"q":[2]}` {
		t.Fatalf("post = %d %s", status, got)
	}
	s.post("q", 3, "now")
	s.wants("what is due", s.pull("r", "q", `"max": 9`), "q: 2 past, 3 now")
	s.wants("the other is not", s.pull("r", "q", `"max": 9, "fail_timeout": 1000`), "nothing")
	if n := value[int](t, s, `SELECT count(*)::int FROM deliveries`); n != 2 {
		t.Errorf("%d deliveries are shown, want 2", n)
	}
	testenv.Exec(t, s.db, `UPDATE posted_messages SET run_at = now() WHERE number = 1`)
	testenv.Exec(t, s.db, `UPDATE topic_deliveries SET run_at = now() WHERE message = 1`)
	s.wants("its time has come", s.pull("r", "q", `"max": 9`), "q: 1 late")
	s.wants("once", s.pull("r", "q", `"fail_timeout": 1000`), "nothing")
	s.wants("who comes later", s.pull("other", "q", `"max": 9`), "q: 1 late, 2 past, 3 now")

	began := time.Now()
	waiting := make(chan string, 1)
	go func() {
		waiting <- given(s.ask("/pull", `{"receiver": "r", "timeout": 60, "queues": {"p": {}}}`))
	}()
	testenv.Eventually(t, "it waits", func() bool { return s.api.Waiting() == 1 })
	if status, got := s.ask("/post", `{"messages": {"p": ["soon"]}, "delay": 0.5}`); status != http.StatusOK {
		t.Fatalf("post = %d %s", status, got)
	}
	s.wants("who waits", <-waiting, "p: 1 soon")
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("it was given after %v, before its time", took)
	}
	s.wants("it is given again", s.pull("r", "p", `"fail_timeout": 0`), "p: 1 soon")
}

// However many are for later, those that are due behind them are found.
func TestManyMessagesForLater(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	many := `"` + strings.Repeat(`x", "`, 2499) + `x"`
	if status, got := s.ask("/post", `{"messages": {"q": [`+many+`]}, "delay": 3600}`); status != http.StatusOK {
		t.Fatalf("post = %d %s", status, got)
	}
	s.post("q", 2501, "now")
	s.wants("behind them", given(s.ask("/pull", `{"receiver": "r", "timeout": 30, "queues": {"q": {}}}`)), "q: 2501 now")
}

func value[T any](t *testing.T, s *server, sql string, args ...any) (v T) {
	t.Helper()
	if err := s.db.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// A key that nobody knows is refused by its name, and so is one in another case.
func TestUnknownKeysAreRefusedByName(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	for body, says := range map[string]string{
		`{"messages": {"q": ["a"]}, "priority": 1}`:                                      `/post unknown key "priority"`,
		`{"messages": {"q": ["a"]}, "Sender": "s"}`:                                      `/post unknown key "Sender"; did you mean "sender"?`,
		`{"messages": {"q": ["a"]}, "sender": "s", "sender": "t"}`:                       `/post the key "sender" appears twice`,
		`{"messages": {"q": ["a"]}, "delay": -1}`:                                        `/post delay is -1`,
		`{"messages": {"q": ["a"]}, "delay": "1"}`:                                       `/post delay is "1"`,
		`{"messages": {"q": ["a"]}, "run_at": "tomorrow"}`:                               `/post run_at is "tomorrow"`,
		`{"messages": {"q": ["a"]}, "run_at": 5}`:                                        `/post run_at is 5`,
		`{"messages": {"q": ["a"]}, "run_at": "2030-01-01T00:00:00Z", "delay": 1}`:       `/post both delay and run_at`,
		`{"receiver": "r", "queue": {"q": {}}}`:                                          `/pull unknown key "queue"`,
		`{"receiver": "r", "Timeout": 0, "queues": {"q": {}}}`:                           `/pull unknown key "Timeout"; did you mean "timeout"?`,
		`{"receiver": "r", "timeout": 0, "queues": {"q": {"retries": 1}}}`:               `/pull queues.q has an unknown key "retries"`,
		`{"receiver": "r", "timeout": 0, "queues": {"q": {"max": 1, "MAX": 2}}}`:         `/pull unknown key "MAX"; did you mean "max"?`,
		`{"receiver": "r", "timeout": 0, "queues": {"q": {"max": 1, "max": 2}}}`:         `/pull the key "max" appears twice`,
		`{"receiver": "r", "timeout": 0, "timeout": 0, "queues": {"q": {}}}`:             `/pull the key "timeout" appears twice`,
		`{"receiver": "r", "timeout": 0, "queues": {"q": {}}, "results": {}, "tag": 1 }`: `/pull unknown key "tag"`,
	} {
		path, text, _ := strings.Cut(says, " ")
		status, answer := s.ask(path, body)
		if answer = strings.ReplaceAll(answer, `\"`, `"`); status != http.StatusBadRequest || !strings.Contains(answer, text) {
			t.Errorf("%s %s = %d %s, want 400 %s", path, body, status, answer, text)
		}
	}
	if n := value[int](t, s, `SELECT count(*)::int FROM queues`); n != 0 {
		t.Error("something was posted")
	}
}
