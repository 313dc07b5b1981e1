package nsqcompat

import (
	"container/list"
	"maps"
	"slices"
	"time"

	"github.com/nsqio/go-nsq"
)

const (
	// recheckAfter is for how long a message is deferred whose item waits for another:
	// nsqd gives back none before its time.
	recheckAfter = 5 * time.Second
	// maxDefer is as long as nsqd defers a message by default.
	maxDefer = time.Hour
	// clockSkew is by how much the clocks of nsqd, the database and this host may differ.
	clockSkew = time.Second
	// extraInFlight bounds how many messages more than items run are in flight for a
	// moment, while others are finished or deferred.
	extraInFlight = 100
	// maxRetries bounds the retries that nsqd does not show yet.
	maxRetries = 10_000
)

// channel makes nsqd's figures of one topic's channel those of the registry. Only
// numbers count: which message is finished or deferred for which item makes no
// difference to the figures. nsqd itself keeps as many in flight as RDY says.
type channel struct {
	*ownMessages
	rescan

	topic    string
	worker   *consumer
	is       counts // what the registry has
	held     map[nsq.MessageID]*list.Element
	order    *list.List // of *heldMessage, as they came
	ready    int
	finished int64 // by this connection
	deferred []deferral
	retries  []time.Duration // that nsqd does not show yet
	missing  []time.Duration // when items are due for which no message is deferred
	orphans  int64           // in flight to another connection, such as our last one

	// What the last comparison with nsqd has found.
	off         int64     // difference to our account
	offDeferred int64     // the same, of deferred messages
	quiet       bool      // there was no message that we had not received
	drift       int64     // difference to the registry
	statsAt     time.Time // when it was, by nsqd's clock

	short      int       // comparisons since messages have been missing
	refilledTo int64     // last id that was published again
	gone       int64     // own messages taken out of nsqd since that was last recorded
	emptiedAt  time.Time // when it was
	pauseOrder string    // id of the order from NSQ that is being carried out; "": none
	attached   time.Time
	rejoined   bool // it was attached before while this mirror led
	touchedAt  time.Time
}

// heldMessage is a message in flight to us.
type heldMessage struct {
	id        nsq.MessageID
	delivered time.Time
}

// deferral is when a deferred message comes back.
type deferral struct {
	at   time.Time
	wait bool // its item waits for another, not for that time
}

func newChannel(topic string, e *ownMessages) *channel {
	return &channel{
		ownMessages: e, rescan: rescan{foreign: map[nsq.MessageID]foreignMessage{}}, topic: topic, attached: time.Now(),
		held: map[nsq.MessageID]*list.Element{}, order: list.New(), ready: -1,
	}
}

// take notes a message in flight, and reports whether it is a request that the database
// has to answer.
func (c *channel) take(d *delivery, now time.Time) (o origin, answer bool) {
	c.drop(d.id) // it timed out and was delivered again
	o = c.originOf(d)
	c.rescanned(d, o, now)
	if o == originForeign {
		return o, c.addForeign(d.id)
	}
	c.received[d.id] = c.number
	c.held[d.id] = c.order.PushBack(&heldMessage{id: d.id, delivered: now})
	return o, o == originUnknown
}

func (c *channel) drop(id nsq.MessageID) bool {
	e, ok := c.held[id]
	if ok {
		c.order.Remove(e)
		delete(c.held, id)
	}
	return ok
}

// refused notes that nsqd refused a command for a message, which is no longer in
// flight.
func (c *channel) refused(command string, id nsq.MessageID) {
	c.drop(id)
	if command == "FIN" {
		c.finished--
	}
	switch s, known := c.foreign[id]; {
	case c.endedForeign.has(id) && known && !s.answering: // it timed out before it was given back
		delete(c.foreign, id)
	case c.endedForeign.has(id):
	case command == "FIN":
		c.inChannel++
	}
}

// running is how many messages are to be in flight.
func (c *channel) running() int { return int(min(c.is.Running, int64(c.worker.maxReady))) }

// staleDeferrals counts messages that are deferred although their items no longer are.
// They count neither as missing nor as surplus until they come back.
func (c *channel) staleDeferrals(now time.Time) int64 {
	var far int64
	for _, d := range c.deferred {
		if !d.wait && d.at.Sub(now) > recheckAfter {
			far++
		}
	}
	return max(0, far-c.is.Later)
}

// surplus is how many messages there are too many; negative, how many are missing.
func (c *channel) surplus(now time.Time) int64 {
	return c.inChannel - c.staleDeferrals(now) - c.is.expected()
}

