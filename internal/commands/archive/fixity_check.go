package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
)

func fixityCheckCommand() *cobra.Command {
	var target string
	var again, asJSON bool
	c := &cobra.Command{
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
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runFixityCheck(cmd, args, target, again, asJSON)
		},
	}
	c.Flags().StringVar(&target, "target", "", "only the copies in this storage target, whatever its mode")
	c.Flags().BoolVar(&again, "again", false, "check copies again that were checked in the last minute")
	cli.JSONFlag(c, &asJSON)
	return c
}

func runFixityCheck(cmd *cobra.Command, identifiers []string, target string, again, asJSON bool) error {
	done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
		if target != "" {
			policies, err := remote.All[fixity.Policy](ctx, s, "fixity/policies")
			if err == nil {
				_, err = policiesOf(policies, target)
			}
			if err != nil {
				return err
			}
		}
		return requestChecks(cmd, identifiers, asJSON, func(identifier string) ([]fixity.Requested, error) {
			v, err := remote.Send[struct{ Items []fixity.Requested }](ctx, s, http.MethodPost, "fixity/checks", map[string]any{"identifier": identifier, "target": target, "again": again})
			return v.Items, err
		})
	})
	if done || err != nil {
		return err
	}
	ctx := cmd.Context()
	s, _, err := connectFixity(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := knownTarget(ctx, s.Registry, target); err != nil {
		return err
	}
	return requestChecks(cmd, identifiers, asJSON, func(identifier string) ([]fixity.Requested, error) {
		entry := registry.AuditEntry{Operation: "fixity.check", SubjectType: "copies", SubjectID: identifier, Detail: map[string]any{"target": target, "again": again}}
		return registry.Acted(ctx, s.Registry, registry.Actor{}, &entry, func(ctx context.Context) ([]fixity.Requested, error) {
			return fixity.In(s.Registry).Request(ctx, identifier, target, again)
		})
	})
}

// requestChecks requests checks of each object and file, and says what will be checked.
func requestChecks(cmd *cobra.Command, identifiers []string, asJSON bool, request func(identifier string) ([]fixity.Requested, error)) error {
	asked := []fixity.Requested{}
	var failed []error
	for _, identifier := range identifiers {
		list, err := request(identifier)
		switch {
		case errors.Is(err, registry.ErrNotFound):
			failed = append(failed, fmt.Errorf("there is no active file or object %q", identifier))
		case errors.Is(err, registry.ErrRefused): // as a server does where the list is empty
			failed = append(failed, fmt.Errorf("%q: %w", identifier, err))
		case err != nil:
			return err
		case len(list) == 0:
			failed = append(failed, fmt.Errorf("%q has no copies in targets in mode \"read\"; --target names another target", identifier))
		}
		asked = append(asked, list...)
	}
	if err := errors.Join(append(failed, cli.Print(cmd, asJSON, asked, writeAsked))...); err != nil {
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

// knownTarget refuses a name that no target bears.
func knownTarget(ctx context.Context, r *registry.Registry, name string) error {
	if name == "" {
		return nil
	}
	policies, err := fixity.In(r).Policies(ctx)
	if err != nil {
		return err
	}
	_, err = policiesOf(policies, name)
	return err
}

func noTarget(name string) error {
	return cli.Usage(fmt.Errorf("unknown storage target %q", name), "`farol fixity policy` lists the storage targets")
}
