package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/farol-preservation/farol/claim"
	"github.com/farol-preservation/farol/registry"
)

// Queues is the topic log as programs use it that post messages and pull them:
// queues that come into being with their first message, and the pipeline's topics,
// which can be pulled only. It is safe for concurrent use, and any number of
// processes may serve one database.
//
// Messages are posted in one transaction with their numbers, and given in one with
// the note of who has them. Calls that come while a statement runs share the next.
type Queues struct {
	db    *pgxpool.Pool
	log   *slog.Logger
	posts *claim.Batch[post, posted]
	takes *claim.Batch[take, taken]
	large *semaphore.Weighted // takes of many messages, which are not made together
	lines lines

	direct *pgx.ConnConfig // for listening; nil: there is none, and the log is looked at instead
	poll   time.Duration

	mu     sync.Mutex
	topics map[string]bool // of the pipeline
}

// QueuesOptions say how a process waits for messages. What is zero has a default.
type QueuesOptions struct {
	Direct *pgx.ConnConfig // how to listen, if the pool leads to a pooler
	Deaf   bool            // there is no way to listen
	Poll   time.Duration   // between two looks for what was not heard; 0 is 5 s
	Log    *slog.Logger    // nil discards
}

const (
	statementTime = 30 * time.Second
	// mostTogether is how many calls go into one statement.
	mostTogether = 32
	// largeTakes is how many pulls of more than one message are made at once. Each
	// may bring takeBytes into memory.
	largeTakes = 2
	// takeBytes is about how much one call is given: of each queue at least one
	// message, if there is one, and no more once they are as much as its part.
	takeBytes = 32 << 20
	// mostMessages bounds how many it is given.
	mostMessages = 10_000
)

// NewQueues returns the queues in db. Nothing is heard of until Run is called.
func NewQueues(db *pgxpool.Pool, o QueuesOptions) *Queues {
	q := &Queues{
		db: db, log: o.Log, poll: o.Poll, direct: o.Direct, large: semaphore.NewWeighted(largeTakes),
		lines: lines{of: map[string]map[lineKey]*queueLine{}}, topics: map[string]bool{},
	}
	if q.log == nil {
		q.log = slog.New(slog.DiscardHandler)
	}
	if q.direct == nil && !o.Deaf {
		q.direct = db.Config().ConnConfig
	}
	if q.poll <= 0 {
		q.poll = 5 * time.Second
		if q.direct == nil {
			q.poll = time.Second
		}
	}
	q.posts = claim.NewBatch(2, mostTogether, q.postAll)
	q.takes = claim.NewBatch(2, mostTogether, q.takeAll)
	return q
}

// Posting is what one call posts to one queue.
type Posting struct {
	Queue    string
	Messages []string
}

// post is one call: all of it is posted, or none.
type post struct {
	sender   *string
	postings []Posting
}

// posted are the numbers of a call's last messages, in the order of its postings.
type posted struct {
	last []int64
	err  error // of this call alone
}

// ErrNotPostable says that a queue is a topic of the pipeline.
var ErrNotPostable = errors.New("is a topic of the pipeline, to which only the pipeline posts")

// Post appends messages to queues, all or none, and returns the number of the first
// in each, in their order; the others follow it without a gap. sender may be nil.
func (q *Queues) Post(ctx context.Context, sender *string, postings []Posting) ([]int64, error) {
	answer, err := q.posts.Ask(ctx, post{sender, postings})
	if err == nil {
		err = answer.err
	}
	if err != nil {
		return nil, fmt.Errorf("post to %d queues: %w", len(postings), err)
	}
	firsts := make([]int64, len(postings))
	for i, p := range postings {
		firsts[i] = answer.last[i] - int64(len(p.Messages)) + 1
	}
	return firsts, nil
}

// postAll posts for several calls in one transaction. What the database refuses of
// one would fail them all, so they are then posted one by one.
func (q *Queues) postAll(ctx context.Context, calls []post) ([]posted, error) {
	answers, err := q.postTogether(ctx, calls)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return answers, nil
	case !errors.As(err, &refused):
		return nil, err
	case len(calls) == 1:
		if refused.ConstraintName == "topics_are_the_pipelines" {
			err = fmt.Errorf("%s %w", strings.TrimSuffix(refused.Message, " is a topic of the pipeline"), ErrNotPostable)
		}
		return []posted{{err: err}}, nil
	}
	answers = answers[:0]
	for i := range calls {
		one, err := q.postAll(ctx, calls[i:i+1])
		if err != nil {
			one = []posted{{err: err}}
		}
		answers = append(answers, one...)
	}
	return answers, nil
}

