package items

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry/plans"
)

// PlanStates are those that an item can have in a plan, in their order.
func PlanStates() []string {
	return []string{"planned", "done", "refused", "changed", "undone", "not undone"}
}

func planShowCommand() *cobra.Command {
	return onePlan(op.Command{
		Use:   "show ID",
		Short: "Show a plan and the state of its items",
		Long: `Show what a plan does, its progress, and why items were refused, had changed or were not
undone. With --items, list the items in one of these states instead.`,
		Example: `  farol plan show 1
  farol plan show 2 --items refused --json`,
		Flags:  []op.Flag{{Name: "items", Among: func() []string { return append(PlanStates(), "all") }, Help: "list the items in this state"}},
		Within: planTime,
	}).Make(func(ctx context.Context, c *op.Call) error {
		v, err := remote.Get[plans.View](ctx, c.Server, c.Path("plans/{}"), nil)
		if err != nil {
			return noPlan(err)
		}
		if !c.Given("items") {
			return cli.Print(c.Cmd, c.JSON, v, printPlan)
		}
		state := strings.TrimPrefix(c.Text("items"), "all")
		list, err := remote.List[plans.Item](ctx, c.Server, c.Path("plans/{}/items"), remote.Query("state", state), math.MaxInt)
		if err != nil {
			return err
		}
		return cli.Print(c.Cmd, c.JSON, list, printPlanItems)
	})
}

func planListCommand() *cobra.Command {
	return op.List[plans.Plan]{
		Path: "plans", What: "plans", Before: func(p plans.Plan) int64 { return p.ID },
		Header: []string{"ID", "STATE", "DOES", "ITEMS", "MADE", "BY", "CONDITION"},
		Row: func(p plans.Plan) []string {
			return []string{
				strconv.FormatInt(p.ID, 10), p.State, does(p), strconv.FormatInt(p.Items, 10), human.Time(p.CreatedAt), human.Line(p.CreatedBy), human.Line(p.Condition),
			}
		},
	}.Command(op.Command{
		Use:   "list",
		Short: "List plans, newest first",
		Example: `  farol plan list
  farol plan list --limit 20 --before 1000 --json`,
	})
}

func printPlan(w io.Writer, v plans.View) error {
	lines := [][]string{
		{"Does", does(v.Plan)},
		{"State", standing(v)},
		{"Condition", human.Line(v.Condition)},
		{"Items", fmt.Sprintf("%d, %s; %d more are refused", v.Items-v.Refused, human.Bytes(v.Bytes), v.Refused)},
		{"Hash", v.SetHash},
		{"Made", human.Time(v.CreatedAt) + " by " + human.Line(v.CreatedBy)},
	}
	if v.ApprovedAt != nil && v.ApprovedBy != nil {
		lines = append(lines, []string{"Approved", human.Time(*v.ApprovedAt) + " by " + human.Line(*v.ApprovedBy)})
	}
	if v.Carry != nil && v.CarryFor != nil {
		lines = append(lines, []string{"A server", *v.Carry + " for " + human.Line(*v.CarryFor)})
	}
	if v.InWork > 0 && v.Action != "set priority" {
		lines = append(lines, []string{"In progress", fmt.Sprintf("%d; their workers lose them", v.InWork)})
	}
	if err := cli.WriteTable(w, []string{"Plan", strconv.FormatInt(v.ID, 10)}, lines); err != nil {
		return err
	}
	if len(v.Causes) > 0 {
		var rows [][]string
		for _, c := range v.Causes {
			rows = append(rows, []string{c.State, strconv.FormatInt(c.Items, 10), strconv.FormatInt(c.Example, 10), human.Line(c.Cause)})
		}
		fmt.Fprintln(w)
		if err := cli.WriteTable(w, []string{"STATE", "ITEMS", "SUCH AS", "WHY"}, rows); err != nil {
			return err
		}
	}
	if len(v.Sample) > 0 {
		fmt.Fprintf(w, "\nThe first of the %s to come:\n", human.Count(v.Counts["planned"], "item", "items"))
		if err := printPlanItems(w, v.Sample); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", nextOf(v))
	return err
}

// standing is the state of a plan and of its items.
func standing(v plans.View) string {
	text := v.State
	for _, state := range PlanStates() {
		if n := v.Counts[state]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, state)
		}
	}
	return text
}

// next says what can be done with a plan.
func nextOf(v plans.View) string {
	again := "To make it again: " + commandOf(v.Plan)
	switch v.State {
	case "ready":
		return fmt.Sprintf("Nothing has been changed yet. To apply it: farol plan apply %d\n%s", v.ID, again)
	case "applying":
		return fmt.Sprintf("To continue: farol plan apply %d\nTo undo it: farol plan undo %d\n%s", v.ID, v.ID, again)
	case "applied":
		return fmt.Sprintf("To undo it: farol plan undo %d\n%s", v.ID, again)
	case "undoing":
		return fmt.Sprintf("To continue undoing it: farol plan undo %d", v.ID)
	}
	return again
}

// does is what a plan does, for people.
func does(p plans.Plan) string {
	switch {
	case p.ToStage != nil:
		return p.Action + " to " + string(*p.ToStage)
	case p.Priority != nil:
		return p.Action + " to " + strconv.Itoa(*p.Priority)
	case p.Reason != nil:
		return p.Action + ", " + strconv.Quote(*p.Reason)
	}
	return p.Action
}

// commandOf is the command that makes such a plan.
func commandOf(p plans.Plan) string {
	quoted := func(s string) string { return "'" + strings.ReplaceAll(human.Line(s), "'", `'\''`) + "'" }
	command := "farol plan " + p.Action
	if p.Action == "set priority" {
		command = "farol plan priority"
	}
	command += " --where " + quoted(p.Condition)
	switch {
	case p.ToStage != nil:
		command += " --to " + quoted(string(*p.ToStage))
	case p.Reason != nil:
		command += " --reason " + quoted(*p.Reason)
	case p.Priority != nil:
		command += " -- " + strconv.Itoa(*p.Priority)
	}
	return command
}

func printPlanItems(w io.Writer, items []plans.Item) error {
	var rows [][]string
	for _, i := range items {
		rows = append(rows, []string{
			strconv.FormatInt(i.ID, 10), i.State, string(i.Status), string(i.Stage), human.Bytes(i.Size), human.Line(i.Name), human.Line(i.Detail),
		})
	}
	return cli.WriteList(w, "items", []string{"ITEM", "STATE", "WAS", "AT", "SIZE", "NAME", "WHY"}, rows)
}

func newPlanBar(items int64) *cli.Bar {
	if items == 0 {
		return nil
	}
	return cli.NewBar(items, decor.CountersNoUnit("%d / %d items"))
}
