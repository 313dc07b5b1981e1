package archive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/remote"
	"github.com/farol-preservation/farol/internal/settings"
	"github.com/farol-preservation/farol/registry/fixity"
)

func fixityPolicyCommand() *cobra.Command {
	c := op.Command{
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
		Flags: []op.Flag{
			{Name: "days", Kind: op.Number, Help: "days between two checks of a copy"},
			{Name: "default", Kind: op.Truth, Help: "use the configured interval, FAROL_FIXITY_DAYS"},
			{Name: "read", Kind: op.Truth, Help: "workers read the copies"},
			{Name: "report", Kind: op.Truth, Help: "only the provider's reports check the copies"},
			{Name: "off", Kind: op.Truth, Help: "do not check the copies"},
		},
		Within: -1,
		Check:  checkPolicy,
	}.Make(func(ctx context.Context, c *op.Call) error {
		list, err := policiesOf(ctx, c.Server, c.Arg)
		if err == nil && given(c, "days", "default", "read", "report", "off") > 0 {
			list[0], err = setPolicy(ctx, c, list[0])
		}
		if err != nil {
			return err
		}
		return printPolicies(c, list)
	})
	c.Args = cobra.MaximumNArgs(1)
	return c
}

// given is how many of some flags were given.
func given(c *op.Call, flags ...string) (n int) {
	for _, f := range flags {
		if c.Given(f) {
			n++
		}
	}
	return n
}

// checkPolicy refuses what contradicts itself.
func checkPolicy(c *op.Call) error {
	const help = "see `farol fixity policy --help`"
	switch {
	case given(c, "days", "default", "off") > 1, given(c, "read", "report", "off") > 1:
		return cli.Usage(errors.New("give one of --days, --default and --off, and one of --read, --report and --off"), help)
	case given(c, "days", "default", "read", "report", "off") > 0 && c.Arg == "":
		return cli.Usage(errors.New("name the storage target"), help)
	case c.Given("days"):
		return cli.InRange("--days", c.Number("days"), 1, 3650)
	}
	return nil
}

// setPolicy makes of a policy what the flags say.
func setPolicy(ctx context.Context, c *op.Call, p fixity.Policy) (fixity.Policy, error) {
	switch {
	case c.Given("off"):
		p.Mode = "off"
	case c.Given("report"):
		p.Mode = "report"
	case c.Given("read"), p.Mode == "off":
		p.Mode = "read"
	}
	switch days := c.Number("days"); {
	case c.Given("days"):
		p.Days = &days
	case c.Given("default"):
		p.Days = nil
	}
	return remote.Send[fixity.Policy](ctx, c.Server, http.MethodPut, "fixity/policies/"+url.PathEscape(p.Target), map[string]any{"mode": p.Mode, "days": p.Days})
}

// policiesOf are the policy of a storage target, or all without one.
func policiesOf(ctx context.Context, s *remote.Server, target string) ([]fixity.Policy, error) {
	list, err := remote.All[fixity.Policy](ctx, s, "fixity/policies")
	if err != nil || target == "" {
		return list, err
	}
	i := slices.IndexFunc(list, func(p fixity.Policy) bool { return p.Target == target })
	if i < 0 {
		return nil, noTarget(target)
	}
	return list[i : i+1], nil
}

func noTarget(name string) error {
	return cli.Usage(fmt.Errorf("unknown storage target %q", name), "`farol fixity policy` lists the storage targets")
}

// printPolicies shows policies. How often copies are checked by default is a setting, which only
// a command of the archive knows.
func printPolicies(c *op.Call, list []fixity.Policy) error {
	byDefault := "default"
	if c.Here() {
		config, err := connect.Load(settings.ReadOperator)
		if err != nil {
			return err
		}
		byDefault = strconv.Itoa(config.Fixity.Days) + "*"
	}
	header := []string{"TARGET", "PROVIDER", "MODE", "DAYS", "SUSPENDED UNTIL"}
	return cli.PrintList(c.Cmd, c.JSON, list, "storage targets", header, func(p fixity.Policy) []string {
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
