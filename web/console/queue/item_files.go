package queue

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/web/api/queue"
	"github.com/farol-preservation/farol/web/console/frame"
)

// loadItemFiles is a page of the files of an item.
type itemFiles struct {
	Item   record.ItemView
	Files  queue.ItemFiles
	States []string
	State  string
	After  string // path
	More   string
}

// loadItemFiles shows the files of an item, and what has become of each.
func loadItemFiles(v *frame.Visit) (any, error) {
	d := itemFiles{States: interim.States(), State: v.URL.Query().Get("state"), After: v.URL.Query().Get("after_path")}
	var err error
	if d.Item, err = frame.Get[record.ItemView](v, "items/"+v.ID(), nil); err != nil {
		return nil, err
	}
	q := v.Query("state", "after", "after_path")
	q.Set("limit", "50")
	if d.Files, err = frame.Get[queue.ItemFiles](v, "items/"+v.ID()+"/files", q); err != nil {
		return nil, err
	}
	v.Title = fmt.Sprintf("Files of item %d", d.Item.ID)
	d.More = v.More(d.Files.Next)
	return d, nil
}

// explanation answers with what became of an item, as a text to pass on.
func explanation(v *frame.Visit) {
	e, err := frame.Get[explain.Explanation](v, "items/"+v.ID()+"/explain", nil)
	if err != nil {
		v.Frame.Problem(v, err)
		return
	}
	v.Writer.Header().Set("Content-Type", "text/plain; charset=utf-8")
	v.Writer.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="item-%d.txt"`, e.Item.ID))
	v.Frame.Send(v.Writer, v.Request, http.StatusOK, []byte(asText(e)))
}

// asText is an explanation as a text.
func asText(e explain.Explanation) string {
	var b strings.Builder
	i := e.Item
	fmt.Fprintf(&b, "Item %d: %s of %s\n%s at %s since %s\n\n%s\n", i.ID, i.Action, human.Line(i.ObjectIdentifier), i.Status, i.Stage, e.Since.UTC().Format(time.RFC3339), e.Summary)
	if c := e.Cause; c != nil {
		fmt.Fprintf(&b, "\n%s (%s)\nWhose fault: %s\nWhat to do: %s\n", c.Means, c.Code, explain.Faults()[c.Fault], c.Todo)
	}
	for _, f := range e.Faults {
		fmt.Fprintf(&b, "\n- %s", f.Code)
		for _, part := range []struct{ name, text string }{{"file", f.Path}, {"what", f.Message}, {"expected", f.Expected}, {"found", f.Found}} {
			if part.text != "" {
				fmt.Fprintf(&b, "\n  %s: %s", part.name, human.Line(part.text))
			}
		}
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\n%d more.", e.More)
	}
	fmt.Fprint(&b, "\n\nWhat happened (UTC):\n")
	for _, h := range e.History {
		fmt.Fprintf(&b, "%s  %s\n", h.At.UTC().Format("2006-01-02 15:04:05"), human.Line(h.What))
	}
	if len(e.Todo) > 0 {
		fmt.Fprint(&b, "\nWhat to do:\n")
		for _, line := range e.Todo {
			fmt.Fprintf(&b, "- %s\n", human.Line(line))
		}
	}
	return b.String()
}
