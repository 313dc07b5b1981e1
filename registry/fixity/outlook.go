package fixity

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/farol-preservation/farol/record"
)

// comingDueSQL counts by storage_records_fixity what comes due in each step of time.
const comingDueSQL = `
SELECT least(floor(extract(epoch FROM s.fixity_from - d.due) / @step::float8), @steps::int - 1)::int, count(*)
FROM (SELECT now() - make_interval(days => @days::int) AS due) d
JOIN storage_records s ON s.target = @target AND s.active AND s.fixity_from > d.due
	AND s.fixity_from <= d.due + make_interval(secs => @step::float8 * @steps::int)
GROUP BY 1`

// sampleDueSQL reads some pages of the table.
const sampleDueSQL = `
SELECT s.target, extract(epoch FROM s.fixity_from - now())::float8
FROM storage_records s TABLESAMPLE SYSTEM (100 * @share::float8) REPEATABLE (1)
WHERE s.active AND s.target = ANY (@targets)`

// outlook is of the targets that are read, with the shortest and the longest time between two
// checks.
func (s *reckoning) outlook(share float64) (f outlook, shortest, longest time.Duration) {
	f.share = share
	for _, t := range s.Targets {
		if t.Mode != "read" || t.Copies == 0 {
			continue
		}
		every := time.Duration(t.Days) * 24 * time.Hour
		if shortest == 0 || every < shortest {
			shortest = every
		}
		longest = max(longest, every)
		f.targets, f.loads = append(f.targets, t), append(f.loads, load{every: every, due: t.Overdue})
	}
	return f, shortest, longest
}

// forecast looks ahead, first closely and then farther. share is how much of the
// copies to look at, if they are too many.
func (s *reckoning) forecast(ctx context.Context, tx pgx.Tx, share float64) error {
	f, shortest, longest := s.outlook(share)
	if s.Estimated {
		if err := f.draw(ctx, tx); err != nil {
			return err
		}
	}
	if err := f.look(ctx, tx, forecastSpan{24 * time.Hour, daysAhead}); err != nil {
		return err
	}
	rate := s.pace.mean()
	if s.Paused {
		rate = 0
	}
	s.Ahead = ahead(s.At, rate, f.loads)
	switch {
	case s.Due() == 0:
		s.DoneAt = &s.At
		return nil
	case s.Rate <= 0, s.Paused:
		return nil
	}
	for _, span := range forecastSpans(s.Due(), s.Rate, shortest, longest) {
		if err := f.look(ctx, tx, span); err != nil {
			return err
		}
		if after, ok := forecast(s.pace, span.step, f.loads); ok {
			at := s.At.Add(after)
			s.DoneAt = &at
			return nil
		}
	}
	return nil
}

// An outlook is what comes due in the targets that are read.
type outlook struct {
	targets []record.FixityTarget
	loads   []load               // of each
	share   float64              // of the copies that are in the sample
	drawn   map[string][]float64 // when those were checked last, in seconds from now; nil: all are counted
}

// draw takes a sample of when copies were checked last.
func (f *outlook) draw(ctx context.Context, tx pgx.Tx) error {
	f.drawn = map[string][]float64{}
	var names []string
	for _, t := range f.targets {
		names = append(names, t.Target)
	}
	var target string
	var checked float64
	rows, _ := tx.Query(ctx, sampleDueSQL, pgx.NamedArgs{"share": f.share, "targets": names})
	_, err := pgx.ForEachRow(rows, []any{&target, &checked}, func() error {
		f.drawn[target] = append(f.drawn[target], checked)
		return nil
	})
	if err != nil {
		return fmt.Errorf("sample the copies that become due: %w", err)
	}
	return nil
}

// look counts what comes due in each step of a span.
func (f *outlook) look(ctx context.Context, tx pgx.Tx, span forecastSpan) error {
	for i, t := range f.targets {
		next := make([]int64, span.steps)
		f.loads[i].next = next
		if f.drawn != nil {
			for _, checked := range f.drawn[t.Target] {
				due := checked + f.loads[i].every.Seconds()
				if k := int(due / span.step.Seconds()); due > 0 && k < span.steps {
					next[k] += int64(1 / f.share)
				}
			}
			continue
		}
		var step int
		var copies int64
		rows, _ := tx.Query(ctx, comingDueSQL, pgx.NamedArgs{
			"target": t.Target, "days": t.Days, "step": span.step.Seconds(), "steps": span.steps,
		})
		_, err := pgx.ForEachRow(rows, []any{&step, &copies}, func() error {
			next[step] = copies
			return nil
		})
		if err != nil {
			return fmt.Errorf("count the copies that become due in %s: %w", t.Target, err)
		}
	}
	return nil
}
