package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/registry/topiclog"
	"github.com/farol-preservation/farol/retry"
)

// compareEvery is how often our account is compared with nsqd's figures, and the pauses
// of both sides.
const compareEvery = time.Second

// linkOptions say what a link works with.
type linkOptions struct {
	MirrorOptions

	at      daemon
	records records
	pace    *pace
	out     *outlet
	figures *atomic.Pointer[[]TopicFigures] // gets those of each comparison
}

// link is what the mirror keeps to one nsqd for as long as that can be reached: the
// channels of all topics, and their accounts.
type link struct {
	o        linkOptions
	at       daemon
	client   string
	started  int64 // when nsqd was, by its own clock
	channels map[string]*channel
	paused   map[string]bool // topics that both sides have as paused
	arrivals chan arrival
	pending  []request // that wait for the database
	requests chan request
	answers  chan answer
	wg       sync.WaitGroup
	stop     context.CancelFunc

	began                time.Time
	comparedAt, tickedAt time.Time
	took                 time.Duration // of the last count
	misses               int           // comparisons in a row that nsqd did not answer
}

// attach creates the topics that nsqd lacks, takes stock, and begins to consume.
func attach(ctx context.Context, o linkOptions, q queueReader, topics []string) (_ *link, err error) {
	l := &link{
		o: o, at: o.at, began: time.Now(), client: fmt.Sprintf("farol-%d-%08x", os.Getpid(), rand.Uint32()), channels: map[string]*channel{},
		arrivals: make(chan arrival, 4096), requests: make(chan request, maxRequests), answers: make(chan answer, 2*maxRequests), stop: func() {},
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	first, err := l.at.stats(ctx)
	if err != nil {
		return nil, err
	}
	created, err := l.at.create(ctx, topics, first)
	if err != nil {
		return nil, err
	}
	var left map[string]*handover
	if l.paused, left, err = q.agreed(ctx, created); err != nil {
		return nil, err
	}
	if err := l.join(ctx, topics, first, created, left); err != nil {
		return nil, err
	}
	answering, stop := context.WithCancel(context.WithoutCancel(ctx)) // requests that were begun are answered, in bounded time
	l.stop = stop
	l.wg.Go(func() { l.answerRequests(answering) })
	return l, l.flush()
}

// join begins to consume topics, and takes stock of each. first are nsqd's figures
// before the topics that it lacked were created.
func (l *link) join(ctx context.Context, topics []string, first nsqdStats, created map[string]bool, left map[string]*handover) error {
	if err := l.open(ctx, topics); err != nil {
		return err
	}
	stats, err := l.at.stats(ctx)
	if err != nil {
		return err
	}
	l.started = stats.StartTime
	var quietTime time.Duration
	for _, topic := range topics {
		c := l.channels[topic]
		t, _ := stats.topic(topic)
		if before, _ := first.topic(topic); created[topic] && before.Depth == 0 {
			c.reset()
		}
		worker, _ := t.channel(topic + channelSuffix)
		c.rejoined = !c.certainSince.IsZero()
		quietTime = max(quietTime, c.begin(stats.at, t.Depth+worker.messages(), created[topic], left[topic]))
		for range worker.Deferred { // until when is unknown
			c.deferred = append(c.deferred, deferral{at: time.Now().Add(maxDefer)})
		}
	}
	retry.Pause(ctx, quietTime)
	return nil
}

// open connects to channels, some at a time.
func (l *link) open(ctx context.Context, topics []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, topic := range topics {
		c := newChannel(topic, l.o.out.ofTopic(topic))
		l.channels[topic] = c
		group.Go(func() (err error) {
			c.worker, err = consume(ctx, consumerOptions{
				addr: l.at.tcp, topic: topic, channel: topic + channelSuffix, client: l.client, msgTimeout: l.o.MsgTimeout,
			}, l.arrivals)
			return err
		})
	}
	return group.Wait()
}

// close ends the link. Its messages in flight come back to their channels when
// their time is over.
func (l *link) close() {
	late := time.AfterFunc(3*time.Second, l.stop) // requests in progress are answered before
	close(l.requests)
	l.wg.Wait()
	late.Stop()
	l.stop()
	_ = l.finishAnswered() // a message that nsqd does not finish comes again, and has its answer
	for _, c := range l.channels {
		if c.worker != nil {
			c.worker.close()
		}
	}
}

func (l *link) flush() (err error) {
	for _, c := range l.channels {
		err = errors.Join(err, c.worker.flush())
	}
	return err
}

// tick brings nsqd's figures to the registry's, once everything that can be published
// has been.
func (l *link) tick(ctx context.Context, q queueReader) error {
	retries, err := q.retries(ctx)
	if err != nil {
		return err
	}
	for _, r := range retries {
		if c := l.channels[r.Topic]; c != nil && len(c.retries) < maxRetries {
			c.retries = append(c.retries, r.After)
		}
	}
	at, err := q.Position(ctx)
	if err != nil {
		return err
	}
	if behind, err := l.count(ctx, q, at); err != nil || behind {
		return err // first the log: figures cannot be compared so far behind
	}
	if time.Since(l.comparedAt) >= l.compareInterval() {
		if err := l.compare(ctx); err != nil {
			return err
		}
	}
	if err := l.refill(ctx, q); err != nil {
		return err
	}
	return l.adjust(time.Now())
}

// count passes the registry's counts to the channels, unless the mirror is too far behind
// with publishing.
func (l *link) count(ctx context.Context, q queueReader, at topiclog.Position) (behind bool, err error) {
	began := time.Now()
	list, err := count(ctx, q.conn, at, l.o.FixityDays)
	if err != nil {
		return false, err
	}
	l.took, l.tickedAt = time.Since(began), time.Now()
	if len(list) > 0 && list[0].behind >= maxUnread {
		return true, nil
	}
	if err := l.syncTopics(ctx, list); err != nil {
		return false, ofNSQD(err)
	}
	for _, is := range list {
		c := l.channels[is.Topic]
		c.count(is, l.tickedAt)
		if c.missing = c.missing[:0]; c.undeferred() > 0 {
			due, err := q.later(ctx, c.topic)
			if err != nil {
				return false, err
			}
			c.matchDue(due, l.tickedAt)
		}
	}
	return false, nil
}

// syncTopics joins topics that are new, and leaves those that are gone. The others keep
// their connections, and so their figures.
func (l *link) syncTopics(ctx context.Context, list []counts) error {
	var fresh []string
	is := map[string]bool{}
	for _, c := range list {
		if is[c.Topic] = true; l.channels[c.Topic] == nil {
			fresh = append(fresh, c.Topic)
		}
	}
	for topic, c := range l.channels {
		if !is[topic] {
			l.leave(c)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	first, err := l.at.stats(ctx)
	if err != nil {
		return err
	}
	if first.StartTime != l.started {
		return errRestarted
	}
	created, err := l.at.create(ctx, fresh, first)
	if err != nil {
		return err
	}
	return l.join(ctx, fresh, first, created, nil)
}

// leave closes the channel of a topic. What still arrives from it is ignored.
func (l *link) leave(c *channel) {
	c.worker.close()
	delete(l.channels, c.topic)
	delete(l.paused, c.topic)
	delete(l.o.out.own, c.topic)
	l.pending = slices.DeleteFunc(l.pending, func(r request) bool { return r.of == c })
}

// compareInterval is the time between two comparisons: short while someone waits for the
// figures, long while nsqd does not answer.
func (l *link) compareInterval() time.Duration {
	if l.misses > 0 {
		return min(compareEvery<<min(l.misses, 5), 30*time.Second)
	}
	switch {
	case l.o.pace.hurried():
		return compareEvery / 10
	case l.rescanPending():
		return compareEvery / 10
	case time.Since(l.began) < 3*compareEvery: // what is wrong at first is to be corrected soon
		return compareEvery / 3
	}
	return compareEvery
}

// rescanPending reports whether foreign messages may have been found that are to be
// answered soon.
func (l *link) rescanPending() bool {
	for _, c := range l.channels {
		if c.rescanning || c.off > 0 && c.excess == 0 {
			return true
		}
	}
	return false
}

// rest is how long there is no tick after one, whatever happens: counts may take a tenth of
// the time at most.
func (l *link) rest() time.Duration { return 10 * l.took }

// nextTick is how long to wait for the next tick if nothing happens.
func (l *link) nextTick(poll time.Duration) time.Duration {
	if l.o.pace.hurried() {
		poll = 20 * time.Millisecond
	}
	if poll < idlePoll {
		poll = min(poll, 200*time.Millisecond)
	}
	return max(poll, l.rest())
}

func (l *link) adjust(now time.Time) error {
	l.passRequests()
	if err := l.finishAnswered(); err != nil {
		return ofNSQD(err)
	}
	for _, c := range l.channels {
		if err := errors.Join(c.touch(now), c.adjust(now)); err != nil {
			return ofNSQD(err)
		}
	}
	return ofNSQD(l.flush())
}

// wait processes what arrives from nsqd, until there is work or d is over.
func (l *link) wait(ctx context.Context, d time.Duration) error {
	timer, rested := time.NewTimer(d), time.NewTimer(min(d, l.rest()))
	defer timer.Stop()
	defer rested.Stop()
	var work <-chan struct{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			return nil
		case <-rested.C:
			work = l.o.pace.work
		case <-work:
			l.o.pace.active()
			return nil
		case a := <-l.answers:
			if err := l.finishAnswered(a); err != nil {
				return ofNSQD(err)
			}
			l.passRequests()
		case a := <-l.arrivals:
			l.o.pace.active()
			if err := l.receiveAll(a); err != nil {
				return ofNSQD(err)
			}
			l.passRequests()
		}
	}
}

// receiveAll processes everything that has arrived.
func (l *link) receiveAll(a arrival) error {
	touched := map[*channel]bool{}
	for more := true; more; {
		c, err := l.receive(a)
		if err != nil {
			return err
		}
		if c != nil {
			touched[c] = true
		}
		select {
		case a = <-l.arrivals:
		default:
			more = false
		}
	}
	for c := range touched {
		if c.rescanning {
			c.endRescan(time.Now())
		}
		if err := errors.Join(c.adjust(time.Now()), c.worker.flush()); err != nil {
			return err
		}
	}
	return nil
}

// receive processes what arrived from nsqd.
func (l *link) receive(a arrival) (*channel, error) {
	c := l.channels[a.from.topic]
	switch {
	case c == nil || c.worker != a.from: // we have left it
		return nil, nil //nolint:nilnil // there is nothing to do
	case a.err != nil:
		return c, a.err
	case a.message != nil:
		if o, ask := c.take(a.message, time.Now()); ask {
			l.pending = append(l.pending, request{of: c, topic: c.topic, delivery: a.message, foreign: o == originForeign})
		}
	default:
		c.refused(a.refused, a.id)
	}
	return c, nil
}
