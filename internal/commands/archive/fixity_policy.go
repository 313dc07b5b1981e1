package archive

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
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
			withDays := cmd.Flags().Changed("days")
			if err := f.check(args, withDays); err != nil {
				return err
			}
			done, err := remote.Through(cmd, func(ctx context.Context, s *remote.Server) error {
				list, err := remotePolicies(ctx, s, strings.Join(args, ""), f, withDays)
				if err != nil {
					return err
				}
				return printPolicies(cmd, f.asJSON, list, "default")
			})
			if done || err != nil {
				return err
			}
			return runFixityPolicy(cmd, args, withDays, f)
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
	s, config, err := connectFixity(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	list, err := fixity.In(s.Registry).Policies(ctx)
	if err != nil {
		return err
	}
	if list, err = policiesOf(list, strings.Join(targets, "")); err != nil {
		return err
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
	return printPolicies(cmd, f.asJSON, list, strconv.Itoa(config.Days)+"*")
}

// policiesOf are the policy of a storage target, or all without one.
func policiesOf(list []fixity.Policy, target string) ([]fixity.Policy, error) {
	if target == "" {
		return list, nil
	}
	i := slices.IndexFunc(list, func(p fixity.Policy) bool { return p.Target == target })
	if i < 0 {
		return nil, noTarget(target)
	}
	return list[i : i+1], nil
}

// remotePolicies shows the policies that a server has, and sets one of them if flags say so.
func remotePolicies(ctx context.Context, s *remote.Server, target string, f policyFlags, withDays bool) ([]fixity.Policy, error) {
	list, err := remote.All[fixity.Policy](ctx, s, "fixity/policies")
	if err == nil {
		list, err = policiesOf(list, target)
	}
	if err != nil || !f.sets(withDays) {
		return list, err
	}
	mode, days := f.apply(list[0], withDays)
	body := map[string]any{"mode": mode, "days": nil}
	if days > 0 {
		body["days"] = days
	}
	list[0], err = remote.Send[fixity.Policy](ctx, s, http.MethodPut, "fixity/policies/"+url.PathEscape(target), body)
	return list, err
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

func printPolicies(cmd *cobra.Command, asJSON bool, list []fixity.Policy, byDefault string) error {
	header := []string{"TARGET", "PROVIDER", "MODE", "DAYS", "SUSPENDED UNTIL"}
	return cli.PrintList(cmd, asJSON, list, "storage targets", header, func(p fixity.Policy) []string {
		days := byDefault
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
