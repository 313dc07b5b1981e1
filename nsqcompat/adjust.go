package nsqcompat

import (
	"slices"
	"time"

	"github.com/nsqio/go-nsq"
)

// adjust has nsqd finish, defer or requeue messages in flight, so that its figures come
// closer to the registry's. It is called after each count and whenever messages have
// come, and ends when nothing is left to do.
func (c *channel) adjust(now time.Time) error {
	c.expire(now)
	defers := c.toDefer()
	outs := len(defers) + int(max(0, min(c.surplus(now), int64(c.worker.maxReady))))
	spare := len(c.held) - c.running()
	do := max(0, min(outs, spare))
	cycle := c.cycles(defers[min(do, len(defers)):], len(c.held)-do)

	answering := c.countAnswering()
	ready := max(0, c.running()-int(c.orphans)) + answering + min(outs-do-cycle, extraInFlight)
	if c.rescanning {
		ready = max(ready, len(c.held)+answering+int(min(c.depth, int64(c.worker.maxReady))))
	}
	if ready = min(ready, c.worker.maxReady); ready != c.ready {
		// Before messages leave: nsqd would send others in their place.
		if err := c.worker.ready(ready); err != nil {
			return err
		}
		c.ready = ready
	}
	for range do {
		if err := c.sendOut(&defers, now); err != nil {
			return err
		}
	}
	for range cycle { // nsqd sends others in their place, or the same
		at := slices.Index(c.retries, 0)
		c.retries = slices.Delete(c.retries, at, at+1)
		if err := c.worker.requeue(c.oldest(), 0); err != nil {
			return err
		}
	}
	// The rest is of claims that were released, or of retries that we have not read
	// yet.
	if spare -= outs + int(c.is.Unshown); c.rescanning && !c.full() {
		return nil
	}
	for ; spare > 0; spare-- {
		if err := c.worker.requeue(c.oldest(), 0); err != nil {
			return err
		}
	}
	return nil
}

// cycles is how many retries nsqd can show at once although as many messages stay in
// flight: their items are claimable or claimed again.
func (c *channel) cycles(rest []outgoing, held int) (n int) {
	for _, o := range rest {
		if o.retried && o.after == 0 && n < held {
			n++
		}
	}
	return n
}

// outgoing is a message to be deferred, or requeued at once.
type outgoing struct {
	after                 time.Duration
	retried, missed, wait bool // why
}

// toDefer lists the messages to be deferred, retries first.
func (c *channel) toDefer() (list []outgoing) {
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
		list = append(list, outgoing{after: recheckAfter, wait: true})
	}
	return list
}

// sendOut defers the first message of the list, or finishes one if it is empty.
func (c *channel) sendOut(defers *[]outgoing, now time.Time) error {
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
	after := min(o.after, maxDefer)
	if after > 0 {
		c.deferred = append(c.deferred, deferral{at: now.Add(after), wait: o.wait})
	}
	return c.worker.requeue(c.oldest(), after)
}

func (c *channel) finishOne() error {
	c.finished++
	c.inChannel--
	id := c.oldest()
	delete(c.received, id)
	c.endedOwn.add(id)
	return c.worker.finish(id)
}

// oldest takes the message that has been in flight the longest.
func (c *channel) oldest() (id nsq.MessageID) {
	e := c.order.Front()
	if e == nil {
		return id
	}
	h, ok := c.order.Remove(e).(*heldMessage)
	if !ok {
		return id
	}
	delete(c.held, h.id)
	return h.id
}

// touch keeps messages in flight beyond their timeout.
func (c *channel) touch(now time.Time) error {
	if now.Sub(c.touchedAt) < c.worker.msgTimeout/3 {
		return nil
	}
	c.touchedAt = now
	for e := c.order.Front(); e != nil; e = e.Next() {
		if h, ok := e.Value.(*heldMessage); ok {
			if err := c.worker.touch(h.id); err != nil {
				return err
			}
		}
	}
	for id, m := range c.foreign {
		if m.answering {
			if err := c.worker.touch(id); err != nil {
				return err
			}
		}
	}
	return nil
}
