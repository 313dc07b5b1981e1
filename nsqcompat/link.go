package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/registry/topiclog"
	"github.com/farol-preservation/farol/retry"
)

const (
	// lookEvery is how often our books are compared with nsqd's figures, and
	// pauses with each other.
	lookEvery = time.Second
	// requestsMost bounds the requests that wait for the database.
	requestsMost = 200
)

// link is all that holds to one nsqd for as long as it can be reached: the
// channels of all topics, and what is known of them.
type link struct {
	m        *Mirror
	at       daemon
	client   string
	started  int64 // when nsqd was, by its own clock
	channels map[string]*channel
	agreed   map[string]bool // pauses, by topic
	heard    chan arrival
	pending  []request // that are still to be asked
	requests chan request
	answered chan struct{} // wakes us for answers
	mu       sync.Mutex    // guards answers
	answers  []answer
	wg       sync.WaitGroup
	stop     context.CancelFunc

	began          time.Time
	looked, ticked time.Time
	took           time.Duration // of the last count
	misses         int           // looks in a row that nsqd did not answer
}

// attach makes what nsqd lacks, takes stock, and begins to consume.
func (m *Mirror) attach(ctx context.Context, q queueReader) (_ *link, err error) {
	at := daemon{tcp: m.nsqd.addr, http: m.nsqdHTTP}
	l := &link{
		m: m, at: at, began: time.Now(), client: fmt.Sprintf("farol-%d-%08x", os.Getpid(), rand.Uint32()), channels: map[string]*channel{},
		heard: make(chan arrival, 4096), requests: make(chan request, requestsMost), answered: make(chan struct{}, 1), stop: func() {},
	}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	topics, err := topiclog.Topics(ctx, m.db)
	if err != nil {
		return nil, err
	}
	first, err := at.stats(ctx)
	if err != nil {
		return nil, err
	}
	made, err := at.make(ctx, topics, first)
	if err != nil {
		return nil, err
	}
	settled, err := l.agree(ctx, q, made)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(m.echoes, func(topic string, _ *echo) bool { return !slices.Contains(topics, topic) })
	if err := l.join(ctx, topics, first, made, settled); err != nil {
		return nil, err
	}
	answering, stop := context.WithCancel(context.WithoutCancel(ctx)) // what was begun is ended, in bounded time
	l.stop = stop
	l.wg.Add(1)
	go l.answerRequests(answering)
	return l, l.flush()
}

// join begins to consume topics, and takes stock of each. first are nsqd's figures
// before the topics that it lacked were made.
func (l *link) join(ctx context.Context, topics []string, first nsqdStats, made map[string]bool, settled map[string]*leftover) error {
	if err := l.open(ctx, topics); err != nil {
		return err
	}
	stats, err := l.at.stats(ctx)
	if err != nil {
		return err
	}
	l.started = stats.StartTime
	var hush time.Duration
	for _, topic := range topics {
		c := l.channels[topic]
		t, _ := stats.topic(topic)
		if before, _ := first.topic(topic); made[topic] && before.Depth == 0 {
			c.lost()
		}
		worker, _ := t.channel(topic + channelSuffix)
		c.rejoined = !c.since.IsZero()
		hush = max(hush, c.begin(stats.at, t.Depth+worker.messages(), made[topic], settled[topic]))
		for range worker.Deferred { // until when is not known
			c.deferred = append(c.deferred, comeback{at: time.Now().Add(deferMost)})
		}
	}
	retry.Pause(ctx, hush)
	return nil
}

// open connects to channels, some at a time.
func (l *link) open(ctx context.Context, topics []string) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, topic := range topics {
		c := newChannel(topic, l.m.echo(topic))
		l.channels[topic] = c
		group.Go(func() (err error) {
			c.worker, err = consume(ctx, consumerOptions{
				addr: l.at.tcp, topic: topic, channel: topic + channelSuffix, client: l.client, msgTimeout: l.m.o.MsgTimeout,
			}, l.heard)
			return err
		})
	}
	return group.Wait()
}

