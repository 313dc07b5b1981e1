package queue

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/adjust/rmq/v5"
	"github.com/redis/go-redis/v9"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// rmqQueue is adjust/rmq on a Redis of its own, which writes every command to
// disk before it answers, or nothing at all. A queue pushes to the next one.
type rmqQueue struct {
	durable bool

	client *redis.Client
	conn   rmq.Connection
	errs   chan error
}

func rmqName(stage int) string { return "bench" + strconv.Itoa(stage+1) }

func (q *rmqQueue) start(ctx context.Context, s *servers) (string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return "", fmt.Errorf("redis-server: %w", errMissing)
	}
	port, err := devstack.FreePorts(1)
	if err != nil {
		return "", err
	}
	addr := "127.0.0.1:" + port[0]
	name, args := "rmq-memory", []string{"--bind", "127.0.0.1", "--port", port[0], "--dir", s.Dir, "--save", "", "--appendonly", "no"}
	if q.durable {
		name, args = "rmq", append(args[:len(args)-1], "yes", "--appendfsync", "always", "--appenddirname", filepath.Base(s.Dir)+"-aof")
	}
	if err := s.Stack.Run(ctx, name, addr, path, args...); err != nil {
		return "", err
	}
	q.client = redis.NewClient(&redis.Options{Addr: addr, PoolSize: 100})
	info, err := q.client.InfoMap(ctx, "server").Result()
	if err != nil {
		return "", fmt.Errorf("ask Redis for its version: %w", err)
	}
	q.errs = make(chan error, 100)
	if q.conn, err = rmq.OpenConnectionWithRedisClient("bench", q.client, q.errs); err != nil {
		return "", fmt.Errorf("connect to Redis: %w", err)
	}
	return fmt.Sprintf("Redis %s, rmq %s", info["Server"]["redis_version"], moduleVersion("github.com/adjust/rmq/v5")), nil
}

func (q *rmqQueue) fill(ctx context.Context, n, first int) error {
	// A queue's own purge would leave what was given out and not acknowledged.
	if err := q.client.FlushDB(ctx).Err(); err != nil {
		return fmt.Errorf("empty the queues: %w", err)
	}
	list, err := q.open()
	if err != nil {
		return err
	}
	err = publishAll(n, first, func(stage int, items []int) error { return rmqPublish(list[stage], items) })
	return errors.Join(err, ctx.Err())
}

func rmqPublish(to rmq.Queue, items []int) error {
	bodies := make([]string, len(items))
	for i, item := range items {
		bodies[i] = strconv.Itoa(item)
	}
	return to.Publish(bodies...)
}

// open opens the queues of all stages, each of which pushes to the next.
func (q *rmqQueue) open() ([]rmq.Queue, error) {
	list := make([]rmq.Queue, stages)
	for stage := range stages {
		var err error
		if list[stage], err = q.conn.OpenQueue(rmqName(stage)); err != nil {
			return nil, fmt.Errorf("open a queue: %w", err)
		}
	}
	for stage := range stages {
		list[stage].SetPushQueue(list[(stage+1)%stages])
	}
	return list, nil
}

func (q *rmqQueue) put(_ context.Context, n int) error {
	first, err := q.conn.OpenQueue(rmqName(0))
	if err != nil {
		return fmt.Errorf("open a queue: %w", err)
	}
	return rmqPublish(first, make([]int, n))
}

const (
	// rmqPrefetch is how many deliveries of a queue may be out. To acknowledge one
	// is to look for it among them.
	rmqPrefetch = 300
	// rmqPoll is how long a queue rests that has given out what it may.
	rmqPoll = time.Millisecond
)

// run has as many consumers at each stage as there are workers, of which so many
// work at once in all.
func (q *rmqQueue) run(ctx context.Context, l load, t *tally) error {
	list, err := q.open()
	if err != nil {
		return err
	}
	slots := make(chan struct{}, l.Workers)
	failed := make(chan error, 1)
	for stage, queue := range list {
		if err := queue.StartConsuming(rmqPrefetch, rmqPoll); err != nil {
			return fmt.Errorf("consume: %w", err)
		}
		defer func() { <-queue.StopConsuming() }()
		for range l.Workers {
			_, err := queue.AddConsumerFunc("bench", func(d rmq.Delivery) {
				slots <- struct{}{}
				defer func() { <-slots }()
				if err := rmqHop(d, stage, l, t); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			})
			if err != nil {
				return fmt.Errorf("add a consumer: %w", err)
			}
		}
	}
	select {
	case <-ctx.Done():
	case <-t.done:
	case err := <-failed:
		return err
	case err := <-q.errs:
		return err
	}
	return nil
}

func rmqHop(d rmq.Delivery, stage int, l load, t *tally) error {
	t.inHand(stage)
	item, err := strconv.Atoi(d.Payload())
	if err != nil {
		return fmt.Errorf("read a delivery: %w", err)
	}
	if stage+1 < stages || !l.Drain {
		err = d.Push()
	} else {
		err = d.Ack()
	}
	if err != nil {
		return fmt.Errorf("end a delivery: %w", err)
	}
	t.hop(item, stage)
	return nil
}

func (q *rmqQueue) stop(context.Context) error { return q.client.Close() }
