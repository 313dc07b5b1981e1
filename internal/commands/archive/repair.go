package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/client"
	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	pipelinefixity "github.com/farol-preservation/farol/pipeline/fixity"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
)

// Repair is farol repair.
func Repair() *cobra.Command {
	return op.Command{
		Use:   "repair IDENT... | --all | --release PROVIDER --by EMAIL",
		Short: "Repair bad copies from verified good ones",
		Long: `Replace copies that failed their fixity check with good copies of the same files: of one
file or object, or all bad copies. A repair first confirms that the copy is bad and saves
its bytes to the bucket FAROL_QUARANTINE_BUCKET. It then writes a good copy from another
storage target, compares its digest and reads it back.

Repair stops at a provider if more of its copies fail within an hour than bit rot explains
(FAROL_REPAIR_MAX_FAILURES, FAROL_REPAIR_MAX_SHARE). When the cause is known, an admin
releases this repair limit; with --server, that is the person with the token, without --by.

An archived good copy is not used unless --retrieve makes it readable, by Expedited,
Standard or Bulk retrieval; farol restore --dry-run shows what that costs. Run the command
again when the copy is readable.

Exit codes: 0 all copies are repaired; 1 some are not; 2 usage error.`,
		Example: `  farol repair --all --dry-run
  farol repair --all
  farol repair --all --yes
  farol repair test.edu/first-bag
  farol repair test.edu/first-bag/data/a.txt --json
  farol repair --all --retrieve Bulk
  farol repair --release Wasabi-VA --by admin@archive.org`,
		Args: cobra.ArbitraryArgs,
		Asks: true,
		Flags: []op.Flag{
			{Name: "all", Kind: op.Truth, Help: "all bad copies"},
			{Name: "retrieve", Among: Tiers, Quiet: true, Help: "make archived copies readable: Expedited, Standard or Bulk"},
			{Name: "release", Help: "release the repair limit of a provider"},
			{Name: "by", Help: "e-mail of the admin who releases the limit"},
		},
		Check: checkRepair,
	}.Alone(func(c *op.Call) error {
		if c.Given("release") {
			return release(c)
		}
		return repair(c)
	})
}

// checkRepair refuses flags that do not go together.
func checkRepair(c *op.Call) error {
	const help = "see `farol repair --help`"
	remotely := remote.From(c.Cmd.Context()) != nil
	releases, by, all := c.Given("release"), c.Given("by"), c.Given("all")
	switch {
	case remotely && !releases:
		return connect.Refuse(c.Cmd.Context(), "repair without --release")
	case releases && (all || c.Care.DryRun || c.Given("retrieve") || len(c.Args) > 0):
		return cli.Usage(errors.New("--release goes with --by alone"), help)
	case remotely && by:
		return cli.Usage(errors.New("--by is for the database; through a server, the person with the token releases the limit"), "leave --by out")
	case !remotely && releases != by:
		return cli.Usage(errors.New("--release and --by go together"), "name the provider, and the admin who releases its limit")
	case !releases && all == (len(c.Args) > 0):
		return cli.Usage(errors.New("name files or objects, or give --all"), help)
	}
	return nil
}

// repairReport is what farol repair prints as JSON.
type repairReport struct {
	DryRun bool                      `json:"dry_run"`
	Copies []pipelinefixity.Repair   `json:"copies"`
	Stops  []record.FixityRepairStop `json:"brakes"`
}

func repair(c *op.Call) (err error) {
	ctx, out, identifiers, does := c.Cmd.Context(), c.Cmd.OutOrStdout(), c.Args, !c.Care.DryRun
	if c.Given("all") { // one file or object is asked for by name
		identifiers = []string{""}
		if does, err = c.Care.Allows(c.Cmd, "Replace all bad copies", true); err != nil {
			return err
		}
	}
	config, err := connect.Load(settings.Audit{})
	if err != nil {
		return err
	}
	log := connect.NewLogger(config.Log)
	s, err := connect.Open(ctx, "repair", connect.Needs{Database: &config.Database, Storage: &config.Storage, Log: log})
	if err != nil {
		return err
	}
	defer s.Close()
	host, _ := os.Hostname()
	r, err := NewRepairer(s, config.Repair, fmt.Sprintf("%s-%d-repair-%04x", host, os.Getpid(), rand.N(1<<16)), log)
	if err != nil {
		return err
	}
	r.Retrieve = c.Text("retrieve")
	report := repairReport{DryRun: !does, Copies: []pipelinefixity.Repair{}}
	for _, identifier := range identifiers {
		if err := knownIdentifier(ctx, s.Registry, identifier); err != nil {
			return err
		}
		if err := repairEach(ctx, r, identifier, !does, func(d pipelinefixity.Repair) error {
			report.Copies = append(report.Copies, d)
			if c.JSON {
				return nil
			}
			return writeRepair(out, d)
		}); err != nil {
			return err
		}
	}
	if report.Stops, err = fixity.In(s.Registry).RepairStops(ctx); err != nil {
		return err
	}
	return report.print(c)
}

