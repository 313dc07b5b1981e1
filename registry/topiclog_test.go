package registry_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/topiclog"
)

const week = 7 * 24 * time.Hour

// kept runs upkeep of the topic log, and returns what it dropped.
func (a *archive) kept(keep topiclog.Retention) []string {
	a.t.Helper()
	return must.Get(topiclog.Keep(context.Background(), a.Registry, keep))(a.t)
}

const partitionsSQL = `SELECT parent || ' ' || number || CASE WHEN closed_at IS NULL THEN '' ELSE ' closed' END FROM topic_partitions ORDER BY parent, number`

func TestLogIsRotatedByTimeAndDroppedWhenAllHavePassed(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	keep := topiclog.Retention{Pipeline: week}
	a.exec(`INSERT INTO topic_messages (topic, body) SELECT 't', n::text FROM generate_series(1, 10) n`)
	a.kept(keep)
	want := []string{"pipeline_messages 0", "pipeline_messages 1", "posted_messages 0", "posted_messages 1"}
	if diff := cmp.Diff(want, a.rows(partitionsSQL)); diff != "" {
		t.Fatalf("partitions of a young log (-want +got):\n%s", diff)
	}

	a.exec(`UPDATE topic_partitions SET opened_at = now() - interval '25 hours'`)
	a.kept(keep)
	want = []string{"pipeline_messages 0 closed", "pipeline_messages 1", "pipeline_messages 2", "posted_messages 0", "posted_messages 1"}
	if diff := cmp.Diff(want, a.rows(partitionsSQL)); diff != "" {
		t.Fatalf("partitions a day later (-want +got):\n%s", diff)
	}
	a.exec(`INSERT INTO topic_messages (topic, body) VALUES ('t', '11')`)
	if at := value[string](a, `SELECT tableoid::regclass::text FROM topic_messages WHERE body = '11'`); at != "pipeline_messages_1" {
		t.Errorf("a message after that is in %s", at)
	}
	if !value[bool](a, `SELECT (SELECT id FROM topic_messages WHERE body = '11') > max(id) FROM topic_messages WHERE body <> '11'`) {
		t.Error("its id is not larger than those before")
	}

	a.exec(`INSERT INTO topic_readers (name, xid, message_id) SELECT 'slow', xid, id FROM topic_messages WHERE body = '9'`)
	a.exec(`UPDATE topic_partitions SET closed_at = now() - interval '6 days' WHERE closed_at IS NOT NULL`)
	if got := a.kept(keep); got != nil {
		t.Errorf("dropped %q, which is six days old", got)
	}
	a.exec(`UPDATE topic_partitions SET closed_at = now() - interval '8 days' WHERE closed_at IS NOT NULL`)
	if got := a.kept(keep); got != nil {
		t.Errorf("dropped %q, of which a reader has not read the last message", got)
	}
	a.exec(`UPDATE topic_readers SET (xid, message_id) = (SELECT xid, id FROM topic_messages WHERE body = '10')`)
	a.exec(`INSERT INTO topic_receivers (topic, name, xid, position) SELECT 'fixity_check', 'far', xid, id FROM topic_messages WHERE body = '3'`)
	if got := a.kept(keep); got != nil {
		t.Errorf("dropped %q, of which a receiver has not read the last message", got)
	}
	a.exec(`UPDATE topic_receivers SET pulled_at = now() - interval '29 days'`)
	if diff := cmp.Diff([]string{"pipeline_messages_0"}, a.kept(keep)); diff != "" {
		t.Errorf("dropped when the only one behind was not heard of for four weeks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"11"}, a.rows(`SELECT body FROM topic_messages`)); diff != "" {
		t.Errorf("messages left (-want +got):\n%s", diff)
	}
}

func TestPostedMessagesAreDroppedWhenTheyAreDoneWith(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.exec(`SELECT post_messages('{jobs,never}', '{2,1}', '{1,1,2}', '{1,2,1}', '{NULL,NULL,NULL}', '{a,b,c}')`)
	a.exec(`SELECT rotate_log_partitions('posted_messages', '0 seconds')`)
	a.exec(`UPDATE topic_partitions SET closed_at = now() - interval '8 days' WHERE parent = 'posted_messages' AND number = 0`)
	keep := topiclog.Retention{Pipeline: week, Posted: week}
	for _, step := range []struct{ still, do string }{
		{"nobody was given any of it", `SELECT take_messages('jobs', 'r', 0, 2, 2, 120, 1000)`},
		{"it was not answered", `SELECT save_results('r', '{jobs,jobs}', '{1,2}', '{ok,ok}')`},
		{"nobody was given what is in the other queue", `SELECT take_messages('never', 'r', 0, 2, 0, 120, 1000)`},
	} {
		if got := a.kept(keep); got != nil {
			t.Fatalf("dropped %q although %s", got, step.still)
		}
		a.exec(step.do)
	}
	if got := a.kept(topiclog.Retention{Pipeline: week}); got != nil {
		t.Errorf("dropped %q, which is to be kept for ever", got)
	}
	if diff := cmp.Diff([]string{"posted_messages_0"}, a.kept(keep)); diff != "" {
		t.Errorf("dropped (-want +got):\n%s", diff)
	}
	if n := value[int](a, `SELECT (SELECT count(*) FROM topic_deliveries) + (SELECT count(*) FROM topic_messages)`); n != 0 {
		t.Errorf("%d messages and deliveries are left", n)
	}
	a.exec(`SELECT post_messages('{jobs}', '{1}', '{1}', '{1}', '{NULL}', '{d}')`)
	if diff := cmp.Diff([]string{"3 d"}, a.rows(`SELECT number || ' ' || body FROM topic_messages`)); diff != "" {
		t.Errorf("numbers go on (-want +got):\n%s", diff)
	}
}

// Nothing that upkeep does may lose a message, or keep a transition waiting.
func TestLogIsRotatedWhileMessagesCome(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	ended := make(chan struct{})
	var writers sync.WaitGroup
	counts := make([]int, 3)
	for w := range counts {
		writers.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				if _, err := a.db.Exec(t.Context(), `INSERT INTO topic_messages (topic, body) VALUES ('t', 'x')`); err != nil {
					t.Error(err)
					return
				}
				counts[w]++
			}
		})
	}
	for range 30 {
		a.exec(`UPDATE topic_partitions SET opened_at = now() - interval '2 days'`)
		a.kept(topiclog.Retention{Pipeline: week})
	}
	close(ended)
	writers.Wait()
	if got, want := value[int](a, `SELECT count(*) FROM topic_messages`), counts[0]+counts[1]+counts[2]; got != want {
		t.Errorf("%d messages are there of %d", got, want)
	}
	if n := value[int](a, `SELECT count(DISTINCT id) - count(*) FROM topic_messages`); n != 0 {
		t.Error("an id was given twice")
	}
	if n := value[int](a, `SELECT count(*) FROM topic_partitions WHERE closed_at IS NOT NULL AND parent = 'pipeline_messages'`); n < 5 {
		t.Errorf("the log was turned %d times only", n)
	}
}

