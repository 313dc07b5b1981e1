package nsqcompat

import (
	"time"

	"github.com/nsqio/go-nsq"
)

const (
	// seenMost is how many messages of the tap are remembered, far more than may be
	// on their way.
	seenMost = 4096
	// ownMost bounds how many messages may be on their way to the tap.
	ownMost = 1_000_000
)

// echo tells messages of our own that come by the tap from those of others. It
// lasts as long as we lead, whatever becomes of connections.
type echo struct {
	own         map[string]int // bodies that we have published and not seen yet
	published   time.Time      // when that was last
	seen, asked ring           // messages that the tap has had: our own, and others

	// What is neither may be an old message of a mirror before us, unless it was
	// published since, or none can be left: both by nsqd's clock.
	since time.Time
	sure  bool
}

func newEcho() *echo {
	return &echo{own: map[string]int{}, seen: newRing(seenMost), asked: newRing(seenMost)}
}

// publishing notes bodies that are about to be published. Those that nsqd then
// refuses are taken back.
func (e *echo) publishing(bodies [][]byte, n int, now time.Time) {
	e.published = now
	if len(e.own) > ownMost { // nobody has read the tap for long
		clear(e.own)
		e.sure, e.since = false, time.Time{}
	}
	for _, b := range bodies {
		if body := string(b); e.own[body]+n > 0 {
			e.own[body] += n
		} else {
			delete(e.own, body)
		}
	}
}

// isOwn tells whether we have published a message that came by the tap, and not
// seen it yet.
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

// judge tells whether a message that came by the tap is our own, and otherwise
// whether it is surely of somebody else.
func (e *echo) judge(d *delivery) (own, sure bool) {
	switch {
	case e.seen.has(d.id), d.size <= bodyMost && e.isOwn(d.body):
		e.seen.add(d.id)
		return true, false
	case e.asked.has(d.id), e.sure && d.attempts <= 1, !e.since.IsZero() && !d.at.Before(e.since):
		e.asked.add(d.id) // it may come again
		return false, true
	}
	return false, false
}

// ring remembers the last messages that came by the tap, since one whose FIN got
// lost comes again.
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
