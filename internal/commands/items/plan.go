package items

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Plan is farol plan.
func Plan() *cobra.Command {
	c := cli.Group("plan", "Change many items by a plan that can be reviewed and undone",
		planRequeueCommand(), planCancelCommand(), planPriorityCommand(),
		planApplyCommand(), planShowCommand(), planListCommand(), planUndoCommand())
	c.Long = `Change many items at once. A plan records the items and their state, and changes
nothing: review it, then apply it. Applying can be interrupted and continued. A plan can
be undone for each item that has not changed since.`
	return c
}

// planTime bounds the making of a plan: its condition may have to read every item.
const planTime = 10 * time.Minute

const conditionHelp = `

--where takes a condition of SQL, as after WHERE in a query of work_items. It runs once,
read-only and with your own rights.`

// planning is a command that makes a plan, which changes nothing.
func planning(action string, c op.Command) *cobra.Command {
	c.Long += " Nothing is changed until the\nplan is applied." + conditionHelp
	c.Within = planTime
	c.Flags = append(c.Flags,
		op.Flag{Name: "where", Param: "where", Help: "only items for which this SQL condition is true; \"true\" selects all"},
		op.Flag{Name: "status", Among: values.Names(values.Statuses), Help: "only with this status"},
		op.Flag{Name: "stage", Kind: op.Stage, Help: values.StageHelp()},
		op.Flag{Name: "institution", Help: "only of the institution with this identifier"},
		op.Flag{Name: "error-code", Help: "only with this error code"})
	c.Check = func(call *op.Call) error {
		if !slices.ContainsFunc([]string{"where", "status", "stage", "institution", "error-code"}, call.Given) {
			return cli.Usage(errors.New("no items are named"), "select items with --where or another flag; --where true selects all")
		}
		if action == "set priority" {
			if _, err := parsePriority(call.Arg); err != nil {
				return err
			}
		}
		return remote.RefuseFlags(call.Cmd, "where")
	}
	return c.Make(func(ctx context.Context, call *op.Call) error {
		filter, body := map[string]any{}, call.Body()
		for flag, name := range map[string]string{"institution": "institution", "error-code": "error_code"} {
			if call.Given(flag) {
				filter[name] = call.Text(flag)
			}
		}
		for _, name := range []string{"status", "stage"} {
			if call.Given(name) {
				filter[name] = []string{call.Text(name)}
			}
		}
		body["action"], body["filter"] = action, filter
		if n, err := parsePriority(call.Arg); err == nil {
			body["priority"] = n
		}
		v, err := remote.Send[record.PlanView](ctx, call.Server, http.MethodPost, "plans", body)
		if errors.Is(err, registry.ErrNotFound) {
			err = cmp.Or(values.CheckInstitution(ctx, call.Server, call.Text("institution")), err)
		}
		if err != nil {
			return notMade(err)
		}
		return cli.Print(call.Cmd, call.JSON, v, printPlan)
	})
}

func planRequeueCommand() *cobra.Command {
	return planning("requeue", op.Command{
		Use:   "requeue",
		Short: "Plan to requeue items",
		Long:  "Plan to requeue items, as `farol item requeue` requeues one.",
		Example: `  farol plan requeue --status Suspended --error-code target-missing
  farol plan requeue --where 'attempt >= 3 AND needs_admin_review OR id IN (1, 3, 6)' --to Receive`,
		Flags: []op.Flag{{Name: "to", Param: "stage", Kind: op.Stage, Help: values.ToHelp()}},
	})
}

func planCancelCommand() *cobra.Command {
	return planning("cancel", op.Command{
		Use:     "cancel",
		Short:   "Plan to cancel items",
		Long:    "Plan to cancel items, as `farol item cancel` cancels one.",
		Example: `  farol plan cancel --where 'size BETWEEN 1 AND 3000' --stage Receive --institution example.edu --reason 'These were trials.'`,
		Flags:   []op.Flag{{Name: "reason", Param: "reason", Kind: op.Reason, Help: "note for the depositors"}},
	})
}