func (q *Queues) postTogether(ctx context.Context, calls []post) ([]posted, error) {
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
	var queueOf []int32
	var place []int64
	var senders []*string
	var bodies []string
	ends := make([][]int64, len(calls)) // places of each call's last messages
	for i, c := range calls {
		for _, p := range c.postings {
			n := at[p.Queue]
			for _, body := range p.Messages {
				counts[n]++
				queueOf, place = append(queueOf, int32(n+1)), append(place, counts[n]) //nolint:gosec // a few queues
				senders, bodies = append(senders, c.sender), append(bodies, body)
			}
			ends[i] = append(ends[i], counts[n])
		}
	}
	last := make([]int64, len(names))
	if err := registry.Again(func() error {
		rows, _ := q.db.Query(ctx, `SELECT queue, last_number FROM post_messages($1, $2, $3, $4, $5, $6)`, names, counts, queueOf, place, senders, bodies)
		var name string
		var number int64
		_, err := pgx.ForEachRow(rows, []any{&name, &number}, func() error {
			last[at[name]] = number
			return nil
		})
		return err
	}); err != nil {
		return nil, fmt.Errorf("post %d messages: %w", len(bodies), err)
	}
	answers := make([]posted, len(calls))
	for i, c := range calls {
		for j, p := range c.postings {
			n := at[p.Queue]
			answers[i].last = append(answers[i].last, last[n]-counts[n]+ends[i][j])
		}
	}
	for i, name := range names { // those who wait here need not wait for the notice
		q.lines.put(name, int(counts[i]))
	}
	return answers, nil
}

// Result is an answer to a message that was given to a receiver.
type Result struct {
	Queue   string
	Message int64
	Text    string
}

// UnknownResultsError says that some results were for messages that a receiver was
// never given. The others are saved.
type UnknownResultsError struct {
	Receiver       string
	Unknown, Given int // of so many that were given
}

func (e *UnknownResultsError) Error() string {
	return fmt.Sprintf("%d of %d results are for messages that %s was not given; the others are saved", e.Unknown, e.Given, e.Receiver)
}

func allSaved(receiver string, saved int, results []Result) error {
	if saved < len(results) {
		return &UnknownResultsError{receiver, len(results) - saved, len(results)}
	}
	return nil
}

// SaveResults notes what a receiver has answered; the messages are finished by it,
// also those that had failed. It returns how many of the answers were to messages
// that it had been given. An answer may be given again.
func (q *Queues) SaveResults(ctx context.Context, receiver string, results []Result) (saved int, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	queues, messages, texts := make([]string, len(results)), make([]int64, len(results)), make([]string, len(results))
	for i, r := range results {
		queues[i], messages[i], texts[i] = r.Queue, r.Message, r.Text
	}
	if err := registry.Again(func() error {
		return q.db.QueryRow(ctx, `SELECT save_results($1, $2, $3, $4)`, receiver, queues, messages, texts).Scan(&saved)
	}); err != nil {
		return 0, fmt.Errorf("save %d results of %s: %w", len(results), receiver, err)
	}
	return saved, nil
}

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
	var results []string
	var first, last []int32
	for i, a := range asks {
		w := calls[a.call].wants[a.want]
		n, most, retryNum = append(n, int32(i)), append(most, int32(min(w.Max, mostMessages))), append(retryNum, int32(w.RetryNum)) //nolint:gosec // they were bounded
		queues, receivers, start = append(queues, w.Queue), append(receivers, calls[a.call].receiver), append(start, w.Start)
		failTimeout = append(failTimeout, w.FailTimeout.Seconds())
		first = append(first, int32(len(answered)+1)) //nolint:gosec // as many as fit into small requests
		for _, r := range calls[a.call].results {
			answered, results = append(answered, r.Message), append(results, r.Text)
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
