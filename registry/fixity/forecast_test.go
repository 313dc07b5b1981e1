package fixity

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/farol-preservation/farol/record"
)

// promise is a target of the model: when each of its copies was checked last, in
// seconds from now, oldest first, and how often it is to be.
type promise struct {
	every   int64
	checked []int64
}

// simulate has a scheduler allow so many checks every so often and a worker make so
// many a second, the most overdue first, and says when nothing was due any more; -1
// if that did not come within the time.
func simulate(promises []promise, allowed, interval int64, perSecond float64, most int64) int64 {
	queues := make([][]int64, len(promises)) // when each copy comes due
	for i, p := range promises {
		for _, at := range p.checked {
			queues[i] = append(queues[i], at+p.every)
		}
	}
	left, done := int64(0), 0.0
	for now := int64(0); now < most; now++ {
		if now%interval == 0 {
			left = allowed
		}
		for done += perSecond; done >= 1; done-- {
			first := -1
			for i, q := range queues {
				if q[0] <= now && (first < 0 || q[0] < queues[first][0]) {
					first = i
				}
			}
			if first < 0 {
				return now
			}
			if left == 0 {
				done = 0
				break
			}
			left--
			queues[first] = append(queues[first][1:], now+promises[first].every)
		}
	}
	return -1
}

// foretold is the forecast of the same.
func foretold(promises []promise, p pace) int64 {
	loads := make([]load, len(promises))
	due, shortest, longest := int64(0), time.Duration(math.MaxInt64), time.Duration(0)
	for i, of := range promises {
		loads[i].every = time.Duration(of.every) * time.Second
		shortest, longest = min(shortest, loads[i].every), max(longest, loads[i].every)
		for _, at := range of.checked {
			if at+of.every <= 0 {
				loads[i].due++
			}
		}
		due += loads[i].due
	}
	for _, span := range forecastSpans(due, p.mean(), shortest, longest) {
		for i, of := range promises {
			loads[i].next = make([]int64, span.steps)
			for _, at := range of.checked {
				if k := (at + of.every - 1) / int64(span.step/time.Second); at+of.every > 0 && k < int64(span.steps) {
					loads[i].next[k]++
				}
			}
		}
		if after, ok := forecast(p, span.step, loads); ok {
			return int64(after.Seconds())
		}
	}
	return -1
}

// A million copies, and a clock that the test sets: the forecast is less than 5 %
// off what then happens.
func TestForecastIsWhatHappens(t *testing.T) {
	t.Parallel()
	const hour, day = int64(3600), int64(86400)
	random := rand.New(rand.NewPCG(1, 2))
	spread := func(n int, from, to int64) (list []int64) { // evenly
		for range n {
			list = append(list, from+random.Int64N(to-from))
		}
		slices.Sort(list)
		return list
	}
	waves := func(n int, from, to int64) (list []int64) { // as after large ingests
		for i := range n {
			wave := from + (to-from)*int64(i*12/n)/12
			list = append(list, wave+random.Int64N(day))
		}
		slices.Sort(list)
		return list
	}
	for name, tc := range map[string]struct {
		promises  []promise
		allowed   int64
		perSecond float64
	}{
		"a per cent is due":         {[]promise{{90 * day, spread(1_000_000, -91*day, 0)}}, 2500, 50},
		"nobody looked for a month": {[]promise{{90 * day, spread(1_000_000, -120*day, -30*day)}}, 2500, 50},
		"slower than allowed":       {[]promise{{90 * day, spread(500_000, -100*day, -10*day)}}, 2500, 0.08},
		"large ingests":             {[]promise{{90 * day, waves(1_000_000, -130*day, -20*day)}}, 4000, 50},
		"all on one day":            {[]promise{{90 * day, spread(1_000_000, -100*day, -99*day)}}, 2500, 50},
		"two promises": {[]promise{
			{90 * day, spread(400_000, -120*day, 0)}, {365 * day, spread(600_000, -500*day, 0)},
		}, 1800, 50},
		"one comes round several times meanwhile": {[]promise{
			{7 * day, spread(10_000, -7*day, 0)}, {365 * day, spread(990_000, -800*day, -400*day)},
		}, 800, 50},
		"never, for two":           {[]promise{{30 * day, spread(500_000, -40*day, 0)}, {365 * day, spread(500_000, -300*day, 0)}}, 250, 50},
		"never":                    {[]promise{{90 * day, spread(1_000_000, -100*day, 0)}}, 200, 50},
		"the first has come round": {[]promise{{30 * day, spread(500_000, -40*day, 0)}, {365 * day, spread(500_000, -300*day, 0)}}, 390, 50},
	} {
		interval := hour / 2
		p := pace{rate: tc.perSecond, left: float64(tc.allowed), fed: float64(tc.allowed), every: time.Duration(interval) * time.Second}
		p.next = p.every
		is, said := simulate(tc.promises, tc.allowed, interval, tc.perSecond, 1200*day), foretold(tc.promises, p)
		wrong := math.Abs(float64(said-is)) / float64(max(is, 1))
		if (is < 0) != (said < 0) || is > 0 && wrong > 0.05 {
			t.Errorf("%s: %.2f days were foretold, and it took %.2f", name, float64(said)/float64(day), float64(is)/float64(day))
		}
		t.Logf("%s: foretold %.2f days, took %.2f: %.2f %% off", name, float64(said)/float64(day), float64(is)/float64(day), 100*wrong)
	}
}

