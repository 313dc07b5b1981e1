package archive

import (
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/format"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/pipeline/upkeep"
	"github.com/farol-preservation/farol/registry/formats"
)

const signatureFile = "signature file of siegfried (.sig)"

func previewSignatures() *cobra.Command {
	return op.Command{
		Use: "preview FILE", Arg: signatureFile, Within: -1, Here: true,
		Short: "Count the stored files whose format new signatures can change",
		Long: `Compare a signature file of siegfried with the signatures in use (FAROL_SIGNATURES, or
the program's own), and count the stored files whose format can differ. Nothing is read
but the registry, and nothing is changed.

A file can be concerned if the signatures, extensions, priorities or name of its format
differ; if a signature that differs may match it, too; and if no signature has matched it
so far. All other files keep their format. Files are judged as if the signatures in use
had identified them: apply one signature file after the other.

The cost is what identification reads at most. If all copies of a file are archived,
one has to be retrieved first; prices are those of the table retrieval_prices.`,
		Example: "  farol identify preview pronom-v121.sig\n  farol identify preview pronom-v121.sig --json",
	}.Alone(func(c *op.Call) error {
		s, preview, _, err := previewed(c)
		if err != nil {
			return err
		}
		defer s.Close()
		return cli.Print(c.Cmd, c.JSON, preview, writePreview)
	})
}

func applySignatures() *cobra.Command {
	return op.Command{
		Use: "apply FILE", Arg: signatureFile, Within: -1, Here: true, Asks: true,
		Short: "Identify the files whose format new signatures can change",
		Long: `Identify the files again that "farol identify preview" counts, by the signatures in FILE,
and record the results. Each gets a "format identification" event that names both
versions of the signatures. Only the registry is changed: stored objects stay the same.

The command may be interrupted and started again, and several may run at the same time:
files that are on record with the new signatures are not read again. Files whose copies
are all archived are skipped.

Then set FAROL_SIGNATURES to FILE for the workers, restart them, and run the command once
more with the old setting, for what they have ingested in the meantime.

Exit codes: 0 no file is left; 1 some are left, or it failed; 2 usage error.`,
		Example: "  farol identify apply pronom-v121.sig --dry-run\n  farol identify apply pronom-v121.sig --yes",
	}.Alone(func(c *op.Call) error {
		does, err := c.Care.Allows(c.Cmd, "Identify these files again by the signatures in "+c.Arg+", and record what is found", true)
		if err != nil {
			return err
		}
		s, preview, config, err := previewed(c)
		if err != nil {
			return err
		}
		defer s.Close()
		if !does {
			return cli.Print(c.Cmd, c.JSON, preview, writePreview)
		}
		config.Identify.Signatures = c.Arg
		identifier, err := connect.Identifier(c.Cmd.Context(), config.Identify)
		if err != nil {
			return err
		}
		defer identifier.Close()
		count, err := formats.In(s.Registry).Count(c.Cmd.Context(), preview.Filter)
		if err != nil {
			return err
		}
		report := identifyReport{Files: count.Files, Bytes: count.Bytes, Version: preview.New, LeftFiles: []upkeep.Left{}}
		b := &upkeep.Backfill{Registry: s.Registry, Targets: s.Targets, Formats: identifier, Files: 2 * config.Identify.Workers}
		return backfill(c, b, preview.Filter, count, report)
	})
}

// previewed compares the file that a command names with the signatures in use.
func previewed(c *op.Call) (*connect.Services, upkeep.Preview, settings.Backfill, error) {
	var none upkeep.Preview
	config, err := connect.Load(settings.Backfill{})
	if err != nil {
		return nil, none, config, err
	}
	difference, err := compared(config.Identify.Signatures, c.Arg)
	if err != nil {
		return nil, none, config, cli.Failure{Code: cli.ExitFailed, Err: err, Next: "name a file that roy or `sf -update` wrote"}
	}
	ctx := c.Cmd.Context()
	s, err := connect.Open(ctx, "identify", connect.Needs{Database: &config.Database, Storage: &config.Storage})
	if err != nil {
		return nil, none, config, err
	}
	preview, err := upkeep.PreviewSignatures(ctx, s.Registry, s.Targets, difference)
	if err != nil {
		s.Close()
		return nil, none, config, err
	}
	return s, preview, config, nil
}

// compared reads two signature files; the first may be none, for the program's own.
func compared(old, next string) (*format.Difference, error) {
	var was []byte
	var err error
	if old != "" {
		if was, err = os.ReadFile(old); err != nil {
			return nil, fmt.Errorf("FAROL_SIGNATURES: %w", err)
		}
	}
	is, err := os.ReadFile(next)
	if err != nil {
		return nil, err
	}
	d, err := format.Compare(was, is)
	if err != nil {
		return nil, fmt.Errorf("compare %s with the signatures in use: %w", next, err)
	}
	return d, nil
}

func writePreview(out io.Writer, p upkeep.Preview) error {
	fmt.Fprintf(out, "In use: %s\nNew:    %s\n%d formats are added, %d removed, %d changed.\n\n", p.Old, p.New, len(p.Added), len(p.Removed), len(p.Changed))
	if len(p.Affected) > 0 {
		err := cli.WriteTable(out, []string{"PUID", "METHOD", "EXTENSION", "FILES", "SIZE", "BECAUSE OF"}, cli.Rows(p.Affected, func(a upkeep.Affected) []string {
			puid := a.PUID
			if puid == "" {
				puid = "unknown"
			}
			return []string{puid, a.Method, a.Ext, strconv.FormatInt(a.Files, 10), human.Bytes(a.Bytes), a.Because}
		}))
		if err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	for _, r := range p.Reading {
		if r.Class == "" {
			fmt.Fprintf(out, "%s can be read: at most %s and %s.\n", filesOf(r.Files), human.Count(r.Requests, "request", "requests"), human.Bytes(r.Bytes))
			continue
		}
		fmt.Fprintf(out, "%s of %s must be retrieved from %s first:", filesOf(r.Files), human.Bytes(r.Retrieve), r.Class)
		for _, price := range r.Prices {
			fmt.Fprintf(out, " %s $%s within %s;", price.Tier, price.USD, human.Duration(price.Takes))
		}
		fmt.Fprintln(out)
	}
	_, err := fmt.Fprintf(out, "%s of %s can have another format; %d need not be read.\n", filesOf(p.Files), human.Bytes(p.Bytes), p.Spared)
	return err
}
