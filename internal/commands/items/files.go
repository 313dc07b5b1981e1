package items

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/pipeline/interim"
	"github.com/farol-preservation/farol/registry"
)

func itemFilesCommand() *cobra.Command {
	c := one(op.Command{
		Use:   "files ID",
		Short: "List the files of an item with their states",
		Long: `List the files of an item, by name, with the state of each.

During an ingest, or after one that failed: read (its digests are known, the bag is still
being read), received, identified, copied (to every target), verified, added or
replaced (recorded), unchanged (the same bytes were recorded), packaging (not stored),
missing, or failed with its code.

After an ingest that succeeded: added, replaced, left (recorded before, and not stored by
this item), or deleted since. If FAROL_KEEP_METADATA names a bucket with the item's
metadata, the list shows the states at the end of the ingest.

For a restoration: pending, restored, readable (in its archive), or not done. For a
deletion: pending, deleting or deleted.

The settings of S3 are needed only for files in the staging bucket or in kept metadata.`,
		Example: `  farol item files 7
  farol item files 7 --state failed --json
  farol item files 7 --limit 1000 --after data/0999.jpg`,
		Flags: []op.Flag{
			{Name: "state", Among: fileStates, Help: "only in this state"},
			{Name: "limit", Kind: op.Number, Default: 50, Least: 1, Most: 10000, Help: "how many at most"},
			{Name: "after", Help: "only those that come after the file with this path, for the next page"},
		},
		Within: 10 * time.Minute, // the lists of a large bag are fetched first
	}).Make(func(ctx context.Context, c *op.Call) error {
		limit := c.Number("limit")
		l, err := filesOf(ctx, c.Server, c.ID, interim.Page{State: c.Text("state"), After: c.Text("after"), Limit: limit})
		if err != nil {
			return err
		}
		if !l.Known {
			if c.JSON {
				fmt.Fprintln(c.Cmd.ErrOrStderr(), l.Note)
			}
			return cli.Printf(c.Cmd, c.JSON, l.Files, "%s\n", l.Note)
		}
		if l.Note != "" {
			fmt.Fprintln(c.Cmd.ErrOrStderr(), l.Note)
		}
		return cli.PrintPage(c.Cmd, c.JSON, l.Files, limit, printFiles, func(last interim.File) string { return "--after '" + human.Line(last.Path) + "'" })
	})
	_ = c.RegisterFlagCompletionFunc("after", cobra.NoFileCompletions)
	return c
}

// filesOf lists the files of an item.
func filesOf(ctx context.Context, s *remote.Server, id int64, page interim.Page) (l interim.Listing, err error) {
	path := remote.About("items", id, "/files")
	first, err := remote.Get[interim.Listing](ctx, s, path, remote.Query("state", page.State, "limit", "1"))
	if l.Known, l.Note = first.Known, first.Note; err != nil || !l.Known {
		return l, err
	}
	l.Files, err = remote.List[interim.File](ctx, s, path, remote.Query("state", page.State, "after_path", page.After), page.Limit)
	return l, err
}

// fileStates are those that files of items can be in.
func fileStates() []string {
	return append(interim.States(), registry.ItemFileStates()...)
}

func printFiles(w io.Writer, files []interim.File) error {
	var rows [][]string
	for _, f := range files {
		var copies []string
		for _, c := range f.Copies {
			copies = append(copies, c.Target)
		}
		rows = append(rows, []string{
			human.Line(f.Path), human.Bytes(f.Size), f.State, human.Line(f.Format), human.Line(f.PUID), strings.Join(copies, ","),
			human.Line(strings.TrimSpace(f.Code + " " + human.Shorten(f.Message, mostWords))),
		})
	}
	return cli.WriteList(w, "files", []string{"FILE", "BYTES", "STATE", "FORMAT", "PUID", "COPIES", "WHAT"}, rows)
}
