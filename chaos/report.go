package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/farol-preservation/farol/internal/rigs/oracle"
)

// linesOfKind is how many violations of one kind are printed; all are counted.
const linesOfKind = 3

// A report is the results of a run.
type report struct {
	Version string   `json:"version"`
	Command string   `json:"command"`
	Seconds float64  `json:"seconds"`
	Results []result `json:"results"`
}

func (p *report) add(r result) { p.Results = append(p.Results, r) }

func (r result) good() bool { return len(r.Violations) == 0 && r.Error == "" }

func (r result) verdict() string {
	switch {
	case r.Error != "":
		return "unknown"
	case len(r.Violations) > 0:
		return "BROKEN"
	}
	return "kept"
}

// statuses writes found of wanted, such as "54/54".
func (r result) status(name string) string { return fmt.Sprintf("%d/%d", r.Found[name], r.Want[name]) }

// attempts writes the outcomes of attempts but done, such as "held 12, killed 3".
func (r result) attempts() string {
	var parts []string
	for _, o := range slices.Sorted(maps.Keys(r.Outcomes)) {
		if o != "done" {
			parts = append(parts, fmt.Sprintf("%s %d", o, r.Outcomes[o]))
		}
	}
	return strings.Join(parts, ", ")
}

// kinds counts the violations by kind, such as "attempt-spent 12".
func (r result) kinds() []string {
	n := map[string]int{}
	for _, v := range r.Violations {
		n[v.Kind]++
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, n[k]))
	}
	return parts
}

// print writes one result, with a line for each violation.
func (r result) print(w io.Writer) {
	fmt.Fprintf(w, "  %s: Success %s, Failed %s, Suspended %s; first stage %.1f s and all %.1f s after the faults; %.0f s in all\n",
		r.verdict(), r.status("Success"), r.status("Failed"), r.status("Suspended"), r.First, r.All, r.Seconds)
	if a := r.attempts(); a != "" {
		fmt.Fprintf(w, "  attempts: %s\n", a)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "  note: %s\n", n)
	}
	if r.Error != "" {
		fmt.Fprintf(w, "  ERROR: %s\n", r.Error)
	}
	if len(r.Violations) > 0 {
		fmt.Fprintf(w, "  violations: %s\n", strings.Join(r.kinds(), ", "))
	}
	shown := map[string]int{}
	for _, v := range r.Violations {
		if shown[v.Kind]++; shown[v.Kind] <= linesOfKind {
			fmt.Fprintf(w, "    %s\n", line(v))
		}
	}
}

func line(v oracle.Violation) string {
	about := ""
	if v.Item != 0 {
		about = fmt.Sprintf(" item %d", v.Item)
	}
	if v.Bag != "" && v.Bag != "/" {
		about += " (" + v.Bag + ")"
	}
	return v.Kind + about + ": " + v.Detail
}

func (p *report) text(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "EXPERIMENT\tSEED\tBAGS\tWORKERS\tSECONDS\tSUCCESS\tFAILED\tSUSPENDED\tFIRST s\tALL s\tPROMISES\tATTEMPTS BUT done\tVIOLATIONS")
	for _, r := range p.Results {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.0f\t%s\t%s\t%s\t%.1f\t%.1f\t%s\t%s\t%s\n", r.Name, r.Seed, r.Bags, r.Workers, r.Seconds,
			r.status("Success"), r.status("Failed"), r.status("Suspended"), r.First, r.All, r.verdict(), r.attempts(), strings.Join(r.kinds(), ", "))
	}
	fmt.Fprintf(t, "\n%d of %d experiments kept all promises, in %.0f s; Farol is %s.\n", p.kept(), len(p.Results), p.Seconds, p.Version)
	return t.Flush() //nolint:wrapcheck // it is our own output
}

func (p *report) kept() (n int) {
	for _, r := range p.Results {
		if r.good() {
			n++
		}
	}
	return n
}

// bags is how many an experiment had.
func (p *report) bags() (n int) {
	for _, r := range p.Results {
		n = max(n, r.Bags)
	}
	return n
}

// A groupResult is the results of the experiments with one beginning of their names: the
// longest times, and all attempts.
type groupResult struct {
	result
	number   int
	verdicts []string
}

// groups are the results by what comes before the first hyphen of their names.
func (p *report) groups() (list []groupResult) {
	at := map[string]int{}
	for _, r := range p.Results {
		what, _, _ := strings.Cut(r.Name, "-")
		i, known := at[what]
		if !known {
			i, at[what] = len(list), len(list)
			list = append(list, groupResult{result: result{Name: r.Name, Outcomes: map[string]int{}}})
		}
		g := &list[i]
		if g.number++; g.number > 1 {
			g.Name = what + "…"
		}
		g.First, g.All = max(g.First, r.First), max(g.All, r.All)
		for outcome, n := range r.Outcomes {
			g.Outcomes[outcome] += n
		}
		verdict := r.verdict()
		if len(r.Violations) > 0 {
			verdict += " by " + r.Name + ": " + strings.Join(r.kinds(), ", ")
		}
		if !slices.Contains(g.verdicts, verdict) {
			g.verdicts = append(g.verdicts, verdict)
		}
	}
	return list
}

// markdown writes what is between the marks of RELIABILITY.md: where it comes from, and the
// table. TestReliabilityIsMeasured reads the commit.
func (p *report) markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "It was measured on %d cores, with %d bags, at commit `%s`, with\n`%s`, in %s s. %d of %d experiments kept all promises. A row has the longest times\nof its experiments, from the end of the faults, and all attempts. `make chaos ARGS=--list` says what each does and what must come of it.\n\n",
		runtime.NumCPU(), p.bags(), p.Version, p.Command, thousands(int(p.Seconds)), p.kept(), len(p.Results))
	b.WriteString("| experiments | number | first stage after | all after | attempts but done | promises |\n")
	b.WriteString("|---|--:|--:|--:|---|---|\n")
	for _, g := range p.groups() {
		fmt.Fprintf(&b, "| `%s` | %d | %.1f s | %.1f s | %s | %s |\n", g.Name, g.number, g.First, g.All, g.attempts(), strings.Join(g.verdicts, "; "))
	}
	_, err := io.WriteString(w, b.String())
	return err //nolint:wrapcheck // it is our own output
}

// thousands writes a number below a million with its comma.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

func (p *report) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(p) //nolint:wrapcheck // it is our own output
}
