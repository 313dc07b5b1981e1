package pull

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry/topiclog"
	"github.com/farol-preservation/farol/retry"
)

// queuesChannel is the channel of NOTIFY for messages that were posted.
const queuesChannel = "farol_queues"

// callTimeout bounds one statement of the listener.
const callTimeout = 10 * time.Second

// run receives notifications of messages until ctx is done, and returns nil only then.
// Failures of the database are logged and retried.
func (b *broker) run(ctx context.Context) error {
	retry.Forever(ctx, b.listen, func(err error, wait time.Duration) {
		b.log.WarnContext(ctx, "LISTEN for messages failed; waiting calls find them by polling until it is retried", "retry_in", wait, "err", err)
	})
	return nil
}

// listen receives notifications over a connection of its own until that breaks, and
// polls from time to time for what no notification announced.
func (b *broker) listen(ctx context.Context, succeeded func()) error {
	l := &listener{broker: b, known: map[string]int64{}}
	renumbered, err := topiclog.Renumber(ctx, b.db)
	if err != nil {
		return err
	}
	if renumbered {
		b.log.WarnContext(ctx, "the database came from another cluster; all readers were moved to the new numbering")
	}
	if err := b.readTopics(ctx); err != nil {
		return err
	}
	if b.direct == nil {
		for retry.Pause(ctx, b.poll) {
			if err := l.pollAll(ctx); err != nil {
				return err
			}
			succeeded()
		}
		return nil
	}
	connecting, cancel := context.WithTimeout(ctx, callTimeout)
	conn, err := pgx.ConnectConfig(connecting, b.direct)
	cancel()
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		conn.Close(end) //nolint:errcheck // it only listened
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+queuesChannel+"; LISTEN "+topiclog.Channel); err != nil {
		return fmt.Errorf("listen for messages: %w", err)
	}
	b.waits.wakeFirst() // earlier notifications were missed
	for ctx.Err() == nil {
		if err := l.receive(ctx, conn); err != nil {
			return err
		}
		succeeded()
	}
	return nil
}

// listener is the state of one listening connection.
type listener struct {
	*broker

	known    map[string]int64 // last number of queues that are waited on, at the last poll
	tailFrom uint64           // transaction before which the pipeline's messages are announced; 0: none are
	polledAt time.Time
	tailAt   time.Time     // when the pipeline's messages are to be read; zero: after the next notification
	hidden   time.Duration // until they are read again, while an open transaction hides some
}

// The pipeline's messages are read a moment after the first notification, once for all
// that come together, and again for those that an open transaction still hides.
const (
	soonest = 5 * time.Millisecond
	latest  = time.Second
)

// receive waits for a notification, or until something is to be read.
func (l *listener) receive(ctx context.Context, conn *pgx.Conn) error {
	until := l.polledAt.Add(l.poll)
	if !l.tailAt.IsZero() && l.tailAt.Before(until) {
		until = l.tailAt
	}
	switch now := time.Now(); {
	case !l.tailAt.IsZero() && !now.Before(l.tailAt):
		return l.readTail(ctx)
	case !now.Before(until):
		return l.pollAll(ctx)
	}
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	n, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil && n.Channel == queuesChannel:
		queue, count, _ := strings.Cut(n.Payload, " ")
		if messages, err := strconv.Atoi(count); err == nil {
			l.waits.wakeSome(queue, messages)
		}
	case err == nil && l.tailAt.IsZero():
		l.tailAt = time.Now().Add(soonest)
	case err != nil && waiting.Err() == nil:
		return fmt.Errorf("listen for messages: %w", err)
	}
	return nil
}

// pollAll finds messages that no notification announced.
func (l *listener) pollAll(ctx context.Context) error {
	l.polledAt = time.Now()
	if err := l.readTopics(ctx); err != nil {
		return err
	}
	if err := l.readTail(ctx); err != nil {
		return err
	}
	waited := l.waits.queues()
	if len(waited) == 0 {
		clear(l.known)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, _ := l.db.Query(ctx, `SELECT name, last_number FROM queues WHERE name = ANY ($1)`, waited)
	now := map[string]int64{}
	var queue string
	var last int64
	if _, err := pgx.ForEachRow(rows, []any{&queue, &last}, func() error {
		now[queue] = last
		if last != l.known[queue] {
			l.waits.wakeSome(queue, 1)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("poll the queues: %w", err)
	}
	l.known = now
	return nil
}

// tailMost is how many new messages of the pipeline are read to find out which calls to
// wake. Behind more, the first call of each list fetches, and then the next.
const tailMost = 10_000

// readTail wakes calls that wait for topics of the pipeline with new messages. It does
// nothing if there are no such calls.
func (l *listener) readTail(ctx context.Context) error {
	l.tailAt = time.Time{}
	waited := slices.DeleteFunc(l.waits.queues(), func(queue string) bool { return !l.isTopic(queue) })
	if len(waited) == 0 {
		l.tailFrom = 0
		return nil
	}
	from := l.tailFrom
	tail, err := topiclog.ReadTail(ctx, l.db, from, tailMost)
	if err != nil {
		return err
	}
	l.tailFrom = tail.Next
	for i, topic := range tail.Topics {
		l.waits.wakeSome(topic, tail.Counts[i])
	}
	if from == 0 || tail.Read == tailMost { // some may have come before tailFrom was set, or were not read
		for _, topic := range waited {
			l.waits.wakeSome(topic, 1)
		}
	}
	l.hidden = min(2*l.hidden+soonest, latest)
	if tail.Hidden {
		l.tailAt = time.Now().Add(l.hidden)
	} else {
		l.hidden = 0
	}
	return nil
}

// readTopics reads which queues are topics of the pipeline.
func (b *broker) readTopics(ctx context.Context) error {
	topics, err := topiclog.Topics(ctx, b.db)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, topic := range topics {
		known[topic] = true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics = known
	return nil
}

func (b *broker) isTopic(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.topics[name]
}
