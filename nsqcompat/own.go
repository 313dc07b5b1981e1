package nsqcompat

import (
	"strconv"
	"time"

	"github.com/nsqio/go-nsq"
)

const (
	// maxEnded is how many messages are remembered after they were finished, far more
	// than may be under way.
	maxEnded = 4096
	// maxOwn bounds the messages of a topic that are distinguished from foreign ones.
	maxOwn = 1_000_000
)

// origin says who published a message.
type origin int

const (
	originOwn     origin = iota
	originUnknown        // an earlier mirror, or someone else
	originForeign        // someone else
)

// ownMessages keeps account of our own messages on a topic, and distinguishes them from
// foreign ones. It lasts as long as this mirror leads, over all connections.
type ownMessages struct {
	unreceived map[string]int        // bodies that were published and not received yet
	published  time.Time             // the last of them
	unanswered bool                  // nsqd has not said whether it took the last ones
	sent       int64                 // messages published so far
	received   map[nsq.MessageID]int // messages in the channel that were received, and in which rescan last
	announced  map[string]bool       // of fixity checks: bodies that are there, and whether the log will announce them, too

	endedOwn, endedForeign ring // either may be delivered again

	inChannel     int64     // own messages in the channel, by this account
	unreceivedOld int64     // of these, messages of an earlier mirror that were not received yet
	oldBefore     time.Time // when those were published at the latest, by nsqd's clock

	// A message that was published before certainSince may be one of an earlier mirror,
	// unless clean: none of those is left.
	certainSince time.Time
	clean        bool
}

func newOwnMessages() *ownMessages {
	return &ownMessages{
		unreceived: map[string]int{}, received: map[nsq.MessageID]int{}, announced: map[string]bool{},
		endedOwn: newRing(maxEnded), endedForeign: newRing(maxEnded),
	}
}

// handover is what an earlier mirror left that ended in order.
type handover struct {
	at       time.Time // by nsqd's clock, after the last message; zero: nothing was left
	messages int64
}

// begin takes stock of a topic with so many messages, and returns for how long nothing
// may be published: until nsqd's clock, whose seconds alone are known, distinguishes
// our messages from older ones. left is nil if no earlier mirror ended in order.
func (e *ownMessages) begin(now time.Time, total int64, fresh bool, left *handover) (quietTime time.Duration) {
	switch {
	case !e.certainSince.IsZero(): // connected again: a surplus is looked for later
		e.inChannel = min(e.inChannel, total)
		e.unreceivedOld = min(e.unreceivedOld, e.inChannel)
		return 0
	case fresh || total == 0 || left != nil && left.at.IsZero():
		e.clean, e.certainSince = true, now.Add(time.Second)
		e.inChannel = min(e.inChannel, total)
		return 0
	case left != nil:
		e.certainSince, e.oldBefore = left.at, now.Add(time.Second)
		e.unreceivedOld = min(total, left.messages)
		e.inChannel = min(total, e.inChannel+left.messages)
	default:
		e.distrust(now)
		e.unreceivedOld, e.inChannel = total, total
	}
	return e.certainSince.Sub(now)
}

// distrust treats all messages published until now as of unknown origin.
func (e *ownMessages) distrust(now time.Time) {
	clear(e.unreceived)
	e.clean, e.certainSince, e.oldBefore = false, now.Add(time.Second), now.Add(time.Second)
}

// reset accounts for an nsqd that has lost all of our messages.
func (e *ownMessages) reset() {
	clear(e.unreceived)
	clear(e.received)
	clear(e.announced)
	e.inChannel, e.unreceivedOld = 0, 0
}

// handOver returns what the next mirror can rely on, if anything. now is nsqd's clock,
// to the second, at the moment asked.
func (e *ownMessages) handOver(now, asked time.Time) (left handover, ok bool) {
	switch {
	case e.unanswered || e.certainSince.IsZero(): // nsqd may take messages yet
		return left, false
	case len(e.unreceived)+len(e.received) == 0 && e.inChannel == 0:
		return left, true
	case e.published.IsZero():
		return handover{at: e.certainSince, messages: e.inChannel}, true
	}
	return handover{at: now.Add(time.Second - asked.Sub(e.published)), messages: e.inChannel}, true
}

// publishing notes n of each body: 1 before it is published, -1 if nsqd did not get it.
func (e *ownMessages) publishing(bodies [][]byte, n int) {
	if len(e.unreceived) > maxOwn || len(e.received) > maxOwn {
		clear(e.unreceived)
		clear(e.received)
		e.clean, e.certainSince = false, time.Time{} // the next comparison begins again
	}
	for _, b := range bodies {
		if body := string(b); e.unreceived[body]+n > 0 {
			e.unreceived[body] += n
		} else {
			delete(e.unreceived, body)
		}
	}
}

// takeUnreceived reports whether a body was published and not received yet; it counts
// as received then.
func (e *ownMessages) takeUnreceived(body string) bool {
	n := e.unreceived[body]
	if n == 0 {
		return false
	}
	if e.unreceived[body] = n - 1; n == 1 {
		delete(e.unreceived, body)
	}
	return true
}

// originOf finds out who published a message that was received. An old message never
// takes the place of one that we have published with the same body: that one would
// be taken for a foreign one then.
func (e *ownMessages) originOf(d *delivery) origin {
	_, had := e.received[d.id]
	later := !e.certainSince.IsZero() && !d.at.Before(e.certainSince)
	switch {
	case had, e.endedOwn.has(d.id):
		return originOwn
	case e.endedForeign.has(d.id):
		return originForeign
	case (e.clean || later) && d.size <= maxKept && e.takeUnreceived(d.body):
		return originOwn
	case e.clean && d.attempts <= 1, later:
		e.endedForeign.add(d.id) // it may come again
		if e.unreceivedOld > 0 && d.at.Before(e.oldBefore) {
			e.unreceivedOld--
			e.inChannel--
		}
		return originForeign
	}
	e.unreceivedOld = max(0, e.unreceivedOld-1)
	return originUnknown
}

// unannounced forgets the files that are neither checked nor due any more, and returns
// those that no message announces.
func (e *ownMessages) unannounced(ids []int64) (list []int64) {
	announced := make(map[string]bool, len(ids))
	for _, id := range ids {
		body := strconv.FormatInt(id, 10)
		if ahead, ok := e.announced[body]; ok {
			announced[body] = ahead
		} else {
			list = append(list, id)
		}
	}
	e.announced = announced
	return list
}

// ring remembers the last messages that were received and finished: one whose FIN got
// lost is delivered again.
type ring struct {
	known map[nsq.MessageID]bool
	last  []nsq.MessageID
	next  int
}

func newRing(n int) ring {
	return ring{known: map[nsq.MessageID]bool{}, last: make([]nsq.MessageID, n)}
}

func (r *ring) has(id nsq.MessageID) bool { return r.known[id] }

func (r *ring) add(id nsq.MessageID) {
	if r.known[id] {
		return
	}
	delete(r.known, r.last[r.next])
	r.known[id], r.last[r.next] = true, id
	r.next = (r.next + 1) % len(r.last)
}
