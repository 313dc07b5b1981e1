package reporting

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/exports"
)

// exported is what a command wrote.
type exported struct {
	File    string `json:"file"` // "": standard output
	Records int64  `json:"records"`
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
}

// Export is farol export.
func Export() *cobra.Command {
	c := op.Command{
		Use:   "export KIND",
		Short: "Write the records of an institution or an object to a file",
		Long: `Write what is on record of an institution or an object at one moment, to standard output
or to a file. The kinds are:

  inventory  active files as CSV
  manifest   SHA-256 of active files, as sha256sum and BagIt have them
  events     PREMIS events as JSON lines
  premis     objects, files and events as PREMIS 3 XML
  evidence   all of these and more of one object, as a ZIP archive

A file appears under its name when it is complete. The SHA-256 of the content is printed.`,
		Example: `  farol export inventory --institution test.edu --output inventory.csv
  farol export manifest --object test.edu/photographs
  farol export events --object test.edu/photographs --output events.jsonl --json
  farol export premis --institution test.edu --output premis.xml
  farol export evidence --object test.edu/photographs --output evidence.zip`,
		Arg: "kind",
		Flags: []op.Flag{
			{Name: "institution", Help: "institution by its identifier"},
			{Name: "object", Help: "object by its identifier"},
			{Name: "output", Help: "file to write; without it standard output"},
		},
	}.Alone(runExport)
	c.ValidArgsFunction = cli.CompleteFirst(cli.Constant(exports.Kinds))
	c.AddCommand(exportListCommand())
	return c
}

func runExport(c *op.Call) error {
	institution, object, output, stdout := c.Text("institution"), c.Text("object"), c.Text("output"), c.Cmd.OutOrStdout()
	kind, err := cli.OneOf("the kind", record.ExportKind(c.Arg), exports.Kinds())
	switch {
	case err != nil:
		return err
	case (institution == "") == (object == ""):
		return cli.Usage(errors.New("name an institution or an object, and not both"), "add --institution or --object")
	case c.JSON && output == "":
		return cli.Usage(errors.New("--json goes with --output: standard output has the content"), "add --output FILE")
	}
	var done exported
	if s := remote.From(c.Cmd.Context()); s != nil {
		done, err = exportRemotely(c.Cmd.Context(), s, kind, institution, object, output, stdout)
	} else {
		err = connect.WithRegistryFor(c.Cmd, 0, func(ctx context.Context, r *registry.Registry) (err error) {
			done, err = export(ctx, r, kind, institution, object, output, stdout)
			return err
		})
	}
	if err != nil {
		return err
	}
	said := fmt.Sprintf("%s, %s. SHA-256: %s\n", human.Count(done.Records, "record", "records"), human.Bytes(done.Bytes), done.SHA256)
	if output == "" {
		cli.Say(c.Cmd.ErrOrStderr(), "%s", said)
		return nil
	}
	return cli.Printf(c.Cmd, c.JSON, done, "%s: %s", human.Line(output), said)
}

// write writes an export to a file, or to standard output.
func write(output string, stdout io.Writer, put func(io.Writer) (records int64, sha256 string, err error)) (done exported, err error) {
	to, finish := stdout, func(error) error { return nil }
	if output != "" {
		if to, finish, err = newFile(output); err != nil {
			return done, err
		}
	}
	counted := &counter{to: to}
	records, sum, err := put(counted)
	if err = errors.Join(err, finish(err)); err != nil {
		return done, err
	}
	return exported{output, records, counted.n, sum}, nil
}

// noneOf adds the next step to the error of a name that is not on record.
func noneOf(name string, err error) error {
	if errors.Is(err, registry.ErrNotFound) {
		return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("there is no %q on record", name), Next: "`farol institution list` and `farol object list` list the names"}
	}
	return err
}

// export writes an export of the database, which is not put on record: its reader may have no
// right to write there.
func export(ctx context.Context, r *registry.Registry, kind record.ExportKind, institution, object, output string, stdout io.Writer) (exported, error) {
	records := exports.In(r, registry.Everything())
	of, err := records.Find(ctx, kind, institution, object)
	if err != nil {
		return exported{}, noneOf(institution+object, err)
	}
	return write(output, stdout, func(to io.Writer) (n int64, digest string, err error) {
		sum := sha256.New()
		err = records.Snapshot(ctx, "", func(ctx context.Context, s *exports.Snapshot) error {
			out := bufio.NewWriterSize(io.MultiWriter(to, sum), 64<<10)
			n, err = s.WriteAll(ctx, out, of)
			return errors.Join(err, out.Flush())
		})
		return n, hex.EncodeToString(sum.Sum(nil)), err
	})
}

// exportRemotely downloads an export of a server. One that is large is written into the
// restoration bucket.
func exportRemotely(ctx context.Context, s *remote.Server, kind record.ExportKind, institution, object, output string, stdout io.Writer) (exported, error) {
	made, err := remote.Send[record.ExportView](ctx, s, http.MethodPost, "exports", record.ExportRequest{Kind: kind, Scope: record.ExportScope{Institution: institution, Object: object}})
	switch {
	case err != nil:
		return exported{}, noneOf(institution+object, err)
	case made.WorkItem != nil:
		return exported{}, cli.Failure{
			Code: cli.ExitFailed, Err: fmt.Errorf("it is too large to be downloaded: item %d writes it into the restoration bucket", *made.WorkItem),
			Next: fmt.Sprintf("`farol item watch %d` follows it", *made.WorkItem),
		}
	}
	done, err := write(output, stdout, func(to io.Writer) (int64, string, error) {
		digest, err := s.Registry().DownloadExport(ctx, made.ID, to)
		return 0, digest, remote.Words(err)
	})
	if err != nil {
		return done, err
	}
	if made, err = remote.Get[record.ExportView](ctx, s, remote.About("exports", made.ID, ""), nil); err == nil && made.Records != nil {
		done.Records = *made.Records
	}
	return done, err
}

// newFile is a file that appears under its name when it is complete, and not at all after an
// error.
func newFile(name string) (io.Writer, func(error) error, error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*")
	if err != nil {
		return nil, nil, cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("create %s: %w", name, err), Next: "name a file in a directory that you may write to"}
	}
	return f, func(failed error) error {
		err := errors.Join(f.Sync(), f.Close())
		if err == nil && failed == nil {
			err = os.Rename(f.Name(), name)
		}
		if err != nil || failed != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
		return err
	}, nil
}

// counter counts what is written.
type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err //nolint:wrapcheck // it is the writer's
}

func exportListCommand() *cobra.Command {
	return op.List[record.Export]{
		Path: "exports", Before: func(e record.Export) int64 { return e.ID }, Empty: op.KnownInstitution,
		What: "exports", Header: []string{"ID", "KIND", "OF", "REQUESTED BY", "AT", "COMPLETED", "SIZE"}, Row: exportRow,
	}.Command(op.Command{
		Use:   "list",
		Short: "List exports that were made through the REST API, newest first",
		Example: `  farol export list
  farol export list --institution test.edu --json
  farol export list --limit 20 --before 1000`,
		Flags: []op.Flag{{Name: "institution", Param: "institution", Help: "only of the institution with this identifier"}},
	})
}

func exportRow(e record.Export) []string {
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
	return []string{strconv.FormatInt(e.ID, 10), string(e.Kind), of, human.Line(e.RequestedBy), human.Time(e.CreatedAt), state, bytes}
}
