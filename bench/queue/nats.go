package queue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// natsQueue is a JetStream work queue on files. A server writes them out every
// two minutes as it comes; one that can be told to do so always is as durable as
// the others.
type natsQueue struct {
	always bool

	url      string
	conn     *nats.Conn
	js       jetstream.JetStream
	consumer jetstream.Consumer
}

const natsStream = "BENCH"

func natsSubject(stage int) string { return "bench." + strconv.Itoa(stage) }

func (q *natsQueue) start(ctx context.Context, s *servers) (string, error) {
	path, err := exec.LookPath("nats-server")
	if err != nil {
		return "", fmt.Errorf("nats-server: %w", errMissing)
	}
	said, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask nats-server for its version: %w", err)
	}
	version := strings.TrimSpace(string(said))
	if q.always && !natsCanSyncAlways(version) {
		return "", fmt.Errorf("%w: %s cannot sync every message", errMissing, version)
	}
	port, err := devstack.FreePorts(1)
	if err != nil {
		return "", err
	}
	addr := "127.0.0.1:" + port[0]
	config, err := q.configure(s.Dir, addr)
	if err != nil {
		return "", err
	}
	if err := s.Stack.Run(ctx, q.name(), addr, path, "-c", config); err != nil {
		return "", err
	}
	q.url = "nats://" + addr
	if q.conn, err = nats.Connect(q.url); err != nil {
		return "", fmt.Errorf("connect to nats-server: %w", err)
	}
	// A server that syncs every message lets publishers wait.
	q.js, err = jetstream.New(q.conn, jetstream.WithPublishAsyncMaxPending(4096), jetstream.WithPublishAsyncTimeout(time.Minute))
	if err != nil {
		return "", fmt.Errorf("use JetStream: %w", err)
	}
	return version + ", nats.go " + nats.Version, nil
}

// natsCanSyncAlways tells whether a server knows "sync_interval: always", which
// came with 2.10. An older one would refuse its configuration.
func natsCanSyncAlways(version string) bool {
	var major, minor int
	_, number, found := strings.Cut(version, ": v")
	if n, err := fmt.Sscanf(number, "%d.%d", &major, &minor); !found || err != nil || n != 2 {
		return false
	}
	return major > 2 || major == 2 && minor >= 10
}

func (q *natsQueue) name() string {
	if q.always {
		return "nats-always"
	}
	return "nats"
}

func (q *natsQueue) configure(dir, addr string) (string, error) {
	name, sync := q.name(), ""
	if q.always {
		sync = "\n  sync_interval: always"
	}
	path := filepath.Join(dir, name+".conf")
	text := fmt.Sprintf("listen: %q\njetstream {\n  store_dir: %q%s\n}\n", addr, filepath.Join(dir, name), sync)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("configure nats-server: %w", err)
	}
	return path, nil
}

func (q *natsQueue) fill(ctx context.Context, n, first int) error {
	if err := q.js.DeleteStream(ctx, natsStream); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("empty the stream: %w", err)
	}
	stream, err := q.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: natsStream, Subjects: []string{"bench.>"}, Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage,
	})
	if err != nil {
		return fmt.Errorf("make the stream: %w", err)
	}
	q.consumer, err = stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: "bench", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 5 * time.Minute, MaxAckPending: 20_000,
	})
	if err != nil {
		return fmt.Errorf("make the consumer: %w", err)
	}
	const chunk = 1000
	for from := 0; from < n; from += chunk {
		list := make([]natsMessage, 0, chunk)
		for i := from; i < min(from+chunk, n); i++ {
			list = append(list, natsMessage{item: i, stage: i % first})
		}
		if err := q.publish(ctx, list); err != nil {
			return err
		}
	}
	return nil
}

func (q *natsQueue) put(ctx context.Context, n int) error {
	return q.publish(ctx, make([]natsMessage, n))
}

type natsMessage struct{ item, stage int }

// publish publishes messages and returns when the server has taken all of them.
func (q *natsQueue) publish(ctx context.Context, list []natsMessage) error {
	acks := make([]jetstream.PubAckFuture, len(list))
	for i, m := range list {
		var err error
		if acks[i], err = q.js.PublishAsync(natsSubject(m.stage), strconv.AppendInt(nil, int64(m.item), 10),
			jetstream.WithStallWait(time.Minute)); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	for _, ack := range acks {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return fmt.Errorf("publish: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("publish: %w", ctx.Err())
		}
	}
	return nil
}

func (q *natsQueue) run(ctx context.Context, l load, t *tally) error {
	var workers errgroup.Group
	for range l.Workers {
		workers.Go(func() error {
			for ctx.Err() == nil && !t.over() {
				if err := q.batch(ctx, l, t); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return workers.Wait()
}

// batch fetches messages, publishes the next ones and then acknowledges. Both are
// pipelined: the acknowledgements of a batch are under way together.
func (q *natsQueue) batch(ctx context.Context, l load, t *tally) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	msgs, err := q.fetch(l.Batch, t)
	if err != nil || len(msgs) == 0 {
		return err
	}
	hops := make([]natsMessage, len(msgs))
	var follow []natsMessage
	for i, m := range msgs {
		if hops[i], err = natsRead(m); err != nil {
			return err
		}
		t.inHand(hops[i].stage)
		if stage := hops[i].stage + 1; stage < stages || !l.Drain {
			follow = append(follow, natsMessage{item: hops[i].item, stage: stage % stages})
		}
	}
	if err := q.publish(ctx, follow); err != nil {
		return err
	}
	errs := make([]error, len(msgs))
	var wg sync.WaitGroup
	for i, m := range msgs {
		wg.Go(func() { errs[i] = m.DoubleAck(ctx) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("acknowledge: %w", err)
	}
	for _, h := range hops {
		t.hop(h.item, h.stage)
	}
	return nil
}

// fetch takes what is there at once, or else waits a little for one message: a
// fetch of many would wait for all of them.
func (q *natsQueue) fetch(n int, t *tally) ([]jetstream.Msg, error) {
	began := time.Now()
	batch, err := q.consumer.FetchNoWait(n)
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	msgs, err := natsCollect(batch)
	if err != nil || len(msgs) > 0 {
		t.claimed(began)
		return msgs, err
	}
	if batch, err = q.consumer.Fetch(1, jetstream.FetchMaxWait(250*time.Millisecond)); err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	return natsCollect(batch)
}

func natsCollect(batch jetstream.MessageBatch) (list []jetstream.Msg, err error) {
	for m := range batch.Messages() {
		list = append(list, m)
	}
	if err := batch.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, jetstream.ErrNoMessages) {
		return list, fmt.Errorf("fetch: %w", err)
	}
	return list, nil
}

func natsRead(m jetstream.Msg) (natsMessage, error) {
	item, err := strconv.Atoi(string(m.Data()))
	if err != nil {
		return natsMessage{}, fmt.Errorf("read a message: %w", err)
	}
	_, number, _ := strings.Cut(m.Subject(), ".")
	stage, err := strconv.Atoi(number)
	if err != nil {
		return natsMessage{}, fmt.Errorf("read a message's subject: %w", err)
	}
	return natsMessage{item: item, stage: stage}, nil
}

func (q *natsQueue) stop(context.Context) error {
	q.conn.Close()
	return nil
}
