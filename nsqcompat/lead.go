package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nsqio/go-nsq"

	"github.com/farol-preservation/farol/registry/topiclog"
	"github.com/farol-preservation/farol/retry"
)

const (
	// roundTime is for how long the leader publishes before it updates the figures.
	roundTime = 200 * time.Millisecond
	// batchTime ends a batch early when nsqd is slow, so that the position does not
	// fall far behind what is published.
	batchTime = time.Second
	// maxBody is nsqd's own default. It answers a larger message by breaking the
	// connection, which looks as if it were away.
	maxBody = 1 << 20
)

// leader is the mirror that publishes, for one session. It is used by one goroutine.
type leader struct {
	o       MirrorOptions
	records records
	pace    *pace
	counted *counters
	out     *outlet

	at         daemon         // as it was found last
	link       *link          // nil while there is none
	attachAt   time.Time      // not before
	attachWait *retry.Backoff // between attempts to attach
	attempts   int            // to attach, in a row
}

func newLeader(o MirrorOptions, r records, p *pace, c *counters) *leader {
	return &leader{
		o: o, records: r, pace: p, counted: c, attachWait: retry.NewBackoff(),
		out: &outlet{nsqd: publisher{addr: o.NSQDTCPAddr}, accounts: o.keepsFigures(), own: map[string]*ownMessages{}},
	}
}

// lead publishes batch after batch, and brings nsqd's figures to the registry's between
// them. It returns when the database fails or ctx is done; failures of nsqd are retried.
func (l *leader) lead(ctx context.Context, q queueReader) error {
	defer l.end(ctx)
	failures, wait := 0, retry.NewBackoff()
	for ctx.Err() == nil {
		l.attach(ctx, q)
		more, err := l.publishSome(ctx, q.Reader)
		var away nsqdError
		switch {
		case errors.As(err, &away):
			l.counted.failures.Add(1)
			if failures++; failures == 1 {
				l.o.Log.WarnContext(ctx, "nsqd accepts no messages; retrying", "nsqd", l.out.nsqd.addr, "err", err)
			}
			l.wait(ctx, wait.Next())
			continue
		case err != nil:
			return err
		case failures > 0:
			l.o.Log.InfoContext(ctx, "nsqd accepts messages again", "nsqd", l.out.nsqd.addr, "failures", failures)
			failures = 0
			wait.Reset()
		}
		if err := l.updateFigures(ctx, q); err != nil {
			return err
		}
		if !more {
			l.wait(ctx, 0)
		}
	}
	return nil
}

// find finds nsqd before a connection to it is made.
func (l *leader) find(ctx context.Context) error {
	if l.o.LookupdAddr != "" && l.out.nsqd.conn != nil {
		return nil
	}
	at, err := find(ctx, l.o)
	if err != nil {
		return err
	}
	if l.link != nil && l.link.at != at {
		l.detach()
	}
	l.at, l.out.nsqd.addr = at, at.tcp
	return nil
}

// publishSome publishes what can be read of the log, for a while; more says that the log
// goes on.
func (l *leader) publishSome(ctx context.Context, log topiclog.Reader) (more bool, err error) {
	if err := l.find(ctx); err != nil {
		return false, nsqdError{err}
	}
	began := time.Now()
	for more = true; more && err == nil && ctx.Err() == nil && time.Since(began) < roundTime; {
		more, err = l.step(ctx, log)
	}
	return more, err
}

// step publishes a batch and moves the position past what nsqd has taken of it; more
// says that the log goes on. No transaction is open while it waits for nsqd: that would
// hold up every reader of the log.
func (l *leader) step(ctx context.Context, log topiclog.Reader) (more bool, err error) {
	at, err := log.Position(ctx)
	if err != nil {
		return false, err
	}
	batch, err := log.After(ctx, at, l.o.Batch)
	if err != nil {
		return false, err
	}
	n, failure := l.publish(ctx, batch)
	if len(batch) > 0 {
		l.pace.active()
	}
	if n > 0 {
		// If we die before this, the next mirror publishes these again.
		if err := log.Move(ctx, at, batch[n-1].Position); err != nil {
			return false, err
		}
	}
	return n < len(batch) || len(batch) == l.o.Batch, failure
}

// publish publishes messages in their order and returns how many are done with. The
// error is an nsqdError.
func (l *leader) publish(ctx context.Context, batch []topiclog.Message) (done int, err error) {
	began := time.Now()
	for done < len(batch) && ctx.Err() == nil && time.Since(began) < batchTime {
		n, err := l.publishRun(ctx, firstRun(batch[done:]))
		done += n
		if err != nil {
			return done, nsqdError{err}
		}
	}
	return done, nil
}

// firstRun returns the messages at the front that have one topic and fit into one
// command.
func firstRun(batch []topiclog.Message) []topiclog.Message {
	size := 0
	for i, next := range batch {
		size += len(next.Body)
		if next.Topic != batch[0].Topic || i > 0 && size > maxBody {
			return batch[:i]
		}
	}
	return batch
}

