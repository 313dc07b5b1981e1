package nsqcompat

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// nsqd keeps over a restart what it had; what it loses is published again.
func TestFiguresAreRightAfterNSQDWasAway(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	start(t, q.db, q.options())
	q.items(30)
	q.claim("Receive", 6)
	q.shows(receiveTopic, 24, 6, 0)
	q.nsqd.Stop(t)
	q.items(10)
	q.end("Receive", 3, done)
	q.end("Receive", 1, failed)
	q.nsqd.Start(t)
	q.shows(receiveTopic, 34, 2, 0)
	q.shows(validateTopic, 3, 0, 0)
	q.nsqd.Stop(t)
	q.nsqd.Wipe(t)
	q.claim("Validate", 1)
	q.end("Receive", 1, retriedLater)
	q.nsqd.Start(t)
	q.shows(receiveTopic, 34, 1, 1)
	q.shows(validateTopic, 2, 1, 0)
}

const retriedLater = `status = 'Pending', run_at = now() + interval '20 minutes'`

// Someone empties the channel, or deletes the topic.
func TestWhatIsEmptiedIsFilledAgain(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	start(t, q.db, q.options())
	q.items(700)
	q.claim("Receive", 3)
	q.shows(receiveTopic, 697, 3, 0)
	must.Do(t, at(q.nsqd).post(t.Context(), "/channel/empty", map[string][]string{"topic": {receiveTopic}, "channel": {receiveTopic + channelSuffix}}))
	q.shows(receiveTopic, 697, 3, 0)
	must.Do(t, at(q.nsqd).post(t.Context(), "/topic/delete", map[string][]string{"topic": {receiveTopic}}))
	q.shows(receiveTopic, 697, 3, 0)
}

// Messages that were there before the mirror are no items.
func TestOldMessagesGo(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	p := publisher{addr: q.nsqd.TCPAddr}
	defer p.drop()
	must.Do(t, at(q.nsqd).post(t.Context(), "/topic/create", map[string][]string{"topic": {receiveTopic}}))
	must.Do(t, at(q.nsqd).post(t.Context(), "/channel/create", map[string][]string{"topic": {receiveTopic}, "channel": {receiveTopic + channelSuffix}}))
	for n := range 3000 {
		must.Do(t, p.send(t.Context(), receiveTopic, [][]byte{fmt.Append(nil, n)}))
	}
	q.items(4)
	start(t, q.db, q.options())
	q.shows(receiveTopic, 4, 0, 0)
}

// Work may take longer than nsqd would wait for it.
func TestMessagesInFlightAreKept(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	o := q.options()
	o.MsgTimeout = 5 * time.Second // a slow machine may touch them late
	start(t, q.db, o)
	q.items(5)
	q.claim("Receive", 3)
	q.shows(receiveTopic, 2, 3, 0)
	until := time.Now().Add(2*o.MsgTimeout + time.Second)
	testenv.Eventually(t, "two timeouts", func() bool {
		if f := q.shown(receiveTopic); f.InFlight != 3 || f.Depth != 2 {
			t.Fatalf("figures = %+v, want 3 in flight always", f)
		}
		return time.Now().After(until)
	})
	if n := q.timeouts(receiveTopic); n != 0 {
		t.Errorf("%d messages timed out", n)
	}
}

// A mirror that is gone without a word leaves its messages in flight; they come
// back, and the next one shows what is.
func TestNextMirrorTakesOver(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	proxy := testenv.NewProxy(t, q.nsqd.TCPAddr)
	o := q.options()
	o.NSQDTCPAddr, o.MsgTimeout = proxy.Addr(), 2*time.Second
	_, stop := start(t, q.db, o)
	q.items(12)
	q.claim("Receive", 4)
	q.shows(receiveTopic, 8, 4, 0)
	proxy.Cut()
	q.claim("Receive", 1)
	stop()
	o.NSQDTCPAddr = q.nsqd.TCPAddr
	q.linked(o)
	until := time.Now().Add(o.MsgTimeout / 2)
	testenv.Eventually(t, "half of the time in which messages come back", func() bool {
		if f := q.shown(receiveTopic); f.InFlight > 5 {
			t.Fatalf("figures = %+v, want no more in flight than run", f)
		}
		return time.Now().After(until)
	})
	q.end("Receive", 2, done)
	q.shows(receiveTopic, 7, 3, 0)
	q.shows(validateTopic, 2, 0, 0)
}

// Anyone who listens on a channel of their own gets each message once, whatever
// becomes of the items.
func TestOtherChannelsGetEachMessageOnce(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	m, _ := start(t, q.db, q.options())
	testenv.Eventually(t, "the link", func() bool { return len(m.Figures()) == 15 })
	receive, validate := subscribe(t, q.nsqd.TCPAddr, receiveTopic), subscribe(t, q.nsqd.TCPAddr, validateTopic)
	q.items(200)
	for range 5 {
		q.claim("Receive", 30)
		q.end("Receive", 5, retried)
		q.end("Receive", 20, done)
		q.end("Receive", 2, failed)
	}
	q.shows(validateTopic, 100, 0, 0)
	q.shows(receiveTopic, 75, 15, 0)
	if got := slices.Sorted(slices.Values(receive.end(t, q.nsqd.TCPAddr))); len(got) != 200 || len(slices.Compact(got)) != 200 {
		t.Errorf("%d messages came of %d items", len(got), len(slices.Compact(got)))
	}
	if got := slices.Sorted(slices.Values(validate.end(t, q.nsqd.TCPAddr))); len(got) != 100 || len(slices.Compact(got)) != 100 {
		t.Errorf("%d messages came of %d transitions", len(got), len(slices.Compact(got)))
	}
	if f := q.shown(receiveTopic); f.Requeued != 25 {
		t.Errorf("requeued %d, want 25", f.Requeued)
	}
}
