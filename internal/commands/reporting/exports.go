package reporting

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/exports"
)

func exportListCommand() *cobra.Command {
	var p exports.Page
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List exports that were made through the REST API, newest first",
		Example: `  farol export list
  farol export list --institution test.edu --json
  farol export list --limit 20 --before 1000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckPage(p.Limit, p.Before, 0); err != nil {
				return err
			}
			show := func(list []exports.Record) error {
				return cli.PrintPage(cmd, asJSON, list, p.Limit, printExports, func(last exports.Record) string { return fmt.Sprintf("--before %d", last.ID) })
			}
			done, err := remote.Page(cmd, "exports", remote.Query("institution", p.Institution, "before", remote.ID(p.Before)), p.Limit, show)
			if done || err != nil {
				return err
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				if err := values.CheckInstitution(ctx, r, p.Institution); err != nil {
					return err
				}
				list, err := exports.In(r, registry.Everything()).List(ctx, exports.Kinds(), p)
				if err != nil {
					return err
				}
				return show(list)
			})
		},
	}
	c.Flags().StringVar(&p.Institution, "institution", "", "only of the institution with this identifier")
	c.Flags().IntVar(&p.Limit, "limit", 50, "how many at most")
	c.Flags().Int64Var(&p.Before, "before", 0, "only those with a lower ID, for the next page")
	cli.JSONFlag(c, &asJSON)
	return c
}

func printExports(out io.Writer, list []exports.Record) error {
	var rows [][]string
	for _, e := range list {
		of, state, bytes := e.Institution, "not downloaded", ""
		if e.Object != nil {
			of = human.Line(*e.Object)
		}
		switch {
		case e.CompletedAt != nil:
			state, bytes = human.Time(*e.CompletedAt), human.Bytes(*e.Bytes)
		case e.WorkItem != nil:
			state = fmt.Sprintf("item %d", *e.WorkItem)
		}
		rows = append(rows, []string{strconv.FormatInt(e.ID, 10), string(e.Kind), of, human.Line(e.RequestedBy), human.Time(e.CreatedAt), state, bytes})
	}
	return cli.WriteList(out, "exports", []string{"ID", "KIND", "OF", "REQUESTED BY", "AT", "COMPLETED", "SIZE"}, rows)
}