// close ends the link. Its messages in flight come back to their channels when
// their time is over.
func (l *link) close() {
	late := time.AfterFunc(3*time.Second, l.stop) // requests in hand are answered before
	close(l.requests)
	l.wg.Wait()
	late.Stop()
	l.stop()
	_ = l.settle() // what nsqd does not hear of comes again, and has its answer
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

// brokenError says that the link is to be made anew; that the database failed is
// another matter.
type brokenError struct{ err error }

func (e brokenError) Error() string { return e.err.Error() }
func (e brokenError) Unwrap() error { return e.err }

func broken(err error) error {
	if err == nil {
		return nil
	}
	return brokenError{err}
}

// tick brings nsqd's figures to the registry's. All that can be published has
// been.
func (l *link) tick(ctx context.Context, q queueReader) error {
	retries, err := q.retries(ctx)
	if err != nil {
		return err
	}
	for _, r := range retries {
		if c := l.channels[r.Topic]; c != nil && len(c.retries) < retriesMost {
			c.retries = append(c.retries, r.After)
		}
	}
	at, err := q.Position(ctx)
	if err != nil {
		return err
	}
	if behind, err := l.count(ctx, q, at); err != nil || behind {
		return err // first the log: so far behind, nothing can be compared
	}
	if time.Since(l.looked) >= l.lookPause() {
		if err := l.look(ctx); err != nil {
			return err
		}
	}
	if err := l.refill(ctx, q); err != nil {
		return err
	}
	return l.steer(time.Now())
}

// count tells the channels what the registry has, unless the mirror is too far
// behind with publishing.
func (l *link) count(ctx context.Context, q queueReader, at topiclog.Position) (behind bool, err error) {
	began := time.Now()
	list, err := count(ctx, q.conn, at, l.m.o.FixityDays)
	if err != nil {
		return false, err
	}
	l.took, l.ticked = time.Since(began), time.Now()
	if len(list) > 0 && list[0].behind >= unreadMost {
		return true, nil
	}
	if err := l.follow(ctx, list); err != nil {
		return false, broken(err)
	}
	for _, is := range list {
		c := l.channels[is.Topic]
		c.count(is, l.ticked)
		if c.missing = c.missing[:0]; c.lack() > 0 {
			due, err := q.later(ctx, c.topic)
			if err != nil {
				return false, err
			}
			c.miss(due, l.ticked)
		}
	}
	return false, nil
}

// follow begins with topics that are new, and leaves those that are gone. The others
// keep their connections, and so their figures.
func (l *link) follow(ctx context.Context, list []counts) error {
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
		return errors.New("nsqd has been started again")
	}
	made, err := l.at.make(ctx, fresh, first)
	if err != nil {
		return err
	}
	return l.join(ctx, fresh, first, made, nil)
}

// leave ends with a topic. What is still heard of its channel is passed over.
func (l *link) leave(c *channel) {
	c.worker.close()
	delete(l.channels, c.topic)
	delete(l.agreed, c.topic)
	delete(l.m.echoes, c.topic)
	l.pending = slices.DeleteFunc(l.pending, func(r request) bool { return r.of == c })
}

// lookPause is the time between two looks: short while somebody waits for the
// figures, long while nsqd does not answer.
func (l *link) lookPause() time.Duration {
	if l.misses > 0 {
		return min(lookEvery<<min(l.misses, 5), 30*time.Second)
	}
	switch {
	case l.m.hurried():
		return lookEvery / 10
	case l.seeks():
		return lookEvery / 10
	case time.Since(l.began) < 3*lookEvery: // what is wrong at first is to be right soon
		return lookEvery / 3
	}
	return lookEvery
}

// seeks tells whether messages of others may have been found that are to be
// answered soon.
func (l *link) seeks() bool {
	for _, c := range l.channels {
		if c.sweeping || c.off > 0 && c.excess == 0 {
			return true
		}
	}
	return false
}

// nextTick is how long to wait for the next tick: a count may take a tenth of the
// time at most.
func (l *link) nextTick(poll time.Duration) time.Duration {
	if l.m.hurried() {
		poll = 20 * time.Millisecond
	}
	if poll < calmPoll {
		poll = min(poll, 200*time.Millisecond)
	}
	return max(poll, 10*l.took)
}

func (l *link) steer(now time.Time) error {
	l.ask()
	if err := l.settle(); err != nil {
		return broken(err)
	}
	for _, c := range l.channels {
		if err := errors.Join(c.touch(now), c.steer(now)); err != nil {
			return broken(err)
		}
	}
	return broken(l.flush())
}

// wait deals with what is heard from nsqd until a time is over.
func (l *link) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			return nil
		case <-l.m.work:
			l.m.stirred()
			return nil
		case <-l.answered:
			if err := l.settle(); err != nil {
				return broken(err)
			}
			l.ask()
		case a := <-l.heard:
			l.m.stirred()
			if err := l.hearAll(a); err != nil {
				return broken(err)
			}
			l.ask()
		}
	}
}

// hearAll takes up all that has come.
func (l *link) hearAll(a arrival) error {
	touched := map[*channel]bool{}
	for more := true; more; {
		c, err := l.hear(a)
		if err != nil {
			return err
		}
		if c != nil {
			touched[c] = true
		}
		select {
		case a = <-l.heard:
		default:
			more = false
		}
	}
	for c := range touched {
		if c.sweeping {
			c.endSweep(time.Now())
		}
		if err := errors.Join(c.steer(time.Now()), c.worker.flush()); err != nil {
			return err
		}
	}
	return nil
}

// hear takes up what came from nsqd.
func (l *link) hear(a arrival) (*channel, error) {
	c := l.channels[a.from.topic]
	switch {
	case c == nil || c.worker != a.from: // we have left it
		return nil, nil //nolint:nilnil // nothing is to be done
	case a.err != nil:
		return c, a.err
	case a.message != nil:
		if o, asks := c.take(a.message, time.Now()); asks {
			l.pending = append(l.pending, request{of: c, topic: c.topic, delivery: a.message, sure: o == alien})
		}
	default:
		c.refused(a.refused, a.id)
	}
	return c, nil
}
