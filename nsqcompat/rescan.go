package nsqcompat

import (
	"time"

	"github.com/nsqio/go-nsq"
)

const (
	// rescanIdle is how long nothing new may come until a rescan ends that has received
	// as many messages as there were, and rescanStall if it has not.
	rescanIdle  = 300 * time.Millisecond
	rescanStall = 2 * time.Second
	// retryAnswer is when a request is delivered again that the database could not
	// answer.
	retryAnswer = 2 * time.Second
)

// rescan finds foreign messages that lie behind ours: all messages of the channel are
// received, and ours are given back. That disturbs the figures for a moment, so it is
// done only when nsqd has more messages than we account for, and only until as many
// foreign ones are found.
type rescan struct {
	foreign    map[nsq.MessageID]foreignMessage // that are not finished yet
	excess     int64                            // messages in nsqd that we do not account for
	rescanning bool
	number     int // of the rescan
	began      time.Time
	lastNew    time.Time // when it last received a message for the first time
	behind     int64     // messages to receive at its begin, less those that it has received
	sentBefore int64     // own messages published before its begin
	depth      int64     // of the channel, at the last comparison
}

// foreignMessage is a message of someone else.
type foreignMessage struct {
	answering bool      // it is in flight to us
	comesAt   time.Time // when it is delivered again, otherwise
}

// countAnswering is how many foreign messages are in flight to us.
func (s *rescan) countAnswering() (n int) {
	for _, m := range s.foreign {
		if m.answering {
			n++
		}
	}
	return n
}

// remaining is how many messages the rescan has not received.
func (c *channel) remaining() int64 { return c.behind + c.sent - c.sentBefore }

// rescanIfNeeded begins a rescan, or ends it.
func (c *channel) rescanIfNeeded(now time.Time, open bool) {
	switch {
	case c.rescanning:
		c.endRescan(now)
	case c.excess > 0 && open:
		c.rescanning, c.began, c.lastNew, c.behind, c.sentBefore = true, now, now, c.depth, c.sent
		c.number++
		for id := range c.held {
			c.received[id] = c.number
		}
	}
}

// endRescan ends a rescan that has found all foreign messages, or received everything.
// A surplus that is left is our own, such as a message whose FIN got lost: it is added
// to the account, so that it is not looked for again.
func (c *channel) endRescan(now time.Time) {
	idle := now.Sub(c.lastNew)
	switch {
	case c.excess <= 0:
	case c.remaining() <= 0 && idle >= rescanIdle:
		if c.published.Before(c.began.Add(-compareEvery)) { // we wait for none of ours
			clear(c.unreceived)
			c.unreceivedOld = 0
		}
		c.inChannel += c.excess
	case idle >= rescanStall: // what was not received is of unknown origin
		c.inChannel += c.excess
		c.unreceivedOld += c.excess
		c.oldBefore = c.certainSince
		if c.statsAt.After(c.oldBefore) {
			c.oldBefore = c.statsAt
		}
	default:
		return
	}
	c.rescanning, c.excess, c.off = false, 0, 0
}

// rescanned notes a message that came during a rescan.
func (c *channel) rescanned(d *delivery, o origin, now time.Time) {
	if last, had := c.received[d.id]; c.rescanning && (o == originForeign || !had || last != c.number) {
		c.behind--
		c.lastNew = now
	}
}

// full reports that a rescan holds as many messages as nsqd allows, so that it goes on
// in another round.
func (c *channel) full() bool { return len(c.held)+c.countAnswering() >= c.worker.maxReady }

// addForeign notes a foreign message, and reports whether it is to be answered: not if
// it has timed out and was delivered again while it is being answered.
func (c *channel) addForeign(id nsq.MessageID) (answer bool) {
	m, known := c.foreign[id]
	if !known {
		c.excess = max(0, c.excess-1)
	}
	c.foreign[id] = foreignMessage{answering: true}
	return !m.answering
}

// endForeign finishes a foreign message that was answered, or has it delivered again.
func (c *channel) endForeign(id nsq.MessageID, answered bool, now time.Time) error {
	if !answered {
		c.foreign[id] = foreignMessage{comesAt: now.Add(retryAnswer)}
		return c.worker.requeue(id, retryAnswer)
	}
	delete(c.foreign, id)
	c.finished++
	return c.worker.finish(id)
}

// dropOverdue drops foreign messages that should have been delivered again: if they are
// behind ours, a rescan finds them.
func (c *channel) dropOverdue(now time.Time) {
	for id, m := range c.foreign {
		if !m.answering && now.Sub(m.comesAt) > clockSkew {
			delete(c.foreign, id)
		}
	}
}