// A transition must go on even if nobody has made a partition for its message.
func TestMessageWithoutAPartitionIsKept(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.exec(`SELECT setval('topic_message_ids', 12 * log_partition_width() + 5)`)
	a.exec(`INSERT INTO topic_messages (topic, body) VALUES ('t', 'early')`)
	a.kept(topiclog.Retention{Pipeline: week})
	a.exec(`INSERT INTO topic_messages (topic, body) VALUES ('t', 'late')`)
	want := []string{"pipeline_messages_rest early", "pipeline_messages_13 late"}
	if diff := cmp.Diff(want, a.rows(`SELECT tableoid::regclass || ' ' || body FROM topic_messages ORDER BY id`)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	a.exec(`UPDATE topic_messages SET created_at = now() - interval '8 days'`)
	a.kept(topiclog.Retention{Pipeline: week})
	if diff := cmp.Diff([]string{"late"}, a.rows(`SELECT body FROM topic_messages`)); diff != "" {
		t.Errorf("a week later (-want +got):\n%s", diff)
	}
}

// Who holds a lock for long keeps upkeep from its work, and nobody else from theirs.
func TestUpkeepOfTheLogWaitsForNobody(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.exec(`INSERT INTO topic_messages (topic, body) VALUES ('t', 'x')`)
	a.exec(`SELECT rotate_log_partitions('pipeline_messages', '0 seconds')`)
	a.exec(`UPDATE topic_partitions SET closed_at = now() - interval '8 days' WHERE closed_at IS NOT NULL`)
	tx := must.Get(a.db.Begin(t.Context()))(t)
	defer tx.Rollback(context.Background()) //nolint:errcheck // it has ended, unless the test failed
	must.Get(tx.Exec(t.Context(), `INSERT INTO topic_messages (topic, body) VALUES ('t', 'long')`))(t)
	began := time.Now()
	if got := a.kept(topiclog.Retention{Pipeline: week}); got != nil {
		t.Errorf("dropped %q, which is locked", got)
	}
	if took := time.Since(began); took > testenv.AtOnce {
		t.Errorf("it took %v", took)
	}
	must.Do(t, tx.Commit(t.Context()))
	if diff := cmp.Diff([]string{"pipeline_messages_0"}, a.kept(topiclog.Retention{Pipeline: week})); diff != "" {
		t.Errorf("dropped afterwards (-want +got):\n%s", diff)
	}
}