// count takes over what the registry has.
func (c *channel) count(is counts, now time.Time) {
	c.is = is
	// A retry whose item has been claimed again is not deferred.
	left := is.Later
	for _, d := range c.deferred {
		if !d.wait && d.at.Sub(now) > clockSkew/5 {
			left--
		}
	}
	for i, d := range c.retries {
		if d > 0 {
			if left <= 0 {
				c.retries[i] = 0
			}
			left--
		}
	}
}

func (c *channel) countDeferred(wait bool) (n int64) {
	for _, d := range c.deferred {
		if d.wait == wait {
			n++
		}
	}
	return n
}

func (c *channel) countDelayed() (n int64) {
	for _, d := range c.retries {
		if d > 0 {
			n++
		}
	}
	return n
}

// undeferred is how many items wait for a time without a deferred message.
func (c *channel) undeferred() int64 {
	return c.is.Far - c.countDeferred(false) - c.countDelayed() - c.is.Unshown
}

// matchDue takes the times at which items are due, soonest first, and finds those for
// which no message is deferred.
func (c *channel) matchDue(due []time.Duration, now time.Time) {
	var have []time.Duration
	for _, d := range c.deferred {
		if !d.wait {
			have = append(have, d.at.Sub(now))
		}
	}
	have = append(have, c.retries...)
	slices.Sort(have)
	c.missing = c.missing[:0]
	i, most := 0, c.undeferred()
	for _, d := range due {
		want := min(d, maxDefer)
		for i < len(have) && have[i] < want-2*clockSkew {
			i++
		}
		if i < len(have) && have[i] <= want+2*clockSkew {
			i++
		} else if int64(len(c.missing)) < most {
			c.missing = append(c.missing, want)
		}
	}
}

// expire drops deferred messages that have come back, and messages in flight whose
// timeout nsqd no longer extends.
func (c *channel) expire(now time.Time) {
	c.dropOverdue(now)
	c.deferred = slices.DeleteFunc(c.deferred, func(d deferral) bool {
		if d.wait {
			return !now.Before(d.at)
		}
		return now.Sub(d.at) > clockSkew
	})
	for e := c.order.Front(); e != nil; e = c.order.Front() {
		h, ok := e.Value.(*heldMessage)
		if ok && now.Sub(h.delivered) < c.worker.maxMsgTimeout+clockSkew {
			return
		}
		c.order.Remove(e)
		if ok {
			delete(c.held, h.id)
		}
	}
}

// correct corrects our account by nsqd's figures. Messages that are in nsqd only may be
// foreign, and have to be received first.
func (c *channel) correct(t topicStats, worker channelStats, us clientStats) {
	// Without the messages whose FIN nsqd has not processed yet.
	there := t.Depth + worker.messages() - (c.finished - us.Finished) - int64(len(c.foreign))
	if off := there - c.inChannel; off > 0 {
		c.excess, c.off = max(0, min(c.off, off)), off
	} else {
		c.excess = 0
		had := c.inChannel
		c.off, c.inChannel = lasting(c.off, off, c.inChannel)
		if !c.rejoined || time.Since(c.attached) > settlesIn { // nsqd may have lost some by itself
			c.gone += had - c.inChannel
		}
	}
	c.orphans, c.depth = max(0, worker.InFlight-us.InFlight), worker.Depth
	if !t.Paused {
		c.depth += t.Depth
	}
	answering := c.countAnswering()
	had := int64(len(c.deferred))
	var have int64
	c.offDeferred, have = lasting(c.offDeferred, worker.Deferred-int64(len(c.foreign)-answering)-had, had)
	if have = max(have, 0); have < had { // a deferred message of another publisher may be back
		slices.SortFunc(c.deferred, func(a, b deferral) int { return a.at.Compare(b.at) })
		c.deferred = c.deferred[had-have:]
	}
	for ; have > had; had++ {
		c.deferred = append(c.deferred, deferral{at: time.Now().Add(maxDefer)})
	}
	if c.surplus(time.Now()) < 0 {
		c.short++
	}
	// Everything there was received: messages that we still wait for will never come.
	quiet := t.Depth+worker.messages() == int64(len(c.held)+answering)
	if quiet && c.quiet && time.Since(c.published) > 2*compareEvery {
		clear(c.unreceived)
		maps.DeleteFunc(c.received, func(id nsq.MessageID, _ int) bool { return c.held[id] == nil })
		c.unreceivedOld = 0
	}
	c.quiet = quiet
}

// reachable reports whether all messages can be received: none waits for the end of a
// pause, or for its timeout at a connection that is gone.
func (c *channel) reachable(t topicStats, worker channelStats) bool {
	return !t.Paused && !worker.Paused && (c.orphans == 0 || time.Since(c.attached) > 2*c.worker.msgTimeout)
}
