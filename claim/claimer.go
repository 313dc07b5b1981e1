package claim

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/farol-preservation/farol/claim/batch"
	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/claim/wake"
	"github.com/farol-preservation/farol/registry"
)

// claims are those of this process.
type claims struct {
	*settler

	store      scanStore
	polls      *wake.Polls
	background func(do func(context.Context)) // runs what nobody waits for, until the engine is closed

	// Calls that meet go into one transaction, whatever they take and for whom. A claim of a capped
	// stage waits for those of other processes, so it holds up no others.
	free, capped *batch.Calls[request, answer]

	mu       sync.Mutex
	claimers map[string]*claimer
	starts   map[int16]int64 // the latest virtual start times that were claimed, by band
	recorded map[int16]int64 // what of them is in the database
}

// mostRequests is how many calls go into one transaction.
const mostRequests = 128

func newClaims(s *settler, store scanStore, polls *wake.Polls, background func(func(context.Context))) *claims {
	c := &claims{
		settler: s, store: store, polls: polls, background: background,
		claimers: map[string]*claimer{}, starts: map[int16]int64{}, recorded: map[int16]int64{},
	}
	c.free, c.capped = batch.New(1, mostRequests, c.serve), batch.New(1, mostRequests, c.serve)
	return c
}

// mostFilters bounds for how many filters an engine remembers where to start. A
// process has few pools.
const mostFilters = 256

