package nsqcompat

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"github.com/farol-preservation/farol/registry/topiclog"
)

const (
	// refillMost bounds what is published again at once.
	refillMost = 5000
	// emptiedEvery is how often at most it is put on record that a topic was emptied:
	// a consumer of our channel takes messages all the time.
	emptiedEvery = time.Minute
	// settlesIn is how long a channel that was connected again may lack what nsqd
	// itself has lost, such as in a crash.
	settlesIn = 3 * lookEvery
)

// refill publishes messages again that the channel lacks, which every other
// channel of the topic gets once more: nsqd was wiped, or a person emptied the
// channel or takes from it.
func (l *link) refill(ctx context.Context, q queueReader) error {
	for _, c := range l.channels {
		lack := min(-c.surplus(time.Now()), refillMost)
		switch {
		case lack <= 0:
			c.short, c.refilledTo, c.gone = 0, 0, 0
			continue
		case c.topic == topiclog.FixityTopic:
			if err := l.refillChecks(ctx, q, c, lack); err != nil {
				return err
			}
			continue
		case c.short < 2:
			continue // the next look may find them
		}
		ids, err := q.live(ctx, c.topic, c.refilledTo, lack)
		if err != nil {
			return err
		}
		if len(ids) == 0 { // there are not as many ids as messages
			c.short, c.refilledTo = 0, 0
			continue
		}
		if err := l.again(ctx, c, ids); err != nil {
			return err
		}
		c.refilledTo = ids[len(ids)-1]
	}
	return nil
}

// refillChecks publishes the files whose check is due and allowed: no log tells of
// these before they are claimed.
func (l *link) refillChecks(ctx context.Context, q queueReader, c *channel, lack int64) error {
	ids, err := q.checked(ctx, l.m.o.FixityDays)
	if err != nil {
		return err
	}
	unsaid := c.unsaid(ids)
	switch {
	case len(unsaid) > 0:
		return l.publish(ctx, c, unsaid[:min(len(unsaid), int(lack))])
	case c.short < 2 || len(ids) == 0:
		return nil
	}
	clear(c.said) // they are there no more
	return l.again(ctx, c, ids[:min(len(ids), int(lack))])
}

// unsaid forgets the files that are neither checked nor due any more, and returns
// those that no message tells of.
func (e *echo) unsaid(ids []int64) (list []int64) {
	said := make(map[string]bool, len(ids))
	for _, id := range ids {
		body := strconv.FormatInt(id, 10)
		if ahead, ok := e.said[body]; ok {
			said[body] = ahead
		} else {
			list = append(list, id)
		}
	}
	e.said = said
	return list
}

// announce publishes what the log tells. That the check of a file begins is known
// already where the file was published when it came due.
func (m *Mirror) announce(ctx context.Context, topic string, bodies [][]byte) error {
	if topic != topiclog.FixityTopic || m.link == nil {
		return m.send(ctx, topic, bodies)
	}
	e := m.echo(topic)
	var rest [][]byte
	for _, b := range bodies {
		if !e.said[string(b)] {
			rest = append(rest, b)
		}
	}
	if len(rest) > 0 {
		if err := m.send(ctx, topic, rest); err != nil {
			return err
		}
	}
	for _, b := range bodies {
		e.said[string(b)] = false
	}
	return nil
}

// again publishes what nsqd has had before, and answers the person who emptied it.
func (l *link) again(ctx context.Context, c *channel, ids []int64) error {
	l.m.o.Log.WarnContext(ctx, "messages are missing in nsqd, publishing them again", "topic", c.topic, "messages", len(ids))
	if err := l.publish(ctx, c, ids); err != nil {
		return err
	}
	if c.gone == 0 || time.Since(c.emptiedAt) < emptiedEvery {
		return nil
	}
	err := l.m.change(ctx, "record that a topic was emptied", `
		INSERT INTO topic_requests (topic, message, body, accepted, answer) VALUES ($1, $2, 'empty', false, $3)`,
		c.topic, rand.Text(), fmt.Sprintf("%d messages were taken out of nsqd, by emptying or by another consumer of %s: nothing in Farol was changed, and they are published again. "+
			"farol item cancel ends an item, farol pause holds a stage up", c.gone, c.topic+channelSuffix))
	if err == nil {
		c.gone, c.emptiedAt = 0, time.Now()
	}
	return err
}

// publish publishes ids, and notes those of files as known.
func (l *link) publish(ctx context.Context, c *channel, ids []int64) error {
	for len(ids) > 0 {
		n := min(len(ids), l.m.o.Batch)
		bodies := make([][]byte, n)
		for i, id := range ids[:n] {
			bodies[i] = strconv.AppendInt(nil, id, 10)
		}
		if err := l.m.send(ctx, c.topic, bodies); err != nil {
			return broken(err)
		}
		for i := 0; c.topic == topiclog.FixityTopic && i < n; i++ {
			c.said[string(bodies[i])] = true
		}
		ids = ids[n:]
	}
	return nil
}
