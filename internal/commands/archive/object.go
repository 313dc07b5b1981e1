// Package archive has the commands that list, restore and delete what is stored.
package archive

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/storage"
)

// Object is farol object.
func Object() *cobra.Command {
	return cli.Group("object", "List and show the objects on record", objectListCommand(), objectShowCommand())
}

func objectListCommand() *cobra.Command {
	var f registry.ObjectFilter
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List objects, newest first",
		Example: `  farol object list
  farol object list --institution test.edu --state A
  farol object list --storage-option Standard --json
  farol object list --limit 20 --before 1000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkObjects(&f); err != nil {
				return err
			}
			return connect.WithRegistryFor(cmd, 0, func(ctx context.Context, r *registry.Registry) error {
				if err := values.CheckInstitution(ctx, r, f.Institution); err != nil {
					return err
				}
				list, err := r.Objects(ctx, f)
				if err != nil {
					return err
				}
				return cli.PrintPage(cmd, asJSON, list, f.Limit, printObjects, func(last registry.ListedObject) string {
					return fmt.Sprintf("--before %d", last.ID)
				})
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.Institution, "institution", "", "only of the institution with this identifier")
	flags.StringVar(&f.State, "state", "", "only in this state: A (active) or D (deleted)")
	flags.StringVar(&f.StorageOption, "storage-option", "", "only with this storage option: "+strings.Join(storage.OptionNames(), ", "))
	flags.IntVar(&f.Limit, "limit", 50, "how many at most")
	flags.Int64Var(&f.Before, "before", 0, "only those with a lower ID, for the next page")
	flags.Int64Var(&f.After, "after", 0, "only those with a higher ID, for the page before")
	completeState(c)
	cli.JSONFlag(c, &asJSON)
	return c
}

// checkObjects spells state and storage option as the registry does.
func checkObjects(f *registry.ObjectFilter) (err error) {
	if f.State, err = cli.OneOf("--state", f.State, recordStates()); err != nil {
		return err
	}
	if f.StorageOption, err = cli.OneOf("--storage-option", f.StorageOption, storage.OptionNames()); err != nil {
		return err
	}
	return cli.CheckPage(f.Limit, f.Before, f.After)
}

// recordStates are those of objects and files: active and deleted.
func recordStates() []string { return []string{"A", "D"} }

func completeState(c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("state", cli.Complete(cli.Constant(recordStates), false)) // it fails only for a flag that is not there
}

func printObjects(out io.Writer, list []registry.ListedObject) error {
	var rows [][]string
	for _, o := range list {
		ingest := "unknown"
		if o.LastIngest != nil {
			ingest = human.Time(*o.LastIngest)
		}
		rows = append(rows, []string{
			strconv.FormatInt(o.ID, 10), human.Line(o.Identifier), strconv.FormatInt(o.Files, 10), human.Bytes(o.Bytes), o.StorageOption, o.State, ingest,
		})
	}
	return cli.WriteList(out, "objects", []string{"ID", "IDENTIFIER", "FILES", "BYTES", "STORAGE OPTION", "STATE", "LAST INGEST"}, rows)
}
