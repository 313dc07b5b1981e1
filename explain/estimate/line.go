package estimate

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/farol-preservation/farol/registry"
)

// place is a place in the order of claims within a queue partition.
type place struct {
	priority     int
	virtualStart int64
	item         int64
}

func (p place) before(q place) bool {
	return cmp.Or(cmp.Compare(p.priority, q.priority), cmp.Compare(p.virtualStart, q.virtualStart), cmp.Compare(p.item, q.item)) < 0
}

// stay is a stay of an item at a stage, in seconds of the model's clock.
type stay struct {
	place

	size                  int64
	ready, claimed, ended float64 // ended is +Inf while it runs
}

// line is how a queue partition was served.
type line struct {
	stays                []stay    // by the time of the claim
	ready, claims, ended []float64 // sorted, each by itself
	errors               []waited  // by n
}

// waited is how many times as long as expected an item waited, when n were to be claimed, it
// included.
type waited struct {
	n     int
	times float64
	known float64 // when it was claimed
}

func newLine(passes []registry.Pass, epoch time.Time) *line {
	at := func(t time.Time) float64 { return t.Sub(epoch).Seconds() }
	l := &line{}
	for _, p := range passes {
		s := stay{
			place: place{p.Priority, p.VirtualStart, p.Item}, size: p.Size,
			ready: min(at(p.Ready), at(p.Claimed)), claimed: at(p.Claimed), ended: math.Inf(1),
		}
		if p.Ended != nil {
			s.ended = at(*p.Ended)
		}
		l.stays = append(l.stays, s)
	}
	slices.SortFunc(l.stays, func(a, b stay) int { return cmp.Compare(a.claimed, b.claimed) })
	for i := range l.stays {
		// What others overtook could not be claimed until then: it waited for something else.
		s := &l.stays[i]
		for j := i - 1; j >= 0 && l.stays[j].claimed > s.ready; j-- {
			if s.before(l.stays[j].place) {
				s.ready = l.stays[j].claimed
			}
		}
		l.ready, l.claims, l.ended = append(l.ready, s.ready), append(l.claims, s.claimed), append(l.ended, s.ended)
	}
	slices.Sort(l.ready)
	slices.Sort(l.ended)
	return l
}

// upTo counts the times that are not after t.
func upTo(sorted []float64, t float64) int {
	return sort.Search(len(sorted), func(i int) bool { return sorted[i] > t })
}

// waiting and running count what stood at the stage at a time.
func (l *line) waiting(t float64) int { return upTo(l.ready, t) - upTo(l.claims, t) }
func (l *line) running(t float64) int { return upTo(l.claims, t) - upTo(l.ended, t) }

// ahead counts what waited before a stay at a time within its wait.
func (l *line) ahead(s stay, t float64) (n int) {
	for _, other := range l.stays[upTo(l.claims, t):upTo(l.claims, s.claimed)] {
		if other.ready <= t && other.before(s.place) {
			n++
		}
	}
	return n
}

// errorsOf are how many times as long as expected a wait for n claims may be, as was known at
// a time: as many as it was for items that had about as many before them.
func (l *line) errorsOf(n int, until float64) []float64 {
	var known []waited
	for _, w := range l.errors {
		if w.known <= until {
			known = append(known, w)
		}
	}
	if len(known) < fewestWaits {
		return []float64{0.5, 0.7, 1, 1.4, 2}
	}
	alike := min(len(known), mostErrors)
	at := sort.Search(len(known), func(i int) bool { return known[i].n >= n })
	first := min(max(at-alike/2, 0), len(known)-alike)
	list := make([]float64, alike)
	for i, w := range known[first : first+alike] {
		list[i] = w.times
	}
	return list
}
