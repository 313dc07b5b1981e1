package nsqcompat

import (
	"time"

	"github.com/nsqio/go-nsq"
)

const (
	// seenMost is how many messages are remembered after they were finished, far
	// more than may be on their way.
	seenMost = 4096
	// ownMost bounds the messages of a topic that are told from others'.
	ownMost = 1_000_000
)

// origin is whose a message is.
type origin int

const (
	ours   origin = iota
	unsure        // an old message of a mirror before us, or somebody else's
	alien         // surely somebody else's
)

// echo keeps the books of our own messages on a topic, and tells them from those of
// others. It lasts as long as we lead, whatever becomes of connections.
type echo struct {
	own         map[string]int        // bodies that we have published and not received yet
	published   time.Time             // when that was last
	unanswered  bool                  // nsqd has not said whether it took the last ones
	mine        map[nsq.MessageID]int // messages in the channel that we have received, and in which sweep last
	said        map[string]bool       // of fixity checks: bodies that are there, and whether the log is still to tell of them
	seen, asked ring                  // our own that were finished, and others': either may come again

	actual  int64     // messages of ours that are in the channel by our books
	unknown int64     // of these: they were there before us and have not been received
	base    time.Time // before which those were published, by nsqd's clock

	// What was published before may be an old message of a mirror before us, unless
	// none can be left. We have published nothing before it that is in own.
	since time.Time
	sure  bool
}

func newEcho() *echo {
	return &echo{own: map[string]int{}, mine: map[nsq.MessageID]int{}, said: map[string]bool{}, seen: newRing(seenMost), asked: newRing(seenMost)}
}

// leftover is what a mirror before us has left in order.
type leftover struct {
	at       time.Time // by nsqd's clock, after it had published the last; zero: it left nothing
	messages int64
}

// begin takes stock of a topic that has so many messages, and returns how long
// nothing must be published: until nsqd's clock, of which we know the second, tells
// our messages from older ones. Nil says that nobody has ended in order.
func (e *echo) begin(now time.Time, total int64, fresh bool, left *leftover) (hush time.Duration) {
	switch {
	case !e.since.IsZero(): // connected again: what is too much is sought
		e.actual = min(e.actual, total)
		e.unknown = min(e.unknown, e.actual)
		return 0
	case fresh || total == 0 || left != nil && left.at.IsZero():
		e.sure, e.since = true, now.Add(time.Second)
		e.actual = min(e.actual, total)
		return 0
	case left != nil:
		e.since, e.base = left.at, now.Add(time.Second)
		e.unknown = min(total, left.messages)
		e.actual = min(total, e.actual+left.messages)
	default:
		e.doubt(now)
		e.unknown, e.actual = total, total
	}
	return e.since.Sub(now)
}

// doubt makes a new beginning: what was published until now may be anybody's.
func (e *echo) doubt(now time.Time) {
	clear(e.own)
	e.sure, e.since, e.base = false, now.Add(time.Second), now.Add(time.Second)
}

// lost is told that nsqd has none of our messages any more.
func (e *echo) lost() {
	clear(e.own)
	clear(e.mine)
	clear(e.said)
	e.actual, e.unknown = 0, 0
}

// leaves says what the next mirror can rely on, if anything. The time is nsqd's, to
// the second, of a moment that was asked for.
func (e *echo) leaves(now, asked time.Time) (left leftover, ok bool) {
	switch {
	case e.unanswered || e.since.IsZero(): // it may take them yet
		return left, false
	case len(e.own)+len(e.mine) == 0 && e.actual == 0:
		return left, true
	case e.published.IsZero():
		return leftover{at: e.since, messages: e.actual}, true
	}
	return leftover{at: now.Add(time.Second - asked.Sub(e.published)), messages: e.actual}, true
}

// publishing notes bodies that are about to be published. Those that nsqd did not
// get are taken back.
func (e *echo) publishing(bodies [][]byte, n int) {
	if len(e.own) > ownMost || len(e.mine) > ownMost {
		clear(e.own)
		clear(e.mine)
		e.sure, e.since = false, time.Time{} // the next look begins anew
	}
	for _, b := range bodies {
		if body := string(b); e.own[body]+n > 0 {
			e.own[body] += n
		} else {
			delete(e.own, body)
		}
	}
}

// isOwn tells whether we have published a message, and not received it yet.
func (e *echo) isOwn(body string) bool {
	n := e.own[body]
	if n == 0 {
		return false
	}
	if e.own[body] = n - 1; n == 1 {
		delete(e.own, body)
	}
	return true
}

// judge tells whose a message is that was received. An old one never takes the
// place of one that we have published with the same body: that would be taken for
// somebody else's then.
func (e *echo) judge(d *delivery) origin {
	_, had := e.mine[d.id]
	later := !e.since.IsZero() && !d.at.Before(e.since)
	switch {
	case had, e.seen.has(d.id):
		return ours
	case e.asked.has(d.id):
		return alien
	case (e.sure || later) && d.size <= bodyMost && e.isOwn(d.body):
		return ours
	case e.sure && d.attempts <= 1, later:
		e.asked.add(d.id) // it may come again
		if e.unknown > 0 && d.at.Before(e.base) {
			e.unknown--
			e.actual--
		}
		return alien
	}
	e.unknown = max(0, e.unknown-1)
	return unsure
}

// ring remembers the last messages that were received and finished, since one
// whose FIN got lost comes again.
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
