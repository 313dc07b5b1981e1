package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/progress"
)

// print writes the page.
func (e *explanation) print(w io.Writer) error {
	i := e.Item
	var b strings.Builder
	if i.Action == "Ingest" {
		fmt.Fprintf(&b, "Item %d: %s of %s, %s, which becomes the object %s\n",
			i.ID, human.Line(i.Name), i.Institution, human.Bytes(i.Size), human.Line(i.ObjectIdentifier))
	} else {
		fmt.Fprintf(&b, "Item %d: %s, of the %s, %s\n", i.ID, i.Action, aboutOf(i, e.Request), human.Bytes(i.Size))
	}
	if e.Request.Archive != nil {
		fmt.Fprintf(&b, "It comes from %s.\n", archiveOf(i, *e.Request.Archive))
	}
	fmt.Fprintf(&b, "%s at %s, since %s (%s ago). %s\n", i.Status, e.Current.place(), human.Time(e.Since), human.Duration(time.Since(e.Since)), e.Summary)

	history := slices.Clone(e.History)
	if n := len(history) - 1; n >= 0 && len(e.Faults) > 0 {
		history[n].Error = "" // it is told below, in more detail
	}
	earlier := len(history) - mostChapters
	if earlier > 0 {
		history = history[earlier:]
	}
	lines := printed(history)
	if earlier > 0 {
		lines = append([]string{fmt.Sprintf("(%d lines before; `farol item show %d` has them)", earlier, i.ID)}, lines...)
	}
	heading(&b, "What happened", lines)
	heading(&b, "How far it is", e.progressLines())
	heading(&b, "Why", e.why())
	heading(&b, "Warnings", e.odd())
	heading(&b, "What it waits for", e.waits())
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

func (e *explanation) progressLines() (lines []string) {
	c := e.Current
	switch {
	case e.Item.Status == "Started" && c.FilesDone != nil:
		lines = append(lines, c.Stage+": "+c.done(), c.pace())
		for _, hand := range c.hands() {
			lines = append(lines, "in hand: "+hand)
		}
	case e.Item.Status == "Started" && c.counts():
		lines = append(lines, c.Stage+": "+c.done())
	case c.FilesDone != nil:
		lines = append(lines, c.Stage+" came to: "+c.done())
	}
	return lines
}

func (e *explanation) why() (lines []string) {
	if e.Cause == nil {
		return nil
	}
	lines = append(lines, e.Cause.Code+": "+e.Cause.Means, "Whose fault: "+faults()[e.Cause.Fault]+".")
	if e.Item.Note != "" && len(e.Faults) == 0 {
		lines = append(lines, "On record: "+human.Line(human.Shorten(e.Item.Note, 2*mostWords)))
	}
	if e.InHand != "" && len(e.Faults) == 0 {
		lines = append(lines, "File in hand: "+human.Line(e.InHand))
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
	if v := verdictOn(f.Code); v.Fault == "bag" && f.Code != "invalid-bag" {
		lines = append(lines, "    "+f.Code+": "+v.Todo)
	}
	return lines
}

func (e *explanation) odd() (lines []string) {
	for _, warning := range e.Odd[:min(len(e.Odd), mostFaults)] {
		lines = append(lines, "- "+human.Line(human.Shorten(warning, mostWords)))
	}
	if more := len(e.Odd) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more; add --json for all that is kept", more))
	}
	return lines
}

func (e *explanation) waits() (lines []string) {
	for _, o := range e.Waits {
		lines = append(lines, o.Reason+": "+human.Line(o.Detail))
	}
	return lines
}
