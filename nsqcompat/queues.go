package nsqcompat

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/farol-preservation/farol/claim/batch"
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
	posts *batch.Calls[post, posted]
	takes *batch.Calls[take, taken]
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
	q.posts = batch.New(2, mostTogether, q.postAll)
	q.takes = batch.New(2, mostTogether, q.takeAll)
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
	later    Later
}

// Later is when messages may be given at the earliest: after a delay, by the
// database's clock, or from a time on, which counts if there are both. Zero is at once.
type Later struct {
	Delay time.Duration
	At    time.Time
}

// columns are both as the database takes them.
func (l Later) columns() (delay *float64, at *time.Time) {
	if s := l.Delay.Seconds(); s > 0 {
		delay = &s
	}
	if !l.At.IsZero() {
		at = &l.At
	}
	return delay, at
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
	return q.PostLater(ctx, sender, postings, Later{})
}

// PostLater appends messages that are given to nobody before a time.
func (q *Queues) PostLater(ctx context.Context, sender *string, postings []Posting, later Later) ([]int64, error) {
	answer, err := q.posts.Ask(ctx, post{sender, postings, later})
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
	rows := postRows{}
	ends := make([][]int64, len(calls)) // places of each call's last messages
	for i, c := range calls {
		for _, p := range c.postings {
			n := at[p.Queue]
			for _, body := range p.Messages {
				counts[n]++
				rows.add(n, counts[n], body, c)
			}
			ends[i] = append(ends[i], counts[n])
		}
	}
	last := make([]int64, len(names))
	if err := registry.Again(func() error {
		found, _ := q.db.Query(ctx, `SELECT queue, last_number FROM post_messages($1, $2, $3, $4, $5, $6, $7, $8)`,
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
			answers[i].last = append(answers[i].last, last[n]-counts[n]+ends[i][j])
		}
	}
	for i, name := range names { // those who wait here need not wait for the notice
		q.lines.put(name, int(counts[i]))
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

func (r *postRows) add(queue int, place int64, body string, c post) {
	delay, at := c.later.columns()
	r.queueOf, r.place = append(r.queueOf, int32(queue+1)), append(r.place, place) //nolint:gosec // a few queues
	r.senders, r.bodies = append(r.senders, c.sender), append(r.bodies, body)
	r.delays, r.runAts = append(r.delays, delay), append(r.runAts, at)
}

// Result is an answer to a message that was given to a receiver.
type Result struct {
	Queue   string
	Message int64
	Text    string
	None    bool // it was answered without a result
}

// stored is what the database keeps of it.
func (r Result) stored() *string {
	if r.None {
		return nil
	}
	return &r.Text
}

// UnknownResultsError says that some results were for messages that a receiver was
// never given. The others are saved.
type UnknownResultsError struct {
	Receiver string
	Unknown  int // of so many
	Results  int
}

// Error says how many they are.
func (e *UnknownResultsError) Error() string {
	return fmt.Sprintf("%d of %d results are for messages that %s was not given; the others are saved", e.Unknown, e.Results, e.Receiver)
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
	queues, messages, texts := make([]string, len(results)), make([]int64, len(results)), make([]*string, len(results))
	for i, r := range results {
		queues[i], messages[i], texts[i] = r.Queue, r.Message, r.stored()
	}
	if err := registry.Again(func() error {
		return q.db.QueryRow(ctx, `SELECT save_results($1, $2, $3, $4)`, receiver, queues, messages, texts).Scan(&saved)
	}); err != nil {
		return 0, fmt.Errorf("save %d results of %s: %w", len(results), receiver, err)
	}
	return saved, nil
}
