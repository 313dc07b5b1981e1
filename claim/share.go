package claim

import "context"

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
		c.claims.giveBack(ctx, back, "More was claimed than could be worked on.")
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
