package pull

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/farol-preservation/farol/claim/batch"
)

// broker posts messages to queues and gives them to receivers. Messages are posted in
// one transaction with their numbers, and given in one with the record of who has
// them. Calls for one message, and those that post, share the next statement with the others
// that come while one runs.
type broker struct {
	*listener // with the database, and the calls that wait

	posts   *batch.Calls[postRequest, posted]
	fetches *batch.Calls[fetch, fetched]
	large   *semaphore.Weighted // fetches of many messages, which are made alone
}

// newBroker returns the broker of the queues in db. Calls that wait are woken by run.
func newBroker(db *pgxpool.Pool, o Options) *broker {
	b := &broker{listener: newListener(db, o.withDefaults()), large: semaphore.NewWeighted(largeFetches)}
	b.posts, b.fetches = batch.New(2, mostTogether, b.postAll), batch.New(2, mostTogether, b.fetchAll)
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
