package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/commands/remote"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/record"
	"github.com/farol-preservation/farol/registry"
)

// Fixity is farol fixity.
func Fixity() *cobra.Command {
	return cli.Group("fixity", "Verify stored copies against their recorded checksums",
		fixityStatusCommand(), fixityCheckCommand(), fixityPolicyCommand(), fixityImportCommand())
}

func fixityStatusCommand() *cobra.Command {
	return op.Command{
		Use:   "status",
		Short: "Show the state of fixity checks and all bad copies",
		Long: `Show how many copies are overdue for a fixity check, which are bad or cannot be checked,
how many were checked in the last 24 hours, and when the due checks will be complete at
the present rate.

The most overdue copies are named. Workers check the targets in mode "read". Targets in
mode "report" are checked by farol fixity import only, and targets in mode "off" are not
checked. Days with a star are the default, FAROL_FIXITY_DAYS.

Exit codes: 0 no copy is known to be bad; 1 some are bad or cannot be checked.`,
		Example: `  farol fixity status
  farol fixity status --worst 50
  farol fixity status --json`,
		Flags:  []op.Flag{{Name: "worst", Kind: op.Number, Default: 10, Least: 0, Most: 10000, Help: "how many of the most overdue copies to list"}},
		Within: -1,
		Check:  func(c *op.Call) error { return remote.RefuseFlags(c.Cmd, "worst") },
	}.Make(func(ctx context.Context, c *op.Call) error {
		report, err := fixityReport(ctx, c)
		if err != nil {
			return err
		}
		if err := cli.Print(c.Cmd, c.JSON, report, writeFixityStatus); err != nil {
			return err
		}
		if report.Bad+report.Stuck > 0 { // which the exit code says
			return cli.Failure{Code: cli.ExitFailed, Next: "`farol repair --all --dry-run` shows which bad copies can be repaired"}
		}
		return nil
	})
}

// FixityReport is what farol fixity status prints as JSON.
type FixityReport struct {
	record.FixityStatus

	BadCopies []record.FixityBadCopy    `json:"bad"` // the first 1,000
	Stops     []record.FixityRepairStop `json:"brakes"`
}

// mostBad is how many bad copies are shown.
const mostBad = 1000

// fixityReport is the state of fixity checks, for those who see all.
func fixityReport(ctx context.Context, c *op.Call) (r FixityReport, err error) {
	q := url.Values{}
	if c.Here() {
		q.Set("worst", strconv.Itoa(c.Number("worst")))
	}
	v, err := remote.Get[struct{ Archive *record.FixityStatus }](ctx, c.Server, "fixity", q)
	switch {
	case err != nil:
		return r, err
	case v.Archive == nil:
		return r, cli.Failure{Code: cli.ExitFailed, Err: errors.New("the state of all checks is for staff, operators and auditors of the archive"), Next: "GET /api/v1/fixity shows that of your institution"}
	}
	r.FixityStatus = *v.Archive
	if r.BadCopies, err = remote.List[record.FixityBadCopy](ctx, c.Server, "fixity/bad", nil, mostBad); err != nil {
		return r, err
	}
	r.Stops, err = remote.All[record.FixityRepairStop](ctx, c.Server, "brakes")
	return r, err
}

func writeFixityStatus(out io.Writer, r FixityReport) error {
	var rows [][]string
	for _, t := range r.Targets {
		if t.Mode == "off" && t.Copies == 0 {
			continue
		}
		days, overdue, compliant := strconv.Itoa(t.Days), strconv.FormatInt(t.Overdue, 10), cmp.Or(t.InTime(), "-")
		if t.ByDefault {
			days += "*"
		}
		if !t.Promised() {
			days, overdue = "-", "-"
		}
		rows = append(rows, []string{
			t.Target, t.Mode, days, strconv.FormatInt(t.Copies, 10), strconv.FormatInt(t.Unread, 10), overdue, compliant, strconv.FormatInt(t.Bad, 10), strconv.FormatInt(t.Stuck, 10),
			strconv.FormatInt(t.Running, 10), fmt.Sprintf("%d (%s)", t.Checks24h, human.Bytes(t.Bytes24h)),
		})
	}
	if err := cli.WriteTable(out, []string{"TARGET", "MODE", "DAYS", "COPIES", "NEVER READ", "OVERDUE", "COMPLIANT", "BAD", "STUCK", "RUNNING", "CHECKED IN 24 H"}, rows); err != nil {
		return err
	}
	fmt.Fprintln(out)
	in := func(d time.Duration) string { return human.Duration(d) + ", by " + human.Time(r.At.Add(d)) }
	for _, said := range append(r.Standing(human.Number), rateOf(r.FixityStatus), r.Outlook(human.Number, in)) {
		fmt.Fprintln(out, said)
	}
	writeStops(out, r)
	return writeWorst(out, r)
}

