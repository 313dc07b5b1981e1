package nsqcompat

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// Want is what a receiver asks of one queue.
type Want struct {
	Queue       string
	Start       int64         // n: from message n on; 0: where the name stands; -1: the newest; -2: behind the newest
	Max         int           // messages at once
	RetryNum    int           // how often a message is given again; 0: it has failed unless it is answered
	FailTimeout time.Duration // after which a message without an answer may be given again
}

// Message is one that was given to a receiver.
type Message struct {
	ID          int64     `json:"id"`
	Sender      string    `json:"sender"`
	Message     string    `json:"message"`
	CreatedTime time.Time `json:"created_time"`
}

// take is one call's try to get something from its queues.
type take struct {
	receiver string
	wants    []Want   // by queue
	results  []Result // to be saved first, of the one queue that is wanted
}

type taken struct {
	given [][]Message     // by want
	due   []time.Duration // until a message may be given again, by want; negative: none
	saved int             // results
}

func (t taken) empty() bool {
	return !slices.ContainsFunc(t.given, func(m []Message) bool { return len(m) > 0 })
}

// Arrays are in the order of queues and receivers, so that calls which lock the same
// receivers do so in one order.
const (
	takeSQL = `
SELECT w.n, 0, t.message, coalesce(t.sent_by, ''), t.content, t.posted_at, t.due
FROM unnest($1::int[], $2::text[], $3::text[], $4::bigint[], $5::int[], $6::int[], $7::float8[]) w (n, queue, receiver, start, most, retry_num, fail_timeout)
CROSS JOIN LATERAL take_messages(w.queue, w.receiver, w.start, w.most, w.retry_num, w.fail_timeout, $8) t`
	// The results of all calls are one after the other in $9 and $10.
	answerAndTakeSQL = `
SELECT w.n, t.saved, t.message, coalesce(t.sent_by, ''), t.content, t.posted_at, t.due
FROM unnest($1::int[], $2::text[], $3::text[], $4::bigint[], $5::int[], $6::int[], $7::float8[], $11::int[], $12::int[])
	w (n, queue, receiver, start, most, retry_num, fail_timeout, first, last)
CROSS JOIN LATERAL answer_and_take(w.queue, w.receiver, ($9::bigint[])[w.first:w.last], ($10::text[])[w.first:w.last],
	w.start, w.most, w.retry_num, w.fail_timeout, $8) t`
)

// ask is one want of one call.
type ask struct{ call, want int }

// takeAll makes the tries of several calls in one transaction. Calls of one
// receiver are served in their order.
func (q *Queues) takeAll(ctx context.Context, calls []take) (answers []taken, err error) {
	var asks []ask
	for i, c := range calls {
		for j := range c.wants {
			asks = append(asks, ask{i, j})
		}
	}
	slices.SortStableFunc(asks, func(a, b ask) int {
		x, y := calls[a.call], calls[b.call]
		if c := strings.Compare(x.wants[a.want].Queue, y.wants[b.want].Queue); c != 0 {
			return c
		}
		return strings.Compare(x.receiver, y.receiver)
	})
	err = registry.Again(func() error {
		answers, err = q.takeOnce(ctx, calls, asks)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("take messages for %d calls: %w", len(calls), err)
	}
	return answers, nil
}

func (q *Queues) takeOnce(ctx context.Context, calls []take, asks []ask) ([]taken, error) {
	answers := make([]taken, len(calls))
	for i, c := range calls {
		answers[i] = taken{given: make([][]Message, len(c.wants)), due: make([]time.Duration, len(c.wants))}
		for j := range c.wants {
			answers[i].due[j] = -1
		}
	}
	sql, args := takeStatement(calls, asks)
	rows, _ := q.db.Query(ctx, sql, args...)
	var at, saved int
	var id *int64
	var m struct {
		sender string
		body   *string
		at     *time.Time
		due    *float64
	}
	_, err := pgx.ForEachRow(rows, []any{&at, &saved, &id, &m.sender, &m.body, &m.at, &m.due}, func() error {
		a := asks[at]
		answers[a.call].saved = saved
		switch {
		case id != nil:
			answers[a.call].given[a.want] = append(answers[a.call].given[a.want], Message{*id, m.sender, *m.body, m.at.UTC()})
		case m.due != nil:
			answers[a.call].due[a.want] = time.Duration(max(0, *m.due) * float64(time.Second))
		}
		return nil
	})
	return answers, err
}

func takeStatement(calls []take, asks []ask) (sql string, args []any) {
	var n, most, retryNum []int32
	var queues, receivers []string
	var start []int64
	var failTimeout []float64
	var answered []int64
	var results []*string
	var first, last []int32
	for i, a := range asks {
		w := calls[a.call].wants[a.want]
		n, most, retryNum = append(n, int32(i)), append(most, int32(min(w.Max, mostMessages))), append(retryNum, int32(w.RetryNum)) //nolint:gosec // they were bounded
		queues, receivers, start = append(queues, w.Queue), append(receivers, calls[a.call].receiver), append(start, w.Start)
		failTimeout = append(failTimeout, w.FailTimeout.Seconds())
		first = append(first, int32(len(answered)+1)) //nolint:gosec // as many as fit into small requests
		for _, r := range calls[a.call].results {
			answered, results = append(answered, r.Message), append(results, r.stored())
		}
		last = append(last, int32(len(answered))) //nolint:gosec // as above
	}
	args = []any{n, queues, receivers, start, most, retryNum, failTimeout, takeBytes / len(asks)}
	if len(answered) == 0 {
		return takeSQL, args
	}
	return answerAndTakeSQL, append(args, answered, results, first, last)
}

// try takes what there is. Many messages are taken alone, so that what the answers
// to calls that go together bring into memory is bounded.
func (q *Queues) try(ctx context.Context, t take) (got taken, err error) {
	if len(t.wants) == 1 && t.wants[0].Max == 1 {
		got, err = q.takes.Ask(ctx, t)
	} else {
		got, err = q.takeAlone(ctx, t)
	}
	if err == nil {
		err = allSaved(t.receiver, got.saved, t.results)
	}
	return got, err
}

func (q *Queues) takeAlone(ctx context.Context, t take) (got taken, err error) {
	if err := q.large.Acquire(ctx, 1); err != nil {
		return got, err
	}
	defer q.large.Release(1)
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	answers, err := q.takeAll(ctx, []take{t})
	if err != nil {
		return got, err
	}
	return answers[0], nil
}
