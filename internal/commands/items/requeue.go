package items

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
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
		lines, err := requeueWhere(ctx, r, where, stage, yes)
		switch {
		case errors.Is(err, registry.ErrRefused):
			return cli.Usage(err, "docs/sql.md lists the columns of work_items")
		case err != nil:
			return err
		}
		if err := cli.PrintList(cmd, asJSON, lines, "items", []string{"WHAT", "ITEMS", "SUCH AS", ""}, rowOf); err != nil || yes || asJSON {
			return err
		}
		return cli.Unchanged(cmd)
	})
}

// requeueWhere requeues items, which is on record, or shows what would happen, which is not.
func requeueWhere(ctx context.Context, r *registry.Registry, where string, stage registry.Stage, yes bool) ([]registry.RequeueLine, error) {
	if !yes {
		return r.RequeueWhere(ctx, where, stage, false)
	}
	entry := registry.AuditEntry{Operation: "items.requeue_where", SubjectType: "items", Detail: map[string]any{"where": where, "stage": stage}}
	return registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) ([]registry.RequeueLine, error) {
		lines, err := r.RequeueWhere(ctx, where, stage, true)
		entry.Detail["did"] = lines
		return lines, err
	})
}

// rowOf is a line of what a requeue does.
func rowOf(l registry.RequeueLine) []string {
	number := func(n *int64) string {
		if n == nil {
			return ""
		}
		return human.Number(*n)
	}
	reason := ""
	if l.Reason != nil {
		reason = human.Line(*l.Reason)
	}
	return []string{l.What, number(l.Count), number(l.Item), reason}
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
			show := func(obstacles []registry.Obstacle) error {
				text := fmt.Sprintf("Nothing keeps item %d from being claimed.\n", id)
				if len(obstacles) > 0 {
					text = ""
				}
				for _, o := range obstacles {
					text += fmt.Sprintf("%s: %s\n  %s\n", o.Reason, human.Line(o.Detail), human.Line(o.Remedy))
				}
				return cli.Printf(cmd, asJSON, obstacles, "%s", text)
			}
			done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
				item, err := remote.Get[struct{ Why []registry.Obstacle }](ctx, s, remote.About("items", id, ""), nil)
				if err != nil {
					return err
				}
				return show(item.Why)
			})
			if done || err != nil {
				return err
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				obstacles, err := explain.Obstacles(ctx, r, id)
				if err != nil {
					return err
				}
				return show(obstacles)
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}