// claimFor is [Engine.ClaimFor]. Stages with a cap come first.
func (c *claims) claimFor(ctx context.Context, f Filter, n int, who Claimant) (items []Item, err error) {
	if f = f.scanned(); len(f.Stages) == 0 {
		return nil, nil
	}
	begun := time.Now()
	of, known := c.claimer(f), c.settings.Load()
	isCapped := func(w Want) bool { return known.Of(f.action(), w.Stage).Capped }
	not := func(w Want) bool { return !isCapped(w) }
	for _, part := range []struct {
		calls *batch.Calls[request, answer]
		drop  func(Want) bool
	}{{c.capped, not}, {c.free, isCapped}} {
		wants := slices.DeleteFunc(slices.Clone(f.Stages), func(w Want) bool { return w.Most <= 0 || part.drop(w) })
		if len(wants) == 0 || len(items) >= n {
			continue
		}
		got, asked := part.calls.Ask(ctx, request{of: of, wants: wants, n: n - len(items), as: who})
		items, err = append(items, got.items...), cmp.Or(asked, got.err)
		if err != nil {
			break
		}
	}
	if len(items) > 0 {
		c.polls.Took()
	}
	c.options.Observer.Claimed(time.Since(begun), len(items))
	return items, err
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

// claimer knows where the claims of one filter start.
type claimer struct {
	claims  *claims
	filter  Filter
	cursors *cursor.Cursors
	// Which size band comes first, so that none of a pool's bands waits until another is empty. A
	// call claims of stages without a cap and with one in turn: if both moved one number, each would
	// always begin with the same of two bands.
	free, capped atomic.Int64
}

// round is that of stages with a cap, or of the others.
func (c *claimer) round(capped bool) *atomic.Int64 {
	if capped {
		return &c.capped
	}
	return &c.free
}

func newClaimer(all *claims, f Filter) *claimer {
	c := &claimer{claims: all, filter: f, cursors: cursor.New()}
	all.wake.Subscribe(c.cursors)
	return c
}

// serve serves several calls with one transaction, with one statement for those that are alike.
func (c *claims) serve(ctx context.Context, requests []request) ([]answer, error) {
	known := c.settings.Load()
	parties := gather(requests)
	for _, p := range parties {
		p.want(known)
	}
	c.claimAll(ctx, known, parties)
	c.claimAll(ctx, known, late(parties))
	answers := make([]answer, len(requests))
	var back []Item
	for _, p := range parties {
		shared, left := share(p.requests, p.items, p.err)
		for i, a := range shared {
			answers[p.at[i]] = a
		}
		back = append(back, left...)
	}
	if len(back) > 0 {
		c.giveBack(ctx, back, "More items were claimed than the worker has slots.")
	}
	return answers, nil
}

func (c *claimer) scans(known *stages.All, w Want) []cursor.Scan {
	bands := known.BandsWithin(c.filter.MinSize, c.filter.MaxSize)
	scans := make([]cursor.Scan, 0, len(bands))
	capped := known.Of(c.filter.action(), w.Stage).Capped
	round := int(c.round(capped).Load())
	for i := range bands {
		at := cursor.Partition{Stage: w.Stage, Band: bands[(i+round)%len(bands)]}
		scans = append(scans, cursor.Scan{Partition: at, Most: w.Most, Capped: capped})
	}
	return scans
}

// late are the parties that came short where a scan passed over what lies before an overdue
// priority. They claim that too: of two scans in a row of a partition one starts at its cursor. So a
// claim that comes short has found all that there was.
func late(parties []*party) (again []*party) {
	for _, p := range parties {
		if p.err != nil || len(p.items) >= p.n || !slices.ContainsFunc(p.scans, func(s cursor.Scan) bool { return s.Late }) {
			continue
		}
		got := map[registry.Stage]int{}
		for _, item := range p.items {
			got[item.Stage]++
		}
		p.scans = slices.Clone(p.scans)
		for i := range p.scans {
			p.scans[i].Most -= got[p.scans[i].Stage]
		}
		p.scans = slices.DeleteFunc(p.scans, func(s cursor.Scan) bool { return s.Most <= 0 })
		again = append(again, p)
	}
	return again
}

// claimAll claims for several parties, in one transaction. If the database refuses what one asks for,
// each claims by itself.
func (c *claims) claimAll(ctx context.Context, known *stages.All, parties []*party) {
	parties = slices.DeleteFunc(parties, func(p *party) bool { return p.n <= len(p.items) || len(p.scans) == 0 })
	if len(parties) == 0 {
		return
	}
	begun := time.Now()
	takes := make([]take, len(parties))
	var rescans []func(context.Context) // one after the other
	for i, p := range parties {
		if behind := p.of.cursors.Begin(p.scans, begun); len(behind) > 0 {
			rescans = append(rescans, func(ctx context.Context) { p.of.rescan(ctx, behind) })
		}
		takes[i] = p.take(c.self.identity, known)
	}
	if len(rescans) > 0 {
		c.background(func(ctx context.Context) {
			for _, rescan := range rescans {
				rescan(ctx)
			}
		})
	}
	got, err := c.store.claim(ctx, takes)
	took := time.Since(begun)
	if err != nil {
		for _, items := range got {
			c.giveBack(ctx, items, "The claim was not completed.")
		}
		for _, p := range parties {
			p.of.cursors.End(p.scans, nil, begun, took) // it may have been too much for a full scan
			p.err = err
		}
		if len(parties) > 1 && refused(err) {
			for _, p := range parties {
				p.err = nil
				c.claimAll(ctx, known, []*party{p})
			}
		}
		return
	}
	for i, p := range parties {
		c.claimed(known, p, got[i], begun, took)
	}
}

// claimed notes what a party got, and where its next claim starts.
func (c *claims) claimed(known *stages.All, p *party, items []Item, begun time.Time, took time.Duration) {
	last := map[cursor.Partition]cursor.Position{}
	c.mu.Lock()
	for i := range items {
		item := &items[i]
		st := known.Of(item.Action, item.Stage)
		item.Topic, item.MaxAttempts, item.Timeout, item.asked = st.Topic, st.MaxAttempts, st.Timeout, begun
		at := cursor.Partition{Stage: item.Stage, Band: item.Band}
		if l, ok := last[at]; !ok || l.Before(item.At) {
			last[at] = item.At
		}
		// An item that overtakes by its priority got the time that was current then, so it moves it no further.
		c.starts[item.Band] = max(c.starts[item.Band], item.At.VirtualStart)
	}
	c.mu.Unlock()
	p.items = append(p.items, items...)
	p.of.cursors.End(p.scans, last, begun, took)
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
