// Package archive has the commands that list, restore and delete what is stored.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/premis"
	"github.com/farol-preservation/farol/storage"
)

// Object is farol object.
func Object() *cobra.Command {
	return cli.Group("object", "List and show the objects on record", objectListCommand(), objectShowCommand())
}

func objectListCommand() *cobra.Command {
	return op.List[record.ListedObject]{
		Read: objectsOf, What: "objects", Next: objectsAfter,
		Header: []string{"ID", "IDENTIFIER", "FILES", "BYTES", "STORAGE OPTION", "STATE", "LAST INGEST"}, Row: objectRow,
		Empty: op.KnownInstitution,
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
func objectsAfter(c *op.Call, last record.ListedObject) string {
	if c.Given("prefix") {
		return "--after-identifier '" + human.Line(last.Identifier) + "'"
	}
	return fmt.Sprintf("--before %d", last.ID)
}

// onPage is how many objects one request asks for.
const onPage = 500

// objectsOf lists objects. Of those above an ID, each page comes before the one that was read
// before it.
func objectsOf(ctx context.Context, c *op.Call, limit int) (list []record.ListedObject, err error) {
	q := c.Query()
	if c.Number("after") == 0 {
		return remote.List[record.ListedObject](ctx, c.Server, "objects", q, limit)
	}
	for more := true; more; {
		n := min(limit-len(list), onPage)
		page, err := remote.List[record.ListedObject](ctx, c.Server, "objects", q, n)
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

func objectRow(o record.ListedObject) []string {
	return []string{
		strconv.FormatInt(o.ID, 10), human.Line(o.Identifier), strconv.FormatInt(o.Files, 10), human.Bytes(o.Bytes), o.StorageOption, o.State, when(o.LastIngest, "unknown"),
	}
}

func objectShowCommand() *cobra.Command {
	return recordCommand(op.Command{
		Use:   "show IDENTIFIER",
		Short: "Show the records of an object",
		Long: `Show an object: its description, its files and copies, how many copies were never read
and how many are bad, its events, its work items and its deletions. With --premis, print
it with all its files as PREMIS 3 XML.`,
		Example: `  farol object show test.edu/photographs
  farol object show test.edu/photographs --json
  farol object show test.edu/photographs --premis`,
		Arg:    "object by its identifier",
		Failed: missing(objectsListed),
	}, readObject, printObject, premis.OfObject)
}

// recordCommand is a command that shows what is on record under an identifier: as a page, as
// JSON, or as PREMIS, which is written from the database row by row.
func recordCommand[P any](
	c op.Command,
	read func(context.Context, *op.Call) (P, error),
	write func(io.Writer, P) error,
	premis func(context.Context, *registry.Export, string) (premis.Source, error),
) *cobra.Command {
	c.Param = "identifier"
	c.Flags = []op.Flag{{Name: "premis", Kind: op.Truth, Help: "print PREMIS 3 XML"}}
	c.Check = func(call *op.Call) error {
		if call.JSON && call.Given("premis") {
			return cli.Usage(errors.New("--json and --premis contradict each other"), "give one of them")
		}
		return remote.RefuseFlags(call.Cmd, "premis")
	}
	return c.Make(func(ctx context.Context, call *op.Call) error {
		if call.Given("premis") {
			return exportPREMIS(call.Cmd, call.Arg, premis) //nolint:contextcheck // the command has it
		}
		p, err := read(ctx, call)
		if err != nil {
			return err
		}
		return cli.Print(call.Cmd, call.JSON, p, write)
	})
}

// missing adds the next step to the error of what there is not.
func missing(next string) func(error) error {
	return func(err error) error { return remote.Next(err, next) }
}

const objectsListed = "`farol object list` lists the objects"

// mostItems is how many items of an object are shown.
const mostItems = 100

// objectPage is all that is on record of an object.
type objectPage struct {
	record.Object

	Summary  record.ObjectSummary  `json:"summary"`
	Copies   record.ObjectCopies   `json:"copies"`
	Deletion record.ObjectDeletion `json:"deletion"`
	Events   []record.Event        `json:"events"` // of the object itself
	Items    []record.WorkItem     `json:"items"`  // newest first
}

func readObject(ctx context.Context, c *op.Call) (*objectPage, error) {
	v, err := remote.Get[objectPage](ctx, c.Server, "objects/by-identifier", c.Query())
	if err != nil {
		return nil, err
	}
	if v.Events, err = eventsOf(ctx, c, "object", v.ID); err != nil {
		return nil, err
	}
	v.Items, err = remote.List[record.WorkItem](ctx, c.Server, "items", url.Values{"object": {c.Arg}}, mostItems)
	return &v, err
}

// eventsOf lists the events of a record, the oldest first.
func eventsOf(ctx context.Context, c *op.Call, of string, id int64) ([]record.Event, error) {
	list, err := remote.List[record.Event](ctx, c.Server, "events", remote.Query(of, remote.ID(id)), math.MaxInt)
	slices.Reverse(list)
	return list, err
}

func printObject(w io.Writer, v *objectPage) error {
	rows := [][]string{{"Title", human.Line(v.Title)}}
	for _, row := range [][]string{
		{"Description", v.Description},
		{"Alternate identifier", v.AltIdentifier},
		{"Bag", v.BagName},
		{"Bag group", v.BagGroupIdentifier},
		{"Source", v.SourceOrganization},
		{"Sender's identifier", v.InternalSenderIdentifier},
		{"Sender's description", v.InternalSenderDescription},
		{"Profile", v.BagItProfileIdentifier},
		{"Access", v.Access},
		{"Storage option", v.StorageOption},
	} {
		if row[1] != "" {
			rows = append(rows, []string{row[0], human.Line(row[1])})
		}
	}
	rows = append(rows,
		[]string{"State", v.deletionState()},
		[]string{"Kept", fmt.Sprintf("%s, %s, in %s", human.Count(v.Summary.Files, "file", "files"), human.Bytes(v.Summary.Bytes), human.Copies(v.Summary.Copies))},
		[]string{"Never read", human.Copies(v.Copies.NeverRead)},
		[]string{"Bad", human.Count(v.Copies.Bad, "copy", "copies")})
	for _, kind := range slices.Sorted(maps.Keys(v.Summary.Events)) {
		rows = append(rows, []string{"Events", fmt.Sprintf("%d × %s", v.Summary.Events[kind], kind)})
	}
	if err := cli.WriteTable(w, []string{"Object", human.Line(v.Identifier)}, rows); err != nil {
		return err
	}
	if err := printEvents(w, v.Events); err != nil {
		return err
	}
	return v.printItems(w)
}

// deletionState says whether an object is there, and what deletions did to it.
func (v *objectPage) deletionState() string {
	d, text := v.Deletion, "active"
	switch {
	case v.State == "D" && d.Item != nil:
		text = fmt.Sprintf("deleted by item %d", *d.Item)
	case v.State == "D":
		text = "deleted"
	case d.Item != nil:
		text = fmt.Sprintf("being deleted by item %d", *d.Item)
	}
	if d.FilesGoing > 0 {
		text += fmt.Sprintf("; %s being deleted", human.Count(d.FilesGoing, "file", "files"))
	}
	if d.FilesDeleted != nil && *d.FilesDeleted > 0 {
		text += fmt.Sprintf("; %s deleted", human.Count(*d.FilesDeleted, "file", "files"))
	}
	for _, q := range d.Requests {
		text += fmt.Sprintf("; deletion request %d: %s", q.ID, stateOfDeletion(q))
	}
	return text
}

func (v *objectPage) printItems(w io.Writer) error {
	header := []string{"ITEM", "ACTION", "STATUS", "STAGE", "QUEUED", "NOTE"}
	err := printSection(w, "No work items.", header, v.Items, func(i record.WorkItem) []string {
		return []string{strconv.FormatInt(i.ID, 10), string(i.Action), string(i.Status), string(i.Stage), human.Time(i.CreatedAt), human.Line(i.Note)}
	})
	if err != nil || len(v.Items) < mostItems {
		return err
	}
	_, err = fmt.Fprintf(w, "These are the last %d items; the view all_work_items has all.\n", mostItems)
	return err
}

func printEvents(w io.Writer, events []record.Event) error {
	return printSection(w, "No events.", []string{"WHEN", "EVENT", "OUTCOME", "DETAIL", "INFORMATION"}, events, func(e record.Event) []string {
		return []string{human.Time(e.DateTime), e.EventType, e.Outcome, human.Line(e.OutcomeDetail), human.Line(e.OutcomeInformation)}
	})
}

// printSection writes a table with a row for each record after an empty line, or says that there
// is none. Where nothing is to be said it writes nothing.
func printSection[T any](w io.Writer, none string, header []string, list []T, row func(T) []string) error {
	if len(list) == 0 && none == "" {
		return nil
	}
	fmt.Fprintln(w)
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, none)
		return err
	}
	return cli.WriteTable(w, header, cli.Rows(list, row))
}

// exportPREMIS writes what is on record under an identifier as a PREMIS document. It
// may take longer than other commands: an object has many files.
func exportPREMIS(cmd *cobra.Command, identifier string, read func(context.Context, *registry.Export, string) (premis.Source, error)) error {
	return connect.WithRegistryFor(cmd, 0, func(ctx context.Context, r *registry.Registry) error {
		return r.Export(ctx, func(e *registry.Export) error {
			source, err := read(ctx, e, identifier)
			if err != nil {
				return err
			}
			return premis.Write(cmd.OutOrStdout(), source)
		})
	})
}