func (l *leader) publishRun(ctx context.Context, run []topiclog.Message) (done int, err error) {
	var bodies [][]byte
	for _, next := range run {
		// nsq.MultiPublish checks neither: a topic with a space in it makes another
		// command, and because of one bad body nsqd refuses them all.
		if !nsq.IsValidTopicName(next.Topic) || next.Body == "" || len(next.Body) > maxBody {
			break
		}
		bodies = append(bodies, []byte(next.Body))
	}
	if len(bodies) == 0 {
		l.discard(ctx, run[0], errors.New("no valid topic and body"))
		return 1, nil
	}
	err = l.out.announce(ctx, run[0].Topic, bodies)
	switch {
	case err == nil:
		l.counted.published.Add(int64(len(bodies)))
		return len(bodies), nil
	case !isRefusal(err):
		return 0, err
	case len(bodies) == 1:
		l.discard(ctx, run[0], err)
		return 1, nil
	}
	// nsqd refuses all because of one of them. One by one, the others are published.
	for ; done < len(bodies); done++ {
		if _, err := l.publishRun(ctx, run[done:done+1]); err != nil {
			return done, err
		}
	}
	return done, nil
}

// discard skips a message that would block all later ones forever.
func (l *leader) discard(ctx context.Context, next topiclog.Message, err error) {
	l.counted.discarded.Add(1)
	l.o.Log.ErrorContext(ctx, "message cannot be published; skipping it", "message", next.Position.MessageID,
		"xid", next.Position.XID, "topic", next.Topic, "bytes", len(next.Body), "err", err)
}

// attach makes the link to nsqd when there is none.
func (l *leader) attach(ctx context.Context, q queueReader) {
	if !l.o.keepsFigures() || l.link != nil || time.Now().Before(l.attachAt) {
		return
	}
	err := l.find(ctx)
	if err == nil {
		err = l.newLink(ctx, q)
	}
	switch {
	case err != nil: // one of the database comes again at its next use
		_ = l.detachIf(ctx, ofNSQD(fmt.Errorf("attach to nsqd: %w", err)))
	case l.attempts > 0:
		l.o.Log.InfoContext(ctx, "nsqd shows the queue again", "nsqd", l.out.nsqd.addr)
	}
}

func (l *leader) newLink(ctx context.Context, q queueReader) error {
	topics, err := topiclog.Topics(ctx, l.records.db)
	if err != nil {
		return err
	}
	maps.DeleteFunc(l.out.own, func(topic string, _ *ownMessages) bool { return !slices.Contains(topics, topic) })
	l.link, err = attach(ctx, linkOptions{MirrorOptions: l.o, at: l.at, records: l.records, pace: l.pace, out: l.out, figures: &l.counted.figures}, q, topics)
	l.out.linked = err == nil
	return err
}

// updateFigures brings nsqd's figures to the registry's. Only errors of the database are
// returned.
func (l *leader) updateFigures(ctx context.Context, q queueReader) error {
	if l.link == nil {
		return nil
	}
	l.attempts = 0
	l.attachWait.Reset()
	return l.detachIf(ctx, l.link.tick(ctx, q))
}

// detachIf gives up the link if that has failed, and returns all other errors.
func (l *leader) detachIf(ctx context.Context, err error) error {
	var failed nsqdError
	if !errors.As(err, &failed) {
		return err
	}
	if l.attempts++; l.attempts == 1 && ctx.Err() == nil {
		l.o.Log.WarnContext(ctx, "nsqd does not show the queue; retrying", "nsqd", l.out.nsqd.addr, "err", err)
	}
	l.detach()
	l.attachAt = time.Now().Add(l.attachWait.Next())
	return nil
}

func (l *leader) detach() {
	if l.link != nil {
		l.link.close()
	}
	l.link, l.out.linked = nil, false
}

// wait waits until it is time for the next round, or for d if that is not 0, and
// processes what nsqd sends.
func (l *leader) wait(ctx context.Context, d time.Duration) {
	switch {
	case l.link != nil:
		if d == 0 {
			d = l.link.nextTick(l.pace.interval())
		}
		if err := l.detachIf(ctx, l.link.wait(ctx, d)); err != nil {
			l.o.Log.WarnContext(ctx, "messages from nsqd were not processed; nsqd will deliver them again", "err", err)
		}
	case d > 0:
		retry.Pause(ctx, d)
	default:
		poll := l.pace.interval()
		l.pace.wait(ctx, poll*3/4+rand.N(poll/2+1))
	}
}

// end ends the link and the connection to nsqd, and records what the next mirror can
// rely on.
func (l *leader) end(ctx context.Context) {
	defer l.out.nsqd.drop()
	if l.link == nil {
		return
	}
	ended, ctx := ctx.Err() != nil, context.WithoutCancel(ctx)
	if ended {
		if err := l.link.handOver(ctx); err != nil {
			l.o.Log.WarnContext(ctx, "cannot record the messages left in nsqd; the next mirror will treat them as messages of unknown origin", "err", err)
		}
	}
	l.detach()
}
