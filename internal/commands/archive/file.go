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
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/registry"
)

// File is farol file.
func File() *cobra.Command {
	return cli.Group("file", "List and show the files of objects", fileListCommand(), fileShowCommand())
}

func fileListCommand() *cobra.Command {
	var f registry.FileFilter
	var asJSON bool
	c := &cobra.Command{
		Use:   "list OBJECT",
		Short: "List the files of an object",
		Example: `  farol file list test.edu/photographs
  farol file list test.edu/photographs --state A --json
  farol file list test.edu/photographs --limit 2 --after test.edu/photographs/data/1.jpg`,
		Args: cli.OneArg("object by its identifier"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			f.Object = args[0]
			if f.State, err = cli.OneOf("--state", f.State, recordStates()); err != nil {
				return err
			}
			if err := cli.InRange("--limit", f.Limit, 1, 10000); err != nil {
				return err
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				if _, err := r.Object(ctx, f.Object); err != nil {
					return noObject(err)
				}
				list, err := r.Files(ctx, f)
				if err != nil {
					return err
				}
				text := func(out io.Writer, list []registry.ListedFile) error { return printFiles(out, list, f.Object) }
				return cli.PrintPage(cmd, asJSON, list, f.Limit, text, func(last registry.ListedFile) string {
					return "--after '" + human.Line(last.Identifier) + "'"
				})
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.State, "state", "", "only in this state: A (active) or D (deleted)")
	flags.IntVar(&f.Limit, "limit", 50, "how many at most")
	flags.StringVar(&f.After, "after", "", "only those that come after the file with this identifier, for the next page")
	completeState(c)
	cli.JSONFlag(c, &asJSON)
	return c
}

func printFiles(out io.Writer, list []registry.ListedFile, object string) error {
	var rows [][]string
	for _, x := range list {
		copies := strconv.FormatInt(x.Copies, 10)
		if x.Bad > 0 {
			copies += fmt.Sprintf(" (%d bad)", x.Bad)
		}
		read := "never"
		switch {
		case x.Copies == 0:
			read = ""
		case x.NeverRead == 0 && x.LastReadAt != nil:
			read = human.Time(*x.LastReadAt)
		}
		rows = append(rows, []string{
			human.Line(strings.TrimPrefix(x.Identifier, object+"/")), human.Bytes(x.Size), human.Line(x.FileFormat), human.Line(x.FormatPUID), copies, read, x.State,
		})
	}
	return cli.WriteList(out, "files", []string{"FILE", "BYTES", "FORMAT", "PUID", "COPIES", "LAST READ", "STATE"}, rows)
}

// noFile says what to do where there is no such file.
func noFile(err error) error {
	if errors.Is(err, registry.ErrNotFound) {
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "name a file as institution/bag/path; `farol file list OBJECT` shows those of an object"}
	}
	return err
}
