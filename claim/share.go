package claim

import (
	"time"

	"github.com/farol-preservation/farol/registry"
)

// request is one call of Claim.
type request struct {
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
