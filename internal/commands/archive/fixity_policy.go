package archive

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/registry"
	"github.com/farol-preservation/farol/registry/fixity"
)

// policyFlags say what a policy is to be.
type policyFlags struct {
	days                         int
	read, report, off, byDefault bool
	asJSON                       bool
}

func fixityPolicyCommand() *cobra.Command {
	var f policyFlags
	c := &cobra.Command{
		Use:   "policy [TARGET]",
		Short: "Show or set the fixity schedule of a storage target",
		Long: `Show how often the copies in each storage target are checked, or set it for one target.
A change applies at once to all copies.

With --read, workers read the copies. With --report, the provider checks them, and farol
fixity import records its reports. --off disables checks; it is the default where copies
are archived and cannot be read without a restoration. --days is the time between two
checks of a copy; --default sets it to FAROL_FIXITY_DAYS.`,
		Example: `  farol fixity policy
  farol fixity policy --json
  farol fixity policy Standard-VA --days 30
  farol fixity policy Standard-VA --default
  farol fixity policy Glacier-VA --report --days 365
  farol fixity policy Glacier-VA --off`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runFixityPolicy(cmd, args, cmd.Flags().Changed("days"), f)
		},
	}
	c.Flags().IntVar(&f.days, "days", 0, "days between two checks of a copy")
	c.Flags().BoolVar(&f.byDefault, "default", false, "use the configured interval, FAROL_FIXITY_DAYS")
	c.Flags().BoolVar(&f.read, "read", false, "workers read the copies")
	c.Flags().BoolVar(&f.report, "report", false, "only the provider's reports check the copies")
	c.Flags().BoolVar(&f.off, "off", false, "do not check the copies")
	cli.JSONFlag(c, &f.asJSON)
	return c
}

// apply is the policy that flags make of another.
func (f policyFlags) apply(p fixity.Policy, withDays bool) (mode string, days int) {
	mode = p.Mode
	if p.Days != nil {
		days = *p.Days
	}
	switch {
	case f.off:
		mode = "off"
	case f.report:
		mode = "report"
	case f.read, mode == "off":
		mode = "read"
	}
	switch {
	case withDays:
		days = f.days
	case f.byDefault:
		days = 0
	}
	return mode, days
}

// check refuses what contradicts itself.
func (f policyFlags) check(targets []string, withDays bool) error {
	const help = "see `farol fixity policy --help`"
	switch {
	case several(withDays, f.byDefault, f.off), several(f.read, f.report, f.off):
		return cli.Usage(errors.New("give one of --days, --default and --off, and one of --read, --report and --off"), help)
	case f.sets(withDays) && len(targets) == 0:
		return cli.Usage(errors.New("name the storage target"), help)
	case withDays:
		return cli.InRange("--days", f.days, 1, 3650)
	}
	return nil
}

func (f policyFlags) sets(withDays bool) bool {
	return withDays || f.byDefault || f.read || f.report || f.off
}

func runFixityPolicy(cmd *cobra.Command, targets []string, withDays bool, f policyFlags) error {
	ctx := cmd.Context()
	if err := f.check(targets, withDays); err != nil {
		return err
	}
	s, config, err := connectFixity(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	list, err := fixity.In(s.Registry).Policies(ctx)
	if err != nil {
		return err
	}
	if len(targets) > 0 {
		if err := knownTarget(ctx, s.Registry, targets[0]); err != nil {
			return err
		}
		kept := list[:0]
		for _, p := range list {
			if p.Target == targets[0] {
				kept = append(kept, p)
			}
		}
		list = kept
	}
	if f.sets(withDays) {
		mode, days := f.apply(list[0], withDays)
		entry := registry.AuditEntry{
			Operation: "fixity.set_policy", SubjectType: "target", SubjectID: list[0].Target, Detail: map[string]any{"mode": mode, "days": days},
		}
		list[0], err = registry.Acted(ctx, s.Registry, registry.Actor{}, &entry, func(ctx context.Context) (fixity.Policy, error) {
			return fixity.In(s.Registry).SetPolicy(ctx, list[0].Target, mode, days)
		})
		if err != nil {
			return err
		}
	}
	return printPolicies(cmd, f.asJSON, list, config.Days)
}

func several(flags ...bool) bool {
	n := 0
	for _, set := range flags {
		if set {
			n++
		}
	}
	return n > 1
}

func printPolicies(cmd *cobra.Command, asJSON bool, list []fixity.Policy, byDefault int) error {
	header := []string{"TARGET", "PROVIDER", "MODE", "DAYS", "SUSPENDED UNTIL"}
	return cli.PrintList(cmd, asJSON, list, "storage targets", header, func(p fixity.Policy) []string {
		days := strconv.Itoa(byDefault) + "*"
		if p.Days != nil {
			days = strconv.Itoa(*p.Days)
		}
		if p.Mode == "off" {
			days = "-"
		}
		paused := ""
		if p.PausedUntil != nil {
			paused = human.Time(*p.PausedUntil) + ": " + human.Line(p.PauseReason)
		}
		return []string{p.Target, p.Provider, p.Mode, days, paused}
	})
}
