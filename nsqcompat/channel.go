package nsqcompat

import (
	"container/list"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nsqio/go-nsq"
)

const (
	// recheck is for how long a message is deferred whose item waits for another:
	// nsqd gives back none before its time.
	recheck = 5 * time.Second
	// deferMost is as long as nsqd defers a message, unless it is told otherwise.
	deferMost = time.Hour
	// clocks is by how much nsqd, the database and we may differ about when an
	// item is due.
	clocks = time.Second
	// handful bounds how many messages more than run are in flight for a moment,
	// while others are finished or deferred.
	handful = 100
	// retriesMost bounds the retries that nsqd is still to be told of.
	retriesMost = 10_000
)

// channel makes nsqd's figures of one topic's channel those of the registry. It
// goes by numbers: which message is finished or deferred for which item is all
// the same to nsqd's figures. nsqd itself keeps as many in flight as RDY says.
type channel struct {
	*echo
	sweep

	topic       string
	worker      *consumer
	is          counts // what the registry has
	held        map[nsq.MessageID]*list.Element
	order       *list.List // of *hold, as they came
	ready       int
	finished    int64 // by this connection
	deferred    []comeback
	retries     []time.Duration // of which nsqd is still to be told
	missing     []time.Duration // when items are due that no deferred message stands for
	orphans     int64           // in flight to somebody else, such as to our last connection
	off         int64           // by how much the last look found our books wrong
	offDeferred int64
	short       int       // looks since when messages have been missing
	refilledTo  int64     // the last id that was published again
	gone        int64     // messages of ours that were taken out of nsqd, since that was put on record last
	emptiedAt   time.Time // when it was
	quiet       bool      // the last look found nothing that we had not received
	drift       int64     // at the last look
	pauseOrder  string    // id of the order to pause or go on that is being carried out; "": there is none
	lookedAt    time.Time // by nsqd's clock
	attached    time.Time
	rejoined    bool // it has been before, while we led
	touchedAt   time.Time
}

// hold is a message in flight.
type hold struct {
	id        nsq.MessageID
	delivered time.Time
}

// comeback is when a deferred message is back.
type comeback struct {
	at   time.Time
	wait bool // its item waits for another, not for that time
}

func newChannel(topic string, e *echo) *channel {
	return &channel{
		echo: e, sweep: sweep{strangers: map[nsq.MessageID]stranger{}}, topic: topic, attached: time.Now(),
		held: map[nsq.MessageID]*list.Element{}, order: list.New(), ready: -1,
	}
}

// take notes a message in flight, and tells whether the database is to be asked
// what to do about it.
func (c *channel) take(d *delivery, now time.Time) (o origin, asks bool) {
	c.drop(d.id) // it has come again: its time was over
	o = c.judge(d)
	c.swept(d, o, now)
	if o == alien {
		return o, c.meet(d.id)
	}
	c.mine[d.id] = c.number
	c.held[d.id] = c.order.PushBack(&hold{id: d.id, delivered: now})
	return o, o == unsure
}

func (c *channel) drop(id nsq.MessageID) bool {
	e, ok := c.held[id]
	if ok {
		c.order.Remove(e)
		delete(c.held, id)
	}
	return ok
}

// refused notes that nsqd did not do what it was told with a message, which is
// not in flight any more.
func (c *channel) refused(command string, id nsq.MessageID) {
	c.drop(id)
	if command == "FIN" {
		c.finished--
	}
	switch s, known := c.strangers[id]; {
	case c.asked.has(id) && known && !s.asks: // its time was over before it was given back
		delete(c.strangers, id)
	case c.asked.has(id):
	case command == "FIN":
		c.actual++
	}
}

// running is how many messages are to be in flight.
func (c *channel) running() int { return int(min(c.is.Running, int64(c.worker.maxReady))) }

// ghosts are messages that are deferred for long although their items are not
// any more. They count for nothing until they are back.
func (c *channel) ghosts(now time.Time) int64 {
	var far int64
	for _, d := range c.deferred {
		if !d.wait && d.at.Sub(now) > recheck {
			far++
		}
	}
	return max(0, far-c.is.Later)
}

// surplus is how many messages there are too many; below 0, they are missing.
func (c *channel) surplus(now time.Time) int64 { return c.actual - c.ghosts(now) - c.is.expected() }

