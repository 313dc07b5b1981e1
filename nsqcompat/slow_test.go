package nsqcompat

import (
	"context"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// An nsqd that takes every connection and never answers, or only after seconds,
// holds up no transition; and when it answers again its figures are right soon.
func TestSlowNSQDHoldsUpNothing(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	tcp, http := testenv.NewProxy(t, q.nsqd.TCPAddr), testenv.NewProxy(t, q.nsqd.HTTPAddr)
	q.linked(MirrorOptions{NSQDTCPAddr: tcp.Addr(), NSQDHTTPAddr: http.Addr(), MsgTimeout: time.Second})
	q.items(5)
	q.shows(receiveTopic, 5, 0, 0)
	for _, delay := range []time.Duration{300 * time.Millisecond, time.Hour} {
		tcp.Delay(delay)
		http.Delay(delay)
		for range 20 { // as fast as the database is
			began := time.Now()
			q.claim("Receive", 1)
			q.end("Receive", 1, done)
			q.claim("Validate", 1)
			q.end("Validate", 1, `status = 'Pending', stage = 'Receive', run_at = now()`)
			if took := time.Since(began); took > testenv.AtOnce {
				t.Errorf("two transitions took %v", took)
			}
		}
	}
	tcp.Resume()
	http.Resume()
	q.claim("Receive", 2)
	q.shows(receiveTopic, 3, 2, 0)
	q.shows(validateTopic, 0, 0, 0)
}

// One that is slow, and never breaks off, is sent nothing twice.
func TestSlowNSQDGetsNothingTwice(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	tcp, http := testenv.NewProxy(t, q.nsqd.TCPAddr), testenv.NewProxy(t, q.nsqd.HTTPAddr)
	q.linked(MirrorOptions{NSQDTCPAddr: tcp.Addr(), NSQDHTTPAddr: http.Addr()})
	other := subscribe(t, q.nsqd.TCPAddr, receiveTopic)
	q.items(20)
	q.shows(receiveTopic, 20, 0, 0)
	tcp.Delay(200 * time.Millisecond)
	http.Delay(200 * time.Millisecond)
	for range 10 {
		q.items(2)
		q.claim("Receive", 3)
		q.end("Receive", 1, done)
		q.end("Receive", 1, failed)
	}
	q.shows(receiveTopic, 10, 10, 0)
	q.shows(validateTopic, 10, 0, 0)
	http.Resume()
	tcp.Delay(1500 * time.Millisecond) // several comparisons pass until it does what it was asked
	q.end("Receive", 5, failed)
	q.shows(receiveTopic, 10, 5, 0)
	tcp.Resume()
	q.end("Receive", 1, failed)
	q.shows(receiveTopic, 10, 4, 0)
	q.stays(10, 4)
	if got := other.end(t, q.nsqd.TCPAddr); len(got) != 40 {
		t.Errorf("%d messages came of 40 items", len(got))
	}
}

// A version of a bag that waits for the one before it is not claimable, and nor
// is an item whose time has not come. Both are as soon as a person says so.
func TestWaitingItemsAreDeferred(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	first := q.items(1)
	q.exec(`UPDATE work_items SET stage = 'Store', claim_token = 3 WHERE id = $1`, first)
	q.exec(`INSERT INTO topic_messages (topic, body, work_item_id) SELECT 'ingest06_storage', id::text, id FROM work_items`)
	q.exec(`
		INSERT INTO work_items (institution_id, action, stage, name, bucket, etag, bag_date, size, object_identifier)
		SELECT institution_id, action, 'Receive', name, bucket, 'newer', now(), 1, 'x' FROM work_items`)
	q.shows(receiveTopic, 0, 0, 1)
	q.shows("ingest06_storage", 1, 0, 0)
	q.exec(`SELECT cancel($1)`, first)
	q.shows(receiveTopic, 1, 0, 0)
	q.claim("Receive", 1)
	q.end("Receive", 1, retriedLater)
	q.shows(receiveTopic, 0, 0, 1)
	q.exec(`SELECT requeue(id) FROM work_items WHERE status = 'Pending'`)
	testenv.Eventually(t, "the item to be claimable in nsqd", func() bool { return q.shown(receiveTopic).Depth == 1 })
}

// What cannot be read yet, since an older transaction may still commit, is not
// missing.
func TestUnreadMessagesAreNotMissing(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	other := subscribe(t, q.nsqd.TCPAddr, receiveTopic)
	tx := must.Get(q.db.Begin(t.Context()))(t)
	defer tx.Rollback(context.WithoutCancel(t.Context()))
	must.Get(tx.Exec(t.Context(), `INSERT INTO topic_messages (topic, body) VALUES ('late', '1')`))(t)
	q.items(7)
	q.stays(0, 0)
	must.Do(t, tx.Commit(t.Context()))
	q.shows(receiveTopic, 7, 0, 0)
	if got := other.end(t, q.nsqd.TCPAddr); len(got) != 7 {
		t.Errorf("%d messages came of 7 items", len(got))
	}
}

// stays makes sure that nothing changes at Receive for some comparisons.
func (q *queue) stays(depth, inFlight int64) {
	q.t.Helper()
	until := time.Now().Add(4 * compareEvery)
	testenv.Eventually(q.t, "some comparisons", func() bool {
		if f := q.shown(receiveTopic); f.Drift >= 0 && (f.Depth != depth || f.InFlight != inFlight) {
			q.t.Fatalf("figures = %+v, want %d and %d in flight", f, depth, inFlight)
		}
		return time.Now().After(until)
	})
}
