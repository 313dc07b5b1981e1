package items

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Requeue is farol requeue.
func Requeue() *cobra.Command {
	return op.Command{
		Args:  cobra.MaximumNArgs(1),
		Asks:  true,
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
		Flags:  []op.Flag{{Name: "where", Help: "all items for which this SQL condition is true"}, to(), accept},
		Within: time.Hour, // a hundred thousand items take a minute or two
		Check: func(c *op.Call) (err error) {
			switch many := c.Cmd.Flags().Changed("where"); {
			case many == (len(c.Args) == 1):
				return cli.Usage(errors.New("name one item by its ID, or give --where"), "`farol item list` lists the items")
			case !many && (c.Care.Yes || c.Care.DryRun):
				return cli.Usage(errors.New("--yes and --dry-run go with --where"), "leave them out")
			case many && c.Given("accept-missing"):
				return cli.Usage(errors.New("--accept-missing is for one item"), "check what each item lacks, and requeue it by its ID")
			case many:
				return remote.RefuseFlags(c.Cmd, "where")
			}
			c.ID, err = itemID(c.Arg)
			return err
		},
	}.Make(func(ctx context.Context, c *op.Call) error {
		if c.ID == 0 {
			return requeueMany(ctx, c)
		}
		var item record.WorkItem
		if _, err := c.Do(ctx, client.Call{Method: http.MethodPost, Path: remote.About("items", c.ID, "/requeue"), Body: c.Body()}, &item); err != nil {
			return remote.Next(err, strings.ReplaceAll(whyNot, "{}", c.Arg))
		}
		return cli.Printf(c.Cmd, c.JSON, item, "%s", stands(item))
	})
}

func requeueMany(ctx context.Context, c *op.Call) error {
	yes, err := c.Care.Allows(c.Cmd, "Requeue all items for which the condition is true", false)
	if err != nil {
		return err
	}
	v, err := remote.Send[struct{ Items []record.RequeueLine }](ctx, c.Server, http.MethodPost, "items/requeue",
		map[string]any{"where": c.Text("where"), "stage": c.Text("to"), "dry_run": !yes})
	switch {
	case errors.Is(err, registry.ErrRefused):
		return cli.Usage(err, "docs/sql.md lists the columns of work_items")
	case err != nil:
		return err
	}
	if err := cli.PrintList(c.Cmd, c.JSON, v.Items, "items", []string{"WHAT", "ITEMS", "SUCH AS", ""}, rowOf); err != nil || yes || c.JSON {
		return err
	}
	return cli.Unchanged(c.Cmd)
}

// rowOf is a line of what a requeue does.
func rowOf(l record.RequeueLine) []string {
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
	return one(op.Command{
		Use:   "why-not ID",
		Short: "Explain why an item is not running",
		Long: `List the reasons why an item is not claimed now, each with the next step: it has
ended, runs, or waits; its stage is paused or at its cap; no worker processes it;
other items come first.`,
	}).Make(func(ctx context.Context, c *op.Call) error {
		item, err := remote.Get[struct{ Why []record.Obstacle }](ctx, c.Server, c.Path("items/{}"), nil)
		if err != nil {
			return err
		}
		text := ""
		for _, o := range item.Why {
			text += fmt.Sprintf("%s: %s\n  %s\n", o.Reason, human.Line(o.Detail), human.Line(o.Remedy))
		}
		return cli.Printf(c.Cmd, c.JSON, item.Why, "%s", cmp.Or(text, fmt.Sprintf("Nothing keeps item %d from being claimed.\n", c.ID)))
	})
}
