package stores

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// An outcome is what an act came to on one store.
type outcome struct {
	Act     string  `json:"act"`
	Right   int     `json:"right"`
	Want    int     `json:"want"`
	Wrong   []wrong `json:"wrong,omitempty"`
	Seconds float64 `json:"seconds"`
}

// A wrong is a kind of thing that went wrong, with the first example.
type wrong struct {
	What    string `json:"what"`
	Count   int    `json:"count"`
	Example string `json:"example,omitempty"`
}

// wrong counts one more of a kind.
func (o *outcome) wrong(what, example string) {
	i := slices.IndexFunc(o.Wrong, func(w wrong) bool { return w.What == what })
	if i < 0 {
		i, o.Wrong = len(o.Wrong), append(o.Wrong, wrong{What: what, Example: strings.Join(strings.Fields(example), " ")})
	}
	o.Wrong[i].Count++
}

func (o outcome) good() bool { return o.Right == o.Want && len(o.Wrong) == 0 }

// cell writes right/want, and a mark if all are right and something else is not.
func (o outcome) cell() string {
	mark := ""
	if o.Right == o.Want && !o.good() {
		mark = " !"
	}
	return fmt.Sprintf("%d/%d%s", o.Right, o.Want, mark)
}

// words are what went wrong, as "5 Suspended at Store (transient)".
func (o outcome) words() string {
	var list []string
	for _, w := range o.Wrong {
		list = append(list, fmt.Sprintf("%d %s", w.Count, w.What))
	}
	return strings.Join(list, ", ")
}

// A result is the row of one store.
type result struct {
	Store     string    `json:"store"`
	Does      string    `json:"does"`
	Release   string    `json:"version"`
	Installed float64   `json:"install_s"`
	Seconds   float64   `json:"seconds"` // without the installation
	Acts      []outcome `json:"acts"`
	Notes     []string  `json:"notes,omitempty"`
	Error     string    `json:"error,omitempty"` // the store or the harness failed, and little is known
}

func (r result) good() bool {
	return r.Error == "" && len(r.Acts) > 0 && !slices.ContainsFunc(r.Acts, func(o outcome) bool { return !o.good() })
}

// cells are the row's, with – for acts that it did not come to.
func (r result) cells() (list []string) {
	for i := range acts() {
		cell := "–"
		if i < len(r.Acts) {
			cell = r.Acts[i].cell()
		}
		list = append(list, cell)
	}
	return list
}

// print writes all that is known.
func (r result) print(w io.Writer) {
	fmt.Fprintf(w, "  %s, installed in %.0f s; %.0f s in all\n", r.Release, r.Installed, r.Seconds)
	for _, o := range r.Acts {
		fmt.Fprintf(w, "  %-10s %-10s %4.0f s  %s\n", o.Act, o.cell(), o.Seconds, o.words())
		for _, x := range o.Wrong {
			if x.Example != "" {
				fmt.Fprintf(w, "    %s: %.300s\n", x.What, x.Example)
			}
		}
	}
	for _, n := range append(r.Notes, r.Error) {
		if n != "" {
			fmt.Fprintf(w, "  note: %s\n", n)
		}
	}
}

// A report is the results of a run.
type report struct {
	Version string   `json:"version"`
	Command string   `json:"command"`
	Seconds float64  `json:"seconds"`
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

func (p *report) printAs(w io.Writer, f flags) error {
	switch {
	case f.json:
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(p)
	case f.table:
		_, err := io.WriteString(w, p.markdown())
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "STORE\tSECONDS\t%s\tVERSION\n", strings.ToUpper(strings.Join(actNames(), "\t")))
	for _, r := range p.Results {
		fmt.Fprintf(t, "%s\t%.0f\t%s\t%s\n", r.Store, r.Seconds, strings.Join(r.cells(), "\t"), r.Release)
	}
	fmt.Fprintf(t, "\nAll was right on %d of %d stores, in %.0f s; Farol is %s.\n", p.right(), len(p.Results), p.Seconds, p.Version)
	return t.Flush()
}

// markdown is what is between the marks of docs/stores.md.
func (p *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "The table shows right/expected, on %d cores. It was measured at commit `%s` with\n`%s`, in %.0f s. All was right on %d of %d stores.\n\n",
		runtime.NumCPU(), p.Version, p.Command, p.Seconds, p.right(), len(p.Results))
	fmt.Fprintf(&b, "| store | version | %s | seconds |\n|---|---|%s--:|\n", strings.Join(actNames(), " | "), strings.Repeat("--:|", len(acts())))
	for _, r := range p.Results {
		fmt.Fprintf(&b, "| %s | %s | %s | %.0f |\n", r.Does, r.Release, strings.Join(r.cells(), " | "), r.Seconds)
	}
	b.WriteString("\n")
	for _, r := range p.Results {
		var said []string
		for _, o := range r.Acts {
			if words := o.words(); words != "" {
				said = append(said, o.Act+": "+words)
			}
		}
		if r.Error != "" {
			said = append(said, fmt.Sprintf("not finished: %.300s", strings.Join(strings.Fields(r.Error), " ")))
		}
		if len(said) > 0 {
			fmt.Fprintf(&b, "- %s: %s.\n", r.Does, strings.Join(said, "; "))
		}
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// The marks between which docs/stores.md has the table.
const (
	tableBegins = "<!-- The table of make stores begins here. -->\n"
	tableEnds   = "<!-- The table of make stores ends here. -->\n"
)

// write replaces the table in a page, which has a heading if it is new.
func (p *report) write(page string) error {
	text, err := os.ReadFile(page)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = []byte("# Stores\n\n"+tableBegins+tableEnds), nil
	}
	before, rest, begins := strings.Cut(string(text), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if err == nil && (!begins || !ends) {
		err = fmt.Errorf("it has not the lines %q and %q", tableBegins, tableEnds)
	}
	if err == nil {
		err = os.WriteFile(page, []byte(before+tableBegins+"\n"+p.markdown()+"\n"+tableEnds+after), 0o644) //nolint:gosec // a page to read
	}
	if err != nil {
		return fmt.Errorf("write the table to %s: %w", page, err)
	}
	return nil
}
