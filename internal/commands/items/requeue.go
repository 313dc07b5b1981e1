package items

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/registry"
)

// Requeue is farol requeue.
func Requeue() *cobra.Command {
	var stage registry.Stage
	var where string
	var care cli.Caution
	var acceptMissing, asJSON bool
	c := &cobra.Command{
		Use:   "requeue ID | --where CONDITION",
		Short: "Put items back into the queue",
		Long: `Put an item back into the queue, as farol item requeue does, or all items for which a
condition is true. The condition is SQL over the columns of work_items, such as
"stage = 'Store' AND error_code = 'timeout'". Without --yes, or your consent on a
terminal, the command only shows what would happen, and what would be refused and why.
Items that are refused do not stop the others.`,
		Example: `  farol requeue 7
  farol requeue 7 --to Validate --json
  farol requeue 8 --accept-missing
  farol requeue --where needs_admin_review
  farol requeue --where 'needs_admin_review AND id > 6' --to Receive --yes`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch many := cmd.Flags().Changed("where"); {
			case many == (len(args) == 1):
				return cli.Usage(errors.New("name one item by its ID, or give --where"), "`farol item list` lists the items")
			case !many && (care.Yes || care.DryRun):
				return cli.Usage(errors.New("--yes and --dry-run go with --where"), "leave them out")
			case many && acceptMissing:
				return cli.Usage(errors.New("--accept-missing is for one item"), "check what each item lacks, and requeue it by its ID")
			case many:
				return requeueMany(cmd, where, stage, care, asJSON)
			}
			return requeueItem(cmd, args[0], stage, acceptMissing, asJSON)
		},
	}
	acceptFlag(c, &acceptMissing)
	c.Flags().StringVar(&where, "where", "", "all items for which this SQL condition is true")
	care.Flags(c)
	stageFlag(c, &stage)
	cli.JSONFlag(c, &asJSON)
	return c
}

func requeueMany(cmd *cobra.Command, where string, stage registry.Stage, care cli.Caution, asJSON bool) error {
	stage, err := values.Stage(cmd.Context(), "--to", stage)
	if err != nil {
		return err
	}
	return connect.WithRegistryFor(cmd, time.Hour, func(ctx context.Context, r *registry.Registry) error { // a hundred thousand items take a minute or two
		yes, err := care.Allows(cmd, "Requeue all items for which the condition is true", false)
		if err != nil {
			return err
		}
		lines, err := r.RequeueWhere(ctx, where, stage, yes)
		switch {
		case errors.Is(err, registry.ErrRefused):
			return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "docs/sql.md lists the columns of work_items"}
		case err != nil:
			return err
		case asJSON:
			return cli.WriteJSON(cmd.OutOrStdout(), lines)
		}
		number := func(n *int64) string {
			if n == nil {
				return ""
			}
			return strconv.FormatInt(*n, 10)
		}
		var rows [][]string
		for _, l := range lines {
			reason := ""
			if l.Reason != nil {
				reason = human.Line(*l.Reason)
			}
			rows = append(rows, []string{l.What, number(l.Count), number(l.Item), reason})
		}
		if err := cli.WriteList(cmd.OutOrStdout(), "items", []string{"WHAT", "ITEMS", "SUCH AS", ""}, rows); err != nil {
			return err
		}
		if !yes {
			return cli.Unchanged(cmd)
		}
		return nil
	})
}

// WhyNot is farol why-not.
func WhyNot() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "why-not ID",
		Short: "Explain why an item is not running",
		Long: `List the reasons why an item is not claimed now, each with the next step: it has
ended, runs, or waits; its stage is paused or at its cap; no worker processes it;
other items come first.`,
		Example: `  farol why-not 7
  farol why-not 7 --json`,
		Args: cli.OneArg("item by its ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := itemID(args[0])
			if err != nil {
				return err
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				obstacles, err := explain.Obstacles(ctx, r, id)
				switch {
				case err != nil:
					return err
				case asJSON:
					return cli.WriteJSON(cmd.OutOrStdout(), obstacles)
				case len(obstacles) == 0:
					_, err = fmt.Fprintf(cmd.OutOrStdout(), "Nothing keeps item %d from being claimed.\n", id)
					return err
				}
				for _, o := range obstacles {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n  %s\n", o.Reason, human.Line(o.Detail), human.Line(o.Remedy))
				}
				return nil
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}
