package nsqcompat

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/topiclog"
	"github.com/farol-preservation/farol/retry"
)

// A new item is announced as the old system announced it: its decimal id, and
// nothing else, on the topic of its stage.
func TestNewItemIsPublishedAsItsDecimalID(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NewNSQ(t)
	start(t, db, MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr})
	prefetch := subscribe(t, nsqd.TCPAddr, "ingest01_prefetch")
	var id string
	must.Do(t, db.QueryRow(t.Context(), `
		WITH i AS (
			INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket)
			VALUES ('Test', 'test.edu', 'receiving', 'restore') RETURNING id
		)
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, bag_date, size, object_identifier)
		SELECT id, 'Ingest', 'Receive', 'bag.tar', 'receiving', 'e', now(), 1, 'test.edu/bag' FROM i
		RETURNING id::text`).Scan(&id))
	if got := prefetch.take(t, 1); got[0] != id {
		t.Errorf("body = %q, want %q", got[0], id)
	}
}

func TestBodiesArriveByteForByteInOrder(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NSQ(t)
	m, _ := start(t, db, MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr, Batch: 7})
	one, two := subscribe(t, nsqd.TCPAddr, "bytes.one"), subscribe(t, nsqd.TCPAddr, "bytes.two")
	odd := []string{"1", " ", "\n\r\t", "żółć 名", strings.Repeat("x", maxBody), "9223372036854775807"}
	testenv.PutMessages(t, db, "bytes.one", odd...)
	for n := range 50 {
		testenv.PutMessages(t, db, "bytes.two", fmt.Sprint(n), fmt.Sprint(n, "a"))
		testenv.PutMessages(t, db, "bytes.one", fmt.Sprint(n))
	}
	if diff := cmp.Diff(append(odd, testenv.Numbers(0, 49)...), one.take(t, len(odd)+50)); diff != "" {
		t.Errorf("bytes.one (-want +got):\n%s", diff)
	}
	var want []string
	for n := range 50 {
		want = append(want, fmt.Sprint(n), fmt.Sprint(n, "a"))
	}
	if diff := cmp.Diff(want, two.take(t, 100)); diff != "" {
		t.Errorf("bytes.two (-want +got):\n%s", diff)
	}
	testenv.Eventually(t, "counts", func() bool { return m.Stats().Published == int64(len(odd)+150) })
}

