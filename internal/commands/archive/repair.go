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
	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/internal/settings"
	pipelinefixity "github.com/farol-preservation/farol/pipeline/fixity"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
)

// Repair is farol repair.
func Repair() *cobra.Command {
	var f repairFlags
	c := &cobra.Command{
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
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.release == "" {
				if err := connect.Refuse(cmd.Context(), "repair without --release"); err != nil {
					return err
				}
			}
			if f.dryRun = f.care.DryRun; f.all { // one file or object is asked for by name
				does, err := f.care.Allows(cmd, "Replace all bad copies", true)
				if err != nil {
					return err
				}
				f.dryRun = !does
			}
			return runRepair(cmd, args, f)
		},
	}
	c.Flags().BoolVar(&f.all, "all", false, "all bad copies")
	f.care.Flags(c)
	c.Flags().StringVar(&f.retrieve, "retrieve", "", "make archived copies readable: Expedited, Standard or Bulk")
	c.Flags().StringVar(&f.release, "release", "", "release the repair limit of a provider")
	c.Flags().StringVar(&f.by, "by", "", "e-mail of the admin who releases the limit")
	cli.JSONFlag(c, &f.asJSON)
	return c
}

type repairFlags struct {
	care                  cli.Caution
	all, dryRun, asJSON   bool
	retrieve, release, by string
}

// check refuses flags that do not go together.
func (f *repairFlags) check(cmd *cobra.Command, args []string) (err error) {
	const help = "see `farol repair --help`"
	remotely := remote.From(cmd.Context()) != nil
	switch {
	case f.release != "" && (f.all || f.dryRun || f.retrieve != "" || len(args) > 0):
		return cli.Usage(errors.New("--release goes with --by alone"), help)
	case remotely && f.by != "":
		return cli.Usage(errors.New("--by is for the database; through a server, the person with the token releases the limit"), "leave --by out")
	case !remotely && (f.release == "") != (f.by == ""):
		return cli.Usage(errors.New("--release and --by go together"), "name the provider, and the admin who releases its limit")
	case f.release == "" && f.all == (len(args) > 0):
		return cli.Usage(errors.New("name files or objects, or give --all"), help)
	}
	f.retrieve, err = cli.OneOf("--retrieve", f.retrieve, Tiers())
	return err
}

// repairReport is what farol repair prints as JSON.
type repairReport struct {
	DryRun bool                      `json:"dry_run"`
	Copies []pipelinefixity.Repair   `json:"copies"`
	Stops  []record.FixityRepairStop `json:"brakes"`
}

func runRepair(cmd *cobra.Command, identifiers []string, f repairFlags) error {
	ctx := cmd.Context()
	if err := f.check(cmd, identifiers); err != nil {
		return err
	}
	if f.release != "" {
		return release(cmd, f)
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
	r.Retrieve = f.retrieve
	if f.all {
		identifiers = []string{""}
	}
	report := repairReport{DryRun: f.dryRun, Copies: []pipelinefixity.Repair{}}
	for _, identifier := range identifiers {
		if err := knownIdentifier(ctx, s.Registry, identifier); err != nil {
			return err
		}
		if err := repairEach(ctx, r, identifier, f.dryRun, func(d pipelinefixity.Repair) error {
			report.Copies = append(report.Copies, d)
			if f.asJSON {
				return nil
			}
			return writeRepair(cmd.OutOrStdout(), d)
		}); err != nil {
			return err
		}
	}
	if report.Stops, err = fixity.In(s.Registry).RepairStops(ctx); err != nil {
		return err
	}
	return report.print(cmd, f.asJSON)
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

func (r repairReport) print(cmd *cobra.Command, asJSON bool) error {
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
	if err := cli.Printf(cmd, asJSON, r, "%s\n", text); err != nil {
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
func release(cmd *cobra.Command, f repairFlags) error {
	err := remote.Do(cmd, func(ctx context.Context, s *remote.Server) error {
		s, err := s.For(ctx, "--by", f.by, "")
		if err == nil {
			_, err = s.Do(ctx, client.Call{Method: http.MethodPost, Path: "brakes/" + url.PathEscape(f.release) + "/release"}, nil)
		}
		return err
	})
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return cli.Failure{Code: cli.ExitFailed, Err: fmt.Errorf("repair has not stopped at %q", f.release), Next: "`farol fixity status` shows where it has"}
	case err != nil:
		return remote.Next(err, "`farol user list` shows the admins")
	}
	done := map[string]string{"provider": f.release}
	if f.by != "" {
		done["released_by"] = f.by
	}
	return cli.Printf(cmd, f.asJSON, done, "Repair continues at %s. Earlier failures no longer count.\n", f.release)
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
