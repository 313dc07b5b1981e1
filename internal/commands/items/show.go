package items

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
)

func itemShowCommand() *cobra.Command {
	return op.Show(one(op.Command{
		Use:   "show ID",
		Short: "Show everything recorded about an item",
		Long: `Show an item: its state and what it waits for, the progress of its stage in files and
bytes with the rate and the time left, when the item will have ended, every attempt, and
the records of its object.
"item watch" follows an item; "item explain" explains it.`,
	}), "items/{}/record", printItem)
}

func printItem(w io.Writer, v *explain.Item) error {
	i := v.Item
	lines := [][]string{
		{"Action", string(i.Action)},
		{"Status", fmt.Sprintf("%s at %s", i.Status, i.Stage)},
		{"Next", v.State},
		{"Bag", fmt.Sprintf("%s in %s, %s, uploaded %s", human.Line(i.Name), human.Line(i.Bucket), human.Bytes(i.Size), human.Time(i.BagDate))},
		{"ETag", human.Line(i.ETag)},
		{"Institution", i.Institution},
		{"Object", human.Line(i.ObjectIdentifier)},
	}
	lines = append(lines, requestLines(i, v.Request)...)
	lines = append(lines, [][]string{
		{"Queued", human.Time(i.CreatedAt) + ", " + human.Duration(time.Since(i.CreatedAt)) + " ago"},
		{"Attempt", strconv.Itoa(i.Attempt) + " of this stage"},
		{"Note", human.Line(i.Note)},
	}...)
	if i.Outcome != "" {
		lines = append(lines, []string{"Outcome", human.Line(i.Outcome)})
	}
	if i.ErrorCode != "" {
		lines = append(lines, []string{"Error code", i.ErrorCode})
	}
	if i.NeedsAdminReview {
		lines = append(lines, []string{"Review", "a person has to decide"})
	}
	for _, warning := range v.Warnings {
		lines = append(lines, []string{"Warning", human.Line(warning)})
	}
	lines = append(lines, progressLines(v)...)
	if ends := explain.EndsIn(v.End, v.Unknown, time.Now()); ends != "" {
		lines = append(lines, []string{"Ends", ends})
	}
	if err := cli.WriteTable(w, []string{"Item", strconv.FormatInt(i.ID, 10)}, lines); err != nil {
		return err
	}
	if err := printAttempts(w, v.Attempts); err != nil {
		return err
	}
	var b strings.Builder
	heading(&b, "Changed by hand", changeLines(v.Changes))
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	return printObject(w, v)
}

// progressLines are those about the stage that the item is at. Where nothing was
// counted of it, they say what it keeps for the next attempt.
func progressLines(v *explain.Item) (lines [][]string) {
	c := v.Current
	if c.Of > 0 {
		lines = append(lines, []string{"Stage", fmt.Sprintf("%d of %d", c.Number, c.Of)})
	}
	switch {
	case c.FilesDone != nil:
		lines = append(lines, []string{"Progress", fmt.Sprintf("%s: %s", c.Stage, c.Done())})
	case len(v.Progress) > 0:
		for _, p := range v.Progress {
			lines = append(lines, []string{"Progress", fmt.Sprintf("%s: %s finished", p.Stage, human.Count(p.Files, "file", "files"))})
		}
	case v.Item.Status == "Started" && c.Counts():
		lines = append(lines, []string{"Progress", fmt.Sprintf("%s: %s", c.Stage, c.Done())})
	}
	if v.Item.Status != "Started" || c.FilesDone == nil {
		return lines
	}
	lines = append(lines, []string{"Rate", c.Pace()})
	for _, hand := range c.FileLines() {
		lines = append(lines, []string{"In progress", hand})
	}
	return lines
}

func printAttempts(w io.Writer, attempts []record.Attempt) error {
	var rows [][]string
	for _, a := range attempts {
		outcome, end := "running", time.Now()
		if a.Outcome != nil && a.EndedAt != nil {
			outcome, end = *a.Outcome, *a.EndedAt
		}
		what := human.Line(a.Error)
		if a.CurrentFile != "" && outcome != "done" {
			what = strings.TrimSpace(what + " (current file: " + human.Line(a.CurrentFile) + ")")
		}
		rows = append(rows, []string{
			string(a.Stage), strconv.Itoa(a.Attempt), human.Time(a.ClaimedAt), human.Duration(end.Sub(a.ClaimedAt)), outcome, a.ErrorCode,
			fmt.Sprintf("%s/%d", human.Line(a.Node), a.PID), what,
		})
	}
	if len(rows) == 0 {
		_, err := fmt.Fprint(w, "\nNo worker has claimed it yet.\n")
		return err
	}
	fmt.Fprintln(w)
	return cli.WriteTable(w, []string{"STAGE", "TRY", "CLAIMED", "TOOK", "OUTCOME", "CODE", "NODE/PID", "ERROR"}, rows)
}

func printObject(w io.Writer, v *explain.Item) error {
	if v.Object == nil {
		return nil
	}
	o, s := v.Object, v.Object.Summary
	rows := [][]string{
		{"Title", human.Line(o.Title)},
		{"State", o.State + ", access " + o.Access},
		{"Stored", fmt.Sprintf("%s, %s, in %s (%s)", human.Count(s.Files, "file", "files"), human.Bytes(s.Bytes), human.Copies(s.Copies), o.StorageOption)},
	}
	for _, kind := range slices.Sorted(maps.Keys(s.Events)) {
		rows = append(rows, []string{"Events", fmt.Sprintf("%d × %s", s.Events[kind], kind)})
	}
	fmt.Fprintln(w)
	if err := cli.WriteTable(w, []string{"On record", human.Line(o.Identifier)}, rows); err != nil {
		return err
	}
	var events [][]string
	for _, e := range v.Events {
		events = append(events, []string{human.Time(e.DateTime), e.EventType, e.Outcome, human.Line(e.OutcomeInformation)})
	}
	fmt.Fprintln(w)
	return cli.WriteTable(w, []string{"WHEN", "EVENT OF THE OBJECT", "OUTCOME", "WHAT"}, events)
}

// requestLines say what a request is about: a single file, and the archive that it
// comes from.
func requestLines(i record.WorkItem, q record.RetrievalRequest) (lines [][]string) {
	if q.File != "" {
		lines = append(lines, []string{"File", human.Line(q.File)})
	}
	if q.Archive != nil {
		lines = append(lines, []string{"From", explain.ArchiveOf(i, *q.Archive)})
	}
	return lines
}

// changeLines are the lines of a page about changes by hand.
func changeLines(changes []record.Change) (lines []string) {
	for _, c := range changes {
		lines = append(lines, human.Time(c.At)+"  "+explain.ChangeByHand(c))
	}
	return lines
}
