// Package archive has the commands that list, restore and delete what is stored.
package archive

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/values"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/storage"
)

// Object is farol object.
func Object() *cobra.Command {
	return cli.Group("object", "List and show the objects on record", objectListCommand(), objectShowCommand())
}

func objectListCommand() *cobra.Command {
	return op.List[browse.ListedObject]{
		Read: objectsOf, What: "objects", Next: objectsAfter,
		Header: []string{"ID", "IDENTIFIER", "FILES", "BYTES", "STORAGE OPTION", "STATE", "LAST INGEST"}, Row: objectRow,
		Empty: func(ctx context.Context, c *op.Call) error {
			return values.CheckInstitution(ctx, c.Server, c.Text("institution"))
		},
	}.Command(op.Command{
		Use:   "list",
		Short: "List objects, newest first",
		Long:  `List objects, newest first. With --prefix, list them in the order of their identifiers.`,
		Example: `  farol object list
  farol object list --institution test.edu --state A
  farol object list --storage-option Standard --json
  farol object list --prefix test.edu/maps-
  farol object list --limit 20 --before 1000`,
		Flags: []op.Flag{
			{Name: "institution", Param: "institution", Help: "only of the institution with this identifier"},
			stateFlag(),
			{Name: "storage-option", Param: "storage_option", Among: storage.OptionNames, Help: "only with this storage option"},
			{Name: "prefix", Param: "identifier_prefix", Help: "only those whose identifier begins with this"},
			{Name: "before", Param: "before", Kind: op.Number, Help: "only those with a lower ID, for the next page"},
			{Name: "after", Param: "newer", Kind: op.Number, Help: "only those with a higher ID, for the page before"},
			{Name: "after-identifier", Param: "after_identifier", Help: "with --prefix, only those that come after this identifier, for the next page"},
		},
		Within: -1,
		Check: func(c *op.Call) error {
			switch {
			case c.Given("prefix") && c.Number("before")+c.Number("after") != 0:
				return cli.Usage(errors.New("--before and --after go by IDs, and a list with --prefix does not"), "give --after-identifier")
			case !c.Given("prefix") && c.Given("after-identifier"):
				return cli.Usage(errors.New("--after-identifier needs --prefix"), "give --before for the next page")
			}
			if err := cli.CheckPage(c.Number("limit"), int64(c.Number("before")), int64(c.Number("after"))); err != nil {
				return err
			}
			return remote.RefuseFlags(c.Cmd, "after")
		},
	})
}

// objectsAfter is the flag for the page after an object.
func objectsAfter(c *op.Call, last browse.ListedObject) string {
	if c.Given("prefix") {
		return "--after-identifier '" + human.Line(last.Identifier) + "'"
	}
	return fmt.Sprintf("--before %d", last.ID)
}

// onPage is how many objects one request asks for.
const onPage = 500

// objectsOf lists objects. Of those above an ID, each page comes before the one that was read
// before it.
func objectsOf(ctx context.Context, c *op.Call, limit int) (list []browse.ListedObject, err error) {
	q := c.Query()
	if c.Number("after") == 0 {
		return remote.List[browse.ListedObject](ctx, c.Server, "objects", q, limit)
	}
	for more := true; more; {
		n := min(limit-len(list), onPage)
		page, err := remote.List[browse.ListedObject](ctx, c.Server, "objects", q, n)
		if err != nil {
			return nil, err
		}
		list = append(page, list...)
		if more = len(page) == n && len(list) < limit; more {
			q.Set("newer", strconv.FormatInt(page[0].ID, 10))
		}
	}
	return list, nil
}

// stateFlag narrows a list of objects or files, which are active or deleted.
func stateFlag() op.Flag {
	return op.Flag{Name: "state", Param: "state", Among: recordStates, Quiet: true, Help: "only in this state: A (active) or D (deleted)"}
}

func recordStates() []string { return []string{"A", "D"} }

func objectRow(o browse.ListedObject) []string {
	return []string{
		strconv.FormatInt(o.ID, 10), human.Line(o.Identifier), strconv.FormatInt(o.Files, 10), human.Bytes(o.Bytes), o.StorageOption, o.State, when(o.LastIngest, "unknown"),
	}
}
