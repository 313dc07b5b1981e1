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
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/browse"
)

// File is farol file.
func File() *cobra.Command {
	return cli.Group("file", "List and show the files of objects", fileListCommand(), fileShowCommand())
}

func fileListCommand() *cobra.Command {
	var f browse.FileFilter
	var limit int
	var after browse.Key
	var asJSON bool
	c := &cobra.Command{
		Use:   "list [OBJECT]",
		Short: "List the files of an object, or those with a digest",
		Long: `List the files of an object in the order of their identifiers. With --digest, list the files
that have, or had, a content, newest first: of all objects if none is named.`,
		Example: `  farol file list test.edu/photographs
  farol file list test.edu/photographs --state A --json
  farol file list test.edu/photographs --limit 2 --after test.edu/photographs/data/1.jpg
  farol file list --digest d41d8cd98f00b204e9800998ecf8427e
  farol file list --uuid 5b6a1f0e-3c55-4f7d-9a0e-0f5d2f1c7a11`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 0 && f.Digest == "" && f.UUID == "" {
				return cli.Usage(errors.New("no object is named"), "name an object by its identifier, or give --digest or --uuid")
			}
			f.Object = strings.Join(args, "")
			if f.State, err = cli.OneOf("--state", f.State, recordStates()); err != nil {
				return err
			}
			if err := cli.InRange("--limit", limit, 1, 10000); err != nil {
				return err
			}
			text := func(out io.Writer, list []browse.ListedFile) error { return printFiles(out, list, f.Object) }
			if err := objectThere(cmd, f.Object); err != nil {
				return err
			}
			show := func(list []browse.ListedFile) error {
				return cli.PrintPage(cmd, asJSON, list, limit, text, func(last browse.ListedFile) string { return filesAfter(f, last) })
			}
			done, err := remote.Page(cmd, "files", filesQuery(f, after), limit, show)
			if done || err != nil {
				return err
			}
			return connect.WithRegistry(cmd, func(ctx context.Context, r *registry.Registry) error {
				list, err := listFiles(ctx, r, f, limit, after)
				if err != nil {
					return err
				}
				return show(list)
			})
		},
	}
	flags := c.Flags()
	flags.StringVar(&f.State, "state", "", "only in this state: A (active) or D (deleted)")
	flags.StringVar(&f.Digest, "digest", "", "only those with this MD5 or SHA-256, in hexadecimal")
	flags.StringVar(&f.UUID, "uuid", "", "only the one with this UUID")
	flags.IntVar(&limit, "limit", 50, "how many at most")
	flags.StringVar(&after.Identifier, "after", "", "only those that come after the file with this identifier, for the next page")
	flags.Int64Var(&after.ID, "before", 0, "with --digest, only those with a lower ID, for the next page")
	completeState(c)
	cli.JSONFlag(c, &asJSON)
	return c
}

// filesAfter is the flag for the page after a file.
func filesAfter(f browse.FileFilter, last browse.ListedFile) string {
	if f.Digest != "" {
		return fmt.Sprintf("--before %d", last.ID)
	}
	return "--after '" + human.Line(last.Identifier) + "'"
}

// listFiles lists the files of an object that there is, or those with a digest or a UUID.
func listFiles(ctx context.Context, r *registry.Registry, f browse.FileFilter, limit int, after browse.Key) ([]browse.ListedFile, error) {
	records := browse.In(r, registry.Everything())
	if f.Object != "" {
		if _, err := records.ObjectByIdentifier(ctx, f.Object); err != nil {
			return nil, noObject(err)
		}
	}
	return browse.UpTo(limit, after, func(p browse.Page) ([]browse.ListedFile, browse.Key, error) { return records.Files(ctx, f, p) })
}

func printFiles(out io.Writer, list []browse.ListedFile, object string) error {
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
