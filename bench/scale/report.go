package scale

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"text/tabwriter"
)

// report prints what was measured.
func report(out io.Writer, s *servers, c config, results []result) error {
	if len(results) == 0 {
		return nil
	}
	recordCap := "no cap on Record"
	if c.recordCap > 0 {
		recordCap = fmt.Sprintf("a cap of %d on Record", c.recordCap)
	}
	fmt.Fprintf(out, "%d cores for all; PostgreSQL %s, fsync and synchronous_commit on; %s; arriving work is %.2f of what the slots can do.\n",
		runtime.NumCPU(), s.version, recordCap, c.load)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "\nWhat was done\nbags\tworkers\toffered/s\tbags/s\ttransitions/s\tnew p50 ms\tp99\tnext p50 ms\tp99\tPostgreSQL cores\tworkers'\tothers'\tidle\tconnections\twarnings\t  limit\n")
	for _, r := range results {
		pg, workers := r.cores(r.end.postgres-r.begin.postgres), r.cores(r.end.workers.CPU-r.begin.workers.CPU)
		fmt.Fprintf(w, "%s\t%d\t%.1f\t%.1f\t%.0f\t%.1f\t%.0f\t%.1f\t%.0f\t%.2f\t%.2f\t%.2f\t%.0f%%\t%d\t%d\t  %s\n",
			r.bags.name, r.workers, r.offered, float64(r.ended)/r.seconds, float64(r.hops)/r.seconds,
			r.first.p50, r.first.p99, r.later.p50, r.later.p99, pg, workers,
			max(0, r.cores(r.end.machine-r.begin.machine)-pg-workers), 100*r.idle(), r.connections,
			r.end.workers.Warnings-r.begin.workers.Warnings, r.limit(c))
	}
	fmt.Fprint(w, "\nWhat each transition cost\nbags\tworkers\tPostgreSQL CPU ms\tworker CPU ms\tstatements\ttransactions\tcommits\tclaims\tempty\tWAL bytes\tper core: transitions/s\tbags/day\t  sessions at work, by what they wait for\n")
	for _, r := range results {
		n := max(float64(r.hops), 1)
		ms := 1000 * (r.end.postgres - r.begin.postgres) / n
		perCore := 1000 / max(ms, 0.001)
		fmt.Fprintf(w, "%s\t%d\t%.3f\t%.3f\t%.1f\t%.1f\t%.2f\t%.2f\t%.2f\t%.0f\t%.0f\t%.2fM\t  %s\n",
			r.bags.name, r.workers, ms, 1000*(r.end.workers.CPU-r.begin.workers.CPU)/n,
			float64(r.end.statements-r.begin.statements)/n, float64(r.end.transactions-r.begin.transactions)/n,
			float64(r.end.commits-r.begin.commits)/n, float64(r.end.workers.Claims-r.begin.workers.Claims)/n,
			float64(r.end.workers.Empty-r.begin.workers.Empty)/n, float64(r.end.wal-r.begin.wal)/n,
			perCore, perCore*86_400/stages/1e6, r.atWork())
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the tables: %w", err)
	}
	for _, r := range results {
		r.printStatements(out)
	}
	return nil
}

// stages is how many transitions take a bag through its ingest.
const stages = 9

// limit says what kept the workers from doing all that was offered.
func (r *result) limit(c config) string {
	const enough, full, slow = 0.95, 0.05, 100
	switch {
	case float64(r.ended) >= enough*r.offered*r.seconds:
		return "none: all was done that arrived"
	case c.recordCap > 0 && r.worst == "Record" && r.worstP50 > slow:
		return fmt.Sprintf("cap on Record: bags wait %.1f s for it", r.worstP50/1000)
	case r.idle() < full:
		return "CPU of this machine"
	default:
		return "see what sessions wait for"
	}
}

// atWork lists what sessions do while they work, the most frequent first.
func (r *result) atWork() (text string) {
	events := slices.SortedFunc(maps.Keys(r.activity), func(a, b string) int { return cmp.Compare(r.activity[b], r.activity[a]) })
	for i, e := range events[:min(4, len(events))] {
		if r.activity[e] < 0.05 {
			break
		}
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s %.1f", e, r.activity[e])
	}
	return text
}

// printStatements prints where the database's time went.
func (r *result) printStatements(out io.Writer) {
	if len(r.statements) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s bags, %d workers: statements by their time in the database, for each transition\n", r.bags.name, r.workers)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "calls\tms/call\tms\tWAL bytes\tstatement")
	n := max(float64(r.hops), 1)
	for _, s := range r.statements {
		fmt.Fprintf(w, "%.3f\t%.3f\t%.3f\t%.0f\t%s\n", float64(s.Calls)/n, s.MS/max(float64(s.Calls), 1), s.MS/n, float64(s.WAL)/n, s.Text)
	}
	w.Flush() //nolint:errcheck // the tables before it were printed
}
