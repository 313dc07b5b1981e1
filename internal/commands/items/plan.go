package items

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/plans"
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

// planRequest is a request with the flags that name one of many.
type planRequest struct {
	plans.Request

	status  registry.Status
	atStage registry.Stage
}

// planFlags adds what says which items a plan is about.
func planFlags(c *cobra.Command, q *planRequest, asJSON *bool) {
	flags := c.Flags()
	flags.StringVar(&q.Where, "where", "", "only items for which this SQL condition is true; \"true\" selects all")
	flags.StringVar((*string)(&q.status), "status", "", "only with this status: "+strings.Join(cli.Strings(values.Statuses()), ", "))
	flags.StringVar((*string)(&q.atStage), "stage", "", values.StageHelp())
	flags.StringVar(&q.Filter.Institution, "institution", "", "only of the institution with this identifier")
	flags.StringVar(&q.Filter.ErrorCode, "error-code", "", "only with this error code")
	cli.JSONFlag(c, asJSON)
}

const conditionHelp = `

--where takes a condition of SQL, as after WHERE in a query of work_items. It runs once,
read-only and with your own rights.`

func planRequeueCommand() *cobra.Command {
	q := planRequest{Request: plans.Request{Action: "requeue"}}
	var asJSON bool
	c := &cobra.Command{
		Use:   "requeue",
		Short: "Plan to requeue items",
		Long: `Plan to requeue items, as ` + "`farol item requeue`" + ` requeues one. Nothing is changed until the
plan is applied.` + conditionHelp,
		Example: `  farol plan requeue --status Suspended --error-code target-missing
  farol plan requeue --where 'attempt >= 3 AND needs_admin_review OR id IN (1, 3, 6)' --to Receive`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if q.Stage, err = values.Stage(cmd.Context(), "--to", q.Stage); err != nil {
				return err
			}
			return makePlan(cmd, q, asJSON)
		},
	}
	planFlags(c, &q, &asJSON)
	c.Flags().StringVar((*string)(&q.Stage), "to", "", values.ToHelp())
	return c
}

func planCancelCommand() *cobra.Command {
	q := planRequest{Request: plans.Request{Action: "cancel"}}
	var asJSON bool
	c := &cobra.Command{
		Use:   "cancel",
		Short: "Plan to cancel items",
		Long: `Plan to cancel items, as ` + "`farol item cancel`" + ` cancels one. Nothing is changed until the
plan is applied.` + conditionHelp,
		Example: `  farol plan cancel --where 'size BETWEEN 1 AND 3000' --stage Receive --institution example.edu --reason 'These were trials.'`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return makePlan(cmd, q, asJSON) },
	}
	planFlags(c, &q, &asJSON)
	cli.ReasonFlag(c, &q.Reason, "note for the depositors")
	return c
}

func planPriorityCommand() *cobra.Command {
	q := planRequest{Request: plans.Request{Action: "set priority"}}
	var asJSON bool
	c := &cobra.Command{
		Use:   "priority NUMBER",
		Short: "Plan to set the priority of items",
		Long: `Plan to set the priority of items, from -100, which is claimed first, to 100; the default
is 0. Nothing is changed until the plan is applied.` + conditionHelp,
		Example: `  farol plan priority 50 --stage Receive --where 'size > 1000000000'
  farol plan priority --status pending -- -10`,
		Args: cli.OneArg("priority from -100 to 100; put -- before one below 0"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := parsePriority(args[0])
			if err != nil {
				return err
			}
			q.Priority = &n
			return makePlan(cmd, q, asJSON)
		},
	}
	planFlags(c, &q, &asJSON)
	return c
}

// makePlan stores a plan and shows what it would do.
func makePlan(cmd *cobra.Command, q planRequest, asJSON bool) (err error) {
	if q.Where == "" && q.status == "" && q.atStage == "" && q.Filter.Empty() {
		return cli.Usage(errors.New("no items are named"), "select items with --where or another flag; --where true selects all")
	}
	if q.status, err = cli.OneOf("--status", q.status, values.Statuses()); err != nil {
		return err
	}
	if q.atStage, err = values.Stage(cmd.Context(), "--stage", q.atStage); err != nil {
		return err
	}
	if q.status != "" {
		q.Filter.Status = []registry.Status{q.status}
	}
	if q.atStage != "" {
		q.Filter.Stage = []registry.Stage{q.atStage}
	}
	if err := remote.RefuseFlags(cmd, "where"); err != nil {
		return err
	}
	made, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
		v, err := remote.Send[plans.View](ctx, s, http.MethodPost, "plans", q.planBody())
		if err != nil {
			return notMade(err)
		}
		return cli.Print(cmd, asJSON, v, printPlan)
	})
	if made || err != nil {
		return err
	}
	return connect.WithRegistryFor(cmd, planTime, func(ctx context.Context, r *registry.Registry) error {
		if err := values.CheckInstitution(ctx, r, q.Filter.Institution); err != nil {
			return err
		}
		entry := registry.AuditEntry{Operation: "plans.make", SubjectType: "plan", Detail: map[string]any{"action": q.Action}}
		p, err := registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) (plans.Plan, error) {
			p, err := plans.In(r).Make(ctx, q.Request)
			entry.SubjectID = fmt.Sprint(p.ID)
			entry.Detail["condition"], entry.Detail["items"] = p.Condition, p.Items
			return p, err
		})
		if err != nil {
			return notMade(err)
		}
		return showPlan(ctx, cmd, r, p, asJSON)
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
	var tolerance string
	var care cli.Caution
	var asJSON bool
	c := &cobra.Command{
		Use:   "apply ID",
		Short: "Apply a plan, or the rest of it",
		Long: `Apply a plan, item by item. Items that have changed since the plan was made are skipped.
If more have changed than the tolerance allows, nothing is applied.

The command may be interrupted or killed: run it again to continue. No item is changed
twice.`,
		Example: `  farol plan apply 1 --dry-run
  farol plan apply 1
  farol plan apply 2 --tolerance 20% --json`,
		Args: cli.OneArg("plan by its ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			most, err := strconv.ParseFloat(strings.TrimSuffix(tolerance, "%"), 64)
			if err != nil || !(most >= 0 && most <= 100) { // which NaN is not either
				return cli.Usage(fmt.Errorf("--tolerance is %q", tolerance), "name a percentage from 0% to 100%")
			}
			return runPlan(cmd, args[0], planRun{"apply", "planned", map[string]any{"tolerance": most}}, care, asJSON, func(ctx context.Context, r *registry.Registry, id int64, report func(int)) (plans.Plan, error) {
				return plans.In(r).Apply(ctx, id, most, report)
			})
		},
	}
	c.Flags().StringVar(&tolerance, "tolerance", "5%", "share of the items that may have changed since the plan was made")
	care.Flags(c)
	cli.JSONFlag(c, &asJSON)
	return c
}

