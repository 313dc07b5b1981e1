package items

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/record"
)

func itemListCommand() *cobra.Command {
	return op.List[record.WorkItem]{
		Path: "items", What: "work items", Print: printItems, Before: func(i record.WorkItem) int64 { return i.ID },
		Empty: op.KnownInstitution,
	}.Command(op.Command{
		Use:   "list",
		Short: "List work items, newest first",
		Long: `List work items, newest first. An exclamation mark after the status marks an item that
waits for a person. NOTE is the first finding; "item explain" shows all.`,
		Example: `  farol item list
  farol item list --status started --stage Store
  farol item list --needs-review --json
  farol item list --institution example.edu --name photographs.tar
  farol item list --action 'Restore Object' --since 24h
  farol item list --error-code invalid-bag --object example.edu/photographs --since 2026-11-02
  farol item list --limit 20 --before 1000`,
		Flags: []op.Flag{
			{Name: "status", Alias: "state", Param: "status", Among: values.Names(values.Statuses), Help: "only with this status"},
			{Name: "stage", Param: "stage", Kind: op.Stage, Help: values.StageHelp()},
			{Name: "action", Param: "action", Among: values.Names(values.Actions), Help: "only of this action"},
			{Name: "error-code", Param: "error_code", Help: "only with this error code, such as invalid-bag"},
			{Name: "institution", Param: "institution", Help: "only of the institution with this identifier"},
			{Name: "object", Param: "object", Help: "only of the object with this identifier"},
			{Name: "name", Param: "name", Help: "only of this tar in the receiving bucket"},
			{Name: "since", Param: "created_after", Kind: op.Since, Help: "only items created since: a time ago (90m, 24h, 7d), a date or an RFC 3339 time, in UTC"},
			{Name: "needs-review", Param: "review", Kind: op.Truth, Help: "only items that wait for a person's decision"},
		},
		Check: func(c *op.Call) error {
			if c.Cmd.Flags().Changed("state") && c.Cmd.Flags().Changed("status") {
				return cli.Usage(errors.New("--state and --status are the same"), "give one of them")
			}
			return nil
		},
	})
}

func printItems(out io.Writer, items []record.WorkItem) error {
	if len(items) == 0 {
		return cli.NoneOf(out, "work items")
	}
	var rows [][]string
	for _, i := range items {
		status := string(i.Status)
		if i.NeedsAdminReview {
			status += " !"
		}
		rows = append(rows, []string{
			strconv.FormatInt(i.ID, 10), status, string(i.Action), string(i.Stage), i.Institution, human.Line(i.Name), human.Bytes(i.Size),
			human.Duration(time.Since(i.CreatedAt)), human.Line(explain.FirstFinding(i.Note)),
		})
	}
	header := []string{"ID", "STATUS", "ACTION", "STAGE", "INSTITUTION", "NAME", "SIZE", "AGE", "NOTE"}
	return cli.WriteNoted(out, header, rows)
}

func itemNextCommand() *cobra.Command {
	return op.Command{
		Use:   "next",
		Short: "List the items that workers would claim now",
		Long: `List the items that a worker with these pools would claim now, in its order:
late stages first, then by priority, then in fair-queueing order. Nothing is claimed.

` + settings.PoolHelp,
		Example: `  farol item next
  farol item next --pool 'large=*;min=1GiB' --limit 10
  farol item next --pool 'old=Store;age=24h;provider=Wasabi' --json`,
		Flags: []op.Flag{
			{Name: "limit", Param: "limit", Kind: op.Number, Default: 50, Least: 1, Most: 10000, Help: "how many of each pool at most"},
			{Name: "pool", Param: "pool", Kind: op.Each, Help: "a pool, such as 'small=*;max=1GiB'; may be given several times (default small and large)"},
		},
		Check: func(c *op.Call) error {
			if _, err := settings.ParsePools(strings.Join(c.Texts("pool"), "\n")); c.Given("pool") && err != nil {
				return cli.Usage(err, "see `farol item next --help`")
			}
			return nil
		},
	}.Make(func(ctx context.Context, c *op.Call) error {
		v, err := remote.Get[struct{ Items []record.WorkItem }](ctx, c.Server, "items/next", c.Query())
		if err != nil {
			return err
		}
		return cli.Print(c.Cmd, c.JSON, v.Items, printItems)
	})
}
