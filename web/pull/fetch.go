package pull

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/registry"
)

// wanted is what a receiver asks of one queue.
type wanted struct {
	Queue       string
	Start       int64         // n: from message n on; 0: where the name stands; -1: the newest; -2: behind the newest
	Max         int           // messages at once
	RetryNum    int           // how often a message is given again; 0: it has failed unless it is answered
	FailTimeout time.Duration // after which a message without an answer may be given again
}

// message is one that was given to a receiver.
type message struct {
	ID          int64     `json:"id"`
	Sender      string    `json:"sender"`
	Message     string    `json:"message"`
	CreatedTime time.Time `json:"created_time"`
}

// onlyNew is the start of a receiver that skips all existing messages.
const onlyNew = -2

const (
	// largeFetches is how many fetches of more than one message are made at once. Each
	// may bring fetchBytes into memory.
	largeFetches = 2
	// fetchBytes is about how much one call is given: of each queue at least one
	// message, if there is one, and no more once they fill its part of it.
	fetchBytes = 32 << 20
	// mostMessages bounds how many messages a call is given.
	mostMessages = 10_000
)

// fetch is one attempt of a call to get messages from its queues.
type fetch struct {
	receiver string
	wants    []wanted // by queue
	results  []result // to be saved first, of the one queue that is wanted
}

type fetched struct {
	given [][]message     // by want
	due   []time.Duration // until a message may be given again, by want; negative: none
	saved int             // results
}

func (f fetched) empty() bool {
	return !slices.ContainsFunc(f.given, func(m []message) bool { return len(m) > 0 })
}

// The arrays are sorted by queue and receiver, so that calls which lock the same
// receivers lock them in one order.
const (
	fetchSQL = `
SELECT w.n, 0, t.message, coalesce(t.sent_by, ''), t.content, t.posted_at, t.due
FROM unnest($1::int[], $2::text[], $3::text[], $4::bigint[], $5::int[], $6::int[], $7::float8[]) w (n, queue, receiver, start, most, retry_num, fail_timeout)
CROSS JOIN LATERAL take_messages(w.queue, w.receiver, w.start, w.most, w.retry_num, w.fail_timeout, $8) t`
	// $9 and $10 are the results of all calls, one after the other.
	saveAndFetchSQL = `
SELECT w.n, t.saved, t.message, coalesce(t.sent_by, ''), t.content, t.posted_at, t.due
FROM unnest($1::int[], $2::text[], $3::text[], $4::bigint[], $5::int[], $6::int[], $7::float8[], $11::int[], $12::int[])
	w (n, queue, receiver, start, most, retry_num, fail_timeout, first, last)
CROSS JOIN LATERAL answer_and_take(w.queue, w.receiver, ($9::bigint[])[w.first:w.last], ($10::text[])[w.first:w.last],
	w.start, w.most, w.retry_num, w.fail_timeout, $8) t`
)

// ask is one want of one call.
type ask struct{ call, want int }

