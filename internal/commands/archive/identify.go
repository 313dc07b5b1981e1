package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/formats"
)

// Identify is farol identify.
func Identify() *cobra.Command {
	c := op.Command{
		Use:   "identify --missing | --older-than-signature V",
		Short: "Identify the formats of stored files again",
		Long: `Identify the formats of stored files again, by reading parts of a copy, and record the
results, each with a "format identification" event. Only the registry is changed: stored
objects and their content types stay the same.

--missing selects active files that have neither a PUID nor a reason why there is none.
--older-than-signature selects files that were identified with older signatures. V is
the number of PRONOM's signature file, such as 120, V120 or
DROID_SignatureFile_V120.xml. A lower number is older, and a file recorded without a
number is older than any. Container signatures are not compared.

To identify only the files whose format another signature file can change, use
"farol identify preview" and "farol identify apply".

A file is read from the copy that is preferred for restores. If that copy is archived,
missing or altered, the next one is read. A file whose copies are all archived is
skipped. A file that cannot be read from any copy is listed as left. Files that are
ingested or deleted during the run are not changed.

The command may be interrupted and started again, and several may run at the same time.

Exit codes: 0 no file is left; 1 some are left, or it failed; 2 usage error.`,
		Example: `  farol identify --missing --dry-run
  farol identify --missing
  farol identify --missing --yes
  farol identify --missing --institution test.edu
  farol identify --older-than-signature 120
  farol identify --older-than-signature V120 --object test.edu/first-bag --json`,
		Asks: true,
		Flags: []op.Flag{
			{Name: "missing", Kind: op.Truth, Help: "files without a PUID, and without a reason why there is none"},
			{Name: "older-than-signature", Help: "files identified with signatures below this number"},
			{Name: "institution", Help: "only files of this institution, by its identifier"},
			{Name: "object", Help: "only files of this object, by its identifier"},
		},
	}.Alone(identify)
	c.AddCommand(previewSignatures(), applySignatures())
	return c
}

// chosen is what the flags say in the registry's words.
func chosen(c *op.Call) (formats.Filter, error) {
	filter := formats.Filter{Institution: c.Text("institution"), Object: c.Text("object")}
	const help = "see `farol identify --help`"
	olderThan := c.Text("older-than-signature")
	switch {
	case c.Given("missing") == (olderThan != ""):
		return filter, cli.Usage(errors.New("give one of --missing and --older-than-signature"), help)
	case c.Given("missing"):
		return filter, nil
	}
	n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimPrefix(olderThan, "V"), "v"))
	if err != nil {
		n = format.SignatureNumber(olderThan)
	}
	if n < 1 || n > 999_999 {
		return filter, cli.Usage(fmt.Errorf("--older-than-signature is %q; it must be the number of a PRONOM signature file, such as 120", olderThan), help)
	}
	filter.OlderThan = n
	return filter, nil
}

// identifyReport is what farol identify prints as JSON.
type identifyReport struct {
	DryRun  bool   `json:"dry_run"`
	Files   int64  `json:"files"` // that the flags take
	Bytes   int64  `json:"bytes"`
	Version string `json:"signature_version"` // of this program
	upkeep.Backfilled
	LeftFiles []upkeep.Left `json:"left_files"` // the first 10,000
	Sample    []string      `json:"sample,omitempty"`
}

// mostLeft bounds the files that JSON lists as left.
const mostLeft = 10_000