func planUndoCommand() *cobra.Command {
	var care cli.Caution
	var asJSON bool
	c := &cobra.Command{
		Use:   "undo ID",
		Short: "Undo a plan",
		Long: `Restore each item that a plan has changed to its state before. Items that have changed
since are skipped, and the exit code is then 1. A plan that was applied in part cannot be
applied further.

The command may be interrupted and run again to continue.`,
		Example: `  farol plan undo 1
  farol plan undo 3 --json`,
		Args: cli.OneArg("plan by its ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPlan(cmd, args[0], planRun{"undo", "done", nil}, care, asJSON, func(ctx context.Context, r *registry.Registry, id int64, report func(int)) (plans.Plan, error) {
				return plans.In(r).Undo(ctx, id, report)
			})
		},
	}
	care.Flags(c)
	cli.JSONFlag(c, &asJSON)
	return c
}

// planRun is what is done to a plan, and to its items in which state.
type planRun struct {
	verb, state string
	body        any // of the request to a server
}

// runPlan applies a plan or undoes it, and shows its state then. It has no timeout: it takes
// as long as there are items.
func runPlan(cmd *cobra.Command, arg string, do planRun, care cli.Caution, asJSON bool,
	run func(context.Context, *registry.Registry, int64, func(int)) (plans.Plan, error),
) error {
	id, err := planID(arg)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if s := remote.From(ctx); s != nil {
		return runRemotely(cmd, s, id, do, care, asJSON)
	}
	s, err := connect.Registry(ctx, "plan")
	if err != nil {
		return err
	}
	defer s.Close()
	p, err := plans.In(s.Registry).Plan(ctx, id)
	if err != nil {
		return noPlan(err)
	}
	does, err := do.allowed(cmd, care, p)
	if err != nil {
		return err
	}
	if !does {
		return errors.Join(showPlan(ctx, cmd, s.Registry, p, asJSON), cli.Unchanged(cmd))
	}
	show := newPlanBar(p.Counts[do.state])
	dealtWith := 0
	p, err = run(ctx, s.Registry, id, func(items int) {
		dealtWith += items
		show.Set(int64(dealtWith))
	})
	show.End()
	entry := registry.AuditEntry{Operation: "plans." + do.verb, SubjectType: "plan", SubjectID: arg, Detail: map[string]any{"items": dealtWith}}
	err = s.Registry.Noted(ctx, registry.Actor{}, entry, err)
	if p.ID == 0 {
		return stopped(cmd, err, id, dealtWith)
	}
	return errors.Join(showPlan(ctx, cmd, s.Registry, p, asJSON), err, leftover(p))
}

// runRemotely has a server apply a plan or undo it, and follows it. The command may be
// interrupted: the server goes on.
func runRemotely(cmd *cobra.Command, s *remote.Server, id int64, do planRun, care cli.Caution, asJSON bool) error {
	ctx := cmd.Context()
	v, err := remote.Get[plans.View](ctx, s, remote.About("plans", id, ""), nil)
	if err != nil {
		return noPlan(err)
	}
	does, err := do.allowed(cmd, care, v.Plan)
	if err != nil {
		return err
	}
	if !does {
		return errors.Join(cli.Print(cmd, asJSON, v, printPlan), cli.Unchanged(cmd))
	}
	show := newPlanBar(v.Counts[do.state])
	dealtWith := 0
	v, err = remoteRun(ctx, s, client.Call{Method: http.MethodPost, Path: remote.About("plans", id, "/"+do.verb), Body: do.body}, do.state, v, func(items int) {
		dealtWith = items
		show.Set(int64(items))
	})
	show.End()
	if err != nil {
		return stopped(cmd, err, id, dealtWith)
	}
	return errors.Join(cli.Print(cmd, asJSON, v, printPlan), leftover(v.Plan))
}

func (do planRun) allowed(cmd *cobra.Command, care cli.Caution, p plans.Plan) (bool, error) {
	return care.Allows(cmd, fmt.Sprintf("Change %s by plan %d", human.Count(p.Counts[do.state], "item", "items"), p.ID), true)
}

// leftover is the failure of an undo that could not undo all.
func leftover(p plans.Plan) error {
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

func planID(arg string) (int64, error) {
	return cli.ParseID(arg, "a plan", "`farol plan list` lists the plans")
}

// noPlan adds the next step to the error of a plan that does not exist.
func noPlan(err error) error {
	if errors.Is(err, registry.ErrNotFound) {
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol plan list` lists the plans"}
	}
	return err
}