// fetchAll makes the fetches of several calls in one transaction. Calls of one receiver
// are served in their order.
func (b *broker) fetchAll(ctx context.Context, calls []fetch) (answers []fetched, err error) {
	var asks []ask
	for i, c := range calls {
		for j := range c.wants {
			asks = append(asks, ask{i, j})
		}
	}
	slices.SortStableFunc(asks, func(one, other ask) int {
		x, y := calls[one.call], calls[other.call]
		return cmp.Or(strings.Compare(x.wants[one.want].Queue, y.wants[other.want].Queue), strings.Compare(x.receiver, y.receiver))
	})
	err = registry.Again(func() error {
		answers, err = b.fetchOnce(ctx, calls, asks)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("fetch messages for %d calls: %w", len(calls), err)
	}
	return answers, nil
}

func (b *broker) fetchOnce(ctx context.Context, calls []fetch, asks []ask) ([]fetched, error) {
	answers := make([]fetched, len(calls))
	for i, c := range calls {
		answers[i] = fetched{given: make([][]message, len(c.wants)), due: make([]time.Duration, len(c.wants))}
		for j := range c.wants {
			answers[i].due[j] = -1
		}
	}
	sql, args := fetchStatement(calls, asks)
	rows, _ := b.db.Query(ctx, sql, args...)
	var at, saved int
	var id *int64
	var sender string
	var text *string
	var posted *time.Time
	var due *float64
	_, err := pgx.ForEachRow(rows, []any{&at, &saved, &id, &sender, &text, &posted, &due}, func() error {
		a := asks[at]
		answers[a.call].saved = saved
		switch {
		case id != nil:
			answers[a.call].given[a.want] = append(answers[a.call].given[a.want], message{*id, sender, *text, posted.UTC()})
		case due != nil:
			answers[a.call].due[a.want] = time.Duration(max(0, *due) * float64(time.Second))
		}
		return nil
	})
	return answers, err
}

func fetchStatement(calls []fetch, asks []ask) (sql string, args []any) {
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
	args = []any{n, queues, receivers, start, most, retryNum, failTimeout, fetchBytes / len(asks)}
	if len(answered) == 0 {
		return fetchSQL, args
	}
	return saveAndFetchSQL, append(args, answered, results, first, last)
}

// fetch takes the messages that are there. A fetch of many is made alone, which bounds
// the memory of answers that are made together.
func (b *broker) fetch(ctx context.Context, f fetch) (got fetched, err error) {
	if len(f.wants) == 1 && f.wants[0].Max == 1 {
		got, err = b.fetches.Ask(ctx, f)
	} else {
		got, err = b.fetchAlone(ctx, f)
	}
	if err == nil {
		err = allSaved(f.receiver, got.saved, f.results)
	}
	return got, err
}

func (b *broker) fetchAlone(ctx context.Context, f fetch) (got fetched, err error) {
	if err := b.large.Acquire(ctx, 1); err != nil {
		return got, err
	}
	defer b.large.Release(1)
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	answers, err := b.fetchAll(ctx, []fetch{f})
	if err != nil {
		return got, err
	}
	return answers[0], nil
}

// result is what a receiver answers to a message.
type result struct {
	Queue   string
	Message int64
	Text    string
	None    bool // the message was answered without a result
}

// stored is its text in the database.
func (r result) stored() *string {
	if r.None {
		return nil
	}
	return &r.Text
}

// unknownResultsError says that some results were for messages that a receiver was
// never given. The others are saved.
type unknownResultsError struct {
	Receiver string
	Unknown  int // of so many
	Results  int
}

func (e *unknownResultsError) Error() string {
	return fmt.Sprintf("%d of %d results are for messages that were not delivered to %s; the others are saved", e.Unknown, e.Results, e.Receiver)
}

func allSaved(receiver string, saved int, results []result) error {
	if saved < len(results) {
		return &unknownResultsError{receiver, len(results) - saved, len(results)}
	}
	return nil
}

const saveSQL = `SELECT save_results($1, $2, $3, $4)`

// saveResults saves a receiver's results, which finish its messages, also those that
// had failed. It returns how many were for messages that it had been given. A result
// may be saved again.
func (b *broker) saveResults(ctx context.Context, receiver string, results []result) (saved int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	queues, messages, texts := make([]string, len(results)), make([]int64, len(results)), make([]*string, len(results))
	for i, r := range results {
		queues[i], messages[i], texts[i] = r.Queue, r.Message, r.stored()
	}
	if err := registry.Again(func() error {
		return b.db.QueryRow(ctx, saveSQL, receiver, queues, messages, texts).Scan(&saved)
	}); err != nil {
		return 0, fmt.Errorf("save %d results of %s: %w", len(results), receiver, err)
	}
	return saved, nil
}

// saveAll saves results. All must be for messages that the receiver was given.
func (b *broker) saveAll(ctx context.Context, receiver string, results []result) error {
	saved, err := b.saveResults(ctx, receiver, results)
	if err != nil {
		return err
	}
	return allSaved(receiver, saved, results)
}
