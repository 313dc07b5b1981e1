package claim

import (
	"context"
	"time"
)

// store is the queue's state and its only clock. It is PostgreSQL; in
// simulations of the worker's side it is a script. Each method is one short
// transaction, except listen.
type store interface { //nolint:interfacebloat // the one seam between the worker's side and the database
	// rules reads what the database has claims go by.
	rules(ctx context.Context) (rules, error)
	// claim takes up to n items from the cells probed. Items that come with an
	// error are claimed, and of no use.
	claim(ctx context.Context, f Filter, probes []probe, n int, who identity, lease leases) ([]Item, error)
	// peek lists what claim would take.
	peek(ctx context.Context, f Filter, probes []probe, n int) ([]int64, error)
	// mayBeDue tells whether any claim may find an item now.
	mayBeDue(ctx context.Context) (bool, error)
	// behind finds, in cells whose first items were claimed, the first that could
	// be claimed and lies before a probe's start.
	behind(ctx context.Context, f Filter, probes []probe) (map[cell]position, error)
	// settle makes the moves whose token is still the item's, and says which.
	settle(ctx context.Context, moves []move) (landed []bool, err error)
	// sentBack counts how often an item was sent back to an earlier stage.
	sentBack(ctx context.Context, item int64) (int, error)
	// witnesses says who has ended an attempt of the item at its stage as held with a
	// code: how often this worker did, whether another did, and whether another lives
	// that takes the item and does not see the service fail.
	witnesses(ctx context.Context, item Item, code, service, worker string) (mine int, others, more bool, err error)
	// reportService writes how this process sees a service.
	reportService(ctx context.Context, worker string, r ServiceReport) error
	// failures counts the attempts before a claim that count towards the maximum.
	failures(ctx context.Context, item Item) (int, error)
	// renew extends the leases whose token is still the item's, and tells of the
	// process.
	renew(ctx context.Context, p process, held []heldLease) (beatResult, error)
	// leave says that the process ends in an orderly way.
	leave(ctx context.Context, worker string) error
	// neighbours lists the other workers of the same host; reap takes up to most
	// items from workers that are gone, and is busy if another process is at it.
	neighbours(ctx context.Context, self process) ([]process, error)
	reap(ctx context.Context, most int, r round) (list []reaped, busy bool, err error)
	// tidy and archive clear away what is over.
	tidy(ctx context.Context) error
	// clamp moves times back that lie further ahead than they can have been set, and
	// says of how many items; those of all that wait only if it is to do the whole.
	clamp(ctx context.Context, whole bool) (int, error)
	archive(ctx context.Context, after time.Duration, most int) (int, error)
	// overdue lists the priorities of the cells probed whose first item has waited
	// too long.
	overdue(ctx context.Context, action string, probes []probe) (map[cell][]int16, error)
	// serve tells how far the turns of the bands have come.
	serve(ctx context.Context, turns map[int16]int64) error
	// announce tells other processes; listen hears them until ctx is done or the
	// connection breaks. heard is called with "" once when listening begins.
	announce(ctx context.Context, payload string) error
	listen(ctx context.Context, heard func(channel, payload string)) error
	close()
}

// identity is what a claim writes into the rows that it takes.
type identity struct {
	node   string
	pid    int
	worker string
}

// leases are those by [StepOf] that differ from the database's.
type leases map[string]time.Duration

// of lists those of an action, with the stages that they are for.
func (l leases) of(action string) (spans []time.Duration, stages []string) {
	if action != ingest {
		if d, ok := l[action]; ok {
			return []time.Duration{d}, []string{requested}
		}
		return nil, nil
	}
	for stage, d := range l {
		spans, stages = append(spans, d), append(stages, stage)
	}
	return spans, stages
}

// heldLease is an item in hand, as a heartbeat tells of it.
type heldLease struct {
	item, token int64
	lease       time.Duration
	inHand      string
	lost        string // code for the ledger, should it be lost
}

// beatResult is what a heartbeat came to.
type beatResult struct {
	kept     map[int64]bool // by item: leases that it extended
	draining bool           // the process is asked to stop
	ago      *time.Duration // since the heartbeat before, by the database's clock; nil: there was none
}
