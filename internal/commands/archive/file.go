package archive

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/registry/browse"
)

// File is farol file.
func File() *cobra.Command {
	return cli.Group("file", "List and show the files of objects", fileListCommand(), fileShowCommand())
}

func fileListCommand() *cobra.Command {
	var object string // that is named; "": none
	c := op.List[browse.ListedFile]{
		Path: "files", What: "files", Next: filesAfter,
		Header: []string{"FILE", "BYTES", "FORMAT", "PUID", "COPIES", "LAST READ", "STATE"},
		Row:    func(f browse.ListedFile) []string { return fileRow(f, object) },
		Empty: func(ctx context.Context, c *op.Call) error {
			if object == "" {
				return nil
			}
			_, err := remote.Get[struct{}](ctx, c.Server, "objects/by-identifier", url.Values{"identifier": {object}})
			return err
		},
	}.Command(op.Command{
		Use:   "list [OBJECT]",
		Short: "List the files of an object, or those with a digest",
		Long: `List the files of an object in the order of their identifiers. With --digest, list the files
that have, or had, a content, newest first: of all objects if none is named.`,
		Example: `  farol file list test.edu/photographs
  farol file list test.edu/photographs --state A --json
  farol file list test.edu/photographs --limit 2 --after test.edu/photographs/data/1.jpg
  farol file list --digest d41d8cd98f00b204e9800998ecf8427e
  farol file list --uuid 5b6a1f0e-3c55-4f7d-9a0e-0f5d2f1c7a11`,
		Param:  "object",
		Failed: missing(objectsListed),
		Flags: []op.Flag{
			stateFlag(),
			{Name: "digest", Param: "digest", Help: "only those with this MD5 or SHA-256, in hexadecimal"},
			{Name: "uuid", Param: "uuid", Help: "only the one with this UUID"},
			{Name: "after", Param: "after_identifier", Help: "only those that come after the file with this identifier, for the next page"},
			{Name: "before", Param: "before", Kind: op.Number, Help: "with --digest, only those with a lower ID, for the next page"},
		},
		Check: func(c *op.Call) error {
			if object = c.Arg; object == "" && !c.Given("digest") && !c.Given("uuid") {
				return cli.Usage(errors.New("no object is named"), "name an object by its identifier, or give --digest or --uuid")
			}
			return nil
		},
	})
	c.Args = cobra.MaximumNArgs(1)
	return c
}

// filesAfter is the flag for the page after a file.
func filesAfter(c *op.Call, last browse.ListedFile) string {
	if c.Given("digest") {
		return fmt.Sprintf("--before %d", last.ID)
	}
	return "--after '" + human.Line(last.Identifier) + "'"
}

// fileRow is a file in a list of those of an object, or of all objects.
func fileRow(x browse.ListedFile, object string) []string {
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
	return []string{
		human.Line(strings.TrimPrefix(x.Identifier, object+"/")), human.Bytes(x.Size), human.Line(x.FileFormat), human.Line(x.FormatPUID), copies, read, x.State,
	}
}
