package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrStopping says that the process ends, and nothing had come by then.
var ErrStopping = errors.New("the server is stopping")

// Answers are what a receiver brings when it pulls.
type Answers struct {
	Results []Result
	Saved   func() // called when they are saved, before any wait for messages; nil: nothing is
}

func (a *Answers) saved() {
	a.Results = nil // or they would be kept for as long as the call waits
	if a.Saved != nil {
		a.Saved()
	}
}

// Pull saves a receiver's results as [Queues.SaveResults] does, and gives it the next
// messages of its queues. If there are none it waits for them for up to timeout; 0
// does not wait. What it returns is by want, and all empty if nothing came in time.
// An [UnknownResultsError] says that it was given nothing, for that reason. A call
// whose caller has gone takes nothing.
func (q *Queues) Pull(ctx context.Context, receiver string, answers Answers, wants []Want, timeout time.Duration) ([][]Message, error) {
	if !together(answers.Results, wants) {
		if err := q.answer(ctx, receiver, answers); err != nil {
			return nil, err
		}
		answers.saved()
	}
	wants = slices.Clone(wants)
	if timeout <= 0 {
		got, err := q.try(ctx, take{receiver, wants, answers.Results})
		return got.given, err
	}
	end := time.NewTimer(timeout)
	defer end.Stop()
	w := q.lines.join(receiver, wants) // before the first look, or what came between the two would not be heard of
	given := false
	defer func() { q.lines.leave(w, given) }()
	for {
		got, err := q.try(ctx, take{receiver, wants, answers.Results})
		switch {
		case err != nil && errors.Is(context.Cause(ctx), ErrStopping) && len(answers.Results) == 0:
			return nil, ErrStopping // it was cut while it looked, and has nothing that could be lost
		case err != nil:
			return nil, err
		}
		answers.saved()
		if !got.empty() {
			given = true
			return got.given, nil
		}
		for i := range wants {
			wants[i].Start = afterFirst(wants[i].Start)
		}
		if more, err := q.wait(ctx, w, got.due, end.C); !more {
			return got.given, err
		}
	}
}

// afterFirst is where a call that waits starts from its second look on: what was to
// be passed over has been, but the newest message and one that is to come are still
// the first that it wants.
func afterFirst(start int64) int64 {
	if start == onlyNew {
		return 0
	}
	return start
}

// answer saves results alone.
func (q *Queues) answer(ctx context.Context, receiver string, answers Answers) error {
	saved, err := q.SaveResults(ctx, receiver, answers.Results)
	if err != nil {
		return err
	}
	return allSaved(receiver, saved, answers.Results)
}

// together tells whether results, if there are any, can be saved in the transaction
// that takes what is wanted: a receiver is then locked once, so that calls cannot wait
// for each other in a ring.
func together(results []Result, wants []Want) bool {
	return len(results) == 0 || len(wants) == 1 && !slices.ContainsFunc(results, func(r Result) bool { return r.Queue != wants[0].Queue })
}

// wait returns when another look is worth it, with more, or when there is to be none.
func (q *Queues) wait(ctx context.Context, w *waiter, due []time.Duration, end <-chan time.Time) (more bool, err error) {
	var again <-chan time.Time
	if soonest := q.lines.later(w, due); soonest >= 0 {
		timer := time.NewTimer(soonest + time.Millisecond)
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-end:
		return false, nil
	case <-w.wake:
	case <-again:
	}
	return true, nil
}

// Waiting is how many calls wait for messages in this process.
func (q *Queues) Waiting() int { return q.lines.count() }

// Run hears of messages until ctx is done, and returns only then. Trouble with the
// database is logged and waited out.
func (q *Queues) Run(ctx context.Context) error {
	for failures := 1; ctx.Err() == nil; failures++ {
		began := time.Now()
		if err := q.follow(ctx); err != nil && ctx.Err() == nil {
			q.log.WarnContext(ctx, "not listening for messages, will connect again", "err", err)
		}
		if time.Since(began) > time.Minute {
			failures = 1
		}
		pause(ctx, backoff(failures))
	}
	return nil
}

// Channels of NOTIFY: messages that were posted, and items that have moved on.
const (
	queuesChannel = "farol_queues"
	workChannel   = "farol_work"
)

