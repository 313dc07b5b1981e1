package pull

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/farol-preservation/farol/registry/topiclog"
	"github.com/farol-preservation/farol/retry"
)

// queuesChannel is the channel of NOTIFY for messages that were posted.
const queuesChannel = "farol_queues"

// callTimeout bounds one statement of the listener.
const callTimeout = 10 * time.Second

// listener wakes the calls that wait in this process.
type listener struct {
	db     *pgxpool.Pool
	log    *slog.Logger
	waits  *waitlists
	direct *pgx.ConnConfig // for LISTEN; nil: poll instead
	poll   time.Duration
	topics []string // of the pipeline
}

func newListener(db *pgxpool.Pool, o Options) *listener {
	l := &listener{db: db, log: o.Log, waits: &waitlists{of: map[string]map[listKey]*waitlist{}}, direct: o.Direct, poll: o.Poll}
	if l.direct == nil && !o.NoListen {
		l.direct = db.Config().ConnConfig
	}
	if l.poll <= 0 {
		l.poll = 5 * time.Second
		if l.direct == nil {
			l.poll = time.Second
		}
	}
	return l
}

// run receives notifications of messages until ctx is done, and returns nil only then.
// Failures of the database are logged and retried.
func (l *listener) run(ctx context.Context) error {
	retry.Forever(ctx, l.listen, func(err error, wait time.Duration) {
		l.log.WarnContext(ctx, "LISTEN for messages failed; waiting calls find them by polling until it is retried", "retry_in", wait, "err", err)
	})
	return nil
}

// listen receives notifications over a connection of its own until that breaks, and
// polls from time to time for what no notification announced.
func (l *listener) listen(ctx context.Context, succeeded func()) error {
	s := &session{listener: l, known: map[string]int64{}}
	began := time.Now()
	settle := func() {
		if time.Since(began) > time.Minute { // else a connection that breaks at once is made again and again
			succeeded()
		}
	}
	renumbered, err := topiclog.Renumber(ctx, l.db)
	if err != nil {
		return err
	}
	if renumbered {
		l.log.WarnContext(ctx, "the database came from another cluster; all readers were moved to the new numbering")
	}
	if err := l.readTopics(ctx); err != nil {
		return err
	}
	if l.direct == nil {
		for retry.Pause(ctx, l.poll) {
			if err := s.pollAll(ctx); err != nil {
				return err
			}
			settle()
		}
		return nil
	}
	conn, end, err := topiclog.Listen(ctx, l.direct, queuesChannel, topiclog.Channel)
	if err != nil {
		return err
	}
	defer end()
	l.waits.wakeFirst() // earlier notifications were missed
	for ctx.Err() == nil {
		if err := s.receive(ctx, conn); err != nil {
			return err
		}
		settle()
	}
	return nil
}

// session is the state of one listening connection.
type session struct {
	*listener

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
func (s *session) receive(ctx context.Context, conn *pgx.Conn) error {
	until := s.polledAt.Add(s.poll)
	if !s.tailAt.IsZero() && s.tailAt.Before(until) {
		until = s.tailAt
	}
	switch now := time.Now(); {
	case !s.tailAt.IsZero() && !now.Before(s.tailAt):
		return s.readTail(ctx)
	case !now.Before(until):
		return s.pollAll(ctx)
	}
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	n, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil && n.Channel == queuesChannel:
		queue, count, _ := strings.Cut(n.Payload, " ")
		if messages, err := strconv.Atoi(count); err == nil {
			s.waits.wakeSome(queue, messages)
		}
	case err == nil && s.tailAt.IsZero():
		s.tailAt = time.Now().Add(soonest)
	case err != nil && waiting.Err() == nil:
		return fmt.Errorf("listen for messages: %w", err)
	}
	return nil
}

// pollAll finds messages that no notification announced.
func (s *session) pollAll(ctx context.Context) error {
	s.polledAt = time.Now()
	if err := s.readTopics(ctx); err != nil {
		return err
	}
	if err := s.readTail(ctx); err != nil {
		return err
	}
	waited := s.waits.queues()
	if len(waited) == 0 {
		clear(s.known)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, _ := s.db.Query(ctx, `SELECT name, last_number FROM queues WHERE name = ANY ($1)`, waited)
	now := map[string]int64{}
	var queue string
	var last int64
	if _, err := pgx.ForEachRow(rows, []any{&queue, &last}, func() error {
		now[queue] = last
		if last != s.known[queue] {
			s.waits.wakeSome(queue, 1)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("poll the queues: %w", err)
	}
	s.known = now
	return nil
}

// tailMost is how many new messages of the pipeline are read to find out which calls to
// wake. Behind more, the first call of each list fetches, and then the next.
const tailMost = 10_000

// readTail wakes calls that wait for topics of the pipeline with new messages. It does
// nothing if there are no such calls.
func (s *session) readTail(ctx context.Context) error {
	s.tailAt = time.Time{}
	waited := slices.DeleteFunc(s.waits.queues(), func(queue string) bool { return !slices.Contains(s.topics, queue) })
	if len(waited) == 0 {
		s.tailFrom = 0
		return nil
	}
	from := s.tailFrom
	tail, err := topiclog.ReadTail(ctx, s.db, from, tailMost)
	if err != nil {
		return err
	}
	s.tailFrom = tail.Next
	for i, topic := range tail.Topics {
		s.waits.wakeSome(topic, tail.Counts[i])
	}
	if from == 0 || tail.Read == tailMost { // some may have come before tailFrom was set, or were not read
		for _, topic := range waited {
			s.waits.wakeSome(topic, 1)
		}
	}
	s.hidden = min(2*s.hidden+soonest, latest)
	if tail.Hidden {
		s.tailAt = time.Now().Add(s.hidden)
	} else {
		s.hidden = 0
	}
	return nil
}

// readTopics reads which queues are topics of the pipeline.
func (l *listener) readTopics(ctx context.Context) (err error) {
	l.topics, err = topiclog.Topics(ctx, l.db)
	return err
}
