package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nsqio/go-nsq"
)

const (
	// batchTime ends a batch early when nsqd is slow, so that the cursor does
	// not fall far behind what is published.
	batchTime = time.Second
	// maxBody is nsqd's own default. It answers a larger message by breaking the
	// connection, which looks as if it were away.
	maxBody = 1 << 20
)

// unpublishedError says that nsqd did not take messages that it may take later.
type unpublishedError struct{ err error }

func (e unpublishedError) Error() string { return e.err.Error() }
func (e unpublishedError) Unwrap() error { return e.err }

// publish sends messages in their order and returns how many are dealt with.
// The error is an unpublishedError.
func (m *Mirror) publish(ctx context.Context, batch []message) (done int, err error) {
	began := time.Now()
	for done < len(batch) && ctx.Err() == nil && time.Since(began) < batchTime {
		n, err := m.publishRun(ctx, firstRun(batch[done:]))
		done += n
		if err != nil {
			return done, unpublishedError{err}
		}
	}
	return done, nil
}

// firstRun returns the messages at the front that have one topic and fit into
// one command.
func firstRun(batch []message) []message {
	size := 0
	for i, next := range batch {
		size += len(next.Body)
		if next.Topic != batch[0].Topic || i > 0 && size > maxBody {
			return batch[:i]
		}
	}
	return batch
}

func (m *Mirror) publishRun(ctx context.Context, run []message) (done int, err error) {
	var bodies [][]byte
	for _, next := range run {
		// go-nsq checks neither: what it would write for these is no command or
		// another one.
		if !nsq.IsValidTopicName(next.Topic) || next.Body == "" || len(next.Body) > maxBody {
			break
		}
		bodies = append(bodies, []byte(next.Body))
	}
	if len(bodies) == 0 {
		m.discard(ctx, run[0], errors.New("no valid topic and body"))
		return 1, nil
	}
	err = m.nsqd.send(run[0].Topic, bodies)
	switch {
	case err == nil:
		m.published.Add(int64(len(bodies)))
		return len(bodies), nil
	case !isRefusal(err):
		return 0, err
	case len(bodies) == 1:
		m.discard(ctx, run[0], err)
		return 1, nil
	}
	// One of them spoils it for all. Singly, the others get through.
	for ; done < len(bodies); done++ {
		if _, err := m.publishRun(ctx, run[done:done+1]); err != nil {
			return done, err
		}
	}
	return done, nil
}

// discard passes over a message that would block all later ones for ever.
func (m *Mirror) discard(ctx context.Context, next message, err error) {
	m.discarded.Add(1)
	m.o.Log.ErrorContext(ctx, "message cannot be published, passing over it", "message", next.Position.MessageID,
		"xid", next.Position.XID, "topic", next.Topic, "bytes", len(next.Body), "err", err)
}

// isRefusal tells whether nsqd would answer the same for ever: it said that the
// topic or the body is bad.
func isRefusal(err error) bool {
	var answer nsq.ErrProtocol
	return errors.As(err, &answer) && strings.HasPrefix(answer.Reason, "E_BAD_")
}

// publisher sends to one nsqd, over a connection that it makes when needed. It
// is not safe for concurrent use.
type publisher struct {
	addr     string
	producer *nsq.Producer // nil until needed, and after an error
}

// answerTimeout bounds how long nsqd may take to connect, and then to answer.
const answerTimeout = 5 * time.Second

// send publishes bodies to a topic, all or none unless the connection breaks,
// and waits for nsqd's answer. It does not look at a context: to leave without
// the answer would mean to publish again, and it is bounded.
func (p *publisher) send(topic string, bodies [][]byte) error {
	if err := p.connect(); err != nil {
		return err
	}
	answer := make(chan *nsq.ProducerTransaction, 1) // with room, so that nobody waits for us if we give up
	var err error
	if len(bodies) == 1 {
		err = p.producer.PublishAsync(topic, bodies[0], answer)
	} else {
		err = p.producer.MultiPublishAsync(topic, bodies, answer)
	}
	if err == nil {
		err = wait(answer)
	}
	if err != nil {
		// A producer that had an error is of no use for a while, and one that is
		// waiting for an answer would take the next one for it.
		p.drop()
		return fmt.Errorf("publish to %s at %s: %w", topic, p.addr, err)
	}
	return nil
}

func wait(answer <-chan *nsq.ProducerTransaction) error {
	timeout := time.NewTimer(answerTimeout)
	defer timeout.Stop()
	select {
	case t := <-answer:
		return t.Error
	case <-timeout.C:
		return errors.New("nsqd does not answer")
	}
}

func (p *publisher) connect() error {
	if p.producer != nil {
		return nil
	}
	config := nsq.NewConfig()
	config.HeartbeatInterval, config.ReadTimeout, config.WriteTimeout = answerTimeout/2, answerTimeout, answerTimeout
	producer, err := nsq.NewProducer(p.addr, config)
	if err != nil {
		return fmt.Errorf("set up publishing to %s: %w", p.addr, err)
	}
	producer.SetLogger(nil, nsq.LogLevelMax) // what it says it also returns
	p.producer = producer
	return nil
}

func (p *publisher) drop() {
	if p.producer != nil {
		p.producer.Stop()
		p.producer = nil
	}
}