// A release that follows the policies leaves no copy late for longer than a quarter of its
// interval, however the copies came in, and as many as are due in the mean none at all.
func TestReleaseThatFollowsKeepsThePolicies(t *testing.T) {
	t.Parallel()
	const every, day = int64(1800), int64(86400)
	months := func(n int, from, to int64) (list []int64) {
		for i := range int64(n) {
			list = append(list, from+(to-from)*i/int64(n))
		}
		return list
	}
	for name, tc := range map[string]struct {
		promises []promise
		within   float64 // days until nothing is due
	}{
		"evenly":             {[]promise{{7 * day, months(1_500_000, -7*day, 0)}}, 0.1},
		"all on one day":     {[]promise{{30 * day, months(2_000_000, -31*day, -30*day)}}, 30.0 / 4},
		"after a long pause": {[]promise{{30 * day, months(2_000_000, -60*day, -30*day)}}, 30.0 / 3},
		"two intervals":      {[]promise{{7 * day, months(300_000, -8*day, -1*day)}, {90 * day, months(2_000_000, -100*day, -10*day)}}, 4},
		"few":                {[]promise{{7 * day, months(1000, -90*day, -89*day)}}, 0.1},
	} {
		var targets []record.FixityTarget
		for _, of := range tc.promises {
			targets = append(targets, record.FixityTarget{Mode: "read", Days: int(of.every / day), Copies: int64(len(of.checked))})
		}
		n := release(targets, time.Duration(every)*time.Second)
		if is := float64(simulate(tc.promises, int64(n), every, 50, 100*day)) / float64(day); is < 0 || is > tc.within*1.02 {
			t.Errorf("%s: releases of %d copies take %.2f days, want %.2f at most", name, n, is, tc.within)
		}
	}
}

// What becomes due is checked as fast as checks are made, and comes due again after the
// interval of its target.
func TestAheadCountsDayByDay(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	next := make([]int64, daysAhead)
	next[0], next[1], next[3] = 10, 50, 100
	list := ahead(time.Unix(0, 0), 40/day.Seconds(), []load{{every: 5 * day, due: 60, next: next}, {every: 90 * day, next: make([]int64, daysAhead)}})
	want := []record.FixityDayAhead{{Due: 10, Checked: 40, Overdue: 30}, {Due: 50, Checked: 40, Overdue: 40}, {Checked: 40}, {Due: 100, Checked: 40, Overdue: 60}, {Checked: 40, Overdue: 20}, {Due: 40, Checked: 40, Overdue: 20}}
	for k, w := range want {
		if w.From = time.Unix(0, 0).Add(time.Duration(k) * day); list[k] != w {
			t.Errorf("day %d: %+v, want %+v", k, list[k], w)
		}
	}
	if list := ahead(time.Unix(0, 0), 0, []load{{every: 5 * day, due: 60, next: next}}); list[daysAhead-1].Overdue != 220 || list[0].Checked != 0 {
		t.Errorf("nothing is checked: %+v", list[daysAhead-1])
	}
}
