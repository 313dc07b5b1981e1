package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// report prints what was measured.
func (b *bench) report(ctx context.Context, out io.Writer) error {
	if b.config.json {
		return b.reportJSON(out)
	}
	var settings string
	if err := b.servers.DB.QueryRow(ctx, settingsSQL).Scan(&settings); err != nil {
		return fmt.Errorf("read the database's settings: %w", err)
	}
	fmt.Fprintf(out, "%d cores; %d repetitions that take turns: the median (lowest–highest).\nPostgreSQL: %s.\n\n",
		runtime.NumCPU(), b.config.reps, settings)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, c := range b.systems {
		fmt.Fprintf(w, "%s\t%s.\tA hop: %s.\n", c.name, c.version, c.hop)
	}
	for _, line := range b.skipped {
		fmt.Fprintf(w, "%s.\n", line)
	}
	for _, t := range b.tables() {
		fmt.Fprintf(w, "\n%s\n", t[0].title(b.config))
		switch t[0].Workload {
		case "wake":
			waits(w, t)
		case "pinned":
			windows(w, t)
		default:
			rates(w, t)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the tables: %w", err)
	}
	return nil
}

const settingsSQL = `
SELECT current_setting('server_version') || ', ' || string_agg(name || ' ' || current_setting(name), ', ' ORDER BY name)
FROM pg_settings
WHERE name IN ('fsync', 'synchronous_commit', 'full_page_writes', 'shared_buffers', 'max_wal_size', 'autovacuum')`

// tables are the results by workload and backlog.
func (b *bench) tables() (list [][]*result) {
	for _, r := range b.results {
		if n := len(list); n > 0 && list[n-1][0].Workload == r.Workload && list[n-1][0].Backlog == r.Backlog {
			list[n-1] = append(list[n-1], r)
		} else {
			list = append(list, []*result{r})
		}
	}
	return list
}

func (r *result) title(c config) string {
	switch r.Workload {
	case "drain":
		return fmt.Sprintf("DRAIN: %d items from the first stage to their end, exactly %d hops each, which is checked.", r.Backlog, stages)
	case "steady":
		return fmt.Sprintf("STEADY: a backlog of %d that keeps its size, over %v.", r.Backlog, c.dur)
	case "wake":
		return fmt.Sprintf("WAKE: from putting an item into an idle queue to its claim, %d samples a repetition.", c.samples)
	default:
		return fmt.Sprintf("PINNED: %d hops a second are offered, and a snapshot is held after %d windows of %v.", c.rate, clean, c.window)
	}
}

// median is the run in the middle, the slower of two, and the rates of the
// slowest and the fastest.
func (r *result) median() (mid figures, low, high float64) {
	runs := slices.SortedFunc(slices.Values(r.Runs), func(a, b figures) int { return cmp.Compare(a.rate(), b.rate()) })
	return runs[(len(runs)-1)/2], runs[0].rate(), runs[len(runs)-1].rate()
}

func rates(w io.Writer, table []*result) {
	fmt.Fprintln(w, "system\tdurable\tworkers\tk\thops/s\trange\tFarol is\tclaim p50 ms\tp99 ms\thops/commit\tWAL B/hop")
	for _, r := range table {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t", r.System, r.Durable, r.Load.Workers, r.Load.batch())
		if r.Failed != "" {
			fmt.Fprintf(w, "FAILED: %s\n", oneLine(r.Failed))
			continue
		}
		mid, low, high := r.median()
		fmt.Fprintf(w, "%.0f\t%.0f–%.0f\t%s\t%s\t%s\t%s\t%s\n", mid.rate(), low, high, ahead(table, r),
			figure("%.2f", mid.P50), figure("%.2f", mid.P99),
			figure("%.1f", ratio(mid.Hops, mid.Commits)), figure("%.0f", ratio(mid.WAL, mid.Hops)))
	}
	bests(w, table)
}

// ahead is how many times as fast Farol is at the same load. One whose clients
// get single messages is compared with Farol's single claims.
func ahead(table []*result, r *result) string {
	for _, f := range table {
		if f.System != "farol" || f.Failed != "" || f == r {
			continue
		}
		if f.Load.Workers == r.Load.Workers && f.Load.Batch == max(1, r.Load.Batch) {
			ours, _, _ := f.median()
			theirs, _, _ := r.median()
			return fmt.Sprintf("%.2f×", ours.rate()/theirs.rate())
		}
	}
	return "–"
}

// bests compares Farol at its best with each system at its best.
func bests(w io.Writer, table []*result) {
	best := map[string]*result{}
	var order []string
	for _, r := range table {
		if r.Failed != "" {
			continue
		}
		if best[r.System] == nil {
			order = append(order, r.System)
		} else if best[r.System].middle() >= r.middle() {
			continue
		}
		best[r.System] = r
	}
	ours := best["farol"]
	if ours == nil || len(order) < 2 {
		return
	}
	fmt.Fprintln(w, "at its best\tdurable\tworkers\tk\thops/s\tFarol is")
	for _, name := range order {
		r, times := best[name], "–"
		if name != "farol" {
			times = fmt.Sprintf("%.2f×", ours.middle()/r.middle())
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%.0f\t%s\n", name, r.Durable, r.Load.Workers, r.Load.batch(), r.middle(), times)
	}
}

// batch is what stands in the column k.
func (l load) batch() string {
	if l.Batch == 0 {
		return "–"
	}
	return fmt.Sprint(l.Batch)
}

func (r *result) middle() float64 {
	mid, _, _ := r.median()
	return mid.rate()
}

func waits(w io.Writer, table []*result) {
	fmt.Fprintln(w, "system\tdurable\tp50 ms\trange\tp99 ms\trange")
	for _, r := range table {
		fmt.Fprintf(w, "%s\t%s\t", r.System, r.Durable)
		if r.Failed != "" {
			fmt.Fprintf(w, "FAILED: %s\n", oneLine(r.Failed))
			continue
		}
		var p50, p99 []float64
		for _, f := range r.Runs {
			p50, p99 = append(p50, f.P50), append(p99, f.P99)
		}
		slices.Sort(p50)
		slices.Sort(p99)
		n := len(p50)
		fmt.Fprintf(w, "%.2f\t%.2f–%.2f\t%.2f\t%.2f–%.2f\n", p50[n/2], p50[0], p50[n-1], p99[n/2], p99[0], p99[n-1])
	}
}

func windows(w io.Writer, table []*result) {
	fmt.Fprintln(w, "system\twindow\tsnapshot\toffered/s\tdone/s\tbacklog, hops\tclaim p50 ms\tp99 ms")
	for _, r := range table {
		for _, f := range r.Runs {
			for i, seen := range f.Windows {
				snapshot := "none"
				if seen.Pinned {
					snapshot = "held"
				}
				fmt.Fprintf(w, "%s\t%d\t%s\t%.0f\t%.0f\t%d\t%s\t%s\n", r.System, i+1, snapshot, seen.Offered, seen.Done, seen.Backlog,
					figure("%.2f", seen.P50), figure("%.2f", seen.P99))
			}
		}
		if r.Failed != "" {
			fmt.Fprintf(w, "%s\tFAILED: %s\n", r.System, oneLine(r.Failed))
		}
	}
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// figure leaves out what a system does not tell.
func figure(format string, x float64) string {
	if x == 0 {
		return "–"
	}
	return fmt.Sprintf(format, x)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func (b *bench) reportJSON(out io.Writer) error {
	type systemJSON struct {
		Name    string `json:"name"`
		Version string `json:"version"`
		Hop     string `json:"hop"`
		Durable string `json:"durable"`
	}
	all := struct {
		Cores   int          `json:"cores"`
		Systems []systemJSON `json:"systems"`
		Skipped []string     `json:"skipped"`
		Results []*result    `json:"results"`
	}{Cores: runtime.NumCPU(), Skipped: b.skipped, Results: b.results}
	for _, c := range b.systems {
		all.Systems = append(all.Systems, systemJSON{Name: c.name, Version: c.version, Hop: c.hop, Durable: c.durable})
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	if err := e.Encode(all); err != nil {
		return fmt.Errorf("print the results: %w", err)
	}
	return nil
}
