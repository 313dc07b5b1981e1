package pull

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/claim/batch"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/topiclog"
	"github.com/farol-preservation/farol/retry"
)

const aTopic = "ingest03_reingest_check"

// bodies pulls what there is of aTopic, and returns the bodies.
func (s *server) bodies(receiver, options string) (bodies []string) {
	s.t.Helper()
	status, answer := s.ask("/pull", fmt.Sprintf(`{"receiver": %q, "timeout": 0, "queues": {%q: {%s}}}`, receiver, aTopic, options))
	if status == 204 {
		return nil
	}
	var got struct{ Messages map[string][]message }
	if err := json.Unmarshal([]byte(answer), &got); err != nil || status != 200 {
		s.t.Fatalf("pull = %d %s", status, answer)
	}
	for _, m := range got.Messages[aTopic] {
		bodies = append(bodies, m.Message)
	}
	return bodies
}

// readable waits until no transaction, of whatever database of the cluster, hides
// messages of the pipeline any more.
func (s *server) readable() {
	s.t.Helper()
	testenv.Eventually(s.t, "all messages can be read", func() (all bool) {
		err := s.db.QueryRow(context.Background(), `SELECT NOT EXISTS (SELECT FROM pipeline_messages WHERE xid >= pg_snapshot_xmin(pg_current_snapshot()))`).Scan(&all)
		return err == nil && all
	})
}

// Topics of the pipeline can be pulled like other queues, each name for itself.
func TestTopicsOfThePipelineArePulled(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	testenv.PutMessages(t, s.db, aTopic, "1", "2")
	testenv.PutMessages(t, s.db, "ingest04_staging", "3")
	testenv.PutMessages(t, s.db, aTopic, "4", "5", "6")
	s.readable()
	for _, c := range []struct {
		receiver, options string
		want              []string
	}{
		{"r", "", []string{"1"}},
		{"r", `"max": 2`, []string{"2", "4"}},
		{"r", `"start": -1`, []string{"6"}},
		{"r", `"max": 9, "retry_num": 0`, nil},
		{"all", `"max": 9`, []string{"1", "2", "4", "5", "6"}},
		{"none", `"start": -2`, nil},
		{"none", ``, nil},
	} {
		if diff := cmp.Diff(c.want, s.bodies(c.receiver, c.options)); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", c.receiver, c.options, diff)
		}
	}
	var fourth int64
	must.Do(t, s.db.QueryRow(t.Context(), `SELECT id FROM topic_messages WHERE body = '4'`).Scan(&fourth))
	if diff := cmp.Diff([]string{"4", "5"}, s.bodies("from", fmt.Sprintf(`"start": %d, "max": 2`, fourth))); diff != "" {
		t.Errorf("from 4 (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"6"}, s.bodies("from", `"start": 1, "max": 2`)); diff != "" {
		t.Errorf("never back (-want +got):\n%s", diff)
	}
	// What is not answered comes again, and an answer is taken by the id.
	if diff := cmp.Diff([]string{"4", "5", "6"}, s.bodies("from", `"max": 9, "fail_timeout": 0`)); diff != "" {
		t.Errorf("again (-want +got):\n%s", diff)
	}
	if status, answer := s.ask("/pull", fmt.Sprintf(`{"receiver": "from", "results": {%q: {"%d": "seen"}}}`, aTopic, fourth)); status != 200 {
		t.Errorf("results = %d %s", status, answer)
	}
	if diff := cmp.Diff([]string{"5", "6"}, s.bodies("from", `"max": 9, "fail_timeout": 0`)); diff != "" {
		t.Errorf("again (-want +got):\n%s", diff)
	}
}

