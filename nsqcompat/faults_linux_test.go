package nsqcompat

import (
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
)

// newQueueWith is newQueue with settings of nsqd.
func newQueueWith(t *testing.T, settings devstack.NSQDOptions) *queue {
	t.Helper()
	return queueAt(t, testenv.NewNSQWith(t, settings))
}

// Killed, nsqd loses what was in memory; what it has on disk it may give again
// although it was finished.
func TestFiguresAreRightAfterNSQDWasKilled(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]devstack.NSQDOptions{"in memory": {}, "on disk": {NoMemory: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueueWith(t, settings)
			q.linked(q.options())
			q.items(30)
			q.claim("Receive", 10)
			q.end("Receive", 4, done)
			q.shows(receiveTopic, 20, 6, 0)
			q.shows(validateTopic, 4, 0, 0)
			q.nsqd.Kill(t)
			q.items(10)
			q.end("Receive", 2, failed)
			q.end("Receive", 1, retriedLater)
			q.nsqd.Start(t)
			q.shows(receiveTopic, 30, 3, 1)
			q.shows(validateTopic, 4, 0, 0)
			q.stays(30, 3)
			if n := q.value(`SELECT count(*)::text FROM topic_requests`); n != "0" {
				t.Errorf("%s of the mirror's own messages were taken for requests", n)
			}
		})
	}
}

// With its disk full nsqd takes no message, and loses some that it has. The queue
// goes on, and nsqd shows it soon after there is room again.
func TestFullDiskOfNSQDHoldsUpNothing(t *testing.T) {
	t.Parallel()
	q := newQueueWith(t, devstack.NSQDOptions{NoMemory: true})
	m, _ := start(t, q.db, q.options())
	q.items(20)
	q.claim("Receive", 5)
	q.shows(receiveTopic, 15, 5, 0)
	q.nsqd.Fill(t)
	q.items(10)
	testenv.Eventually(t, "refused messages", func() bool { return m.Stats().Failures > 1 })
	for range 10 { // as fast as the database is
		began := time.Now()
		q.claim("Receive", 1)
		q.end("Receive", 1, done)
		if took := time.Since(began); took > testenv.AtOnce {
			t.Errorf("a transition took %v", took)
		}
	}
	q.end("Receive", 1, failed)
	q.nsqd.Free(t)
	q.shows(receiveTopic, 15, 4, 0)
	q.shows(validateTopic, 10, 0, 0)
	if s := m.Stats(); s.Discarded != 0 {
		t.Errorf("%d messages were passed over", s.Discarded)
	}
}

// Work may take longer than nsqd lets a message be in flight. It is given again
// then, and nothing else comes of that.
func TestWorkLongerThanNSQDAllows(t *testing.T) {
	t.Parallel()
	q := newQueueWith(t, devstack.NSQDOptions{MaxMsgTimeout: 2 * time.Second})
	o := q.options()
	o.MsgTimeout = time.Second
	q.linked(o)
	q.items(5)
	q.claim("Receive", 3)
	q.shows(receiveTopic, 2, 3, 0)
	testenv.Eventually(t, "each message to time out", func() bool { return q.timeouts(receiveTopic) >= 6 })
	q.shows(receiveTopic, 2, 3, 0)
	q.end("Receive", 2, done)
	q.end("Receive", 1, retriedLater)
	q.shows(receiveTopic, 2, 0, 1)
	q.shows(validateTopic, 2, 0, 0)
	// For a message that times out nsqd may give another, which goes back: how often
	// depends on who is faster.
	if f := q.shown(receiveTopic); f.Finished != 2 || f.Requeued < 1 {
		t.Errorf("finished %d, requeued %d; want 2, and 1 or more", f.Finished, f.Requeued)
	}
	if n := q.value(`SELECT count(*)::text FROM topic_requests`); n != "0" {
		t.Errorf("%s of the mirror's own messages were taken for requests", n)
	}
}

// More run than nsqd lets one consumer have in flight: the rest shows as depth, as
// drift, and is not published again.
func TestMoreRunThanMayBeInFlight(t *testing.T) {
	t.Parallel()
	q := newQueueWith(t, devstack.NSQDOptions{MaxRdyCount: 10})
	o := q.options()
	m, _ := start(t, q.db, o)
	testenv.Eventually(t, "the link", func() bool { return len(m.Figures()) == 15 })
	other := subscribe(t, q.nsqd.TCPAddr, receiveTopic)
	q.items(30)
	q.claim("Receive", 20)
	q.shows(receiveTopic, 20, 10, 0)
	drifts(t, m, 20)
	q.stays(20, 10)
	q.end("Receive", 13, done)
	q.end("Receive", 2, failed)
	q.shows(receiveTopic, 10, 5, 0)
	q.shows(validateTopic, 13, 0, 0)
	if got := other.end(t, q.nsqd.TCPAddr); len(got) != 30 {
		t.Errorf("%d messages came of 30 items", len(got))
	}
}
