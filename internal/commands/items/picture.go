package items

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
)

// picture draws an item on a terminal, each time over its last drawing.
type picture struct {
	out   *os.File
	lines int // that are on the screen
}

// interrupt leaves the last drawing where it is.
func (p *picture) interrupt() { p.lines = 0 }

func (p *picture) show(l explain.Snapshot) error {
	var b strings.Builder
	if p.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\x1b[J", p.lines)
	}
	lines := draw(l)
	const cut, wrap = "\x1b[?7l", "\x1b[?7h" // a line that the terminal breaks would count as two
	b.WriteString(cut + strings.Join(lines, "\n") + "\n" + wrap)
	p.lines = len(lines)
	if _, err := p.out.WriteString(b.String()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// draw has a line for each stage, and the figures of the current one.
func draw(l explain.Snapshot) []string {
	i := l.Item
	lines := []string{fmt.Sprintf("Item %d, %s of %s, %s: %s", i.ID, human.Line(i.Name), i.Institution, human.Bytes(i.Size), i.Status)}
	if l.Current.Of == 0 {
		return append(lines, fmt.Sprintf("  %s: %s", i.Stage, l.State))
	}
	for n, stage := range i.Order {
		switch {
		case n+1 < l.Current.Number || i.Status == "Success":
			lines = append(lines, fmt.Sprintf("  %d %-22s done%s", n+1, stage, tookFor(l.Attempts, stage)))
		case n+1 > l.Current.Number:
			lines = append(lines, fmt.Sprintf("  %d %s", n+1, stage))
		default:
			lines = append(lines, fmt.Sprintf("  %d %-22s %s", n+1, stage, drawCurrent(l)))
			for _, hand := range l.Current.FileLines() {
				lines = append(lines, "      "+hand)
			}
		}
	}
	if ends := explain.EndsIn(l.End, l.Unknown, l.Time); ends != "" {
		lines = append(lines, "  End: "+ends)
	}
	switch {
	case i.Retry || i.Status == "Success":
		return append(lines, "  "+l.State)
	default:
		return append(lines, "  "+human.Line(i.Note))
	}
}

func drawCurrent(l explain.Snapshot) string {
	c := l.Current
	if l.Item.Status != "Started" {
		return strings.ToLower(string(l.Item.Status))
	}
	text := "running"
	if l.Item.Attempt > 1 {
		text = fmt.Sprintf("attempt %d", l.Item.Attempt)
	}
	if !c.Counts() {
		return text
	}
	if share, ok := c.Share(); ok {
		text += " " + meter(share)
	}
	text += " " + c.Done()
	if c.FilesDone != nil {
		text += ", " + c.Pace()
	}
	return text
}

// meter draws a share from 0 to 1.
func meter(share float64) string {
	const width = 20
	n := min(max(int(share*width), 0), width)
	return "[" + strings.Repeat("=", n) + strings.Repeat(" ", width-n) + "]"
}

// tookFor is how long the work on a stage took, attempts that failed included.
func tookFor(attempts []record.Attempt, stage record.Stage) string {
	var sum time.Duration
	for _, a := range attempts {
		if a.Stage == stage && a.EndedAt != nil {
			sum += a.EndedAt.Sub(a.ClaimedAt)
		}
	}
	if sum == 0 {
		return ""
	}
	return " in " + human.Duration(sum)
}
