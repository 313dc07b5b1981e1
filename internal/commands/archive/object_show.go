package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
	"github.com/farol-preservation/farol/registry/premis"
	"github.com/farol-preservation/farol/registry/requests"
)

func objectShowCommand() *cobra.Command {
	return recordCommand(&cobra.Command{
		Use:   "show IDENTIFIER",
		Short: "Show the records of an object",
		Long: `Show an object: its description, its files and copies, how many copies were never read
and how many are bad, its events, its work items and its deletions. With --premis, print
it with all its files as PREMIS 3 XML.`,
		Example: `  farol object show test.edu/photographs
  farol object show test.edu/photographs --json
  farol object show test.edu/photographs --premis`,
		Args: cli.OneArg("object by its identifier"),
	}, readObjectPage, remoteObject, printObject, premis.OfObject, noObject)
}

// recordCommand completes a command that shows what is on record under an identifier:
// as a page, as JSON, or as PREMIS.
func recordCommand[P any](
	c *cobra.Command,
	read func(context.Context, *registry.Registry, string) (P, error),
	readFrom func(context.Context, *remote.Server, string) (P, error),
	write func(io.Writer, P) error,
	premis func(context.Context, *registry.Export, string) (premis.Source, error),
	missing func(error) error,
) *cobra.Command {
	var asJSON, asPREMIS bool
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if asJSON && asPREMIS {
			return cli.Usage(errors.New("--json and --premis contradict each other"), "give one of them")
		}
		if err := remote.RefuseFlags(cmd, "premis"); err != nil {
			return err
		}
		if asPREMIS {
			return exportPREMIS(cmd, args[0], premis, missing)
		}
		done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
			p, err := readFrom(ctx, s, args[0])
			if err != nil {
				return missing(err)
			}
			return cli.Print(cmd, asJSON, p, write)
		})
		if done || err != nil {
			return err
		}
		return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
			p, err := read(ctx, r, args[0])
			if err != nil {
				return err
			}
			return cli.Print(cmd, asJSON, p, write)
		})
	}
	cli.JSONFlag(c, &asJSON)
	c.Flags().BoolVar(&asPREMIS, "premis", false, "print PREMIS 3 XML")
	return c
}

// noObject says what to do where there is no such object.
func noObject(err error) error {
	if errors.Is(err, registry.ErrNotFound) {
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol object list` lists the objects"}
	}
	return err
}

// mostItems is how many items of an object are shown.
const mostItems = 100

// objectPage is all that is on record of an object.
type objectPage struct {
	registry.Object

	Summary  registry.ObjectSummary  `json:"summary"`
	Copies   registry.ObjectCopies   `json:"copies"`
	Deletion requests.ObjectDeletion `json:"deletion"`
	Events   []registry.Event        `json:"events"` // of the object itself
	Items    []registry.WorkItem     `json:"items"`  // newest first
}

func readObjectPage(ctx context.Context, r *registry.Registry, identifier string) (v *objectPage, err error) {
	v = &objectPage{}
	records := browse.In(r, registry.Everything())
	if v.Object, err = records.ObjectByIdentifier(ctx, identifier); err != nil {
		return nil, noObject(err)
	}
	if v.Summary, err = r.Summary(ctx, v.ID); err != nil {
		return nil, err
	}
	if v.Copies, err = r.ObjectCopies(ctx, v.ID, v.Summary.Counted); err != nil {
		return nil, err
	}
	if v.Deletion, err = requests.In(r).ObjectDeletion(ctx, v.ID, v.Summary.Counted); err != nil {
		return nil, err
	}
	events, err := r.ObjectEvents(ctx, v.ID)
	if err != nil {
		return nil, err
	}
	v.Events = append([]registry.Event{}, events...)
	v.Items, _, err = records.Items(ctx, browse.ItemFilter{Object: identifier}, browse.Page{Limit: mostItems})
	return v, err
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
	var rows [][]string
	for _, i := range v.Items {
		rows = append(rows, []string{strconv.FormatInt(i.ID, 10), string(i.Action), string(i.Status), string(i.Stage), human.Time(i.CreatedAt), human.Line(i.Note)})
	}
	if err := printSection(w, "No work items.", []string{"ITEM", "ACTION", "STATUS", "STAGE", "QUEUED", "NOTE"}, rows); err != nil || len(v.Items) < mostItems {
		return err
	}
	_, err := fmt.Fprintf(w, "These are the last %d items; the view all_work_items has all.\n", mostItems)
	return err
}

func printEvents(w io.Writer, events []registry.Event) error {
	var rows [][]string
	for _, e := range events {
		rows = append(rows, []string{human.Time(e.DateTime), e.EventType, e.Outcome, human.Line(e.OutcomeDetail), human.Line(e.OutcomeInformation)})
	}
	return printSection(w, "No events.", []string{"WHEN", "EVENT", "OUTCOME", "DETAIL", "INFORMATION"}, rows)
}

// printSection writes a table after an empty line, or says that it is empty.
func printSection(w io.Writer, none string, header []string, rows [][]string) error {
	fmt.Fprintln(w)
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, none)
		return err
	}
	return cli.WriteTable(w, header, rows)
}

// exportPREMIS writes what is on record under an identifier as a PREMIS document. It
// may take longer than other commands: an object has many files.
func exportPREMIS(cmd *cobra.Command, identifier string,
	read func(context.Context, *registry.Export, string) (premis.Source, error), missing func(error) error,
) error {
	return connect.WithRegistryFor(cmd, 0, func(ctx context.Context, r *registry.Registry) error {
		return r.Export(ctx, func(e *registry.Export) error {
			source, err := read(ctx, e, identifier)
			if err != nil {
				return missing(err)
			}
			return premis.Write(cmd.OutOrStdout(), source)
		})
	})
}
