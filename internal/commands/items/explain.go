package items

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/progress"
)

func itemExplainCommand() *cobra.Command {
	return op.Show(one(op.Command{
		Use:   "explain ID",
		Short: "Explain what happened to an item and what to do",
		Long: `Explain an item on one page: what happened to it, which file of the bag is wrong, what was
expected and what was found, whose fault it is (the bag's or the system's), what it waits
for, and what to do. It uses recorded facts only; "item show" has all of them.`,
	}), "items/{}/explain", printExplanation)
}

const (
	mostEntries = 20
	mostFaults  = 10
	mostWords   = 300 // runes of an error on the page
)

// printExplanation writes the page.
func printExplanation(w io.Writer, e *explain.Explanation) error {
	i := e.Item
	var b strings.Builder
	if i.Action == "Ingest" {
		fmt.Fprintf(&b, "Item %d: %s of %s, %s, which becomes the object %s\n",
			i.ID, human.Line(i.Name), i.Institution, human.Bytes(i.Size), human.Line(i.ObjectIdentifier))
	} else {
		fmt.Fprintf(&b, "Item %d: %s, of the %s, %s\n", i.ID, i.Action, explain.AboutOf(i, e.Request), human.Bytes(i.Size))
	}
	if e.Request.Archive != nil {
		fmt.Fprintf(&b, "It comes from %s.\n", explain.ArchiveOf(i, *e.Request.Archive))
	}
	fmt.Fprintf(&b, "%s at %s, since %s (%s ago). %s\n", i.Status, e.Current.Place(), human.Time(e.Since), human.Duration(time.Since(e.Since)), e.Summary)

	history := slices.Clone(e.History)
	if n := len(history) - 1; n >= 0 && len(e.Faults) > 0 {
		history[n].Error = "" // it is printed below, in more detail
	}
	earlier := len(history) - mostEntries
	if earlier > 0 {
		history = history[earlier:]
	}
	lines := printed(history)
	if earlier > 0 {
		lines = append([]string{fmt.Sprintf("(%d lines before; `farol item show %d` has them)", earlier, i.ID)}, lines...)
	}
	heading(&b, "What happened", lines)
	heading(&b, "How far it is", progressOf(e))
	heading(&b, "Why", whyLines(e))
	heading(&b, "Warnings", warningLines(e))
	heading(&b, "What it waits for", waitLines(e))
	var todo []string
	for _, t := range e.Todo {
		todo = append(todo, "- "+human.Line(t))
	}
	heading(&b, "What to do", todo)
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func progressOf(e *explain.Explanation) (lines []string) {
	c := e.Current
	switch {
	case e.Item.Status == "Started" && c.FilesDone != nil:
		lines = append(lines, fmt.Sprintf("%s: %s", c.Stage, c.Done()), c.Pace())
		for _, hand := range c.FileLines() {
			lines = append(lines, "in progress: "+hand)
		}
	case e.Item.Status == "Started" && c.Counts():
		lines = append(lines, fmt.Sprintf("%s: %s", c.Stage, c.Done()))
	case c.FilesDone != nil:
		lines = append(lines, fmt.Sprintf("%s came to: %s", c.Stage, c.Done()))
	}
	if ends := explain.EndsIn(e.End, e.Unknown, time.Now()); ends != "" {
		lines = append(lines, "end: "+ends)
	}
	return lines
}

func whyLines(e *explain.Explanation) (lines []string) {
	if e.Cause == nil {
		return nil
	}
	lines = append(lines, e.Cause.Code+": "+e.Cause.Means, "Whose fault: "+explain.Faults()[e.Cause.Fault]+".")
	if e.Item.Note != "" && len(e.Faults) == 0 {
		lines = append(lines, "On record: "+human.Line(human.Shorten(e.Item.Note, 2*mostWords)))
	}
	if e.CurrentFile != "" && len(e.Faults) == 0 {
		lines = append(lines, "Current file: "+human.Line(e.CurrentFile))
	}
	shown := e.Faults[:min(len(e.Faults), mostFaults)]
	for _, f := range shown {
		lines = append(lines, describeFault(f)...)
	}
	if more := len(e.Faults) - len(shown) + e.More; more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more; add --json for all that is kept", more))
	}
	return lines
}

func describeFault(f progress.Fault) (lines []string) {
	head := "- "
	if f.Path != "" {
		head += human.Line(f.Path) + ": "
	}
	lines = append(lines, head+human.Line(human.Shorten(f.Message, mostWords)))
	if f.Expected != "" || f.Found != "" {
		lines = append(lines, "    expected "+human.Line(f.Expected), "    found    "+human.Line(f.Found))
	}
	if v := explain.VerdictOn(f.Code); v.Fault == "bag" && f.Code != "invalid-bag" {
		lines = append(lines, "    "+f.Code+": "+v.Todo)
	}
	return lines
}

func warningLines(e *explain.Explanation) (lines []string) {
	for _, warning := range e.Odd[:min(len(e.Odd), mostFaults)] {
		lines = append(lines, "- "+human.Line(human.Shorten(warning, mostWords)))
	}
	if more := len(e.Odd) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more; add --json for all that is kept", more))
	}
	return lines
}

func waitLines(e *explain.Explanation) (lines []string) {
	for _, o := range e.Waits {
		lines = append(lines, o.Reason+": "+human.Line(o.Detail))
	}
	return lines
}

// printed is the history as lines of the page.
func printed(list []explain.Entry) (lines []string) {
	for _, c := range list {
		lines = append(lines, human.Time(c.At)+"  "+c.What)
		if c.Outcome == "done" {
			continue
		}
		if c.Error != "" {
			lines = append(lines, "    "+human.Line(human.Shorten(c.Error, mostWords)))
		}
		if c.CurrentFile != "" {
			lines = append(lines, "    current file: "+human.Line(c.CurrentFile))
		}
	}
	return lines
}

// heading puts lines under a heading, after an empty line.
func heading(b *strings.Builder, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s\n", title)
	for _, line := range lines {
		fmt.Fprintf(b, "  %s\n", line)
	}
}
