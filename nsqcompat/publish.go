package nsqcompat

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nsqio/go-nsq"

	"github.com/farol-preservation/farol/registry/topiclog"
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
func (m *Mirror) publish(ctx context.Context, batch []topiclog.Message) (done int, err error) {
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
func firstRun(batch []topiclog.Message) []topiclog.Message {
	size := 0
	for i, next := range batch {
		size += len(next.Body)
		if next.Topic != batch[0].Topic || i > 0 && size > maxBody {
			return batch[:i]
		}
	}
	return batch
}

func (m *Mirror) publishRun(ctx context.Context, run []topiclog.Message) (done int, err error) {
	var bodies [][]byte
	for _, next := range run {
		// nsq.MultiPublish checks neither: a topic with a space in it makes another
		// command, and one bad body has nsqd refuse them all.
		if !nsq.IsValidTopicName(next.Topic) || next.Body == "" || len(next.Body) > maxBody {
			break
		}
		bodies = append(bodies, []byte(next.Body))
	}
	if len(bodies) == 0 {
		m.discard(ctx, run[0], errors.New("no valid topic and body"))
		return 1, nil
	}
	err = m.announce(ctx, run[0].Topic, bodies)
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
func (m *Mirror) discard(ctx context.Context, next topiclog.Message, err error) {
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
