package pull

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/farol-preservation/farol/claim"
)

// broker posts messages to queues and gives them to receivers. Messages are posted in
// one transaction with their numbers, and given in one with the record of who has
// them. Calls that come while a statement runs share the next.
type broker struct {
	db      *pgxpool.Pool
	log     *slog.Logger
	posts   *claim.Batch[postRequest, posted]
	fetches *claim.Batch[fetch, fetched]
	large   *semaphore.Weighted // fetches of many messages, which are made alone
	waits   waitlists

	direct *pgx.ConnConfig // for LISTEN; nil: poll instead
	poll   time.Duration

	mu     sync.Mutex
	topics map[string]bool // of the pipeline
}

const (
	statementTime = 30 * time.Second
	// mostTogether is how many calls share a statement.
	mostTogether = 32
	// largeFetches is how many fetches of more than one message are made at once. Each
	// may bring fetchBytes into memory.
	largeFetches = 2
	// fetchBytes is about how much one call is given: of each queue at least one
	// message, if there is one, and no more once they fill its part of it.
	fetchBytes = 32 << 20
	// mostMessages bounds how many messages a call is given.
	mostMessages = 10_000
)

// newBroker returns the broker of the queues in db. Calls that wait are woken by run.
func newBroker(db *pgxpool.Pool, o Options) *broker {
	b := &broker{
		db: db, log: o.Log, poll: o.Poll, direct: o.Direct, large: semaphore.NewWeighted(largeFetches),
		waits: waitlists{of: map[string]map[listKey]*waitlist{}}, topics: map[string]bool{},
	}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	if b.direct == nil && !o.NoListen {
		b.direct = db.Config().ConnConfig
	}
	if b.poll <= 0 {
		b.poll = 5 * time.Second
		if b.direct == nil {
			b.poll = time.Second
		}
	}
	b.posts = claim.NewBatch(2, mostTogether, b.postAll)
	b.fetches = claim.NewBatch(2, mostTogether, b.fetchAll)
	return b
}

// errStopping says that the process is stopping, and nothing had come by then.
var errStopping = errors.New("the server is stopping")

// broughtResults are the results that a pull brings. saved is called when they are saved,
// before any wait for messages.
type broughtResults struct {
	results []result
	saved   func() // nil: nothing is called
}

func (r *broughtResults) areSaved() {
	r.results = nil // or they would be kept for as long as the call waits
	if r.saved != nil {
		r.saved()
	}
}

// pull saves a receiver's results and gives it the next messages of its queues. If there
// are none it waits for them for up to timeout. What it returns is by want, and empty if
// nothing came in time. After an [unknownResultsError] nothing was given. A call whose
// caller has gone takes nothing.
func (b *broker) pull(ctx context.Context, receiver string, brought broughtResults, wants []wanted, timeout time.Duration) ([][]message, error) {
	if !together(brought.results, wants) {
		if err := b.saveAll(ctx, receiver, brought.results); err != nil {
			return nil, err
		}
		brought.areSaved()
	}
	wants = slices.Clone(wants)
	if timeout <= 0 {
		got, err := b.fetch(ctx, fetch{receiver, wants, brought.results})
		return got.given, err
	}
	end := time.NewTimer(timeout)
	defer end.Stop()
	w := b.waits.join(receiver, wants) // before the first fetch, or what comes between would not wake it
	given := false
	defer func() { b.waits.leave(w, given) }()
	for {
		got, err := b.fetch(ctx, fetch{receiver, wants, brought.results})
		switch {
		case err != nil && errors.Is(context.Cause(ctx), errStopping) && len(brought.results) == 0:
			return nil, errStopping // its fetch was cancelled, and it has no results to lose
		case err != nil:
			return nil, err
		}
		brought.areSaved()
		if !got.empty() {
			given = true
			return got.given, nil
		}
		for i := range wants {
			wants[i].Start = afterFirst(wants[i].Start)
		}
		if more, err := b.wait(ctx, w, got.due, end.C); !more {
			return got.given, err
		}
	}
}

// together reports whether results, if there are any, can be saved in the transaction
// that fetches messages: a receiver is then locked once, so calls cannot deadlock.
func together(results []result, wants []wanted) bool {
	return len(results) == 0 || len(wants) == 1 && !slices.ContainsFunc(results, func(r result) bool { return r.Queue != wants[0].Queue })
}

// wait returns when another fetch may bring something, with more, or when the call is
// over.
func (b *broker) wait(ctx context.Context, w *waiter, due []time.Duration, end <-chan time.Time) (more bool, err error) {
	var again <-chan time.Time
	if soonest := b.waits.redeliveries(w, due); soonest >= 0 {
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
