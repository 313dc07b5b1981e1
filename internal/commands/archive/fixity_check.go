package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
)

func fixityCheckCommand() *cobra.Command {
	c := op.Command{
		Use:   "check IDENT...",
		Short: "Check the copies of files or objects now",
		Long: `Check the copies of files, or of all files of objects, before all other copies and
regardless of the scheduler's limits. The command does not wait: see the results with
farol fixity status, in the PREMIS events and in the table fixity_failures.

A copy that was read and found good within the last minute is not read again unless you
add --again.

By default, only copies in targets in mode "read" are checked; --target names another
target. Archived copies cannot be read: the check finds only whether one is missing.

Exit codes: 0 they will be checked, or just were; 1 a name is unknown or has no such
copies.`,
		Example: `  farol fixity check test.edu/first-bag
  farol fixity check test.edu/first-bag/data/a.txt test.edu/first-bag/data/b.txt
  farol fixity check test.edu/first-bag --target Standard-OR --json
  farol fixity check test.edu/first-bag --again`,
		Flags: []op.Flag{
			{Name: "target", Param: "target", Help: "only the copies in this storage target, whatever its mode"},
			{Name: "again", Param: "again", Kind: op.Truth, Help: "check copies again that were checked in the last minute"},
		},
		Within: -1,
	}.Make(func(ctx context.Context, c *op.Call) error {
		if c.Given("target") {
			if _, err := policiesOf(ctx, c.Server, c.Text("target")); err != nil {
				return err
			}
		}
		return requestChecks(ctx, c)
	})
	c.Args = cobra.MinimumNArgs(1)
	return c
}

// requestChecks requests checks of each object and file, and says what will be checked. One that
// cannot be checked keeps none of the others from it.
func requestChecks(ctx context.Context, c *op.Call) error {
	asked := []fixity.Requested{}
	var failed []error
	for _, identifier := range c.Cmd.Flags().Args() {
		body := c.Body()
		body["identifier"] = identifier
		v, err := remote.Send[struct{ Items []fixity.Requested }](ctx, c.Server, http.MethodPost, "fixity/checks", body)
		switch {
		case errors.Is(err, registry.ErrNotFound):
			failed = append(failed, fmt.Errorf("there is no active file or object %q", identifier))
		case errors.Is(err, registry.ErrRefused):
			failed = append(failed, fmt.Errorf("%q: %w", identifier, err))
		case err != nil:
			return err
		}
		asked = append(asked, v.Items...)
	}
	if err := errors.Join(append(failed, cli.Print(c.Cmd, c.JSON, asked, writeAsked))...); err != nil {
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "`farol object list` and `farol file list` list what can be checked; `farol fixity policy` shows the modes of the targets"}
	}
	return nil
}

// writeAsked says what will be checked. Archived copies cannot be read.
func writeAsked(out io.Writer, asked []fixity.Requested) error {
	config, err := connect.Load(settings.ReadClasses)
	if err != nil {
		return err
	}
	for _, a := range asked {
		if a.Recent > 0 {
			_, err := fmt.Fprintf(out, "%s: %s in %s recently checked; add --again to check again.\n", human.Line(a.Identifier), human.Count(a.Recent, "copy was", "copies were"), a.Target)
			if err != nil {
				return err
			}
		}
		if a.Copies == 0 {
			continue
		}
		will := "will be checked next."
		if class := config.ClassOf(a.Target); class == "GLACIER" || class == "DEEP_ARCHIVE" {
			will = "will not be read, since it is archived (" + class + "): the check finds only whether it is missing."
		}
		if _, err := fmt.Fprintf(out, "%s: %s in %s %s\n", human.Line(a.Identifier), human.Count(a.Copies, "copy", "copies"), a.Target, will); err != nil {
			return err
		}
	}
	return nil
}
