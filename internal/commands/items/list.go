package items

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/explain"
	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
)

func itemListCommand() *cobra.Command {
	var o itemListOptions
	var since string
	var asJSON bool
	c := &cobra.Command{
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
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cmd.Flags().Changed("state") && cmd.Flags().Changed("status") {
				return cli.Usage(errors.New("--state and --status are the same"), "give one of them")
			}
			if o.filter.CreatedAfter, err = cli.SinceOf(since, time.Now()); err != nil {
				return err
			}
			if err := o.check(cmd.Context()); err != nil {
				return err
			}
			show := func(items []registry.WorkItem) error {
				return cli.PrintPage(cmd, asJSON, items, o.limit, printItems, func(last registry.WorkItem) string { return fmt.Sprintf("--before %d", last.ID) })
			}
			done, err := remote.Page(cmd, "items", o.query(), o.limit, show)
			if done || err != nil {
				return err
			}
			return connect.WithRegistryFor(cmd, 0, func(ctx context.Context, r *registry.Registry) error {
				items, err := o.list(ctx, r)
				if err != nil {
					return err
				}
				return show(items)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar((*string)(&o.status), "status", "", "only with this status: "+strings.Join(cli.Strings(values.Statuses()), ", "))
	flags.StringVar((*string)(&o.status), "state", "", "the same as --status")
	flags.StringVar((*string)(&o.stage), "stage", "", values.StageHelp())
	flags.StringVar((*string)(&o.action), "action", "", "only of this action: "+strings.Join(cli.Strings(values.Actions()), ", "))
	flags.StringVar(&o.filter.ErrorCode, "error-code", "", "only with this error code, such as invalid-bag")
	flags.StringVar(&o.filter.Institution, "institution", "", "only of the institution with this identifier")
	flags.StringVar(&o.filter.Object, "object", "", "only of the object with this identifier")
	flags.StringVar(&o.filter.Name, "name", "", "only of this tar in the receiving bucket")
	flags.StringVar(&since, "since", "", "only items created since: a time ago (90m, 24h, 7d), a date or an RFC 3339 time, in UTC")
	flags.BoolVar(&o.filter.Review, "needs-review", false, "only items that wait for a person's decision")
	flags.IntVar(&o.limit, "limit", 50, "how many at most")
	flags.Int64Var(&o.before, "before", 0, "only items with a lower ID, for the next page")
	cli.JSONFlag(c, &asJSON)
	return c
}

// itemListOptions are the flags of a list of items.
type itemListOptions struct {
	filter browse.ItemFilter
	status registry.Status
	action registry.Action
	stage  registry.Stage
	limit  int
	before int64
}

// list returns the items that a registry has.
func (o *itemListOptions) list(ctx context.Context, r *registry.Registry) ([]registry.WorkItem, error) {
	if err := values.CheckInstitution(ctx, r, o.filter.Institution); err != nil {
		return nil, err
	}
	return browse.UpTo(o.limit, browse.Key{ID: o.before}, func(p browse.Page) ([]registry.WorkItem, browse.Key, error) {
		return browse.In(r, registry.Everything()).Items(ctx, o.filter, p)
	})
}

// check spells status, stage and action as the registry does, and adds them to the filter.
func (o *itemListOptions) check(ctx context.Context) (err error) {
	if o.status, err = cli.OneOf("--status", o.status, values.Statuses()); err != nil {
		return err
	}
	if o.status != "" {
		o.filter.Status = []registry.Status{o.status}
	}
	if o.action, err = cli.OneOf("--action", o.action, values.Actions()); err != nil {
		return err
	}
	if o.action != "" {
		o.filter.Action = []registry.Action{o.action}
	}
	if o.stage, err = values.Stage(ctx, "--stage", o.stage); err != nil {
		return err
	}
	if o.stage != "" {
		o.filter.Stage = []registry.Stage{o.stage}
	}
	if err := cli.CheckPage(o.limit, o.before, 0); err != nil {
		return err
	}
	return values.InstitutionThere(ctx, o.filter.Institution)
}

func printItems(out io.Writer, items []registry.WorkItem) error {
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
