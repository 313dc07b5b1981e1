package claim

import (
	"context"
	"errors"
	"time"
)

// claimer makes the claims of one filter. Calls that meet go into one statement.
type claimer struct {
	engine *Engine
	filter Filter
	hints  *hints
	asks   batcher[request, answer]
	round  int // which size band comes first, so that none of a pool's bands waits for another to be empty
}

type request struct {
	wants []Want
	n     int
	as    claimant
}

// claimant is for whom a call claims: nothing is for this process itself.
type claimant struct {
	identity

	lease time.Duration // of all that it claims; 0: as the stages have it
}

type answer struct {
	items []Item
	err   error
}

// mostRequests is how many calls go into one statement.
const mostRequests = 128

func newClaimer(e *Engine, f Filter) *claimer {
	c := &claimer{engine: e, filter: f, hints: newHints()}
	c.asks = batcher[request, answer]{do: c.claim, lanes: 1, most: mostRequests}
	e.wake.tell(c.hints)
	return c
}

// claim serves several calls, those that follow each other and are for the same
// claimant together.
func (c *claimer) claim(ctx context.Context, requests []request) ([]answer, error) {
	if same := sameClaimant(requests); same == len(requests) {
		return c.claimFor(ctx, requests), nil
	}
	answers := make([]answer, 0, len(requests))
	for len(requests) > 0 {
		same := sameClaimant(requests)
		answers = append(answers, c.claimFor(ctx, requests[:same])...)
		requests = requests[same:]
	}
	return answers, nil
}

// sameClaimant counts the calls at the beginning that are for one claimant.
func sameClaimant(requests []request) int {
	for i := range requests {
		if requests[i].as != requests[0].as {
			return i
		}
	}
	return len(requests)
}

// claimFor serves several calls with one statement, or with two where a stage is
// capped, and shares out what it got in the order of the calls.
func (c *claimer) claimFor(ctx context.Context, requests []request) []answer {
	who := requests[0].as
	wants, n := together(requests)
	known := c.engine.known.Load()
	var free []probe
	var items []Item
	var failed error
	for _, w := range wants {
		probes := c.probes(known, w)
		if len(probes) > 0 && probes[0].capped {
			got, err := c.walk(ctx, known, probes, n-len(items), who)
			items = append(items, got...)
			if err != nil {
				failed = err
			}
		} else {
			free = append(free, probes...)
		}
	}
	c.round++
	if failed == nil {
		got, err := c.walk(ctx, known, free, n-len(items), who)
		items = append(items, got...)
		failed = err
	}
	return c.share(ctx, requests, items, failed)
}

// together adds up what calls want, in the order of the first. All have the same
// stages, since they have the same filter.
func together(requests []request) (wants []Want, n int) {
	most := map[string]int{}
	for _, r := range requests {
		for _, w := range r.wants {
			most[w.Stage] += max(0, min(w.Most, r.n))
		}
		n += max(0, r.n)
	}
	for _, w := range requests[0].wants {
		wants = append(wants, Want{w.Stage, most[w.Stage]})
		delete(most, w.Stage) // a stage that is named twice is wanted once
	}
	return wants, n
}

func (c *claimer) probes(known *settings, w Want) []probe {
	if w.Most <= 0 {
		return nil
	}
	bands := known.bandsWithin(c.filter.MinSize, c.filter.MaxSize)
	probes := make([]probe, 0, len(bands))
	for i := range bands {
		at := cell{w.Stage, bands[(i+c.round)%len(bands)]}
		probes = append(probes, probe{cell: at, most: w.Most, capped: known.of(c.filter.action(), w.Stage).Capped})
	}
	return probes
}

// walk claims up to n items from the cells of probes.
func (c *claimer) walk(ctx context.Context, known *settings, probes []probe, n int, who claimant) ([]Item, error) {
	if n <= 0 || len(probes) == 0 {
		return nil, nil
	}
	e, begun := c.engine, time.Now()
	if aside := c.hints.begin(probes, begun); len(aside) > 0 {
		e.aside(func(ctx context.Context) { c.lookBehind(ctx, aside) })
	}
	self, over := e.self.identity, known.leases
	if who != (claimant{}) {
		self = who.identity
	}
	if who.lease > 0 {
		over = leases{}
		for _, p := range probes {
			over[StepOf(c.filter.action(), p.stage)] = who.lease
		}
	}
	items, err := e.store.claim(ctx, c.filter, probes, n, self, over)
	took := time.Since(begun)
	if err != nil {
		c.giveBack(ctx, items, "The claim was not completed.")
		c.hints.end(probes, nil, begun, took) // it may have been too much to sweep
		return nil, err
	}
	last, turns := map[cell]position{}, map[int16]int64{}
	for i := range items {
		item := &items[i]
		st := known.of(item.Action, item.Stage)
		item.Topic, item.MaxAttempts, item.Timeout, item.asked = st.Topic, st.MaxAttempts, st.Timeout, begun
		at := cell{item.Stage, item.band}
		if l, ok := last[at]; !ok || l.before(item.at) {
			last[at] = item.at
		}
		turns[item.band] = max(turns[item.band], item.at.turn)
	}
	c.hints.end(probes, last, begun, took)
	e.served(turns)
	return items, nil
}

