package table

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// report prints the limits, and the workloads beside them.
func report(out io.Writer, m machine, l limits, results []result) error {
	fmt.Fprintf(out, "Commit %s on %d cores with %s GiB, %s.\n\n", m.commit, m.cores, figure(m.memory), m.date.Format("2006-01-02 15:04 MST"))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "limit of the machine\ta second")
	for _, name := range limitNames() {
		fmt.Fprintf(w, "%s\t%s\n", name, figure(l[name]))
	}
	fmt.Fprintln(w, "\nwork\twall s\tleast s\tof\twall/least\tgoal\tCPU s\tworker\tidentify\tPostgreSQL\tgateway\tothers\tpeak MiB\tneighbours")
	for _, r := range results {
		if r.name == transitionsName {
			continue
		}
		goal := ""
		if r.goal > 0 {
			goal = figure(r.goal)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s", r.name, figure(r.wall), figure(r.least.seconds), r.least.of,
			figure(r.ratio()), goal, figure(r.cpu()))
		for _, name := range []string{"worker", "identify", "postgres", "gateway", "other"} {
			fmt.Fprintf(w, "\t%s", figure(r.used.cpu[name]))
		}
		fmt.Fprintf(w, "\t%s\t%s\n", figure(r.used.peak["worker"]), figure(r.neighbours))
	}
	fmt.Fprintln(w, "\nfor each transition\tS3 requests/file\tstatements\tcommits\tempty claims\tWAL bytes\ttransitions/s\tSELECTs a transition")
	for _, r := range results {
		if r.name == transitionsName {
			fmt.Fprintf(w, "%s\t\t\t%s\t\t%s\t%s\t%s\n", r.name, figure(r.per(r.Commits)), figure(r.per(r.WAL)), figure(r.rate), figure(r.ratio()))
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", r.name, figure(r.perFile()), figure(r.per(r.Statements)), figure(r.per(r.Commits)),
			figure(r.per(r.Claims-r.Claimed)), figure(r.per(r.WAL)))
	}
	for _, r := range results {
		if r.moved != nil {
			fmt.Fprintf(w, "\nthe bytes of %s moved by others\ts\n", r.name)
			for _, name := range moverNames() {
				if seconds, measured := r.moved[name]; measured {
					fmt.Fprintf(w, "%s\t%s\n", name, figure(seconds))
				}
			}
		}
	}
	compared(w, results)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	return nil
}
