package nsqcompat

import (
	"time"

	"github.com/nsqio/go-nsq"
)

const (
	// sweepRest is how long nothing new may come until a sweep is over that has
	// received as much as lay there, and sweepStall if it has not.
	sweepRest  = 300 * time.Millisecond
	sweepStall = 2 * time.Second
	// askAgain is when a request comes again that the database could not answer.
	askAgain = 2 * time.Second
)

// sweep is how messages of others are found that lie behind ours: all that lies in
// the channel is received, and what is our own is given back. That spoils the
// figures for a moment, so it is done only when nsqd has more messages than our
// books, and only until as many of others' are found.
type sweep struct {
	strangers map[nsq.MessageID]stranger
	excess    int64 // messages that nsqd has and our books have not
	sweeping  bool
	number    int // of the sweep
	began     time.Time
	news      time.Time // when it last received what it had not had
	left      int64     // messages that it has not had
	depth     int64     // of the channel, at the last look
}

// stranger is a message of somebody else that is not finished yet.
type stranger struct {
	asks  bool      // it is in flight to us, and being answered
	again time.Time // when it comes again, otherwise
}

// asking is how many messages of others are in flight to us.
func (s *sweep) asking() (n int) {
	for _, s := range s.strangers {
		if s.asks {
			n++
		}
	}
	return n
}

// seek begins a sweep, or goes on with it, or ends it.
func (c *channel) seek(now time.Time, open bool) {
	switch {
	case c.sweeping:
		c.endSweep(now)
	case c.excess > 0 && open:
		c.sweeping, c.began, c.news, c.left = true, now, now, c.depth
		c.number++
		for id := range c.held {
			c.mine[id] = c.number
		}
	}
}

// endSweep ends one that has found what it sought, or has seen everything. What is
// left over then is our own, such as a message whose FIN got lost: it is taken into
// the books, so that nobody seeks it again.
func (c *channel) endSweep(now time.Time) {
	idle := now.Sub(c.news)
	switch {
	case c.excess <= 0:
	case c.left <= 0 && idle >= sweepRest:
		if c.published.Before(c.began.Add(-lookEvery)) { // none is left that we are waiting for
			clear(c.own)
			c.unknown = 0
		}
		c.actual += c.excess
	case idle >= sweepStall: // what was not seen may still be anybody's
		c.actual += c.excess
		c.unknown += c.excess
		c.base = c.since
		if c.lookedAt.After(c.base) {
			c.base = c.lookedAt
		}
	default:
		return
	}
	c.sweeping, c.excess, c.off = false, 0, 0
}

// swept notes what a sweep has received.
func (c *channel) swept(d *delivery, o origin, now time.Time) {
	if last, had := c.mine[d.id]; c.sweeping && (o == alien || !had || last != c.number) {
		c.left--
		c.news = now
	}
}

// full says that a sweep has as many messages in hand as nsqd lets it, so that it
// goes on in another round.
func (c *channel) full() bool { return len(c.held)+c.asking() >= c.worker.maxReady }

// meet notes a message of somebody else, and tells whether it is to be answered:
// not if it has timed out and come again meanwhile.
func (c *channel) meet(id nsq.MessageID) (asks bool) {
	s, known := c.strangers[id]
	if !known {
		c.excess = max(0, c.excess-1)
	}
	c.strangers[id] = stranger{asks: true}
	return !s.asks
}

// answered finishes a message of somebody else, or has it come again.
func (c *channel) answered(id nsq.MessageID, ok bool, now time.Time) error {
	if !ok {
		c.strangers[id] = stranger{again: now.Add(askAgain)}
		return c.worker.requeue(id, askAgain)
	}
	delete(c.strangers, id)
	c.finished++
	return c.worker.finish(id)
}

// missed drops messages of others that should have come again: behind ours they
// are sought as they were at first.
func (c *channel) missed(now time.Time) {
	for id, s := range c.strangers {
		if !s.asks && now.Sub(s.again) > clocks {
			delete(c.strangers, id)
		}
	}
}