func identify(c *op.Call) error {
	ctx := c.Cmd.Context()
	filter, err := chosen(c)
	if err != nil {
		return err
	}
	does, err := c.Care.Allows(c.Cmd, "Identify these files again, and record what is found", true)
	if err != nil {
		return err
	}
	config, err := connect.Load(settings.Backfill{})
	if err != nil {
		return err
	}
	s, err := connect.Open(ctx, "identify", connect.Needs{Database: &config.Database, Storage: &config.Storage})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := checkNames(ctx, s.Registry, filter); err != nil {
		return err
	}
	identifier, err := connect.Identifier(ctx, config.Identify)
	if err != nil {
		return err
	}
	defer identifier.Close()
	report := identifyReport{DryRun: !does, LeftFiles: []upkeep.Left{}}
	if report.Version, err = identifier.Version(ctx); err != nil {
		return err
	}
	if own := format.SignatureNumber(report.Version); filter.OlderThan > own {
		fmt.Fprintf(c.Cmd.ErrOrStderr(), "This Farol identifies with the signatures of %d; what it identifies stays older than %d.\n", own, filter.OlderThan)
	}
	count, err := formats.In(s.Registry).Count(ctx, filter)
	if err != nil {
		return err
	}
	report.Files, report.Bytes = count.Files, count.Bytes
	if !does {
		return dryRun(c, s.Registry, filter, count, report)
	}
	b := &upkeep.Backfill{Registry: s.Registry, Targets: s.Targets, Formats: identifier, Files: 2 * config.Identify.Workers}
	return backfill(c, b, filter, count, report)
}

// checkNames refuses names of objects and institutions that do not exist.
func checkNames(ctx context.Context, r *registry.Registry, f formats.Filter) error {
	if f.Object != "" {
		if _, err := r.Object(ctx, f.Object); err != nil {
			return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "name an object by its institution and bag name, such as test.edu/first-bag"}
		}
	}
	if f.Institution == "" {
		return nil
	}
	_, err := r.Institution(ctx, f.Institution)
	return missing("`farol institution list` lists the institutions")(err)
}

func dryRun(c *op.Call, r *registry.Registry, f formats.Filter, count formats.Count, report identifyReport) error {
	first, err := formats.In(r).ToIdentify(c.Cmd.Context(), f, count.At, nil, 20)
	if err != nil {
		return err
	}
	for _, file := range first {
		report.Sample = append(report.Sample, file.Identifier)
	}
	return cli.Print(c.Cmd, c.JSON, report, writeSample)
}

func writeSample(out io.Writer, r identifyReport) error {
	for _, identifier := range r.Sample {
		fmt.Fprintln(out, human.Line(identifier))
	}
	if n := r.Files - int64(len(r.Sample)); n > 0 {
		fmt.Fprintf(out, "… and %s\n", filesOf(n))
	}
	_, err := fmt.Fprintf(out, "%s of %s would be identified with %s.\n", filesOf(r.Files), human.Bytes(r.Bytes), r.Version)
	return err
}

func backfill(c *op.Call, b *upkeep.Backfill, f formats.Filter, count formats.Count, report identifyReport) error {
	show := cli.NewBar(count.Files, decor.CountersNoUnit("%d / %d files"))
	var broken error // standard output
	sum, err := b.Run(c.Cmd.Context(), f, count, show.Set, func(l upkeep.Left) {
		switch {
		case !c.JSON:
			if _, err := fmt.Fprintf(c.Cmd.OutOrStdout(), "left: %s: %s\n", human.Line(l.Identifier), human.Line(l.Reason)); err != nil {
				broken = err
			}
		case len(report.LeftFiles) < mostLeft:
			report.LeftFiles = append(report.LeftFiles, l)
		}
	})
	show.End()
	report.Backfilled = sum
	err = errors.Join(err, broken, cli.Printf(c.Cmd, c.JSON, report,
		"%s identified, %d of them with another result than before; %d changed by others during the run; %d skipped, since all copies are archived; %d left.\n",
		filesOf(sum.Identified), sum.Changed, sum.Overtaken, sum.Archived, sum.Left))
	switch {
	case err != nil:
		return cli.Failure{Code: cli.ExitFailed, Err: err, Next: "run it again: it continues with the files that are left"}
	case sum.Left > 0:
		return cli.Failure{Code: cli.ExitFailed, Next: "make sure that the copies can be read, and run it again: it continues with the files that are left"}
	}
	return nil
}

func filesOf(files int64) string { return human.Count(files, "file", "files") }
