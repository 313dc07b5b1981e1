// Package items has the commands that list, explain and change work items.
package items

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/record"
)

// Item is farol item.
func Item() *cobra.Command {
	return cli.Group("item", "List, explain and change work items",
		itemListCommand(), itemNextCommand(), itemShowCommand(), itemFilesCommand(), itemWatchCommand(), itemExplainCommand(), itemRequeueCommand(),
		itemPriorityCommand())
}

// one completes a command about one item.
func one(c op.Command) op.Command {
	c.Arg, c.Number, c.Where = "item by its ID", "an item", "`farol item list` lists the items"
	return c
}

// changing is a command that changes one item and says how it is then.
func changing(c op.Command, method, path string) *cobra.Command {
	return op.Change(one(c), method, path, whyNot, stands)
}

// whyNot is where to look if a change is refused; {} is the item.
const whyNot = "see `farol item show {}` and `farol why-not {}`"

// Told is how commands that are made of operations on items tell what came of them.
func Told() op.Telling {
	return op.Tell(func(v record.ItemView) string { return stands(v.WorkItem) }, whyNot)
}

func stands(i record.WorkItem) string {
	return fmt.Sprintf("Item %d: %s at %s; %s.\n", i.ID, i.Status, i.Stage, explain.State(i, time.Now()))
}

// to is the flag of a requeue.
func to() op.Flag {
	return op.Flag{Name: "to", Param: "stage", Kind: op.Stage, Help: values.ToHelp(), Alias: "stage", Old: "use --to: --stage is the stage that items are in"}
}

var accept = op.Flag{Name: "accept-missing", Param: "accept_missing", Kind: op.Truth, Help: "continue a deletion although copies are missing"} //nolint:gochecknoglobals // a constant, but for Go

func itemRequeueCommand() *cobra.Command {
	return changing(op.Command{
		Use:   "requeue ID",
		Short: "Put an item back into the queue",
		Long: `Put an item back into the queue, at its stage or an earlier one, with its attempts
reset. An item whose bag was invalid starts at Receive, so that the bag is read
again. A worker that processes the item loses its lease. Items that succeeded or
were cancelled stay as they are.`,
		Example: `  farol item requeue 7
  farol item requeue 7 --to Validate --json`,
		Flags: []op.Flag{to(), accept},
	}, http.MethodPost, "items/{}/requeue")
}

func itemPriorityCommand() *cobra.Command {
	c := op.Command{
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("name one item by its ID and a priority, flags before them; there are %d", len(args))
			}
			_, _, err := prioritized(args)
			return err
		},
		Use:   "priority [--json] ID N",
		Short: "Set an item's priority",
		Long: `Set an item's priority. N is from -100, which is claimed first, to 100; the
default is 0. It applies from the next claim on, in all later stages.`,
		Example: `  farol item priority 7 -10
  farol item priority --json 8 20`,
	}.Make(func(ctx context.Context, call *op.Call) error {
		id, n, err := prioritized(call.Args)
		if err != nil {
			return err
		}
		var item record.WorkItem
		if _, err := call.Do(ctx, client.Call{Method: http.MethodPatch, Path: remote.About("items", id, ""), Body: map[string]int{"priority": n}}, &item); err != nil {
			return remote.Next(err, strings.ReplaceAll(whyNot, "{}", fmt.Sprint(id)))
		}
		return cli.Printf(call.Cmd, call.JSON, item, "%s", stands(item))
	})
	c.Flags().SetInterspersed(false) // -10 is no flag
	return c
}

// prioritized reads the arguments that set a priority.
func prioritized(args []string) (id int64, n int, err error) {
	if id, err = itemID(args[0]); err == nil {
		n, err = parsePriority(args[1])
	}
	return id, n, err
}

// parsePriority reads the argument that sets a priority.
func parsePriority(arg string) (int, error) {
	n, err := strconv.Atoi(arg)
	if err != nil || n < -100 || n > 100 {
		return 0, cli.Usage(fmt.Errorf("%q is not a priority", arg), "name a number from -100, which is claimed first, to 100; put -- before a negative one")
	}
	return n, nil
}

func itemID(arg string) (int64, error) {
	return cli.ParseID(arg, "an item", "`farol item list` lists the items")
}
