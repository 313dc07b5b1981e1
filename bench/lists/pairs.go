package lists

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// speed is how much is done in a second, and what each costs.
type speed struct {
	rate float64
	wal  float64 // bytes of the database's log for each
}

// pair is what was measured without and with something, one after the other.
type pair struct{ without, with speed }

// fall is by how many per cent the second rate is below the first.
func (p pair) fall() float64 { return 100 * (1 - p.with.rate/cmp.Or(p.without.rate, 1)) }

// speed measures something that returns how much it did.
func (s *servers) speed(ctx context.Context, do func() (n int, err error)) (v speed, err error) {
	const written = `SELECT (pg_current_wal_insert_lsn() - '0/0')::float8`
	var before, after float64
	if err := s.DB.QueryRow(ctx, written).Scan(&before); err != nil {
		return v, fmt.Errorf("read the log's size: %w", err)
	}
	began := time.Now()
	n, err := do()
	if err != nil {
		return v, err
	}
	took := time.Since(began)
	if err := s.DB.QueryRow(ctx, written).Scan(&after); err != nil {
		return v, fmt.Errorf("read the log's size: %w", err)
	}
	return speed{float64(n) / took.Seconds(), (after - before) / float64(max(n, 1))}, nil
}

// pairs measures rounds in pairs. Every second pair begins with the other. A checkpoint
// comes before each, so that all pay alike for the whole pages that follow one.
func (m *measurement) pairs(ctx context.Context, one func(with bool) (speed, error)) (list []pair, err error) {
	for n := range m.config.rounds {
		var p pair
		for turn := range 2 {
			with := (n+turn)%2 == 1
			if _, err := m.DB.Exec(ctx, `CHECKPOINT`); err != nil {
				return nil, fmt.Errorf("write a checkpoint: %w", err)
			}
			v, err := one(with)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(m.progress, "round %d, with %t: %.0f/s\n", n+1, with, v.rate)
			if with {
				p.with = v
			} else {
				p.without = v
			}
		}
		list = append(list, p)
	}
	return list, nil
}

// line is what was measured in pairs.
type line struct {
	what  string
	pairs []pair
}

func printPairs(out io.Writer, title string, lines ...line) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s\n\twithout\twith\tfall, median\tleast\tmost\tWAL bytes each, without\twith\t\n", title)
	for _, l := range lines {
		of := func(number func(pair) float64) (list []float64) {
			for _, p := range l.pairs {
				list = append(list, number(p))
			}
			return list
		}
		falls := of(pair.fall)
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.1f%%\t%.1f%%\t%.1f%%\t%.0f\t%.0f\t\n", l.what,
			median(of(func(p pair) float64 { return p.without.rate })), median(of(func(p pair) float64 { return p.with.rate })),
			median(falls), slices.Min(falls), slices.Max(falls),
			median(of(func(p pair) float64 { return p.without.wal })), median(of(func(p pair) float64 { return p.with.wal })))
	}
	fmt.Fprintln(w)
	return flushed(w)
}
