package pull

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/farol-preservation/farol/registry"
)

// statementTime bounds the statements of a call; mostTogether is how many calls share one.
const (
	statementTime = 30 * time.Second
	mostTogether  = 32
)

// postRequest is what one call posts: all of it, or none.
type postRequest struct {
	sender   *string
	postings []posting
	later    later
}

// posting is the messages of one call for one queue.
type posting struct {
	Queue    string
	Messages []string
}

// later is the earliest time at which messages may be given: after a delay by the
// database's clock, or from a time on, which takes precedence. Zero is at once.
type later struct {
	Delay time.Duration
	At    time.Time
}

// columns are both as the database takes them.
func (l later) columns() (delay *float64, at *time.Time) {
	if s := l.Delay.Seconds(); s > 0 {
		delay = &s
	}
	if !l.At.IsZero() {
		at = &l.At
	}
	return delay, at
}

// posted are the numbers of a call's first messages, in the order of its postings.
type posted struct {
	firsts []int64
	err    error // of this call alone
}

// errNotPostable says that a queue is a topic of the pipeline.
var errNotPostable = errors.New("is a topic of the pipeline, to which only the pipeline posts")

// post appends messages to queues, all or none, and returns the number of the first in
// each, in their order; the others follow it without a gap.
func (b *broker) post(ctx context.Context, p postRequest) ([]int64, error) {
	answer, err := b.posts.Ask(ctx, p)
	if err == nil {
		err = answer.err
	}
	if err != nil {
		return nil, fmt.Errorf("post to %d queues: %w", len(p.postings), err)
	}
	return answer.firsts, nil
}

const postSQL = `SELECT queue, last_number FROM post_messages($1, $2, $3, $4, $5, $6, $7, $8)`

// postAll posts for several calls in one transaction. If the database refuses it
// because of one of them, they are posted one by one.
func (b *broker) postAll(ctx context.Context, calls []postRequest) ([]posted, error) {
	answers, err := b.postTogether(ctx, calls)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return answers, nil
	case !errors.As(err, &refused):
		return nil, err
	case len(calls) == 1:
		if refused.ConstraintName == "topics_are_the_pipelines" {
			err = fmt.Errorf("%s %w", strings.TrimSuffix(refused.Message, " is a topic of the pipeline"), errNotPostable)
		}
		return []posted{{err: err}}, nil
	}
	answers = answers[:0]
	for i := range calls {
		one, err := b.postAll(ctx, calls[i:i+1])
		if err != nil {
			one = []posted{{err: err}}
		}
		answers = append(answers, one...)
	}
	return answers, nil
}

func (b *broker) postTogether(ctx context.Context, calls []postRequest) ([]posted, error) {
	var names []string
	var counts []int64
	at := map[string]int{}
	for _, c := range calls {
		for _, p := range c.postings {
			if _, ok := at[p.Queue]; !ok {
				at[p.Queue] = len(names)
				names, counts = append(names, p.Queue), append(counts, 0)
			}
		}
	}
	rows := postRows{}
	begins := make([][]int64, len(calls)) // how many messages come before those of each call
	for i, c := range calls {
		for _, p := range c.postings {
			n := at[p.Queue]
			begins[i] = append(begins[i], counts[n])
			for _, body := range p.Messages {
				counts[n]++
				rows.add(n, counts[n], body, c)
			}
		}
	}
	last := make([]int64, len(names))
	if err := registry.Again(func() error {
		found, _ := b.db.Query(ctx, postSQL,
			names, counts, rows.queueOf, rows.place, rows.senders, rows.bodies, rows.delays, rows.runAts)
		var name string
		var number int64
		_, err := pgx.ForEachRow(found, []any{&name, &number}, func() error {
			last[at[name]] = number
			return nil
		})
		return err
	}); err != nil {
		return nil, fmt.Errorf("post %d messages: %w", len(rows.bodies), err)
	}
	answers := make([]posted, len(calls))
	for i, c := range calls {
		for j, p := range c.postings {
			n := at[p.Queue]
			answers[i].firsts = append(answers[i].firsts, last[n]-counts[n]+begins[i][j]+1)
		}
	}
	for i, name := range names { // calls that wait in this process need not wait for the notification
		b.waits.wakeSome(name, int(counts[i]))
	}
	return answers, nil
}

// postRows are messages as columns.
type postRows struct {
	queueOf []int32
	place   []int64 // among those of their queue
	senders []*string
	bodies  []string
	delays  []*float64
	runAts  []*time.Time
}

func (r *postRows) add(queue int, place int64, body string, c postRequest) {
	delay, at := c.later.columns()
	r.queueOf, r.place = append(r.queueOf, int32(queue+1)), append(r.place, place) //nolint:gosec // a few queues
	r.senders, r.bodies = append(r.senders, c.sender), append(r.bodies, body)
	r.delays, r.runAts = append(r.delays, delay), append(r.runAts, at)
}