// count is told what the registry has.
func (c *channel) count(is counts, now time.Time) {
	c.is = is
	// A retry whose item was claimed again meanwhile is not deferred.
	room := is.Later
	for _, d := range c.deferred {
		if !d.wait && d.at.Sub(now) > clocks/5 {
			room--
		}
	}
	for i, d := range c.retries {
		if d > 0 {
			if room <= 0 {
				c.retries[i] = 0
			}
			room--
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

// lack is how many items wait for a time that no deferred message stands for.
func (c *channel) lack() int64 {
	return c.is.Far - c.countDeferred(false) - c.countDelayed() - c.is.Untold
}

// miss is told when items are due, the soonest first, and finds those for which no
// message is deferred.
func (c *channel) miss(due []time.Duration, now time.Time) {
	var have []time.Duration
	for _, d := range c.deferred {
		if !d.wait {
			have = append(have, d.at.Sub(now))
		}
	}
	have = append(have, c.retries...)
	slices.Sort(have)
	c.missing = c.missing[:0]
	i, most := 0, c.lack()
	for _, d := range due {
		want := min(d, deferMost)
		for i < len(have) && have[i] < want-2*clocks {
			i++
		}
		if i < len(have) && have[i] <= want+2*clocks {
			i++
		} else if int64(len(c.missing)) < most {
			c.missing = append(c.missing, want)
		}
	}
}

// forget drops what is over: messages that are back from being deferred, and
// those in flight whose time nsqd does not prolong any more.
func (c *channel) forget(now time.Time) {
	c.missed(now)
	c.deferred = slices.DeleteFunc(c.deferred, func(d comeback) bool {
		if d.wait {
			return !now.Before(d.at)
		}
		return now.Sub(d.at) > clocks
	})
	for e := c.order.Front(); e != nil; e = c.order.Front() {
		h, ok := e.Value.(*hold)
		if ok && now.Sub(h.delivered) < c.worker.maxMsgTimeout+clocks {
			return
		}
		c.order.Remove(e)
		if ok {
			delete(c.held, h.id)
		}
	}
}

// steer tells nsqd what to do with messages in flight so that the figures come
// closer to the registry's. It is called after each count and whenever messages
// have come, and ends when nothing is left to do.
func (c *channel) steer(now time.Time) error {
	c.forget(now)
	defers := c.defers()
	outs := len(defers) + int(max(0, min(c.surplus(now), int64(c.worker.maxReady))))
	spare := len(c.held) - c.running()
	do := max(0, min(outs, spare))
	cycle := c.cycles(defers[min(do, len(defers)):], len(c.held)-do)

	asking := c.asking()
	ready := max(0, c.running()-int(c.orphans)) + asking + min(outs-do-cycle, handful)
	if c.sweeping {
		ready = max(ready, len(c.held)+asking+int(min(c.depth, int64(c.worker.maxReady))))
	}
	if ready = min(ready, c.worker.maxReady); ready != c.ready {
		// Before messages leave: nsqd would send others in their place.
		if err := c.worker.ready(ready); err != nil {
			return err
		}
		c.ready = ready
	}
	for range do {
		if err := c.out(&defers, now); err != nil {
			return err
		}
	}
	for range cycle { // nsqd gives others for these, or the same
		at := slices.Index(c.retries, 0)
		c.retries = slices.Delete(c.retries, at, at+1)
		if err := c.worker.requeue(c.oldest(), 0); err != nil {
			return err
		}
	}
	// What is left is of claims that were given back. A retry that we have not
	// heard of may be among them.
	if spare -= outs + int(c.is.Untold); c.sweeping && !c.full() {
		return nil
	}
	for ; spare > 0; spare-- {
		if err := c.worker.requeue(c.oldest(), 0); err != nil {
			return err
		}
	}
	return nil
}

// cycles is how many retries nsqd can be told of at once although as many stay in
// flight: their items are claimable again, or were claimed already.
func (c *channel) cycles(rest []outgoing, held int) (n int) {
	for _, o := range rest {
		if o.retried && o.after == 0 && n < held {
			n++
		}
	}
	return n
}

// outgoing is a message to be deferred, or given back to the channel.
type outgoing struct {
	after                 time.Duration
	retried, missed, wait bool // why
}

// defers lists what is to be deferred, retries first.
func (c *channel) defers() (list []outgoing) {
	for _, d := range c.retries {
		list = append(list, outgoing{after: d, retried: true})
	}
	for _, d := range c.missing {
		list = append(list, outgoing{after: d, missed: true})
	}
	for range c.is.Waiting - c.countDeferred(true) {
		if len(list) >= c.worker.maxReady {
			break
		}
		list = append(list, outgoing{after: recheck, wait: true})
	}
	return list
}

// out does the first of what is to be deferred, or finishes a message.
func (c *channel) out(defers *[]outgoing, now time.Time) error {
	if len(*defers) == 0 {
		return c.finishOne()
	}
	o := (*defers)[0]
	*defers = (*defers)[1:]
	switch {
	case o.retried:
		c.retries = c.retries[1:]
	case o.missed:
		c.missing = c.missing[1:]
	}
	after := min(o.after, deferMost)
	if after > 0 {
		c.deferred = append(c.deferred, comeback{at: now.Add(after), wait: o.wait})
	}
	return c.worker.requeue(c.oldest(), after)
}

func (c *channel) finishOne() error {
	c.finished++
	c.actual--
	id := c.oldest()
	delete(c.mine, id)
	c.seen.add(id)
	return c.worker.finish(id)
}

// oldest takes the message that has been in flight the longest.
func (c *channel) oldest() (id nsq.MessageID) {
	e := c.order.Front()
	if e == nil {
		return id
	}
	h, ok := c.order.Remove(e).(*hold)
	if !ok {
		return id
	}
	delete(c.held, h.id)
	return h.id
}

// touch keeps messages in flight.
func (c *channel) touch(now time.Time) error {
	if now.Sub(c.touchedAt) < c.worker.msgTimeout/3 {
		return nil
	}
	c.touchedAt = now
	for e := c.order.Front(); e != nil; e = e.Next() {
		if h, ok := e.Value.(*hold); ok {
			if err := c.worker.touch(h.id); err != nil {
				return err
			}
		}
	}
	for id, s := range c.strangers {
		if s.asks {
			if err := c.worker.touch(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// itemOf reads the id in a body.
func itemOf(body string) (id int64, ok bool) {
	n, err := strconv.ParseUint(strings.TrimSpace(body), 10, 63)
	return int64(n), err == nil && n > 0
}