// writeStops lists pauses and stopped repairs, with their reasons.
func writeStops(out io.Writer, r FixityReport) {
	if r.Paused && r.PausedBy != nil && r.PausedAt != nil {
		why := "."
		if r.PauseReason != nil {
			why = ": " + human.Line(*r.PauseReason)
		}
		fmt.Fprintf(out, "Checks are paused, by %s since %s%s\n`farol resume '%s'` continues them.\n", human.Line(*r.PausedBy), human.Time(*r.PausedAt), why, registry.FixityStage)
	}
	for _, t := range r.Targets {
		if t.PausedUntil != nil {
			fmt.Fprintf(out, "Checks of %s are suspended until %s: %s\n", t.Target, human.Time(*t.PausedUntil), human.Line(t.PauseReason))
		}
	}
	for _, b := range r.Stops {
		fmt.Fprintf(out, "Repair has stopped at %s since %s: %s\n", b.Provider, human.Time(b.StoppedAt), human.Line(b.Reason))
	}
}

// rateOf says how many checks are made.
func rateOf(s record.FixityStatus) string {
	switch {
	case s.Every == 0:
		return "The scheduler has not allowed any checks yet (farol schedule)."
	case s.Measured:
		return fmt.Sprintf("Present rate: %.1f checks an hour; %d every %v are allowed.", 3600*s.Rate, s.Fed, s.Every)
	}
	return fmt.Sprintf("Up to %.1f checks an hour are allowed: %d every %v.", 3600*s.Rate, s.Fed, s.Every)
}

func writeWorst(out io.Writer, r FixityReport) error {
	if len(r.Worst) > 0 {
		fmt.Fprintln(out, "\nMost overdue:")
		err := cli.WriteTable(out, []string{"BY", "TARGET", "LAST CHECK", "FILE", "WHY"}, cli.Rows(r.Worst, func(w record.FixityOverdueCopy) []string {
			checked := "never"
			if w.Checked != nil {
				checked = w.Checked.UTC().Format(time.DateOnly)
			}
			return []string{human.Duration(w.Late), w.Target, checked, human.Line(w.File), human.Line(w.Error)}
		}))
		if err != nil {
			return err
		}
	}
	if len(r.BadCopies) == 0 {
		_, err := fmt.Fprintln(out, "\nNo bad copies.")
		return err
	}
	fmt.Fprintln(out, "\nBad:")
	return cli.WriteTable(out, []string{"PROBLEM", "TARGET", "SINCE", "FILE"}, cli.Rows(r.BadCopies, func(b record.FixityBadCopy) []string {
		return []string{b.Problem, b.Target, human.Time(b.FoundAt), human.Line(b.File)}
	}))
}

func fixityCheckCommand() *cobra.Command {
	return op.Command{
		Args:  cobra.MinimumNArgs(1),
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
}

// requestChecks requests checks of each object and file, and says what will be checked. One that
// cannot be checked keeps none of the others from it.
func requestChecks(ctx context.Context, c *op.Call) error {
	asked := []record.FixityRequested{}
	var failed []error
	for _, identifier := range c.Args {
		body := c.Body()
		body["identifier"] = identifier
		v, err := remote.Send[struct{ Items []record.FixityRequested }](ctx, c.Server, http.MethodPost, "fixity/checks", body)
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
func writeAsked(out io.Writer, asked []record.FixityRequested) error {
	config, err := connect.Load(settings.Classes{})
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

func fixityPolicyCommand() *cobra.Command {
	return op.Command{
		Args:  cobra.MaximumNArgs(1),
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
func setPolicy(ctx context.Context, c *op.Call, p record.FixityPolicy) (record.FixityPolicy, error) {
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
	return remote.Send[record.FixityPolicy](ctx, c.Server, http.MethodPut, "fixity/policies/"+url.PathEscape(p.Target), map[string]any{"mode": p.Mode, "days": p.Days})
}

// policiesOf are the policy of a storage target, or all without one.
func policiesOf(ctx context.Context, s *remote.Server, target string) ([]record.FixityPolicy, error) {
	list, err := remote.All[record.FixityPolicy](ctx, s, "fixity/policies")
	if err != nil || target == "" {
		return list, err
	}
	i := slices.IndexFunc(list, func(p record.FixityPolicy) bool { return p.Target == target })
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
func printPolicies(c *op.Call, list []record.FixityPolicy) error {
	byDefault := "default"
	if c.Here() {
		config, err := connect.Load(settings.Operator{})
		if err != nil {
			return err
		}
		byDefault = strconv.Itoa(config.Fixity.Days) + "*"
	}
	header := []string{"TARGET", "PROVIDER", "MODE", "DAYS", "SUSPENDED UNTIL"}
	return cli.PrintList(c.Cmd, c.JSON, list, "storage targets", header, func(p record.FixityPolicy) []string {
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
