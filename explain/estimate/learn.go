package estimate

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

const (
	// mostWaits of a line are compared with what was to be expected, and mostErrors are alike.
	mostWaits, mostErrors = 150, 40
	// fewestWaits show how expectations err.
	fewestWaits = 10
	// mostAsked is how many questions are asked about the items of a kind that have ended.
	mostAsked = 300
	// fewestErrors are needed to correct the answers of a phase.
	fewestErrors = 40
	// narrowest is the least width of half an interval, as a logarithm, and widest how many
	// times as wide it may become.
	narrowest, widest = 0.05, 2
)

// learnWaits compares the waits of items with what was to be expected at a moment of each.
func (k *kind) learnWaits() {
	for stage, l := range k.lines {
		var waits []stay
		for _, s := range l.stays {
			if s.claimed-s.ready > 1 {
				waits = append(waits, s)
			}
		}
		n := min(len(waits), mostWaits)
		for j := range n {
			s := waits[j*len(waits)/n]
			t := s.ready + chance(j)*(s.claimed-s.ready)
			ahead := l.ahead(s, t) + 1
			if expected := k.expected(question{queue: then(t)}, stage, ahead); expected > 0 {
				l.errors = append(l.errors, waited{ahead, min(max((s.claimed-t)/expected, 0.05), 20), s.claimed})
			}
		}
		slices.SortStableFunc(l.errors, func(a, b waited) int { return cmp.Compare(a.n, b.n) })
	}
}

// phase is a part of the life of an item in which estimates err alike.
type phase struct {
	stage int // -1: any
	runs  bool
	here  bool // the end of the stage is estimated, not that of the item
}

// scale is where the ends came to lie in the answers: 1 is the upper end of the interval, 0
// its middle and -1 its lower end. Of a good answer, 10, 50 and 90 % came before -1, 0 and 1.
type scale [3]float64

// moment is one in the life of an item that has ended, and how it went on.
type moment struct {
	question

	through, end float64 // seconds from then
}

// learn asks about items that have ended, at moments at which they were live, and compares
// the answers with what came then.
func (k *kind) learn() {
	if len(k.bags) < fewest {
		return
	}
	errors := map[phase][]float64{}
	for _, m := range k.moments() {
		ends, through := k.answer(m.question)
		if len(ends) < fewest/2 {
			continue
		}
		for _, stage := range []int{m.stage, -1} {
			p := phase{stage, m.runs, false}
			errors[p] = append(errors[p], score(*spanOf(ends), m.end))
			p.here = true
			errors[p] = append(errors[p], score(*spanOf(through), m.through))
		}
	}
	busy := float64(max(k.busy(), 1))
	for p, list := range errors {
		n := busy
		if p.runs {
			n = float64(len(list))
		}
		if len(list) >= fewestErrors {
			slices.Sort(list)
			outside := max(0.1-0.9/n, 0.02)
			k.scales[p] = scale{quantile(list, outside), quantile(list, 0.5), quantile(list, 1-outside)}
		}
	}
}

// moments are some in the lives of the items that have ended, evenly from beginning to end.
func (k *kind) moments() (list []moment) {
	lives := map[int64][]stay{} // by stage, as far as it came
	for _, l := range k.lines {
		for _, s := range l.stays {
			lives[s.item] = append(lives[s.item], s)
		}
	}
	ids := slices.Sorted(maps.Keys(lives))
	ids = slices.DeleteFunc(ids, func(id int64) bool {
		life := lives[id]
		return len(life) != len(k.order) || math.IsInf(life[len(life)-1].ended, 1)
	})
	for j := range min(2*len(ids), mostAsked) {
		life := lives[ids[j*len(ids)/min(2*len(ids), mostAsked)]]
		began, end := life[0].ready, life[len(life)-1].ended
		t := began + chance(j)*(end-began)
		stage := slices.IndexFunc(life, func(s stay) bool { return t < s.ended })
		if stage < 0 || t < life[stage].ready {
			continue
		}
		s := life[stage]
		m := moment{question: question{stage: stage, runs: t >= s.claimed, size: s.size, queue: then(t)}, through: s.ended - t, end: end - t}
		if m.runs {
			m.elapsed = t - s.claimed
		} else {
			m.ahead = k.lines[stage].ahead(s, t)
		}
		list = append(list, m)
	}
	return list
}

// busy counts the times at which items waited at any stage, each until none did.
func (k *kind) busy() (n int) {
	var waits []stay
	for _, l := range k.lines {
		for _, s := range l.stays {
			if s.claimed-s.ready > 1 {
				waits = append(waits, s)
			}
		}
	}
	slices.SortFunc(waits, func(a, b stay) int { return cmp.Compare(a.ready, b.ready) })
	until := math.Inf(-1)
	for _, w := range waits {
		if w.ready > until {
			n++
		}
		until = max(until, w.claimed)
	}
	return n
}

// middle is an interval on a scale on which errors do not depend on the time that is left:
// its middle, and the distances of its ends from there.
func middle(s Span) (y, down, up float64) {
	y = math.Log1p(s.Likely)
	return y, max(y-math.Log1p(s.Low), narrowest), max(math.Log1p(s.High)-y, narrowest)
}

// score is where a time came to lie in an interval.
func score(s Span, came float64) float64 {
	y, down, up := middle(s)
	z := math.Log1p(max(came, 0)) - y
	if z < 0 {
		return z / down
	}
	return z / up
}

// corrected is the interval of an answer, as wide as those of before should have been. What
// progress is known of an item was not known of those.
func (k *kind) corrected(q question, sorted []float64, here bool) Span {
	s := *spanOf(sorted)
	z, known := k.scales[phase{q.stage, q.runs, here}]
	if !known {
		z, known = k.scales[phase{-1, q.runs, here}]
	}
	if !known || q.left != nil && here {
		return s
	}
	y, down, up := middle(s)
	at := func(z float64) float64 {
		if z = min(max(z, -widest), widest); z < 0 {
			return max(math.Expm1(y+z*down), 0)
		}
		return math.Expm1(y + z*up)
	}
	return Span{Low: at(z[0]), Likely: at(z[1]), High: at(z[2])}
}
