package lists

import (
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
	refused int
	slowest sample
}

// cells sorts samples into lines, in the order of the table.
func cells(all []sample) []*cell {
	found := map[spot]*cell{}
	for _, s := range all {
		at := spot{s.visit.list, s.visit.page}
		if found[at] == nil {
			found[at] = &cell{spot: at}
		}
		c := found[at]
		c.took = append(c.took, s.took)
		if s.failed != nil {
			c.refused++
		}
		if s.took > c.slowest.took {
			c.slowest = s
		}
	}
	var lines []*cell
	for _, l := range table() {
		for _, p := range []page{first, deep, last} {
			if c := found[spot{l.name, p}]; c != nil {
				slices.Sort(c.took)
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
	return printLists(m.out, cells(all))
}

func printLists(out io.Writer, lines []*cell) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "list\tpage\trequests\tp50 ms\tp95 ms\tp99 ms\tmax ms\tmissed\t  slowest for\n")
	bad := 0
	for _, c := range lines {
		missed := c.missed()
		if missed != "" {
			bad++
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t  %s\n", c.list, c.page, len(c.took), ms(percentile(c.took, 0.5)), ms(percentile(c.took, 0.95)),
			ms(percentile(c.took, 0.99)), ms(c.took[len(c.took)-1]), missed, c.slowest.caller)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the lists: %w", err)
	}
	_, err := fmt.Fprintf(out, "%d of %d lines miss a goal: p95 at most %s, p99 at most %s, and nothing refused.\n\n", bad, len(lines), goalP95, goalP99)
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
