package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"text/tabwriter"
)

// An outcome is what an act came to on one store.
type outcome struct {
	Act     string  `json:"act"`
	Right   int     `json:"right"`
	Want    int     `json:"want"`
	Said    string  `json:"said,omitempty"` // what went wrong, or ""
	Seconds float64 `json:"seconds"`
}

func (o outcome) good() bool { return o.Right == o.Want && o.Said == "" }

// A result is the row of one store.
type result struct {
	Store     string    `json:"store"`
	Does      string    `json:"does"`
	Release   string    `json:"version"`
	Installed float64   `json:"install_s"`
	Seconds   float64   `json:"seconds"` // without the installation
	Acts      []outcome `json:"acts"`
	Notes     []string  `json:"notes,omitempty"`
	Error     string    `json:"error,omitempty"` // the store or the harness failed, and nothing is known

	farol string // version
}

func (r result) good() bool {
	for _, o := range r.Acts {
		if !o.good() {
			return false
		}
	}
	return r.Error == "" && len(r.Acts) > 0
}

// said is what went wrong, a line for each act.
func (r result) said() (lines []string) {
	for _, o := range r.Acts {
		if !o.good() {
			lines = append(lines, fmt.Sprintf("%s: %d of %d right. %s", o.Act, o.Right, o.Want, o.Said))
		}
	}
	if r.Error != "" {
		lines = append(lines, "not finished: "+r.Error)
	}
	return lines
}

func (r result) print(w io.Writer) {
	fmt.Fprintf(w, "  %s: installed in %.0f s, %.0f s in all:", r.Release, r.Installed, r.Seconds)
	for _, o := range r.Acts {
		fmt.Fprintf(w, " %s %s (%.0f s)", o.Act, o.cell(), o.Seconds)
	}
	fmt.Fprintln(w)
	for _, line := range append(r.said(), r.Notes...) {
		fmt.Fprintf(w, "    %s\n", line)
	}
}

// cell writes right/want, and a mark if something else went wrong.
func (o outcome) cell() string {
	if o.Right == o.Want && o.Said != "" {
		return fmt.Sprintf("%d/%d !", o.Right, o.Want)
	}
	return fmt.Sprintf("%d/%d", o.Right, o.Want)
}

// A report is the results of a run.
type report struct {
	Version string   `json:"version"`
	Command string   `json:"command"`
	Seconds float64  `json:"seconds"`
	Acts    []string `json:"acts"`
	Results []result `json:"results"`
}

func (p *report) right() (n int) {
	for _, r := range p.Results {
		if r.good() {
			n++
		}
	}
	return n
}

func (p *report) good() bool { return p.right() == len(p.Results) }

func (p *report) printAs(w io.Writer, f flags) error {
	switch {
	case f.json:
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(p) //nolint:wrapcheck // it is our own output
	case f.table:
		_, err := io.WriteString(w, p.markdown())
		return err //nolint:wrapcheck // it is our own output
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "STORE\tVERSION\tSECONDS\t%s\n", strings.ToUpper(strings.Join(p.Acts, "\t")))
	for _, r := range p.Results {
		fmt.Fprintf(t, "%s\t%s\t%.0f\t%s\n", r.Store, r.Release, r.Seconds, strings.Join(r.cells(p.Acts), "\t"))
	}
	fmt.Fprintf(t, "\nAll was right on %d of %d stores, in %.0f s; Farol is %s.\n", p.right(), len(p.Results), p.Seconds, p.Version)
	return t.Flush() //nolint:wrapcheck // it is our own output
}

// cells are the row's, with "–" for acts that it did not come to.
func (r result) cells(acts []string) (list []string) {
	for i := range acts {
		cell := "–"
		if i < len(r.Acts) {
			cell = r.Acts[i].cell()
		}
		list = append(list, cell)
	}
	return list
}

// markdown is what is between the marks of docs/stores.md.
func (p *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "The table shows right/expected, on %d cores. It was measured at commit `%s` with\n`%s`, in %.0f s. All was right on %d of %d stores.\n\n",
		runtime.NumCPU(), p.Version, p.Command, p.Seconds, p.right(), len(p.Results))
	fmt.Fprintf(&b, "| store | version | %s | seconds |\n|---|---|%s--:|\n", strings.Join(p.Acts, " | "), strings.Repeat("--:|", len(p.Acts)))
	for _, r := range p.Results {
		fmt.Fprintf(&b, "| %s | %s | %s | %.0f |\n", r.Does, r.Release, strings.Join(r.cells(p.Acts), " | "), r.Seconds)
	}
	for _, r := range p.Results {
		for i, line := range r.said() {
			if i == 0 {
				fmt.Fprintf(&b, "\n%s:\n\n", r.Does)
			}
			fmt.Fprintf(&b, "- %s\n", strings.ReplaceAll(strings.TrimSpace(line), "\n", " "))
		}
	}
	return b.String()
}

// The marks between which docs/stores.md has the table.
const (
	tableBegins = "<!-- The table of make stores begins here. -->\n"
	tableEnds   = "<!-- The table of make stores ends here. -->\n"
)

// write replaces the table in a page, which has a short head if it is new.
func (p *report) write(page string) error {
	text, err := os.ReadFile(page)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = []byte("# Stores\n\n"+tableBegins+tableEnds), nil
	}
	if err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	before, rest, found := strings.Cut(string(text), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !found || !ends {
		return fmt.Errorf("write the table: %s has not the marks %q and %q", page, tableBegins, tableEnds)
	}
	if err := os.WriteFile(page, []byte(before+tableBegins+"\n"+p.markdown()+"\n"+tableEnds+after), 0o644); err != nil { //nolint:gosec // a page to read
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}
