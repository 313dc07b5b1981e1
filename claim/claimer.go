package claim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/farol-preservation/farol/claim/batch"
	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/registry"
)

// claims are those of this process, by filter.
type claims struct {
	*settler

	store      scanStore
	isQuiet    func() bool                    // nothing was due at the last poll
	background func(do func(context.Context)) // runs what nobody waits for, until the engine is closed

	mu       sync.Mutex
	claimers map[string]*claimer
	starts   map[int16]int64 // the latest virtual start times that were claimed, by band
	recorded map[int16]int64 // what of them is in the database
}

func newClaims(s *settler, store scanStore, isQuiet func() bool, background func(func(context.Context))) *claims {
	return &claims{
		settler: s, store: store, isQuiet: isQuiet, background: background,
		claimers: map[string]*claimer{}, starts: map[int16]int64{}, recorded: map[int16]int64{},
	}
}

// mostFilters bounds for how many filters an engine remembers where to start. A
// process has few pools.
const mostFilters = 256

// claimFor is [Engine.ClaimFor].
func (c *claims) claimFor(ctx context.Context, f Filter, n int, who Claimant) ([]Item, error) {
	if f = f.scanned(); len(f.Stages) == 0 {
		return nil, nil
	}
	begun := time.Now()
	got, err := c.claimer(f).asks.Ask(ctx, request{wants: f.Stages, n: n, as: who})
	if err != nil {
		return nil, err
	}
	c.options.Observer.Claimed(time.Since(begun), len(got.items))
	return got.items, got.err
}

// claimer makes the claims of a filter.
func (c *claims) claimer(f Filter) *claimer {
	key := f.key()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.claimers[key] == nil {
		if len(c.claimers) >= mostFilters {
			clear(c.claimers)
			c.wake.Unsubscribe()
		}
		c.claimers[key] = newClaimer(c, f)
	}
	return c.claimers[key]
}

// claimer makes the claims of one filter. Calls that meet go into one statement.
type claimer struct {
	claims  *claims
	filter  Filter
	cursors *cursor.Cursors
	asks    *batch.Calls[request, answer]
	round   int // which size band comes first, so that none of a pool's bands waits until another is empty
}

// mostRequests is how many calls go into one statement.
const mostRequests = 128

func newClaimer(all *claims, f Filter) *claimer {
	c := &claimer{claims: all, filter: f, cursors: cursor.New()}
	c.asks = batch.New(1, mostRequests, c.claim)
	all.wake.Subscribe(c.cursors)
	return c
}

// claim serves several calls, those that follow each other and are alike together.
func (c *claimer) claim(ctx context.Context, requests []request) ([]answer, error) {
	answers := make([]answer, 0, len(requests))
	for len(requests) > 0 {
		same := countAlike(requests)
		answers = append(answers, c.serve(ctx, requests[:same])...)
		requests = requests[same:]
	}
	return answers, nil
}

// countAlike counts the calls at the beginning that one statement can serve: they are for one
// claimant, and want items of the same stages. Of calls that want others, one could get what
// only another can take.
func countAlike(requests []request) int {
	sameStage := func(a, b Want) bool { return a.Stage == b.Stage && (a.Most > 0) == (b.Most > 0) }
	for i, r := range requests {
		if r.as != requests[0].as || !slices.EqualFunc(r.wants, requests[0].wants, sameStage) {
			return i
		}
	}
	return len(requests)
}

// serve serves several calls with one statement, or with two where a stage is
// capped, and shares out what it got in the order of the calls.
func (c *claimer) serve(ctx context.Context, requests []request) []answer {
	who := requests[0].as
	wants, n := together(requests)
	known := c.claims.settings.Load()
	var free []cursor.Scan
	var items []Item
	var failed error
	for _, w := range wants {
		scans := c.scans(known, w)
		if len(scans) > 0 && scans[0].Capped {
			got, err := c.scan(ctx, known, scans, n-len(items), who)
			items = append(items, got...)
			if err != nil {
				failed = err
			}
		} else {
			free = append(free, scans...)
		}
	}
	c.round++
	if failed == nil {
		got, err := c.scan(ctx, known, free, n-len(items), who)
		items = append(items, got...)
		failed = err
	}
	answers, back := share(requests, items, failed)
	if len(back) > 0 {
		c.claims.giveBack(ctx, back, "More items were claimed than the worker has slots.")
	}
	return answers
}

