package nsqcompat

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nsqio/go-nsq"

	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
	"github.com/farol-preservation/farol/registry/topiclog"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// start runs a mirror until the test or the returned function ends it.
func start(t *testing.T, db *pgxpool.Pool, o MirrorOptions) (m *Mirror, stop func()) {
	t.Helper()
	o.Poll = 20 * time.Millisecond
	m = NewMirror(db, o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run = %v, want nil after its context ended", err)
			}
		case <-time.After(testenv.Patience):
			t.Error("the mirror did not end")
		}
	}
	t.Cleanup(stop)
	return m, stop
}

// subscriber reads one topic, one message at a time.
type subscriber struct {
	topic  string
	bodies chan string
}

func subscribe(t *testing.T, addr, topic string) *subscriber {
	t.Helper()
	config := nsq.NewConfig()
	config.MaxInFlight = 1
	config.LookupdPollInterval = 100 * time.Millisecond // after this it connects again, too
	config.MaxBackoffDuration = 0
	consumer := must.Get(nsq.NewConsumer(topic, "test", config))(t)
	s := &subscriber{topic: topic, bodies: make(chan string, 10_000)}
	consumer.SetLogger(nil, nsq.LogLevelMax)
	consumer.AddHandler(nsq.HandlerFunc(func(m *nsq.Message) error {
		s.bodies <- string(m.Body)
		return nil
	}))
	must.Do(t, consumer.ConnectToNSQD(addr))
	t.Cleanup(func() {
		consumer.Stop()
		<-consumer.StopChan
	})
	return s
}

// take returns the next n bodies.
func (s *subscriber) take(t *testing.T, n int) []string {
	t.Helper()
	deadline := time.After(testenv.Patience)
	var list []string
	for len(list) < n {
		select {
		case body := <-s.bodies:
			list = append(list, body)
		case <-deadline:
			t.Fatalf("%s: %d messages came, want %d; the last are %q", s.topic, len(list), n, list[max(0, len(list)-10):])
		}
	}
	return list
}

// end publishes a last message past the mirror, and returns what had come
// before it and was not yet taken.
func (s *subscriber) end(t *testing.T, addr string) []string {
	t.Helper()
	p := publisher{addr: addr}
	defer p.drop()
	must.Do(t, p.send(t.Context(), s.topic, [][]byte{[]byte("end")}))
	var list []string
	for {
		body := s.take(t, 1)[0]
		if body == "end" {
			return list
		}
		list = append(list, body)
	}
}

// inFlight is how many messages of the topic its subscriber has and has not
// finished.
func inFlight(t *testing.T, nsqd *testenv.NSQServer, topic string) int {
	t.Helper()
	stats := must.Get(at(nsqd).stats(t.Context()))(t)
	of, _ := stats.topic(topic)
	if len(of.Channels) != 1 {
		t.Fatalf("stats of %s = %+v; want one channel", topic, of)
	}
	return int(of.Channels[0].InFlight)
}

func at(nsqd *testenv.NSQServer) daemon { return daemon{tcp: nsqd.TCPAddr, http: nsqd.HTTPAddr} }

// newTestLeader returns a leader that holds its reader's lock but does not run, so that a
// test can take its steps one by one.
func newTestLeader(t *testing.T, db *pgxpool.Pool, o MirrorOptions) (*leader, topiclog.Reader) {
	t.Helper()
	m := NewMirror(db, o)
	pace := newPace(m.o.Poll)
	l := newLeader(m.o, m.records, pace, &m.counted)
	t.Cleanup(l.out.nsqd.drop)
	conn := must.Get(m.connect(t.Context(), pace))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		if err := conn.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	log := topiclog.NewReader(conn, m.o.Reader)
	if locked, err := log.Lock(t.Context()); err != nil || !locked {
		t.Fatalf("Lock = %t, %v", locked, err)
	}
	must.Get(log.Register(t.Context()))(t)
	return l, log
}