func planPriorityCommand() *cobra.Command {
	return planning("set priority", op.Command{
		Use:   "priority NUMBER",
		Short: "Plan to set the priority of items",
		Long: `Plan to set the priority of items, from -100, which is claimed first, to 100; the default
is 0.`,
		Example: `  farol plan priority 50 --stage Receive --where 'size > 1000000000'
  farol plan priority --status pending -- -10`,
		Arg: "priority from -100 to 100; put -- before one below 0",
	})
}

// notMade adds the next step to the error of a plan that was not made.
func notMade(err error) error {
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "no plan was made; `farol item list` lists the items"}
	case errors.Is(err, registry.ErrRefused):
		return cli.Usage(err, "no plan was made; correct the condition")
	}
	return err
}

func planApplyCommand() *cobra.Command {
	return running(planRun{"apply", "planned"}, op.Command{
		Use:   "apply ID",
		Short: "Apply a plan, or the rest of it",
		Long: `Apply a plan, item by item. Items that have changed since the plan was made are skipped.
If more have changed than the tolerance allows, nothing is applied.

The command may be interrupted or killed: run it again to continue. No item is changed
twice.`,
		Example: `  farol plan apply 1 --dry-run
  farol plan apply 1
  farol plan apply 2 --tolerance 20% --json`,
		Flags: []op.Flag{{Name: "tolerance", Default: "5%", Help: "share of the items that may have changed since the plan was made"}},
		Check: func(c *op.Call) error {
			if most := tolerated(c); !(most >= 0 && most <= 100) { // which NaN is not either
				return cli.Usage(fmt.Errorf("--tolerance is %q", c.Text("tolerance")), "name a percentage from 0% to 100%")
			}
			return nil
		},
	})
}

// tolerated is the percentage that --tolerance names; NaN: none.
func tolerated(c *op.Call) float64 {
	most, err := strconv.ParseFloat(strings.TrimSuffix(c.Text("tolerance"), "%"), 64)
	if err != nil {
		return math.NaN()
	}
	return most
}

func planUndoCommand() *cobra.Command {
	return running(planRun{"undo", "done"}, op.Command{
		Use:   "undo ID",
		Short: "Undo a plan",
		Long: `Restore each item that a plan has changed to its state before. Items that have changed
since are skipped, and the exit code is then 1. A plan that was applied in part cannot be
applied further.

The command may be interrupted and run again to continue.`,
		Example: `  farol plan undo 1
  farol plan undo 3 --json`,
	})
}

// planRun is what is done to a plan, and to its items in which state.
type planRun struct{ verb, state string }

// running applies a plan or undoes it, and shows its state then. It has no timeout: it takes
// as long as there are items. It may be interrupted; a server that was asked goes on.
func running(do planRun, c op.Command) *cobra.Command {
	c = onePlan(c)
	c.Within, c.Asks = -1, true
	return c.Make(func(ctx context.Context, call *op.Call) error {
		v, err := remote.Get[record.PlanView](ctx, call.Server, call.Path("plans/{}"), nil)
		if err != nil {
			return remote.Next(err, plansListed)
		}
		does, err := call.Care.Allows(call.Cmd, fmt.Sprintf("Change %s by plan %d", human.Count(v.Counts[do.state], "item", "items"), v.ID), true)
		if err != nil {
			return err
		}
		if !does {
			return errors.Join(cli.Print(call.Cmd, call.JSON, v, printPlan), cli.Unchanged(call.Cmd))
		}
		show := newPlanBar(v.Counts[do.state])
		dealtWith := 0
		v, err = do.follow(ctx, call, v, func(items int) {
			dealtWith = items
			show.Set(int64(items))
		})
		show.End()
		if err != nil {
			return stopped(call.Cmd, err, call.ID, dealtWith)
		}
		return errors.Join(cli.Print(call.Cmd, call.JSON, v, printPlan), leftover(v.Plan))
	})
}

// pollPlan is the time between two looks at a plan that is carried out.
const pollPlan = 500 * time.Millisecond