// together adds up what calls want that are alike.
func together(requests []request) (wants []Want, n int) {
	most := map[registry.Stage]int{}
	for _, r := range requests {
		all := 0
		for _, w := range r.wants {
			most[w.Stage] += max(0, min(w.Most, r.n))
			all += max(0, w.Most)
		}
		n += max(0, min(r.n, all))
	}
	for _, w := range requests[0].wants {
		wants = append(wants, Want{w.Stage, most[w.Stage]})
		delete(most, w.Stage) // a stage that is named twice is wanted once
	}
	return wants, n
}

func (c *claimer) scans(known *stages.All, w Want) []cursor.Scan {
	if w.Most <= 0 {
		return nil
	}
	bands := known.BandsWithin(c.filter.MinSize, c.filter.MaxSize)
	scans := make([]cursor.Scan, 0, len(bands))
	for i := range bands {
		at := cursor.Partition{Stage: w.Stage, Band: bands[(i+c.round)%len(bands)]}
		scans = append(scans, cursor.Scan{Partition: at, Most: w.Most, Capped: known.Of(c.filter.action(), w.Stage).Capped})
	}
	return scans
}

// scan claims up to n items from partitions. If it comes short where a scan passed over what
// lies before an overdue priority, it claims that too: of two scans in a row of a partition one
// starts at its cursor. So a claim that comes short has found all that there was.
func (c *claimer) scan(ctx context.Context, known *stages.All, scans []cursor.Scan, n int, who Claimant) ([]Item, error) {
	items, err := c.scanOnce(ctx, known, scans, n, who)
	if err != nil || len(items) >= n || !slices.ContainsFunc(scans, func(s cursor.Scan) bool { return s.Late }) {
		return items, err
	}
	got := map[registry.Stage]int{}
	for _, item := range items {
		got[item.Stage]++
	}
	rest := slices.Clone(scans)
	for i := range rest {
		rest[i].Most -= got[rest[i].Stage]
	}
	rest = slices.DeleteFunc(rest, func(s cursor.Scan) bool { return s.Most <= 0 })
	more, err := c.scanOnce(ctx, known, rest, n-len(items), who)
	return append(items, more...), err
}

func (c *claimer) scanOnce(ctx context.Context, known *stages.All, scans []cursor.Scan, n int, who Claimant) ([]Item, error) {
	if n <= 0 || len(scans) == 0 {
		return nil, nil
	}
	e, begun := c.claims, time.Now()
	if behind := c.cursors.Begin(scans, begun); len(behind) > 0 {
		e.background(func(ctx context.Context) { c.rescan(ctx, behind) })
	}
	self, over := e.self.identity, known.Leases
	if who != (Claimant{}) {
		self = identity{node: who.Node, pid: who.PID, worker: who.Worker}
	}
	if who.Lease > 0 {
		over = stages.LeaseTimes{}
		for _, p := range scans {
			over[stages.StepOf(c.filter.action(), p.Stage)] = who.Lease
		}
	}
	items, err := e.store.claim(ctx, c.filter, scans, n, self, over)
	took := time.Since(begun)
	if err != nil {
		e.giveBack(ctx, items, "The claim was not completed.")
		c.cursors.End(scans, nil, begun, took) // it may have been too much for a full scan
		return nil, err
	}
	last := map[cursor.Partition]cursor.Position{}
	e.mu.Lock()
	for i := range items {
		item := &items[i]
		st := known.Of(item.Action, item.Stage)
		item.Topic, item.MaxAttempts, item.Timeout, item.asked = st.Topic, st.MaxAttempts, st.Timeout, begun
		at := cursor.Partition{Stage: item.Stage, Band: item.Band}
		if l, ok := last[at]; !ok || l.Before(item.At) {
			last[at] = item.At
		}
		// An item that overtakes by its priority got the time that was current then, so it moves it no further.
		e.starts[item.Band] = max(e.starts[item.Band], item.At.VirtualStart)
	}
	e.mu.Unlock()
	c.cursors.End(scans, last, begun, took)
	return items, nil
}

// rescan finds what has come to lie before the cursors. One rescan runs at a time.
func (c *claimer) rescan(ctx context.Context, scans []cursor.Scan) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	begun := time.Now()
	found, err := c.claims.store.behind(ctx, c.filter, scans)
	if err != nil && !errors.Is(err, context.Canceled) {
		c.claims.log.WarnContext(ctx, "rescan before the cursors failed; retrying", "err", err)
	}
	c.cursors.Rescanned(scans, found, begun, time.Since(begun))
	if len(found) > 0 {
		c.claims.wake.Ring()
	}
}