// lookBehind finds what has come to lie behind the hints of cells. One look at a
// time is under way.
func (c *claimer) lookBehind(ctx context.Context, cells []probe) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	begun := time.Now()
	found, err := c.engine.store.behind(ctx, c.filter, cells)
	if err != nil && !errors.Is(err, context.Canceled) {
		c.engine.log.WarnContext(ctx, "what came late was not looked for, will try again", "err", err)
	}
	c.hints.looked(cells, found, begun, time.Since(begun))
	if len(found) > 0 {
		c.engine.wake.ring()
	}
}

// share gives items to calls, each no more than it asked for. An item that none
// of them can take, since each has its own bounds by stage, goes back.
func (c *claimer) share(ctx context.Context, requests []request, items []Item, failed error) []answer {
	s := shares{requests: requests, answers: make([]answer, len(requests)), left: make([]map[string]int, len(requests))}
	for i, r := range requests {
		s.answers[i].err = failed
		s.left[i] = map[string]int{}
		for _, w := range r.wants {
			s.left[i][w.Stage] += w.Most
		}
	}
	if len(requests) == 1 {
		s.answers[0].items = items
		return s.answers
	}
	var back []Item
	for _, item := range items {
		if !s.give(item) && !s.swap(item) {
			back = append(back, item)
		}
	}
	if len(back) > 0 {
		c.giveBack(ctx, back, "More was claimed than could be worked on.")
	}
	return s.answers
}

// shares are who gets what of a claim that several calls made together.
type shares struct {
	requests []request
	answers  []answer
	left     []map[string]int // what a call may still get of a stage
}

func (s *shares) full(i int) bool { return len(s.answers[i].items) >= s.requests[i].n }

// give gives an item to the first call that can take it.
func (s *shares) give(item Item) bool {
	for i := range s.requests {
		if !s.full(i) && s.left[i][item.Stage] > 0 {
			if s.answers[i].items == nil {
				s.answers[i].items = make([]Item, 0, min(s.requests[i].n, usualClaim))
			}
			s.answers[i].items = append(s.answers[i].items, item)
			s.left[i][item.Stage]--
			return true
		}
	}
	return false
}

// swap gives an item to a call that is full, which passes on one of its own.
func (s *shares) swap(item Item) bool {
	for i := range s.requests {
		if s.left[i][item.Stage] <= 0 {
			continue
		}
		for k, other := range s.answers[i].items {
			if other.Stage != item.Stage && s.give(other) {
				s.left[i][other.Stage]++
				s.answers[i].items[k] = item
				s.left[i][item.Stage]--
				return true
			}
		}
	}
	return false
}

// giveBack returns items that nobody here will work on, as if they had not been
// claimed. If it cannot, their leases lapse.
func (c *claimer) giveBack(ctx context.Context, items []Item, why string) {
	back := make([]Ending, len(items))
	for i, item := range items {
		back[i] = Ending{Item: item, Result: Release(why)}
	}
	for _, err := range c.engine.Settle(ctx, back) {
		if err != nil {
			c.engine.log.WarnContext(ctx, "item not given back, its lease will lapse", "err", err)
		}
	}
}

// served notes how far the turns of the bands have come. What overtakes by its
// priority got the turn that was served then, so it moves them no further.
func (e *Engine) served(turns map[int16]int64) {
	e.mu.Lock()
	for band, turn := range turns {
		e.turns[band] = max(e.turns[band], turn)
	}
	e.mu.Unlock()
}

// tellServed writes down how far the turns have come, where this process has
// moved them since it did so last.
func (e *Engine) tellServed(ctx context.Context) error {
	news := map[int16]int64{}
	e.mu.Lock()
	for band, turn := range e.turns {
		if told, ok := e.told[band]; !ok || turn > told {
			news[band] = turn
		}
	}
	e.mu.Unlock()
	if len(news) == 0 {
		return nil
	}
	if err := e.store.serve(ctx, news); err != nil {
		return err
	}
	e.mu.Lock()
	for band, turn := range news {
		e.told[band] = turn
	}
	e.mu.Unlock()
	return nil
}

// lookForOverdue finds the priorities that have waited too long behind better
// ones, for each filter that this process claims by.
func (e *Engine) lookForOverdue(ctx context.Context) error {
	e.mu.Lock()
	claimers := make([]*claimer, 0, len(e.claimers))
	for _, c := range e.claimers {
		claimers = append(claimers, c)
	}
	e.mu.Unlock()
	if e.polls.isQuiet() {
		return nil // what is not due is not overdue
	}
	for _, c := range claimers {
		cells := c.hints.seen()
		if len(cells) == 0 {
			continue
		}
		found, err := e.store.overdue(ctx, c.filter.action(), cells)
		if err != nil {
			return err
		}
		for _, p := range cells {
			c.hints.setOverdue(p.cell, found[p.cell])
		}
	}
	return nil
}