// Transactions of different lengths append, while one call after the other waits: it
// is given each message, and passes over none that commits late.
func TestReceiverOfATopicMissesNoLateCommit(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	const writers, each = 4, 25
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for n := range each {
				tx, err := s.db.Begin(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := tx.Exec(context.Background(), `INSERT INTO topic_messages (topic, body) VALUES ($1, $2)`, aTopic, fmt.Sprint(w, ".", n)); err != nil {
					t.Error(err)
				}
				retry.Pause(t.Context(), time.Duration((w*7+n*13)%20)*time.Millisecond)
				if _, err := tx.Exec(context.Background(), `SELECT pg_notify('farol_work', '')`); err != nil {
					t.Error(err)
				}
				if err := tx.Commit(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	got := map[string]int{}
	for len(got) < writers*each {
		status, answer := s.ask("/pull", fmt.Sprintf(`{"receiver": "r", "timeout": 30, "queues": {%q: {"max": 3, "fail_timeout": 600}}}`, aTopic))
		if status != 200 {
			t.Fatalf("after %d messages: %d %s", len(got), status, answer)
		}
		var a struct{ Messages map[string][]message }
		must.Do(t, json.Unmarshal([]byte(answer), &a))
		for _, m := range a.Messages[aTopic] {
			got[m.Message]++
		}
	}
	writing.Wait()
	for body, n := range got {
		if n != 1 {
			t.Errorf("%s came %d times", body, n)
		}
	}
	if again := s.bodies("r", `"max": 999`); again != nil {
		t.Errorf("%q came once more", again)
	}
}

// A message that an open transaction still hides reaches who waits for it soon after
// its commit, though no notification announces that.
func TestHiddenMessageReachesWhoWaits(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	long := must.Get(s.db.Begin(t.Context()))(t)
	defer long.Rollback(context.Background()) //nolint:errcheck // it has ended, unless the test failed
	must.Get(long.Exec(t.Context(), `INSERT INTO topic_messages (topic, body) VALUES ('ingest04_staging', '1')`))(t)
	came := make(chan string)
	go func() {
		status, answer, err := s.try(context.Background(), "/pull", fmt.Sprintf(`{"receiver": "r", "timeout": 60, "queues": {%q: {}}}`, aTopic))
		if err != nil {
			answer = err.Error()
		}
		came <- given(status, answer)
	}()
	testenv.Eventually(t, "a call that waits", func() bool { return s.api.Waiting() == 1 })
	testenv.PutMessages(t, s.db, aTopic, "2")
	testenv.Exec(t, s.db, `SELECT pg_notify('farol_work', '')`)
	select {
	case got := <-came:
		t.Fatalf("%q came past an open transaction", got)
	case <-time.After(300 * time.Millisecond):
	}
	must.Do(t, long.Commit(t.Context()))
	if got := <-came; !strings.HasSuffix(got, " 2") {
		t.Errorf("got %q, want message 2", got)
	}
}

// A receiver that is far behind in a topic with few messages comes to its end, in
// steps that are bounded.
func TestReceiverComesToTheEndOfALongLog(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	testenv.PutMessages(t, s.db, aTopic, "first")
	testenv.Exec(t, s.db, `INSERT INTO topic_messages (topic, body) SELECT 'ingest04_staging', 'x' FROM generate_series(1, 120000)`)
	testenv.PutMessages(t, s.db, aTopic, "last")
	s.readable()
	var got []string
	for range 6 {
		got = append(got, s.bodies("r", "")...)
	}
	if diff := cmp.Diff([]string{"first", "last"}, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	got = nil
	alone := newBroker(s.db, Options{}) // it receives no notification that would have it fetch again
	for range 2 {
		messages := must.Get(alone.pull(t.Context(), "w", broughtResults{}, []wanted{{Queue: aTopic, Max: 1, RetryNum: 2, FailTimeout: time.Hour}}, testenv.Patience/2))(t)
		for _, m := range messages[0] {
			got = append(got, m.Message)
		}
	}
	if diff := cmp.Diff([]string{"first", "last"}, got); diff != "" {
		t.Errorf("messages of who waits (-want +got):\n%s", diff)
	}
	if got := given(s.ask("/pull", fmt.Sprintf(`{"receiver": "waits", "timeout": 60, "queues": {%q: {"start": -1}}}`, aTopic))); !strings.HasSuffix(got, " last") {
		t.Errorf("the newest is %q", got)
	}
}

// A database that came from another cluster numbers its transactions again.
func TestReceiversOutliveARestoreIntoAnotherCluster(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	testenv.Exec(t, s.db, `
		WITH m AS (
			INSERT INTO topic_messages (xid, topic, body) VALUES ('900000000001', $1, '1'), ('900000000002', $1, '2'), ('900000000003', $1, '3')
			RETURNING *
		), r AS (
			INSERT INTO topic_receivers (topic, name, xid, position) SELECT topic, 'r', xid, id FROM m WHERE body = '2'
			RETURNING *
		)
		INSERT INTO topic_deliveries (receiver_id, message, xid, status) SELECT id, position, xid, 'processing' FROM r`, aTopic)
	testenv.Exec(t, s.db, `SELECT renumber_log()`) // unless the server has come to it by itself
	testenv.PutMessages(t, s.db, aTopic, "4")
	s.readable()
	got := s.bodies("r", `"max": 9`)
	got = append(got, s.bodies("r", `"max": 1, "fail_timeout": 0`)...)
	if diff := cmp.Diff([]string{"3", "4", "2"}, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// With the connection on which a process listens cut, or gone deaf, what waits there
// is woken all the same.
func TestWaitingOutlivesTheListeningConnection(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	for n := range int64(3) {
		came := make(chan string)
		go func() {
			status, answer, err := s.try(context.Background(), "/pull", `{"receiver": "r", "timeout": 60, "queues": {"q": {}}}`)
			if err != nil {
				answer = err.Error()
			}
			came <- given(status, answer)
		}()
		testenv.Eventually(t, "a call that waits", func() bool { return s.api.Waiting() == 1 })
		testenv.Exec(t, s.db, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN farol_queues%' AND datname = current_database()`)
		testenv.Exec(t, s.db, `SELECT post_messages('{q}', '{1}', '{1}', '{1}', '{NULL}', '{m}')`) // by another process
		if got, want := <-came, fmt.Sprintf("q: %d m", n+1); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Those who wait are answered when the process ends, and have lost nothing.
func TestWaitingEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	q := newBroker(db, Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() {
		_, err := q.pull(ctx, "r", broughtResults{}, []wanted{{Queue: "q", Max: 1}}, time.Minute)
		ended <- err
	}()
	testenv.Eventually(t, "a call that waits", func() bool { return q.waits.count() == 1 })
	cancel(errStopping)
	if err := <-ended; !errors.Is(err, errStopping) {
		t.Errorf("err = %v, want ErrStopping", err)
	}
	firsts, err := q.post(t.Context(), postRequest{postings: []posting{{"q", []string{"a"}}}})
	if err != nil || !slices.Equal(firsts, []int64{1}) {
		t.Fatalf("Post = %v, %v", firsts, err)
	}
	got, err := q.pull(t.Context(), "r", broughtResults{}, []wanted{{Queue: "q", Max: 1}}, 0)
	if err != nil || len(got[0]) != 1 {
		t.Errorf("Pull = %v, %v", got, err)
	}
}

// A name is a queue that people post to, or a topic of the pipeline, and stays it.
func TestNameIsAQueueOrATopic(t *testing.T) {
	t.Parallel()
	s := serve(t, testenv.Database(t))
	s.post("ingest_ocr", 1, "a")
	for sql, says := range map[string]string{
		`SELECT add_stage('OCR', 'Validate')`:                               "'ingest_ocr' is a queue that people post to",
		`SELECT add_stage('Scan', 'Validate', topic => 'fixity_check')`:     "'fixity_check' is the topic of fixity checks",
		`SELECT add_stage('Scan', 'Validate', topic => 'ingest06_storage')`: "is that of Ingest, Store",
	} {
		testenv.Refused(t, s.db, says, sql)
	}
	testenv.Exec(t, s.db, `SELECT add_stage('Virus Scan', 'Validate')`)
	if status, answer := s.ask("/post", `{"messages": {"ingest_virus_scan": ["1"]}}`); status != 403 {
		t.Errorf("post to the topic of a new stage = %d %s", status, answer)
	}
	testenv.PutMessages(t, s.db, "ingest_virus_scan", "7")
	s.readable()
	if got := s.pull("r", "ingest_virus_scan", ""); !strings.HasSuffix(got, " 7") {
		t.Errorf("its topic has %q", got)
	}
}

// Calls that wait under one name for a topic of the pipeline do not all fetch when one
// message comes.
func TestFewLookForAMessageOfATopic(t *testing.T) {
	t.Parallel()
	db := testenv.Database(t)
	q := newBroker(db, Options{Poll: time.Hour})
	var fetches atomic.Int64
	q.fetches = batch.New(2, mostTogether, func(ctx context.Context, calls []fetch) ([]fetched, error) {
		fetches.Add(int64(len(calls)))
		return q.fetchAll(ctx, calls)
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := q.run(ctx); err != nil {
			t.Error(err)
		}
	})
	const calls = 300
	answered := make(chan int64, calls)
	for range calls {
		running.Go(func() {
			got, err := q.pull(ctx, "r", broughtResults{}, []wanted{{Queue: aTopic, Max: 1, FailTimeout: time.Hour}}, time.Hour)
			if err == nil && len(got[0]) == 1 {
				answered <- got[0][0].ID
			}
		})
	}
	testenv.Eventually(t, "all calls waiting", func() bool { return q.waits.count() == calls && fetches.Load() >= calls })
	testenv.PutMessages(t, db, aTopic, "1")
	testenv.Exec(t, db, `NOTIFY `+topiclog.Channel)
	<-answered
	before := fetches.Load()
	const messages = 10
	for n := range messages {
		testenv.PutMessages(t, db, aTopic, fmt.Sprint(n))
		testenv.Exec(t, db, `NOTIFY `+topiclog.Channel)
		<-answered
	}
	if n := fetches.Load() - before; n > 10*messages {
		t.Errorf("%d fetches for %d messages", n, messages)
	}
	cancel()
	running.Wait()
}