// follow listens over a connection of its own until it breaks, and looks from time
// to time for what it has not heard of.
func (q *Queues) follow(ctx context.Context) error {
	f := &follower{Queues: q, known: map[string]int64{}}
	if err := q.enter(ctx); err != nil {
		return err
	}
	if err := q.readTopics(ctx); err != nil {
		return err
	}
	if q.direct == nil {
		for pause(ctx, q.poll) {
			if err := f.look(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	connecting, cancel := context.WithTimeout(ctx, callTimeout)
	conn, err := pgx.ConnectConfig(connecting, q.direct)
	cancel()
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
		defer cancel()
		conn.Close(end) //nolint:errcheck // it only listened
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+queuesChannel+"; LISTEN "+workChannel); err != nil {
		return fmt.Errorf("listen for messages: %w", err)
	}
	q.lines.putAll() // what came before was not heard
	for ctx.Err() == nil {
		if err := f.hear(ctx, conn); err != nil {
			return err
		}
	}
	return nil
}

// enter sees to it that receivers find their place in a database that came from
// another cluster.
func (q *Queues) enter(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, enterTimeout)
	defer cancel()
	var renumbered bool
	if err := q.db.QueryRow(ctx, `SELECT renumber_log()`).Scan(&renumbered); err != nil {
		return fmt.Errorf("enter the topic log: %w", err)
	}
	if renumbered {
		q.log.WarnContext(ctx, "the database came from another cluster, all readers were moved to the new numbering")
	}
	return nil
}

// follower is what one connection has heard.
type follower struct {
	*Queues

	known  map[string]int64 // last number of queues that are waited on, when it was looked at last
	mark   uint64           // transaction before which messages of the pipeline have been told of; 0: none has
	looked time.Time        // for all that no notice tells of
	tailAt time.Time        // when the pipeline's messages are to be looked at; zero: when something is heard
	hidden time.Duration    // until they are looked at again, while an open transaction hides some
}

// Messages of the pipeline are looked at a moment after the first notice, once for
// all that come together, and again for those that an open transaction still hides.
const (
	soonest = 5 * time.Millisecond
	latest  = time.Second
)

// hear waits for a notice, or until something is to be looked at.
func (f *follower) hear(ctx context.Context, conn *pgx.Conn) error {
	until := f.looked.Add(f.poll)
	if !f.tailAt.IsZero() && f.tailAt.Before(until) {
		until = f.tailAt
	}
	switch now := time.Now(); {
	case !f.tailAt.IsZero() && !now.Before(f.tailAt):
		return f.tail(ctx)
	case !now.Before(until):
		return f.look(ctx)
	}
	waiting, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	n, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil && n.Channel == queuesChannel:
		queue, count, _ := strings.Cut(n.Payload, " ")
		if messages, err := strconv.Atoi(count); err == nil {
			f.lines.put(queue, messages)
		}
	case err == nil && f.tailAt.IsZero():
		f.tailAt = time.Now().Add(soonest)
	case err != nil && waiting.Err() == nil:
		return fmt.Errorf("listen for messages: %w", err)
	}
	return nil
}

// look finds what no notice told of.
func (f *follower) look(ctx context.Context) error {
	f.looked = time.Now()
	if err := f.readTopics(ctx); err != nil {
		return err
	}
	if err := f.tail(ctx); err != nil {
		return err
	}
	waited := f.lines.queues()
	if len(waited) == 0 {
		clear(f.known)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, _ := f.db.Query(ctx, `SELECT name, last_number FROM queues WHERE name = ANY ($1)`, waited)
	now := map[string]int64{}
	var queue string
	var last int64
	if _, err := pgx.ForEachRow(rows, []any{&queue, &last}, func() error {
		now[queue] = last
		if last != f.known[queue] {
			f.lines.put(queue, 1)
		}
		return nil
	}); err != nil {
		return fmt.Errorf("look at queues: %w", err)
	}
	f.known = now
	return nil
}

// tailMost is how many new messages of the pipeline are looked at to find out whom
// to wake. Behind more, the first of each line looks, and the next if there was one.
const tailMost = 10_000

// tailSQL tells of which topics there are messages behind a mark that can be read,
// and how many; how many were looked at, whether there are more that cannot be read
// yet, and the oldest open transaction.
const tailSQL = `
WITH m AS MATERIALIZED (
	SELECT topic, xid < pg_snapshot_xmin(pg_current_snapshot()) AS readable
	FROM pipeline_messages WHERE xid >= $1 ORDER BY xid, id LIMIT $2
)
SELECT ARRAY(SELECT topic FROM m WHERE readable GROUP BY topic ORDER BY topic),
	ARRAY(SELECT count(*) FROM m WHERE readable GROUP BY topic ORDER BY topic),
	(SELECT count(*) FROM m), EXISTS (SELECT FROM m WHERE NOT readable), (SELECT pg_snapshot_xmin(pg_current_snapshot()))`

// tail wakes those who wait for topics of the pipeline in which there is something
// new. With nobody there it does nothing.
func (f *follower) tail(ctx context.Context) error {
	f.tailAt = time.Time{}
	waited := slices.DeleteFunc(f.lines.queues(), func(queue string) bool { return !f.isTopic(queue) })
	if len(waited) == 0 {
		f.mark = 0
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var topics []string
	var counts []int
	var looked int
	var hidden bool
	from := f.mark
	if err := f.db.QueryRow(ctx, tailSQL, from, tailMost).Scan(&topics, &counts, &looked, &hidden, &f.mark); err != nil {
		return fmt.Errorf("look at the end of the topic log: %w", err)
	}
	for i, topic := range topics {
		f.lines.put(topic, counts[i])
	}
	if from == 0 || looked == tailMost { // some may have come before the mark was set, or behind what was looked at
		for _, topic := range waited {
			f.lines.put(topic, 1)
		}
	}
	f.hidden = min(2*f.hidden+soonest, latest)
	if hidden {
		f.tailAt = time.Now().Add(f.hidden)
	} else {
		f.hidden = 0
	}
	return nil
}

// readTopics reads which queues are topics of the pipeline.
func (q *Queues) readTopics(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	rows, _ := q.db.Query(ctx, `SELECT topic FROM stage_settings`) // CollectRows returns the error
	topics, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read the names of topics: %w", err)
	}
	known := map[string]bool{fixityTopic: true}
	for _, topic := range topics {
		known[topic] = true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !maps.Equal(q.topics, known) {
		q.topics = known
	}
	return nil
}

func (q *Queues) isTopic(name string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.topics[name]
}
