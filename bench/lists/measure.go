package lists

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/farol-preservation/farol/retry"
)

// Goals of each page of each list.
const (
	goalP95 = 300 * time.Millisecond
	goalP99 = time.Second
)

// spot is a page of a list.
type spot struct {
	list string
	page page
}

// cell is a line of the table.
type cell struct {
	spot

	took    []time.Duration // sorted
	bytes   int             // of the largest page
	refused int
	slowest sample
}

// gather sorts samples by where they are from.
func gather(all []sample) map[spot]*cell {
	found := map[spot]*cell{}
	for _, s := range all {
		at := spot{s.visit.list, s.visit.page}
		if found[at] == nil {
			found[at] = &cell{spot: at}
		}
		c := found[at]
		c.took, c.bytes = append(c.took, s.took), max(c.bytes, s.bytes)
		if s.failed != nil {
			c.refused++
		}
		if s.took > c.slowest.took {
			c.slowest = s
		}
	}
	for _, c := range found {
		slices.Sort(c.took)
	}
	return found
}

// cells sorts samples into lines, in the order of the table.
func cells(all []sample) (lines []*cell) {
	found := gather(all)
	for _, l := range table() {
		for _, p := range []page{first, deep, last} {
			if c := found[spot{l.name, p}]; c != nil {
				lines = append(lines, c)
			}
		}
	}
	return lines
}

// percentile is the time that a share of the requests did not exceed.
func percentile(sorted []time.Duration, share float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(share*float64(len(sorted))+0.999999)-1)]
}

// missed says which goals a line misses.
func (c *cell) missed() (text string) {
	if percentile(c.took, 0.95) > goalP95 {
		text += " p95"
	}
	if percentile(c.took, 0.99) > goalP99 {
		text += " p99"
	}
	if c.refused > 0 {
		text += fmt.Sprintf(" refused %d", c.refused)
	}
	return text
}

// settle is how long people read before it counts.
const settle = 10 * time.Second

// lists reads all lists as people do.
func (m *measurement) lists(ctx context.Context) error {
	read := func(d time.Duration) ([]sample, float64, error) {
		return m.people.crowd(ctx, m.config.callers, d, m.config.pause, m.server.url, (*caller).any)
	}
	if _, _, err := read(min(settle, m.config.dur)); err != nil {
		return err
	}
	all, rate, err := read(m.config.dur)
	if err != nil {
		return err
	}
	z := m.config.sizes
	fmt.Fprintf(m.out, "Lists, %d callers on %d cores, a pause of %s: %d ended and %d live items, %d objects, %d files, %d records of events; %d requests, %.0f a second\n",
		m.config.callers, runtime.NumCPU(), m.config.pause, z.Ended, z.Live, z.Objects, z.Files, z.Objects+z.Files+z.Events, len(all), rate)
	return printLines(m.out, "list\tpage\trequests", cells(all), 0)
}

// printLines prints the lines of lists, or those of pages that come with extra bytes of style and script.
func printLines(out io.Writer, heading string, lines []*cell, extra int) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	what, bytes, goal := "lines", "", ""
	if extra > 0 {
		what, bytes, goal = "pages", "\tkB", fmt.Sprintf(" %d bytes with style and script,", goalBytes)
	}
	fmt.Fprintf(w, "%s\tp50 ms\tp95 ms\tp99 ms\tmax ms%s\tmissed\t  slowest for\n", heading, bytes)
	bad := 0
	for _, c := range lines {
		name, missed := c.list, c.missed()
		switch {
		case extra == 0:
			name += "\t" + string(c.page)
		case c.bytes+extra > goalBytes:
			missed += " size"
		}
		if missed != "" {
			bad++
		}
		if extra > 0 {
			bytes = fmt.Sprintf("\t%.1f", float64(c.bytes)/1000)
		}
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s%s\t%s\t  %s\n", name, len(c.took), ms(percentile(c.took, 0.5)), ms(percentile(c.took, 0.95)),
			ms(percentile(c.took, 0.99)), ms(c.took[len(c.took)-1]), bytes, missed, c.slowest.caller)
	}
	if err := flushed(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "%d of %d %s miss a goal: p95 at most %s, p99 at most %s,%s and nothing refused.\n\n", bad, len(lines), what, goalP95, goalP99, goal)
	return err
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e6) }

// requests measures how many requests are answered in a second.
func (m *measurement) requests(ctx context.Context) error {
	kinds := []struct {
		name string
		next func(c *caller) visit
	}{
		{"GET /api/v1/items/{id}", m.people.item},
		{"GET /api/v1/items", func(*caller) visit { return visit{url: "/api/v1/items"} }},
	}
	w := tabwriter.NewWriter(m.out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "Requests a second, %d callers without a pause\nrequest\ta second\tp50 ms\tp99 ms\trefused\t\n", m.config.callers)
	for _, k := range kinds {
		var rates []float64
		var took []time.Duration
		refused := 0
		for range m.config.rounds {
			all, rate, err := m.people.crowd(ctx, m.config.callers, m.config.round(), 0, m.server.url, k.next)
			if err != nil {
				return err
			}
			rates = append(rates, rate)
			for _, s := range all {
				took = append(took, s.took)
				if s.failed != nil {
					refused++
				}
			}
		}
		slices.Sort(took)
		fmt.Fprintf(w, "%s\t%.0f\t%s\t%s\t%d\t\n", k.name, median(rates), ms(percentile(took, 0.5)), ms(percentile(took, 0.99)), refused)
	}
	fmt.Fprintln(w)
	return flushed(w)
}

// item is one that the caller may see.
func (p *people) item(c *caller) visit {
	ids := p.items[c.scope]
	return visit{url: fmt.Sprintf("/api/v1/items/%d", ids[rand.IntN(len(ids))])}
}

// memory measures how large the server becomes.
func (m *measurement) memory(ctx context.Context) error {
	before, err := m.server.resident()
	if err != nil {
		return err
	}
	most := before
	var all []sample
	group, running := errgroup.WithContext(ctx)
	running, stop := context.WithCancel(running)
	group.Go(func() error {
		defer stop()
		all, _, err = m.people.crowd(ctx, m.config.crowd, m.config.round(), m.config.pause, m.server.url, (*caller).any)
		return err
	})
	group.Go(func() error {
		for retry.Pause(running, 100*time.Millisecond) {
			now, err := m.server.resident()
			if err != nil {
				return err
			}
			most = max(most, now)
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(m.out, "Memory of the server: %.0f MiB before, %.0f MiB at most with %d callers, who made %d requests\n\n", before, most, m.config.crowd, len(all))
	return err
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func flushed(w *tabwriter.Writer) error {
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the figures: %w", err)
	}
	return nil
}

// background reads lists at a fixed rate until ctx is done, and returns how many.
func (m *measurement) background(ctx context.Context) (n int, err error) {
	tick := time.NewTicker(time.Second / time.Duration(m.config.rate))
	defer tick.Stop()
	var group errgroup.Group
	group.SetLimit(m.config.callers)
	for {
		select {
		case <-ctx.Done():
			return n, group.Wait()
		case <-tick.C:
		}
		c := m.people.callers[n%len(m.people.callers)]
		group.Go(func() error {
			_, err := c.measured(ctx, m.server.url, c.any())
			if errors.Is(ctx.Err(), context.Canceled) {
				return nil
			}
			return err
		})
		n++
	}
}

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
