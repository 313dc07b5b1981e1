package claim

import (
	"slices"
	"time"

	"github.com/farol-preservation/farol/claim/cursor"
	"github.com/farol-preservation/farol/claim/stages"
	"github.com/farol-preservation/farol/registry"
)

// request is one call of Claim.
type request struct {
	of    *claimer // of its filter
	wants []Want
	n     int
	as    Claimant
}

// A Claimant is for whom a call claims: nothing is for this process itself.
type Claimant struct {
	Worker string
	Node   string
	PID    int
	Lease  time.Duration // of all that it claims; 0: as the stages have it
}

// answer is what a call got.
type answer struct {
	items []Item
	err   error
}

// A party is calls that one statement serves: they are for one claimant, go by one filter, and want
// items of the same stages. Of calls that want others, one could get what only another can take.
type party struct {
	of       *claimer
	requests []request
	at       []int // where the answers belong

	scans []cursor.Scan
	n     int // items in all
	items []Item
	err   error
}

// gather divides calls into parties.
func gather(requests []request) (parties []*party) {
	for i, r := range requests {
		at := slices.IndexFunc(parties, func(p *party) bool { return p.requests[0].alike(r) })
		if at < 0 {
			at, parties = len(parties), append(parties, &party{of: r.of})
		}
		p := parties[at]
		p.requests, p.at = append(p.requests, r), append(p.at, i)
	}
	return parties
}

// alike reports whether one statement can serve both calls.
func (r request) alike(other request) bool {
	return r.of == other.of && r.as == other.as && len(r.wants) == len(other.wants) &&
		!slices.ContainsFunc(r.wants, func(w Want) bool { return !other.takes(w.Stage) }) &&
		!slices.ContainsFunc(other.wants, func(w Want) bool { return !r.takes(w.Stage) })
}

func (r request) takes(s registry.Stage) bool {
	return slices.ContainsFunc(r.wants, func(w Want) bool { return w.Stage == s })
}

// want adds up what the calls want, in the order in which the first of them prefers the stages.
func (p *party) want(known *stages.All) {
	var wants []Want
	wants, p.n = together(p.requests)
	for _, w := range wants {
		p.scans = append(p.scans, p.of.scans(known, w)...)
	}
	if len(p.scans) > 0 {
		p.of.round(p.scans[0].Capped).Add(1)
	}
}

// take is the claim of a party, for this process if nobody else is named.
func (p *party) take(self identity, known *stages.All) take {
	t := take{filter: p.of.filter, scans: p.scans, n: p.n - len(p.items), who: self, over: known.Leases}
	who := p.requests[0].as
	if who != (Claimant{}) {
		t.who = identity{node: who.Node, pid: who.PID, worker: who.Worker}
	}
	if who.Lease > 0 {
		t.over = stages.LeaseTimes{}
		for _, s := range p.scans {
			t.over[stages.StepOf(p.of.filter.action(), s.Stage)] = who.Lease
		}
	}
	return t
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
		if most[w.Stage] > 0 { // a stage that is named twice is wanted once
			wants = append(wants, Want{w.Stage, most[w.Stage]})
			delete(most, w.Stage)
		}
	}
	return wants, n
}

// share gives items to calls, each no more than it asked for. Items that none of them can
// take, since each has its own bounds by stage, go back.
func share(requests []request, items []Item, failed error) (answers []answer, back []Item) {
	s := shares{requests: requests, answers: make([]answer, len(requests)), left: make([]map[registry.Stage]int, len(requests))}
	for i, r := range requests {
		s.answers[i].err = failed
		s.left[i] = map[registry.Stage]int{}
		for _, w := range r.wants {
			s.left[i][w.Stage] += w.Most
		}
	}
	if len(requests) == 1 {
		s.answers[0].items = items
		return s.answers, nil
	}
	for _, item := range items {
		if !s.give(item) && !s.swap(item) {
			back = append(back, item)
		}
	}
	return s.answers, back
}

// shares are who gets what of a claim that several calls made together.
type shares struct {
	requests []request
	answers  []answer
	left     []map[registry.Stage]int // what a call may still get of a stage
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
