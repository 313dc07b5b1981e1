// Package items has the commands that list, explain and change work items.
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
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/requests"
)

// Item is farol item.
func Item() *cobra.Command {
	return cli.Group("item", "List, explain and change work items",
		itemListCommand(), itemNextCommand(), itemShowCommand(), itemFilesCommand(), itemWatchCommand(), itemExplainCommand(), itemRequeueCommand(),
		itemCancelCommand(), itemPriorityCommand(), itemReleaseCommand())
}

func itemRequeueCommand() *cobra.Command {
	var stage registry.Stage
	var acceptMissing, asJSON bool
	c := &cobra.Command{
		Use:   "requeue ID",
		Short: "Put an item back into the queue",
		Long: `Put an item back into the queue, at its stage or an earlier one, with its attempts
reset. An item whose bag was invalid starts at Receive, so that the bag is read
again. A worker that processes the item loses its lease. Items that succeeded or
were cancelled stay as they are.`,
		Example: `  farol item requeue 7
  farol item requeue 7 --to Validate --json`,
		Args: cli.OneArg("item by its ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return requeueItem(cmd, args[0], stage, acceptMissing, asJSON)
		},
	}
	stageFlag(c, &stage)
	acceptFlag(c, &acceptMissing)
	cli.JSONFlag(c, &asJSON)
	return c
}

func acceptFlag(c *cobra.Command, accept *bool) {
	c.Flags().BoolVar(accept, "accept-missing", false, "continue a deletion although copies are missing")
}

func requeueItem(cmd *cobra.Command, arg string, stage registry.Stage, acceptMissing, asJSON bool) error {
	stage, err := values.Stage(cmd.Context(), "--to", stage)
	if err != nil {
		return err
	}
	detail := map[string]any{"stage": stage}
	if acceptMissing {
		detail["accept_missing"] = true
	}
	return changeItem(cmd, arg, asJSON, "items.requeue", detail, func(ctx context.Context, r *registry.Registry, id int64) (registry.WorkItem, error) {
		if acceptMissing {
			n, err := requests.In(r).AcceptMissing(ctx, id, "")
			if err != nil {
				return registry.WorkItem{}, err
			}
			if n == 0 {
				return registry.WorkItem{}, cli.Usage(fmt.Errorf("item %d has no missing copies that are not accepted yet", id), "requeue it without --accept-missing")
			}
		}
		return r.Requeue(ctx, id, stage)
	})
}

func itemCancelCommand() *cobra.Command {
	var reason string
	var asJSON bool
	c := &cobra.Command{
		Use:   "cancel ID",
		Short: "Cancel an item",
		Long: `Cancel an item. A worker that processes it loses its lease. To ingest the bag after
all, the depositor uploads it again.`,
		Example: `  farol item cancel 7
  farol item cancel 8 --reason 'The depositor sent the wrong bag.'`,
		Args: cli.OneArg("item by its ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeItem(cmd, args[0], asJSON, "items.cancel", map[string]any{"reason": reason}, func(ctx context.Context, r *registry.Registry, id int64) (registry.WorkItem, error) {
				return r.Cancel(ctx, id, reason)
			})
		},
	}
	cli.ReasonFlag(c, &reason, "note for the depositor")
	cli.JSONFlag(c, &asJSON)
	return c
}

func itemPriorityCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "priority [--json] ID N",
		Short: "Set an item's priority",
		Long: `Set an item's priority. N is from -100, which is claimed first, to 100; the
default is 0. It applies from the next claim on, in all later stages.`,
		Example: `  farol item priority 7 -10
  farol item priority --json 8 20`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("name one item by its ID and a priority, flags before them; there are %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := parsePriority(args[1])
			if err != nil {
				return err
			}
			return changeItem(cmd, args[0], asJSON, "items.set", map[string]any{"set": map[string]any{"priority": n}}, func(ctx context.Context, r *registry.Registry, id int64) (registry.WorkItem, error) {
				return r.SetPriority(ctx, id, n)
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	c.Flags().SetInterspersed(false) // -10 is no flag
	return c
}

// parsePriority reads the argument that sets a priority.
func parsePriority(arg string) (int, error) {
	n, err := strconv.Atoi(arg)
	if err != nil || n < -100 || n > 100 {
		return 0, cli.Usage(fmt.Errorf("%q is not a priority", arg), "name a number from -100, which is claimed first, to 100; put -- before a negative one")
	}
	return n, nil
}

func itemReleaseCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "release ID",
		Short: "Take a running item from its worker",
		Long: `Take a running item from its worker, for example when the worker hangs. The item is
Pending at once, at the same stage, keeps what the stage has finished, and the
attempt does not count. To restart the stage from its beginning, use requeue.`,
		Example: `  farol item release 7
  farol item release 8 --json`,
		Args: cli.OneArg("item by its ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeItem(cmd, args[0], asJSON, "items.release", nil, func(ctx context.Context, r *registry.Registry, id int64) (registry.WorkItem, error) {
				return r.Release(ctx, id)
			})
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}

// changeItem makes one change to one item, records the operation in actions, and prints the
// new state.
func changeItem(cmd *cobra.Command, arg string, asJSON bool, operation string, detail map[string]any,
	change func(context.Context, *registry.Registry, int64) (registry.WorkItem, error),
) error {
	id, err := itemID(arg)
	if err != nil {
		return err
	}
	show := func(item registry.WorkItem, err error) error {
		switch {
		case errors.Is(err, registry.ErrRefused):
			return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "see `farol item show " + arg + "` and `farol why-not " + arg + "`"}
		case err != nil:
			return err
		}
		return cli.Printf(cmd, asJSON, item, "Item %d: %s at %s; %s.\n", item.ID, item.Status, item.Stage, explain.State(item, time.Now()))
	}
	done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
		var item registry.WorkItem
		_, err := s.Do(ctx, remoteChange(operation, id, detail), &item)
		return show(item, err)
	})
	if done || err != nil {
		return err
	}
	return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
		entry := registry.AuditEntry{Operation: operation, SubjectType: "item", SubjectID: arg, Detail: detail}
		if before, err := r.WorkItem(ctx, id); err == nil {
			entry.Institution = before.InstitutionID
		}
		return show(registry.Acted(ctx, r, registry.Actor{}, &entry, func(ctx context.Context) (registry.WorkItem, error) { return change(ctx, r, id) }))
	})
}

func itemID(arg string) (int64, error) {
	return cli.ParseID(arg, "an item", "`farol item list` lists the items")
}

func stageFlag(c *cobra.Command, stage *registry.Stage) {
	c.Flags().StringVar((*string)(stage), "to", "", values.ToHelp())
	c.Flags().StringVar((*string)(stage), "stage", "", values.ToHelp())
	old := c.Flags().Lookup("stage")
	old.Hidden, old.Deprecated = true, "use --to: --stage is the stage that items are in"
}
