package nsqcompat

import (
	"context"
	"errors"
	"time"

	"github.com/farol-preservation/farol/registry/topiclog"
)

// outlet publishes to nsqd and keeps account of it, by topic. The account is kept also
// of topics whose channel is not consumed yet.
type outlet struct {
	nsqd     publisher
	accounts bool                    // an account is kept at all
	linked   bool                    // channels are consumed
	own      map[string]*ownMessages // by topic
}

// ofTopic returns the account of a topic.
func (o *outlet) ofTopic(topic string) *ownMessages {
	if o.own[topic] == nil {
		o.own[topic] = newOwnMessages()
	}
	return o.own[topic]
}

// send publishes bodies to a topic. Its errors are those of [publisher.send].
func (o *outlet) send(ctx context.Context, topic string, bodies [][]byte) error {
	if !o.accounts {
		return o.nsqd.send(ctx, topic, bodies)
	}
	e := o.ofTopic(topic)
	e.publishing(bodies, 1) // before they can be received
	err := o.nsqd.send(ctx, topic, bodies)
	e.published, e.unanswered = time.Now(), false
	switch {
	case err == nil:
		e.inChannel += int64(len(bodies))
		e.sent += int64(len(bodies))
	case isRefusal(err), errors.Is(err, errUnsent):
		e.publishing(bodies, -1)
	default:
		e.unanswered = true
	}
	return err
}

// announce publishes messages of the log. That the check of a file begins is not
// published again where the file was published when it came due.
func (o *outlet) announce(ctx context.Context, topic string, bodies [][]byte) error {
	if topic != topiclog.FixityTopic || !o.linked {
		return o.send(ctx, topic, bodies)
	}
	e := o.ofTopic(topic)
	var rest [][]byte
	for _, b := range bodies {
		if !e.announced[string(b)] {
			rest = append(rest, b)
		}
	}
	if len(rest) > 0 {
		if err := o.send(ctx, topic, rest); err != nil {
			return err
		}
	}
	for _, b := range bodies {
		e.announced[string(b)] = false
	}
	return nil
}
