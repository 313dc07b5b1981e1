package reporting

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/registry/exports"
)

func exportListCommand() *cobra.Command {
	return op.List[exports.Record]{
		Path: "exports", Print: printExports, Before: func(e exports.Record) int64 { return e.ID }, Empty: noInstitution,
	}.Command(op.Command{
		Use:   "list",
		Short: "List exports that were made through the REST API, newest first",
		Example: `  farol export list
  farol export list --institution test.edu --json
  farol export list --limit 20 --before 1000`,
		Flags: []op.Flag{{Name: "institution", Param: "institution", Help: "only of the institution with this identifier"}},
	})
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
