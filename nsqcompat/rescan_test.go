package nsqcompat

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nsqio/go-nsq"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// A request is found behind all that waits, soon, also where that is more than nsqd
// gives at once. What lay before it stays claimable, and nobody gets it twice.
func TestRequestBehindABacklogIsFound(t *testing.T) {
	t.Parallel()
	for _, backlog := range []int{300, 6000} {
		t.Run(fmt.Sprint(backlog), func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			q.linked(q.options())
			other := subscribe(t, q.nsqd.TCPAddr, receiveTopic)
			id := q.items(1)
			q.shows(receiveTopic, 1, 0, 0)
			q.park(id)
			q.shows(receiveTopic, 0, 0, 0)
			q.items(backlog)
			q.shows(receiveTopic, int64(backlog), 0, 0)
			began := time.Now()
			q.pub(receiveTopic, fmt.Sprint(id))
			if a := q.answers(1)[0]; !a.Accepted || a.Item == nil || *a.Item != id {
				t.Errorf("answer = %+v", a)
			}
			if took := time.Since(began); took > testenv.AtOnce {
				t.Errorf("the answer took %v", took)
			}
			q.shows(receiveTopic, int64(backlog)+1, 0, 0)
			requeued := q.shown(receiveTopic).Requeued
			q.stays(int64(backlog)+1, 0)
			if again := q.shown(receiveTopic).Requeued; again != requeued {
				t.Errorf("%d messages were requeued after the request was found", again-requeued)
			}
			got := map[string]int{}
			for _, body := range other.end(t, q.nsqd.TCPAddr) {
				got[body]++
			}
			if n := got[fmt.Sprint(id)]; n != 3 { // as a new item, as a request, and requeued
				t.Errorf("the request's item came %d times to another channel, want 3", n)
			}
			delete(got, fmt.Sprint(id))
			if len(got) != backlog {
				t.Errorf("%d items came to another channel, want %d", len(got), backlog)
			}
			for body, n := range got {
				if n != 1 {
					t.Errorf("%s came %d times to another channel", body, n)
				}
			}
		})
	}
}

// With items that run and others that wait, and for an id that comes twice.
func TestRequestsWhileItemsRun(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	q.items(10)
	first, second := q.parked(), q.parked()
	q.claim("Receive", 4)
	q.shows(receiveTopic, 6, 4, 0)
	q.pub(receiveTopic, fmt.Sprint(first))
	if a := q.answers(1)[0]; !a.Accepted || *a.Item != first {
		t.Errorf("answer = %+v", a)
	}
	q.shows(receiveTopic, 7, 4, 0)
	q.pub(receiveTopic, fmt.Sprint(second))
	q.pub(receiveTopic, fmt.Sprint(second))
	for _, a := range q.answers(3)[1:] {
		if !a.Accepted || *a.Item != second {
			t.Errorf("answer = %+v", a)
		}
	}
	q.shows(receiveTopic, 8, 4, 0)
	q.claim("Receive", 8)
	q.shows(receiveTopic, 0, 12, 0)
	q.end("Receive", 12, done)
	q.shows(receiveTopic, 0, 0, 0)
	q.answers(3)
}

// A paused topic gives nothing to its channel. Its requests wait.
func TestRequestOnAPausedTopicWaits(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	q.items(5)
	id := q.parked()
	q.shows(receiveTopic, 5, 0, 0)
	q.exec(`SELECT pause_stage('Receive', 'Trouble')`)
	q.paused(true, "Trouble")
	q.pub(receiveTopic, fmt.Sprint(id))
	q.stays(6, 0)
	if n := q.value(`SELECT count(*)::text FROM topic_requests`); n != "0" {
		t.Errorf("%s answers", n)
	}
	q.exec(`SELECT resume_stage('Receive')`)
	if a := q.answers(1)[0]; !a.Accepted {
		t.Errorf("answer = %+v", a)
	}
	q.shows(receiveTopic, 6, 0, 0)
}

// Whatever else happens in the queue, each request is answered once, and nothing
// that Farol published itself is one.
func TestRequestsAmongAnyChurn(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			q.linked(q.options())
			r := rand.New(rand.NewPCG(seed, 2))
			asked := map[int64]int{}
			n := 0
			for range 8 {
				for range 1 + r.IntN(4) {
					q.churn(r, r.IntN(12))
					id := q.parked()
					for range 1 + r.IntN(2) {
						q.pub([]string{receiveTopic, validateTopic}[r.IntN(2)], fmt.Sprint(id))
						asked[id]++
						n++
					}
				}
				q.churn(r, 5)
				for _, a := range q.answers(n) {
					if a.Item == nil || asked[*a.Item] == 0 {
						t.Fatalf("nobody asked for %+v", a)
					}
				}
				q.agrees()
			}
			got := map[int64]int{}
			for _, a := range q.answers(n) {
				got[*a.Item]++
			}
			for id, times := range asked {
				if got[id] != times {
					t.Errorf("item %d has %d answers, want %d", id, got[id], times)
				}
			}
		})
	}
}