// follow has a plan applied or undone, and waits until it is. A server answers at once and goes
// on; this process answers at the end. report receives how many items were dealt with so far.
func (do planRun) follow(ctx context.Context, c *op.Call, v record.PlanView, report func(items int)) (record.PlanView, error) {
	asked := make(chan error, 1)
	go func() {
		body := map[string]any{}
		if c.Given("tolerance") {
			body["tolerance"] = tolerated(c)
		}
		_, err := c.Do(ctx, client.Call{Method: http.MethodPost, Path: remote.About("plans", v.ID, "/"+do.verb), Body: body}, nil)
		asked <- err
	}()
	tick := time.NewTicker(pollPlan)
	defer tick.Stop()
	for all, answered := v.Counts[do.state], false; ; {
		var failed error
		select {
		case failed = <-asked:
			answered, asked = true, nil
		case <-tick.C:
		case <-ctx.Done():
			failed = ctx.Err()
		}
		now, err := remote.Get[record.PlanView](context.WithoutCancel(ctx), c.Server, remote.About("plans", v.ID, ""), nil)
		if err = cmp.Or(failed, err); err == nil || now.ID != 0 {
			v = now
			report(int(all - v.Counts[do.state]))
		}
		if err != nil || answered && v.Carry == nil {
			return v, err
		}
	}
}

// leftover is the failure of an undo that could not undo all.
func leftover(p record.Plan) error {
	if n := p.Counts["not undone"]; n > 0 {
		return cli.Failure{
			Code: cli.ExitFailed, Err: fmt.Errorf("%s could not be undone", human.Count(n, "item", "items")),
			Next: fmt.Sprintf("`farol plan show %d --items 'not undone'` lists them", p.ID),
		}
	}
	return nil
}

// stopped says how far a plan was applied before it stopped.
func stopped(cmd *cobra.Command, err error, id int64, dealtWith int) error {
	if dealtWith > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "Plan %d stopped after %s; run the command again to continue.\n", id, human.Count(dealtWith, "item", "items"))
	}
	if errors.Is(err, registry.ErrRefused) {
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: fmt.Sprintf("`farol plan show %d` shows its state, and the command that makes it again", id)}
	}
	return err
}

// onePlan completes a command about one plan.
func onePlan(c op.Command) op.Command {
	c.Arg, c.Number, c.Where = "plan by its ID", "a plan", plansListed
	return c
}

const plansListed = "`farol plan list` lists the plans"

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
		v, err := remote.Get[record.PlanView](ctx, c.Server, c.Path("plans/{}"), nil)
		if err != nil {
			return remote.Next(err, plansListed)
		}
		if !c.Given("items") {
			return cli.Print(c.Cmd, c.JSON, v, printPlan)
		}
		state := strings.TrimPrefix(c.Text("items"), "all")
		list, err := remote.List[record.PlanItem](ctx, c.Server, c.Path("plans/{}/items"), remote.Query("state", state), math.MaxInt)
		if err != nil {
			return err
		}
		return cli.Print(c.Cmd, c.JSON, list, printPlanItems)
	})
}

func planListCommand() *cobra.Command {
	return op.List[record.Plan]{
		Path: "plans", What: "plans", Before: func(p record.Plan) int64 { return p.ID },
		Header: []string{"ID", "STATE", "DOES", "ITEMS", "MADE", "BY", "CONDITION"},
		Row: func(p record.Plan) []string {
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

func printPlan(w io.Writer, v record.PlanView) error {
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
		rows := cli.Rows(v.Causes, func(c record.PlanCause) []string {
			return []string{c.State, strconv.FormatInt(c.Items, 10), strconv.FormatInt(c.Example, 10), human.Line(c.Cause)}
		})
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
func standing(v record.PlanView) string {
	text := v.State
	for _, state := range PlanStates() {
		if n := v.Counts[state]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, state)
		}
	}
	return text
}

// next says what can be done with a plan.
func nextOf(v record.PlanView) string {
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
func does(p record.Plan) string {
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
func commandOf(p record.Plan) string {
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

func printPlanItems(w io.Writer, items []record.PlanItem) error {
	return cli.WriteList(w, "items", []string{"ITEM", "STATE", "WAS", "AT", "SIZE", "NAME", "WHY"}, cli.Rows(items, func(i record.PlanItem) []string {
		return []string{strconv.FormatInt(i.ID, 10), i.State, string(i.Status), string(i.Stage), human.Bytes(i.Size), human.Line(i.Name), human.Line(i.Detail)}
	}))
}

func newPlanBar(items int64) *cli.Bar {
	if items == 0 {
		return nil
	}
	return cli.NewBar(items, decor.CountersNoUnit("%d / %d items"))
}
