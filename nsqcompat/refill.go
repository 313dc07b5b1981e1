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
	// maxRefill bounds what is published again at once.
	maxRefill = 5000
	// emptiedEvery is how often at most it is recorded that a topic was emptied: another
	// consumer of our channel takes messages all the time.
	emptiedEvery = time.Minute
	// settlesIn is how long a channel that was connected again may lack what nsqd itself
	// has lost, such as in a crash.
	settlesIn = 3 * compareEvery
)

// refill publishes messages again that the channel lacks, because nsqd was wiped, or
// someone emptied the channel or consumes it. Every other channel of the topic gets
// these messages once more.
func (l *link) refill(ctx context.Context, q queueReader) error {
	for _, c := range l.channels {
		lack := min(-c.surplus(time.Now()), maxRefill)
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
			continue // the next comparison may find them
		}
		ids, err := q.live(ctx, c.topic, c.refilledTo, lack)
		if err != nil {
			return err
		}
		if len(ids) == 0 { // there are not as many ids as messages
			c.short, c.refilledTo = 0, 0
			continue
		}
		if err := l.republish(ctx, c, ids); err != nil {
			return err
		}
		c.refilledTo = ids[len(ids)-1]
	}
	return nil
}

// refillChecks publishes the files whose check is due and allowed: the log announces
// these only when they are claimed.
func (l *link) refillChecks(ctx context.Context, q queueReader, c *channel, lack int64) error {
	ids, err := q.checked(ctx, l.o.FixityDays)
	if err != nil {
		return err
	}
	unannounced := c.unannounced(ids)
	switch {
	case len(unannounced) > 0:
		return l.publish(ctx, c, unannounced[:min(len(unannounced), int(lack))])
	case c.short < 2 || len(ids) == 0:
		return nil
	}
	clear(c.announced) // their messages are gone
	return l.republish(ctx, c, ids[:min(len(ids), int(lack))])
}

// republish publishes what nsqd has had before, and records an answer for anyone who
// emptied it.
func (l *link) republish(ctx context.Context, c *channel, ids []int64) error {
	l.o.Log.WarnContext(ctx, "messages are missing in nsqd; publishing them again", "topic", c.topic, "messages", len(ids))
	if err := l.publish(ctx, c, ids); err != nil {
		return err
	}
	if c.gone == 0 || time.Since(c.emptiedAt) < emptiedEvery {
		return nil
	}
	err := l.o.records.change(ctx, "record that a topic was emptied", recordRequestSQL, c.topic, rand.Text(), "empty", false,
		fmt.Sprintf("%d messages were taken out of nsqd, by emptying or by another consumer of %s: nothing was changed in Farol, and they are published again. "+
			"An item is ended, and a stage is paused, in Farol", c.gone, c.topic+channelSuffix))
	if err == nil {
		c.gone, c.emptiedAt = 0, time.Now()
	}
	return err
}

// publish publishes ids, and notes those of files as announced.
func (l *link) publish(ctx context.Context, c *channel, ids []int64) error {
	for len(ids) > 0 {
		n := min(len(ids), l.o.Batch)
		bodies := make([][]byte, n)
		for i, id := range ids[:n] {
			bodies[i] = strconv.AppendInt(nil, id, 10)
		}
		if err := l.o.out.send(ctx, c.topic, bodies); err != nil {
			return ofNSQD(err)
		}
		for i := 0; c.topic == topiclog.FixityTopic && i < n; i++ {
			c.announced[string(bodies[i])] = true
		}
		ids = ids[n:]
	}
	return nil
}