// Where the last mirror ended in order, the next distinguishes what was published in the meantime
// from what waits in the channel.
func TestRequestBehindTheBacklogOfTheLastMirror(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	stop := q.linked(q.options())
	items := q.items(201)
	id := items + 200
	q.claim("Receive", 3)
	q.shows(receiveTopic, 198, 3, 0)
	q.park(id)
	q.shows(receiveTopic, 197, 3, 0)
	stop()
	q.pub(receiveTopic, fmt.Sprint(id))
	q.linked(q.options())
	if a := q.answers(1)[0]; !a.Accepted || *a.Item != id {
		t.Errorf("answer = %+v", a)
	}
	q.shows(receiveTopic, 198, 3, 0)
	q.claim("Receive", 198)
	q.end("Receive", 201, failed+`, updated_at = now()`) // their messages are no requests for them
	q.shows(receiveTopic, 0, 0, 0)
	q.answers(1)
}

// An old message never takes the place of a new one with the same body.
func TestOldMessageIsNotTakenForANewOne(t *testing.T) {
	t.Parallel()
	now := time.Now()
	message := func(n byte, at time.Duration) *delivery {
		return &delivery{id: nsq.MessageID{n}, at: now.Add(at), attempts: 1, body: "7", size: 1}
	}
	for _, left := range []*handover{nil, {at: now, messages: 1}} {
		e := newOwnMessages()
		if quietTime := e.begin(now, 1, false, left); quietTime > time.Second || left == nil && quietTime < time.Second {
			t.Errorf("quiet time = %v", quietTime)
		}
		e.publishing([][]byte{[]byte("7")}, 1)
		var got []origin
		for i, at := range []time.Duration{-time.Minute, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
			got = append(got, e.originOf(message(byte(min(i, 2)), at)))
		}
		if want := []origin{originUnknown, originOwn, originForeign, originForeign}; !slices.Equal(got, want) {
			t.Errorf("origins = %v, want %v", got, want)
		}
	}
}

// A message too many that is our own, as far as is known, is looked for once, and goes.
func TestRescanThatFindsNothingIsNotRepeated(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	q.items(100)
	q.shows(receiveTopic, 100, 0, 0)
	// Of what another consumer took, the mirror waits for two. (If all were gone for some
	// seconds, it would wait for none.)
	body := q.stolen(receiveTopic)
	testenv.Eventually(t, "the mirror to miss it", func() bool { return q.value(`SELECT count(*)::text FROM topic_requests WHERE body = 'empty'`) == "1" })
	q.shows(receiveTopic, 100, 0, 0)
	q.pub(receiveTopic, body)
	testenv.Eventually(t, "a rescan", func() bool { return q.shown(receiveTopic).Requeued > 0 })
	q.shows(receiveTopic, 100, 0, 0)
	requeued := q.shown(receiveTopic).Requeued
	q.stays(100, 0)
	if again := q.shown(receiveTopic).Requeued; again != requeued {
		t.Errorf("%d messages were requeued after the rescan", again-requeued)
	}
	if n := q.value(`SELECT count(*)::text FROM topic_requests WHERE body <> 'empty'`); n != "0" {
		t.Errorf("%s answers", n)
	}
}

// stolen has another consumer take one message from the mirror's channel, and returns
// its body.
func (q *queue) stolen(topic string) string {
	q.t.Helper()
	config := nsq.NewConfig()
	config.MaxInFlight = 1
	consumer := must.Get(nsq.NewConsumer(topic, topic+channelSuffix, config))(q.t)
	consumer.SetLogger(nil, nsq.LogLevelMax)
	bodies := make(chan string, 1)
	consumer.AddHandler(nsq.HandlerFunc(func(m *nsq.Message) error {
		consumer.ChangeMaxInFlight(0)
		bodies <- string(m.Body)
		return nil
	}))
	must.Do(q.t, consumer.ConnectToNSQD(q.nsqd.TCPAddr))
	body := <-bodies
	consumer.Stop()
	<-consumer.StopChan
	return body
}

// While a request waits for the database, its message counts for itself: nothing
// more is sought, and the figures stay as they are.
func TestRequestThatWaitsForTheDatabaseSpoilsNothing(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.linked(q.options())
	q.items(20)
	q.claim("Receive", 2)
	q.shows(receiveTopic, 18, 2, 0)
	tx := must.Get(q.db.Begin(t.Context()))(t)
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it has been committed
	must.Get(tx.Exec(t.Context(), `LOCK TABLE topic_requests`))(t)
	q.pub(receiveTopic, "31337")
	q.shows(receiveTopic, 18, 3, 0)
	q.stays(18, 3)
	must.Do(t, tx.Commit(t.Context()))
	q.answers(1)
	q.shows(receiveTopic, 18, 2, 0)
}
