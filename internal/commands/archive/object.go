// Package archive has the commands that list, restore and delete what is stored.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/storage"
)

// Object is farol object.
func Object() *cobra.Command {
	return cli.Group("object", "List and show the objects on record", objectListCommand(), objectShowCommand())
}

func objectListCommand() *cobra.Command {
	var f browse.ObjectFilter
	var limit int
	var before int64
	var after string
	var asJSON bool
	c := &cobra.Command{
		Use:   "list",
		Short: "List objects, newest first",
		Long:  `List objects, newest first. With --prefix, list them in the order of their identifiers.`,
		Example: `  farol object list
  farol object list --institution test.edu --state A
  farol object list --storage-option Standard --json
  farol object list --prefix test.edu/maps-
  farol object list --limit 20 --before 1000`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkObjects(cmd.Context(), &f, limit, before, after); err != nil {
				return err
			}
			if err := remote.RefuseFlags(cmd, "after"); err != nil {
				return err
			}
			show := func(list []browse.ListedObject) error {
				return cli.PrintPage(cmd, asJSON, list, limit, printObjects, func(last browse.ListedObject) string { return objectsAfter(f, last) })
			}
			done, err := remote.Page(cmd, "objects", objectsQuery(f, before, after), limit, show)
			if done || err != nil {
				return err
			}
			return connect.WithRegistryFor(cmd, 0, func(ctx context.Context, r *registry.Registry) error {
				if err := values.CheckInstitution(ctx, r, f.Institution); err != nil {
					return err
				}
				list, err := listObjects(ctx, r, f, limit, browse.Key{ID: before, Identifier: after})
				if err != nil {
					return err
				}
				return show(list)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.Institution, "institution", "", "only of the institution with this identifier")
	flags.StringVar(&f.State, "state", "", "only in this state: A (active) or D (deleted)")
	flags.StringVar(&f.StorageOption, "storage-option", "", "only with this storage option: "+strings.Join(storage.OptionNames(), ", "))
	flags.StringVar(&f.Prefix, "prefix", "", "only those whose identifier begins with this")
	flags.IntVar(&limit, "limit", 50, "how many at most")
	flags.Int64Var(&before, "before", 0, "only those with a lower ID, for the next page")
	flags.Int64Var(&f.Newer, "after", 0, "only those with a higher ID, for the page before")
	flags.StringVar(&after, "after-identifier", "", "with --prefix, only those that come after this identifier, for the next page")
	completeState(c)
	cli.JSONFlag(c, &asJSON)
	return c
}

// objectsAfter is the flag for the page after an object.
func objectsAfter(f browse.ObjectFilter, last browse.ListedObject) string {
	if f.Prefix != "" {
		return "--after-identifier '" + human.Line(last.Identifier) + "'"
	}
	return fmt.Sprintf("--before %d", last.ID)
}

// listObjects reads as many pages as are needed.
func listObjects(ctx context.Context, r *registry.Registry, f browse.ObjectFilter, limit int, after browse.Key) (list []browse.ListedObject, err error) {
	records := browse.In(r, registry.Everything())
	if f.Newer == 0 {
		return browse.UpTo(limit, after, func(p browse.Page) ([]browse.ListedObject, browse.Key, error) { return records.Objects(ctx, f, p) })
	}
	for more := true; more; {
		n := min(limit-len(list), browse.MostRows)
		page, _, err := records.Objects(ctx, f, browse.Page{Limit: n, After: after})
		if err != nil {
			return nil, err
		}
		list = append(page, list...)
		if more = len(page) == n && len(list) < limit; more {
			f.Newer = page[0].ID
		}
	}
	return list, nil
}

// checkObjects spells state and storage option as the registry does.
func checkObjects(ctx context.Context, f *browse.ObjectFilter, limit int, before int64, after string) (err error) {
	if f.State, err = cli.OneOf("--state", f.State, recordStates()); err != nil {
		return err
	}
	if f.StorageOption, err = cli.OneOf("--storage-option", f.StorageOption, storage.OptionNames()); err != nil {
		return err
	}
	switch {
	case f.Prefix != "" && (before != 0 || f.Newer != 0):
		return cli.Usage(errors.New("--before and --after go by IDs, and a list with --prefix does not"), "give --after-identifier")
	case f.Prefix == "" && after != "":
		return cli.Usage(errors.New("--after-identifier needs --prefix"), "give --before for the next page")
	}
	if err := cli.CheckPage(limit, before, f.Newer); err != nil {
		return err
	}
	return values.InstitutionThere(ctx, f.Institution)
}

// recordStates are those of objects and files: active and deleted.
func recordStates() []string { return []string{"A", "D"} }

func completeState(c *cobra.Command) {
	_ = c.RegisterFlagCompletionFunc("state", cli.Complete(cli.Constant(recordStates), false)) // it fails only for a flag that is not there
}

func printObjects(out io.Writer, list []browse.ListedObject) error {
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
