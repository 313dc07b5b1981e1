package nsqcompat

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// queue is a registry in which a test moves items as the engine does, and an nsqd
// that shows it.
type queue struct {
	t    *testing.T
	db   *pgxpool.Pool
	nsqd *testenv.NSQServer
}

func newQueue(t *testing.T) *queue {
	t.Helper()
	return queueAt(t, testenv.NewNSQ(t))
}

func queueAt(t *testing.T, nsqd *testenv.NSQServer) *queue {
	t.Helper()
	q := &queue{t: t, db: testenv.Database(t), nsqd: nsqd}
	testenv.Exec(t, q.db, `INSERT INTO institutions (name, identifier, receiving_bucket, restore_bucket) VALUES ('Test', 'test.edu', 'receiving', 'restore')`)
	return q
}

func (q *queue) options() MirrorOptions {
	return MirrorOptions{NSQDTCPAddr: q.nsqd.TCPAddr, NSQDHTTPAddr: q.nsqd.HTTPAddr}
}

// items adds n ingests, and returns the first id.
func (q *queue) items(n int) (first int64) {
	q.t.Helper()
	must.Do(q.t, q.db.QueryRow(q.t.Context(), `
		WITH put AS (
			INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, bag_date, size, object_identifier)
			SELECT i.id, 'Ingest', 'Receive', gen_random_uuid() || '.tar', 'receiving', 'e', now(), 1, 'x' FROM institutions i, generate_series(1, $1)
			RETURNING id)
		SELECT min(id) FROM put`, n).Scan(&first))
	return first
}

func (q *queue) exec(sql string, args ...any) {
	q.t.Helper()
	testenv.Exec(q.t, q.db, sql, args...)
}

// claim has workers take n items of a stage.
func (q *queue) claim(stage string, n int) {
	q.t.Helper()
	q.exec(`UPDATE work_items SET status = 'Started', claim_token = claim_token + 1, attempt = attempt + 1, node = 'n', pid = 1, worker = 'w',
			lease_expires_at = now() + interval '1 day', stage_started_at = now()
		WHERE id IN (SELECT id FROM work_items WHERE stage = $1 AND status = 'Pending' AND run_at <= now() ORDER BY id LIMIT $2)`, stage, n)
}

// end ends n claims at a stage: the rest of the statement says how.
func (q *queue) end(stage string, n int, how string) {
	q.t.Helper()
	q.exec(fmt.Sprintf(`
		WITH moved AS (
			UPDATE work_items SET claim_token = claim_token + 1, node = NULL, pid = NULL, worker = NULL, lease_expires_at = NULL, %s
			WHERE id IN (SELECT id FROM work_items WHERE stage = $1 AND status = 'Started' ORDER BY id LIMIT $2)
			RETURNING id, action, stage, status, run_at
		), said AS (
			INSERT INTO topic_messages (topic, body, work_item_id)
			SELECT s.topic, m.id::text, m.id FROM moved m JOIN stage_settings s USING (action, stage) WHERE m.stage <> $1
		)
		INSERT INTO topic_retries (topic, work_item_id)
		SELECT s.topic, m.id FROM moved m JOIN stage_settings s USING (action, stage) WHERE m.status = 'Pending' AND m.stage = $1 AND m.run_at > now()`, how),
		stage, n)
}

const (
	done     = `status = 'Pending', stage = 'Validate', attempt = 0, run_at = now()`
	retried  = `status = 'Pending', run_at = now() + interval '2 seconds'`
	released = `status = 'Pending', attempt = attempt - 1, run_at = now()`
	failed   = `status = 'Failed', retry = false, needs_admin_review = true`
)

// shown are nsqd's figures of a topic.
func (q *queue) shown(topic string) TopicFigures {
	q.t.Helper()
	stats, err := at(q.nsqd).stats(q.t.Context())
	if err != nil {
		return TopicFigures{Drift: -1}
	}
	t, _ := stats.topic(topic)
	f := figuresOf(counts{Topic: topic}, t)
	return f
}

func (q *queue) timeouts(topic string) int64 {
	q.t.Helper()
	stats := must.Get(at(q.nsqd).stats(q.t.Context()))(q.t)
	t, _ := stats.topic(topic)
	c, _ := t.channel(topic + channelSuffix)
	return c.TimedOut
}

// shows waits until nsqd shows so many messages of a topic that are claimable,
// running and deferred.
func (q *queue) shows(topic string, depth, inFlight, deferred int64) {
	q.t.Helper()
	var f TopicFigures
	began := time.Now()
	defer func() {
		if q.t.Failed() {
			q.t.Logf("%s shows depth %d, in flight %d, deferred %d; want %d, %d, %d", topic, f.Depth, f.InFlight, f.Deferred, depth, inFlight, deferred)
		} else {
			q.t.Logf("%s: %d %d %d after %v", topic, depth, inFlight, deferred, time.Since(began).Round(time.Millisecond))
		}
	}()
	testenv.Eventually(q.t, "the figures of "+topic, func() bool {
		f = q.shown(topic)
		return f.Depth == depth && f.InFlight == inFlight && f.Deferred == deferred
	})
}

// drifts waits until a mirror reports so much drift at Receive.
func drifts(t *testing.T, m *Mirror, n int64) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprint("a drift of ", n), func() bool {
		return slices.ContainsFunc(m.Figures(), func(f TopicFigures) bool { return f.Topic == receiveTopic && f.Drift == n })
	})
}

const (
	receiveTopic  = "ingest01_prefetch"
	validateTopic = "ingest02_bag_validation"
)

func TestFiguresFollowTheQueue(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	start(t, q.db, q.options())
	q.items(20)
	q.shows(receiveTopic, 20, 0, 0)
	q.claim("Receive", 5)
	q.shows(receiveTopic, 15, 5, 0)
	q.end("Receive", 2, done)
	q.shows(receiveTopic, 15, 3, 0)
	q.shows(validateTopic, 2, 0, 0)
	if f := q.shown(receiveTopic); f.Finished != 2 || f.Requeued != 0 {
		t.Errorf("finished %d, requeued %d; want 2 and 0", f.Finished, f.Requeued)
	}
	q.end("Receive", 1, retried)
	q.shows(receiveTopic, 15, 2, 1)
	q.shows(receiveTopic, 16, 2, 0)
	if f := q.shown(receiveTopic); f.Requeued != 1 {
		t.Errorf("requeued %d, want 1", f.Requeued)
	}
	q.end("Receive", 1, failed)
	q.shows(receiveTopic, 16, 1, 0)
	q.end("Receive", 1, released)
	q.shows(receiveTopic, 17, 0, 0)
	q.exec(`SELECT cancel(id) FROM work_items WHERE stage = 'Receive' AND status = 'Pending' ORDER BY id LIMIT 3`)
	q.shows(receiveTopic, 14, 0, 0)
	q.exec(`SELECT requeue(id) FROM work_items WHERE status = 'Failed'`)
	q.shows(receiveTopic, 15, 0, 0)
}

// More attempts end at once than nsqd is sent in one round: each is one requeue.
func TestEachRetryIsOneRequeue(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	const n = 2200
	q.items(n)
	q.claim("Receive", n)
	q.shows(receiveTopic, 0, n, 0)
	q.end("Receive", n, retriedLater)
	q.shows(receiveTopic, 0, 0, n)
	if f := q.shown(receiveTopic); f.Requeued != n {
		t.Errorf("requeued %d, want %d", f.Requeued, n)
	}
}
