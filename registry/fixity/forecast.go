package fixity

import (
	"time"

	"github.com/farol-preservation/farol/record"
)

// load is what comes due in a target.
type load struct {
	every time.Duration // between two checks of a copy
	due   int64         // copies, now
	next  []int64       // that come due in each step of time from now on
}

// pace is how fast copies are checked: so many a second, and no more than are allowed
// from time to time.
type pace struct {
	rate  float64       // checks a second while there are any to make
	left  float64       // that are allowed now
	fed   float64       // that are allowed each time; 0: there is no bound
	every time.Duration // between two times
	next  time.Duration // until the next
}

// mean is how many a second that comes to.
func (p pace) mean() float64 {
	if p.fed == 0 {
		return p.rate
	}
	return min(p.rate, p.fed/p.every.Seconds())
}

// able is how many checks can be made in a step that begins at a time. For a step longer
// than a quarter of the time between two allowances it is the mean.
func (p *pace) able(at, step time.Duration) float64 {
	if p.fed == 0 || step > p.every/4 {
		return p.mean() * step.Seconds()
	}
	for p.next <= at {
		p.left = p.fed
		p.next += p.every
	}
	return min(p.rate*step.Seconds(), p.left)
}

// cohort is a number of copies that came due at about the same time.
type cohort struct {
	target int
	copies float64
}

// forecast reports when all that is due will have been checked, at a pace, the
// most overdue first: the first moment at which nothing is left of what is due now
// and of what has come due until then. What was checked comes due again after its
// target's interval. ok is false if that moment is not within the steps that next has.
func forecast(p pace, step time.Duration, loads []load) (after time.Duration, ok bool) {
	steps := 0
	var queue []cohort // in the order in which they came due
	backlog := 0.0
	comes := make([][]float64, len(loads))
	for t, l := range loads {
		steps = max(steps, len(l.next))
		queue = append(queue, cohort{t, float64(l.due)})
		backlog += float64(l.due)
	}
	for t, l := range loads {
		comes[t] = make([]float64, steps)
		for k, n := range l.next {
			comes[t][k] = float64(n)
		}
	}
	for k := range steps {
		at := time.Duration(k) * step
		arriving := 0.0
		for t := range loads {
			arriving += comes[t][k]
			queue = append(queue, cohort{t, comes[t][k]})
		}
		able := p.able(at, step)
		switch {
		case backlog == 0:
			return at, true
		case backlog+arriving <= able && able > arriving: // sometime within this step
			return at + time.Duration(backlog/(able-arriving)*float64(step)), true
		}
		p.left -= min(able, backlog+arriving)
		queue = serve(queue, able, func(target int, copies float64) {
			if again := k + int(max(loads[target].every/step, 1)); again < steps {
				comes[target][again] += copies
			}
		})
		backlog = max(backlog+arriving-able, 0)
	}
	return 0, false
}

// serve takes copies from the front of a queue, and reports each kind how many.
func serve(queue []cohort, copies float64, took func(target int, copies float64)) []cohort {
	for copies > 0 && len(queue) > 0 {
		n := min(queue[0].copies, copies)
		took(queue[0].target, n)
		copies -= n
		queue[0].copies -= n
		if queue[0].copies > 0 {
			break
		}
		queue = queue[1:]
	}
	return queue
}

// A forecastSpan is how closely one looks ahead, and how far.
type forecastSpan struct {
	step  time.Duration
	steps int
}

// forecastSpans are those to try one after the other: what will be done in an hour is
// to be known to the minute, and what takes a year to the day. Nothing that is not
// done after some intervals ever will be.
func forecastSpans(due int64, rate float64, shortest, longest time.Duration) (list []forecastSpan) {
	const steps = 512
	most := max(3*longest, 365*24*time.Hour)
	at := time.Duration(min(float64(due)/rate*float64(time.Second), float64(most)))
	for span := max(4*at, steps*time.Second); ; span *= 4 {
		span = min(span, most)
		step := max(min(span/steps, shortest/64), time.Second)
		list = append(list, forecastSpan{step, int(span/step) + 1})
		if span == most {
			return list
		}
	}
}

// daysAhead is how many days are forecast one by one.
const daysAhead = 30

// ahead forecasts day by day how many copies become due, are checked and stay overdue, at so
// many checks a second. The loads have steps of a day.
func ahead(from time.Time, rate float64, loads []load) []record.FixityDayAhead {
	comes, queue, backlog := make([][]float64, len(loads)), []cohort{}, 0.0
	for t, l := range loads {
		comes[t] = make([]float64, daysAhead)
		for k, n := range l.next {
			comes[t][k] = float64(n)
		}
		queue = append(queue, cohort{t, float64(l.due)})
		backlog += float64(l.due)
	}
	list := make([]record.FixityDayAhead, daysAhead)
	for k := range list {
		due := 0.0
		for t := range loads {
			due += comes[t][k]
			queue = append(queue, cohort{t, comes[t][k]})
		}
		able := min(rate*(24*time.Hour).Seconds(), backlog+due)
		queue = serve(queue, able, func(target int, copies float64) {
			if again := k + int(max(loads[target].every/(24*time.Hour), 1)); again < daysAhead {
				comes[target][again] += copies
			}
		})
		backlog += due - able
		list[k] = record.FixityDayAhead{From: from.Add(time.Duration(k) * 24 * time.Hour), Due: int64(due + 0.5), Checked: int64(able + 0.5), Overdue: int64(backlog + 0.5)}
	}
	return list
}