// Ids are given out before a commit, so a reader that goes by them alone would
// pass over the message of a slow transaction.
func TestMessageThatCommitsLateIsNotPassedOver(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NSQ(t)
	late := subscribe(t, nsqd.TCPAddr, "late")
	m, log := newTestLeader(t, db, MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr})

	slow := must.Get(db.Begin(t.Context()))(t)
	defer slow.Rollback(t.Context())
	must.Get(slow.Exec(t.Context(), `INSERT INTO topic_messages (topic, body) VALUES ('late', 'first')`))(t)
	testenv.PutMessages(t, db, "late", "second")
	for range 3 {
		must.Get(m.step(t.Context(), log))(t)
	}
	if n := m.counted.stats().Published; n != 0 {
		t.Fatalf("%d messages published past an open transaction, want none", n)
	}

	must.Do(t, slow.Commit(t.Context()))
	testenv.Eventually(t, "both published", func() bool {
		must.Get(m.step(t.Context(), log))(t)
		return m.counted.stats().Published == 2
	})
	if diff := cmp.Diff([]string{"first", "second"}, late.take(t, 2)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// Many transactions of different lengths, some rolled back, while the mirror
// reads: each committed message once, and each topic in the log's order.
func TestEveryCommittedMessageArrivesOnceWhileMany(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NSQ(t)
	start(t, db, MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr, Batch: 10})
	topics := []string{"many0", "many1", "many2"}
	var subscribers []*subscriber
	for _, topic := range topics {
		subscribers = append(subscribers, subscribe(t, nsqd.TCPAddr, topic))
	}
	var writers sync.WaitGroup
	for writer := range 8 {
		writers.Go(func() {
			for n := range 40 {
				err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
					for i := range 1 + rand.N(4) {
						if _, err := tx.Exec(t.Context(), `INSERT INTO topic_messages (topic, body) VALUES ($1, $2)`,
							topics[rand.N(3)], fmt.Sprintf("%d.%d.%d", writer, n, i)); err != nil {
							return err
						}
						retry.Pause(t.Context(), rand.N(3*time.Millisecond))
					}
					if n%7 == 6 {
						return pgx.ErrTxCommitRollback // any error: it is rolled back
					}
					return nil
				})
				if err != nil && n%7 != 6 {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	for i, topic := range topics {
		rows, _ := db.Query(t.Context(), `SELECT body FROM topic_messages WHERE topic = $1 ORDER BY xid, id`, topic)
		want := must.Get(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
		got := subscribers[i].take(t, len(want))
		got = append(got, subscribers[i].end(t, nsqd.TCPAddr)...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", topic, diff)
		}
	}
}

func TestMessagesWaitForNSQDAndThenComeInOrder(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NewNSQ(t)
	m, _ := start(t, db, MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr, Batch: 20})
	down := subscribe(t, nsqd.TCPAddr, "down")
	testenv.PutMessages(t, db, "down", testenv.Numbers(1, 30)...)
	got := down.take(t, 30)
	testenv.Eventually(t, "the first ones finished", func() bool { return inFlight(t, nsqd, "down") == 0 })

	nsqd.Stop(t)
	for n := 31; n <= 130; n++ {
		testenv.PutMessages(t, db, "down", fmt.Sprint(n)) // as fast as ever: nothing waits for nsqd
	}
	testenv.Eventually(t, "a failure to publish", func() bool { return m.Stats().Failures > 0 })
	lag, err := m.Lag(t.Context())
	if err != nil || lag.Messages != 100 || lag.Oldest <= 0 || lag.Oldest > testenv.Patience {
		t.Errorf("Lag = %+v, %v; want 100 messages, the oldest of them just written", lag, err)
	}
	nsqd.Start(t)

	got = append(got, down.take(t, 100)...)
	if diff := cmp.Diff(testenv.Numbers(1, 130), got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	testenv.Eventually(t, "no lag", func() bool {
		lag, err := m.Lag(t.Context())
		return err == nil && lag.Messages == 0 && lag.Oldest == 0
	})
}

// A frozen nsqd accepts connections and does not answer.
func TestFrozenNSQDIsGivenUpAndTriedAgain(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NewNSQ(t)
	proxy := testenv.NewProxy(t, nsqd.TCPAddr)
	m, _ := start(t, db, MirrorOptions{NSQDTCPAddr: proxy.Addr()})
	frozen := subscribe(t, nsqd.TCPAddr, "frozen")
	testenv.PutMessages(t, db, "frozen", "1")
	frozen.take(t, 1)
	testenv.Eventually(t, "the answer", func() bool { return m.Stats().Published == 1 })

	proxy.Delay(time.Hour)
	testenv.PutMessages(t, db, "frozen", "2")
	testenv.Eventually(t, "a failure to publish", func() bool { return m.Stats().Failures > 0 })
	proxy.Delay(0)
	for _, body := range append(frozen.take(t, 1), frozen.end(t, nsqd.TCPAddr)...) {
		if body != "2" {
			t.Errorf("%q came, want only the message that waited", body)
		}
	}
}

// The mirror dies when nsqd has answered and the cursor is not moved yet. Here a
// lock on the cursor holds it at that point until its connection is killed.
func TestCrashAfterPublishingRepeatsTheBatchAndSkipsNothing(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NSQ(t)
	crash := subscribe(t, nsqd.TCPAddr, "crash")
	testenv.Exec(t, db, `INSERT INTO topic_readers (name) VALUES ('nsq-mirror')`)
	testenv.PutMessages(t, db, "crash", testenv.Numbers(1, 25)...)
	holder := must.Get(db.Begin(t.Context()))(t)
	defer holder.Rollback(t.Context())
	must.Get(holder.Exec(t.Context(), `SELECT FROM topic_readers FOR UPDATE`))(t)

	start(t, db, MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr, Batch: 10})
	if diff := cmp.Diff(testenv.Numbers(1, 10), crash.take(t, 10)); diff != "" {
		t.Errorf("first batch (-want +got):\n%s", diff)
	}
	testenv.Eventually(t, "the mirror killed", func() bool {
		var killed bool
		err := db.QueryRow(t.Context(), `
			SELECT coalesce(bool_or(pg_terminate_backend(pid)), false) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&killed)
		return err == nil && killed
	})
	must.Do(t, holder.Rollback(t.Context()))

	got := crash.take(t, 25)
	if diff := cmp.Diff(testenv.Numbers(1, 25), append(got, crash.end(t, nsqd.TCPAddr)...)); diff != "" {
		t.Errorf("after the crash (-want +got):\n%s", diff)
	}
}

// Stopped at the same point, the mirror moves its cursor first.
func TestOrderlyEndRepeatsNothing(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NSQ(t)
	orderly := subscribe(t, nsqd.TCPAddr, "orderly")
	testenv.PutMessages(t, db, "orderly", "1", "2")
	m, log := newTestLeader(t, db, MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr})
	holder := must.Get(db.Begin(t.Context()))(t)
	defer holder.Rollback(t.Context())
	must.Get(holder.Exec(t.Context(), `SELECT FROM topic_readers FOR UPDATE`))(t)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		var err error
		for m.counted.stats().Published == 0 && err == nil { // another test's transaction may be open
			_, err = m.step(ctx, log)
		}
		ended <- err
	}()
	orderly.take(t, 2)
	testenv.Eventually(t, "the answer", func() bool { return m.counted.stats().Published == 2 })
	cancel()
	must.Do(t, holder.Rollback(t.Context()))
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if at, err := log.Position(t.Context()); err != nil || at.MessageID != 2 {
		t.Errorf("cursor = %+v, %v; want it at message 2", at, err)
	}
}

func TestLostDatabaseIsWaitedFor(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NSQ(t)
	config := db.Config()
	proxy := testenv.NewProxy(t, fmt.Sprintf("%s:%d", config.ConnConfig.Host, config.ConnConfig.Port))
	start(t, throughProxy(t, config, proxy), MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr})
	cut := subscribe(t, nsqd.TCPAddr, "cut")
	want := testenv.Numbers(1, 60)
	for _, body := range want {
		testenv.PutMessages(t, db, "cut", body)
		if strings.HasSuffix(body, "0") {
			proxy.Cut()
			proxy.Resume()
		}
	}
	// A cut between answer and cursor repeats; taking out what came before leaves
	// each message once and in order.
	seen := map[string]bool{}
	var got []string
	for len(got) < len(want) {
		body := cut.take(t, 1)[0]
		if !seen[body] {
			got = append(got, body)
		}
		seen[body] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

func TestOneOfTwoMirrorsPublishesAndTheOtherTakesOver(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NSQ(t)
	pair := subscribe(t, nsqd.TCPAddr, "pair")
	var mirrors [2]*Mirror
	var stops [2]func()
	for i := range mirrors {
		mirrors[i], stops[i] = start(t, db, MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr, Batch: 5})
	}
	for n := 1; n <= 100; n++ {
		testenv.PutMessages(t, db, "pair", fmt.Sprint(n))
	}
	got := pair.take(t, 100)
	leading := 0
	if mirrors[1].Stats().Leads {
		leading = 1
	}
	if mirrors[1-leading].Stats() != (Stats{}) {
		t.Errorf("the standby did %+v, want nothing", mirrors[1-leading].Stats())
	}

	stops[leading]()
	for n := 101; n <= 200; n++ {
		testenv.PutMessages(t, db, "pair", fmt.Sprint(n))
	}
	got = append(got, pair.take(t, 100)...)
	got = append(got, pair.end(t, nsqd.TCPAddr)...)
	if diff := cmp.Diff(testenv.Numbers(1, 200), got); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if s := mirrors[1-leading].Stats(); !s.Leads || s.Published != 100 {
		t.Errorf("the one that took over did %+v, want to lead and 100 published", s)
	}
}

// The schema refuses the worst of these; a mirror must outlive even a schema
// that does not.
func TestMessagesThatNSQDCanNeverTakeArePassedOver(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NSQ(t)
	testenv.Exec(t, db, `ALTER TABLE topic_messages DROP CONSTRAINT topic_messages_topic_check, DROP CONSTRAINT posted_is_numbered`)
	var logged bytes.Buffer
	m, stop := start(t, db, MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr, Log: slog.New(slog.NewTextHandler(&logged, nil))})
	good := subscribe(t, nsqd.TCPAddr, "good")
	testenv.PutMessages(t, db, "good", "1", "", "2", strings.Repeat("x", maxBody+1), "3")
	testenv.PutMessages(t, db, "bad topic!", "4", "5")
	testenv.PutMessages(t, db, strings.Repeat("x", 65), "6")
	testenv.PutMessages(t, db, "good", "7")
	if diff := cmp.Diff([]string{"1", "2", "3", "7"}, good.take(t, 4)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if s := m.Stats(); s.Discarded != 5 || s.Failures != 0 {
		t.Errorf("Stats = %+v, want 5 discarded and no failure", s)
	}
	stop()
	if n := strings.Count(logged.String(), "level=ERROR"); n != 5 {
		t.Errorf("%d errors logged, want 5:\n%s", n, logged.String())
	}
}

// A person who wants messages again sets the cursor back in psql.
func TestCursorSetBackByHandPublishesAgain(t *testing.T) {
	t.Parallel()
	db, nsqd := testenv.Database(t), testenv.NSQ(t)
	start(t, db, MirrorOptions{NSQDTCPAddr: nsqd.TCPAddr})
	again := subscribe(t, nsqd.TCPAddr, "again")
	testenv.PutMessages(t, db, "again", "1", "2")
	again.take(t, 2)
	testenv.Eventually(t, "the cursor past both", func() bool {
		tag, err := db.Exec(t.Context(), `UPDATE topic_readers SET xid = '0', message_id = 0 WHERE message_id = 2`)
		return err == nil && tag.RowsAffected() == 1
	})
	if diff := cmp.Diff([]string{"1", "2"}, again.take(t, 2)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// Planning the counts takes longer than counting: they are planned once.
func TestCountsArePlannedOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	m := NewMirror(q.db, q.options())
	conn := must.Get(m.connect(t.Context(), newPace(m.o.Poll)))(t)
	defer conn.Close(context.Background()) //nolint:errcheck // it only counted
	for range 10 {
		must.Get(count(t.Context(), conn, topiclog.Position{}, 90))(t)
	}
	var planned int
	if err := conn.QueryRow(t.Context(), `SELECT coalesce(sum(custom_plans), 0) FROM pg_prepared_statements`).Scan(&planned); err != nil || planned > 0 {
		t.Errorf("the session has planned %d times for certain arguments: %v", planned, err)
	}
}
