package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/nsqio/go-nsq"
)

// nsqQueue is nsqd with the settings that it comes with: ten thousand messages of
// a topic in memory, more than that in files that are not synced.
type nsqQueue struct {
	addr, http string
	feed       *nsq.Producer
}

const nsqChannel = "bench"

func nsqTopic(stage int) string { return "bench" + strconv.Itoa(stage+1) }

func (q *nsqQueue) start(ctx context.Context, s *servers) (string, error) {
	q.addr, q.http = s.Stack.NSQDTCPAddr, s.Stack.NSQDHTTPAddr
	var err error
	if q.feed, err = q.producer(); err != nil {
		return "", err
	}
	body, err := q.ask(ctx, http.MethodGet, "/info", nil)
	if err != nil {
		return "", err
	}
	var info struct {
		Version string `json:"version"`
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return "", fmt.Errorf("read nsqd's version: %w", err)
	}
	return fmt.Sprintf("nsqd %s, go-nsq %s", info.Version, nsq.VERSION), nil
}

// config lets nsqd hold messages back for as short a time as it allows, so that
// they can share a packet, or not at all where single ones are timed.
func (q *nsqQueue) config(single bool) *nsq.Config {
	c := nsq.NewConfig()
	c.MaxInFlight = 2500 // as many as nsqd allows
	c.MsgTimeout = 5 * time.Minute
	c.OutputBufferTimeout = 25 * time.Millisecond
	if single {
		c.OutputBufferSize = -1
	}
	return c
}

func (q *nsqQueue) producer() (*nsq.Producer, error) {
	p, err := nsq.NewProducer(q.addr, q.config(false))
	if err != nil {
		return nil, fmt.Errorf("make a producer: %w", err)
	}
	p.SetLoggerLevel(nsq.LogLevelError)
	return p, nil
}

var errNotFound = errors.New("not found")

// ask calls nsqd's HTTP API.
func (q *nsqQueue) ask(ctx context.Context, method, path string, values url.Values) ([]byte, error) {
	u := url.URL{Scheme: "http", Host: q.http, Path: path, RawQuery: values.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("query nsqd: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("query nsqd: %w", err)
	}
	defer res.Body.Close() //nolint:errcheck // it has been read
	body, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask nsqd for %s: %w", path, err)
	case res.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("ask nsqd for %s: %w", path, errNotFound)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("ask nsqd for %s: %s: %s", path, res.Status, bytes.TrimSpace(body))
	}
	return body, nil
}

func (q *nsqQueue) fill(ctx context.Context, n, first int) error {
	for stage := range stages {
		topic := url.Values{"topic": {nsqTopic(stage)}}
		if _, err := q.ask(ctx, http.MethodPost, "/topic/delete", topic); err != nil && !errors.Is(err, errNotFound) {
			return err
		}
		if _, err := q.ask(ctx, http.MethodPost, "/topic/create", topic); err != nil {
			return err
		}
		topic.Set("channel", nsqChannel)
		if _, err := q.ask(ctx, http.MethodPost, "/channel/create", topic); err != nil {
			return err
		}
	}
	return publishAll(n, first, q.publish)
}

func (q *nsqQueue) put(_ context.Context, n int) error { return q.publish(0, make([]int, n)) }

func (q *nsqQueue) publish(stage int, items []int) error {
	bodies := make([][]byte, len(items))
	for i, item := range items {
		bodies[i] = strconv.AppendInt(nil, int64(item), 10)
	}
	return q.feed.MultiPublish(nsqTopic(stage), bodies)
}

// run has a consumer for each stage, as worker processes of such a system have.
// Together they handle as many messages at once as there are workers.
func (q *nsqQueue) run(ctx context.Context, l load, t *tally) error {
	producer, err := q.producer()
	if err != nil {
		return err
	}
	defer producer.Stop()
	slots := make(chan struct{}, l.Workers)
	var consumers []*nsq.Consumer
	defer func() {
		for _, c := range consumers {
			c.Stop()
		}
		for _, c := range consumers {
			<-c.StopChan
		}
	}()
	for stage := range stages {
		c, err := nsq.NewConsumer(nsqTopic(stage), nsqChannel, q.config(t.taken != nil))
		if err != nil {
			return fmt.Errorf("make a consumer: %w", err)
		}
		consumers = append(consumers, c)
		c.SetLoggerLevel(nsq.LogLevelError)
		c.AddConcurrentHandlers(nsq.HandlerFunc(func(m *nsq.Message) error {
			slots <- struct{}{}
			defer func() { <-slots }()
			return q.hop(m, producer, stage, l, t)
		}), l.Workers)
		if err := c.ConnectToNSQD(q.addr); err != nil {
			return fmt.Errorf("connect to nsqd: %w", err)
		}
	}
	select {
	case <-ctx.Done():
	case <-t.done:
	}
	return nil
}

// hop is done when nsqd has the next message; FIN follows when it returns.
func (q *nsqQueue) hop(m *nsq.Message, producer *nsq.Producer, stage int, l load, t *tally) error {
	t.inHand(stage)
	item, err := strconv.Atoi(string(m.Body))
	if err != nil {
		return fmt.Errorf("read a message: %w", err)
	}
	if stage+1 < stages || !l.Drain {
		if err := producer.Publish(nsqTopic((stage+1)%stages), m.Body); err != nil {
			return err
		}
	}
	t.hop(item, stage)
	return nil
}

func (q *nsqQueue) stop(context.Context) error {
	q.feed.Stop()
	return nil
}