// knownIdentifier refuses an unknown identifier; "" is all.
func knownIdentifier(ctx context.Context, r *registry.Registry, identifier string) error {
	if identifier == "" {
		return nil
	}
	there, err := fixity.In(r).Stored(ctx, identifier)
	if err == nil && !there {
		err = cli.Failure{
			Code: cli.ExitFailed, Err: fmt.Errorf("there is no active file or object %q", identifier),
			Next: "name an object, such as test.edu/first-bag, or a file, such as test.edu/first-bag/data/a.txt",
		}
	}
	return err
}

// repairEach repairs the bad copies of a file or an object; "" is all.
func repairEach(ctx context.Context, r *pipelinefixity.Repairer, identifier string, dryRun bool, report func(pipelinefixity.Repair) error) error {
	for after := int64(0); ; {
		list, err := fixity.In(r.Registry).BadCopies(ctx, identifier, 0, after, 100)
		if err != nil || len(list) == 0 {
			return err
		}
		for _, b := range list {
			after = b.Failure
			d := r.Plan
			if !dryRun {
				d = r.Repair
			}
			if err := errors.Join(report(d(ctx, b)), ctx.Err()); err != nil {
				return err
			}
		}
	}
}

func writeRepair(out io.Writer, d pipelinefixity.Repair) error {
	text := d.Result
	switch {
	case d.Result == pipelinefixity.RepairLeft:
		text += ": " + human.Line(d.Reason)
	case d.From != "":
		text += " from " + d.From
	}
	if d.QuarantinedAs != "" && d.Result == pipelinefixity.RepairDone {
		text += "; the bad bytes are at " + d.QuarantinedAs
	}
	_, err := fmt.Fprintf(out, "%s in %s, %s: %s\n", human.Line(d.File), d.Target, d.Problem, text)
	return err
}

func (r repairReport) print(c *op.Call) error {
	results := map[string]int{}
	for _, d := range r.Copies {
		results[d.Result]++
	}
	left := results[pipelinefixity.RepairLeft]
	text := fmt.Sprintf("%s repaired, %d good again without repair, %d left.",
		human.Count(results[pipelinefixity.RepairDone], "copy", "copies"), results[pipelinefixity.RepairGood], left)
	if r.DryRun {
		text = fmt.Sprintf("%s would be repaired, %d left.", human.Count(results[pipelinefixity.RepairWould], "copy", "copies"), left)
	}
	if err := cli.Printf(c.Cmd, c.JSON, r, "%s\n", text); err != nil {
		return err
	}
	switch {
	case len(r.Stops) > 0 && left > 0:
		return cli.Failure{Code: cli.ExitFailed, Next: "find out what is wrong at the provider; then an admin releases the limit: `farol repair --release PROVIDER --by EMAIL`"}
	case left > 0:
		return cli.Failure{Code: cli.ExitFailed, Next: "follow what is printed above for the copies that are left, and run it again"}
	}
	return nil
}

// release has repair continue at a provider.
func release(c *op.Call) error {
	provider, by := c.Text("release"), c.Text("by")
	err := remote.Do(c.Cmd, func(ctx context.Context, s *remote.Server) error {
		s, err := s.For(ctx, "--by", by, "")
		if err == nil {
			_, err = s.Do(ctx, client.Call{Method: http.MethodPost, Path: "brakes/" + url.PathEscape(provider) + "/release"}, nil)
		}
		return err
	})
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("repair has not stopped at %q", provider), Next: "`farol fixity status` shows where it has"}
	case err != nil:
		return remote.Next(err, "`farol user list` shows the admins")
	}
	done := map[string]string{"provider": provider}
	if by != "" {
		done["released_by"] = by
	}
	return cli.Printf(c.Cmd, c.JSON, done, "Repair continues at %s. Earlier failures no longer count.\n", provider)
}

// leastShare is how many checks a share is taken of at least.
const leastShare = 100

// NewRepairer is what repairs bad copies in a process of this name.
func NewRepairer(s *connect.Services, c settings.Repair, worker string, log *slog.Logger) (*pipelinefixity.Repairer, error) {
	quarantine, err := s.Receiving(c.Quarantine)
	if err != nil {
		return nil, err
	}
	return &pipelinefixity.Repairer{
		Registry: s.Registry, Targets: s.Targets, Log: log,
		Worker: worker, Quarantine: quarantine,
		Limits: fixity.RepairLimits{Failures: c.MaxFailures, Share: float64(c.MaxShare), Least: leastShare},
	}, nil
}
