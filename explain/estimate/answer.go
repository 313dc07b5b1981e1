package estimate

import (
	"math"
	"slices"
	"sort"
)

// question is what is asked about an item, live or at a moment before it ended.
type question struct {
	stage   int
	size    int64
	runs    bool
	elapsed float64  // seconds for which it has run
	left    *float64 // seconds, by its progress
	delay   float64  // seconds until it is due
	ahead   int      // items that are claimed before it
	since   float64  // seconds for which what the queue says is old
	queue   interface {
		due(l *line) int
		running(l *line) int
		slots(k *kind, stage int) int
		rate(l *line) float64
		at() float64
	}
}

// expected is how long it takes until n items of a kind have been claimed at a stage. Slots
// take size bands and actions in turn, and what is due at later stages first. More of these come
// as fast as in the last hour.
func (k *kind) expected(q question, stage, n int) (seconds float64) {
	if n == 0 {
		return 0
	}
	slots, limit := float64(max(q.queue.slots(k, stage), 1)), float64(k.limit[stage])
	for range 5 { // the longer it takes, the more come
		work, capped := float64(n)*k.hold[stage], float64(n)*k.mean[stage]
		for _, r := range k.rivals[stage] {
			l := r.kind.lines[r.stage]
			come := float64(q.queue.due(l))
			if !r.chained {
				come += r.kind.coming(q, r.stage, seconds)
			}
			if !r.first {
				come = min(come, float64(n))
			}
			work += come * r.kind.hold[r.stage]
			if r.capped {
				capped += come * r.kind.mean[r.stage]
			}
		}
		seconds = work / slots
		if limit > 0 {
			seconds = max(seconds, capped/limit)
		}
	}
	return seconds
}

// coming is how many come to a stage within a time: as many as in the last hour, but no more
// than are on their way, and new items for another hour.
func (k *kind) coming(q question, stage int, seconds float64) float64 {
	rate := q.queue.rate(k.lines[stage])
	if stage == 0 {
		return rate * min(seconds, hour)
	}
	n := 0
	for _, l := range k.lines[:stage] {
		n += q.queue.due(l) + q.queue.running(l)
	}
	return min(rate*seconds, float64(n))
}

// wait is how long it is expected to take until others have been claimed, how many times as long
// it may take, and how much of it has passed.
type wait struct {
	seconds float64
	errors  []float64
	passed  float64
}

func (k *kind) wait(q question, stage, n int) wait {
	w := wait{seconds: k.expected(q, stage, n), passed: q.since}
	if w.seconds > 0 {
		w.errors = k.lines[stage].errorsOf(n, q.queue.at())
	}
	return w
}

// is how long it takes in one possibility.
func (w wait) is(chance float64) float64 {
	if w.seconds == 0 {
		return 0
	}
	return max(w.seconds*w.errors[int(chance*float64(len(w.errors)))]-w.passed, 0)
}

// waits are those at each stage from the present one on: for the claim of the item, and at
// later stages for those of all that arrive sooner.
func (k *kind) waits(q question) []wait {
	list := make([]wait, len(k.order))
	n := q.ahead
	if !q.runs {
		list[q.stage] = k.wait(q, q.stage, n+1)
		if q.delay > 0 { // it does not wait yet
			list[q.stage].passed = 0
		}
	}
	for i := q.stage + 1; i < len(k.order); i++ {
		n += q.queue.due(k.lines[i]) + q.queue.running(k.lines[i-1])
		if q.runs && i == q.stage+1 {
			n = max(n-1, 0) // the item itself
		}
		list[i] = k.wait(q, i, n)
	}
	return list
}

// answer is how long similar items would take from here, each a possibility: to their end, and
// until they are through with the stage. Both are in ascending order.
func (k *kind) answer(q question) (ends, through []float64) {
	alike, waits := k.alike(q.size), k.waits(q)
	ends, through = make([]float64, 0, len(alike)), make([]float64, 0, len(alike))
	for j, t := range k.present(q, alike) {
		if math.IsNaN(t) {
			continue
		}
		if !q.runs {
			t += q.delay + waits[q.stage].is(chance(j*len(k.order)+q.stage))
		}
		through = append(through, t)
		for i := q.stage + 1; i < len(k.order); i++ {
			t = max(t, waits[i].is(chance(j*len(k.order)+i))) + k.scaled(q, alike[j], i)
		}
		ends = append(ends, t)
	}
	slices.Sort(ends)
	slices.Sort(through)
	return ends, through
}

// alike are the bags that are nearest in size.
func (k *kind) alike(size int64) []bag {
	n := min(len(k.bags), mostBags)
	at := sort.Search(len(k.bags), func(i int) bool { return k.bags[i].size >= size })
	first := min(max(at-n/2, 0), len(k.bags)-n)
	return k.bags[first : first+n]
}

// scaled is how long a bag took at a stage, had it been as large as the item.
func (k *kind) scaled(q question, b bag, stage int) float64 {
	if k.power[stage] == 0 || b.size == q.size {
		return b.took[stage]
	}
	return b.took[stage] * math.Pow(float64(q.size+overhead)/float64(b.size+overhead), k.power[stage])
}

// present is how long each bag would still be at the present stage, once it is claimed; NaN:
// it was never like that.
func (k *kind) present(q question, alike []bag) []float64 {
	list := make([]float64, len(alike))
	known := make([]float64, 0, len(alike))
	for j, b := range alike {
		list[j] = k.scaled(q, b, q.stage) - q.elapsed
		if list[j] <= 0 && q.elapsed > 0 || slices.ContainsFunc(b.took[q.stage:], math.IsNaN) {
			list[j] = math.NaN()
			continue
		}
		known = append(known, list[j])
	}
	if q.left == nil || len(known) < fewest/2 {
		return list
	}
	// The rest varies about what the progress says, and less the more is done.
	slices.Sort(known)
	median := max(known[len(known)/2], 1e-3)
	share := q.elapsed / max(q.elapsed+*q.left, 1e-3)
	for j, rest := range list {
		list[j] = *q.left * math.Pow(max(rest, 1e-3)/median, 1-share)
	}
	return list
}

// chance is a number from 0 to 1 that is always the same for i.
func chance(i int) float64 {
	x := math.Float64bits(float64(i+1)) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return float64((x^x>>31)>>11) / (1 << 53)
}

// quantile is a quantile of numbers in ascending order.
func quantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

func spanOf(sorted []float64) *Span {
	return &Span{Low: quantile(sorted, 0.1), Likely: quantile(sorted, 0.5), High: quantile(sorted, 0.9)}
}
