// Package buckets has the command that makes the buckets of an installation.
package buckets

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/storage/setup"
)

// mostDays is the longest default retention that S3 takes.
const mostDays = 36500

// Command is farol bucket.
func Command() *cobra.Command {
	return cli.Group("bucket", "Make the buckets that the settings name", createCommand())
}

func createCommand() *cobra.Command {
	return op.Command{
		Use:   "create",
		Short: "Create all buckets of the settings and the institutions",
		Long: `Create the staging bucket, those of FAROL_KEEP_METADATA and FAROL_QUARANTINE_BUCKET if they
are set, and the bucket of each preservation target, with its own endpoint, key and region.
If a database is set, also create the receiving and restoration buckets of all active
institutions. If FAROL_WEB_URL is set, allow uploads with a browser to receiving buckets, as
"institution cors" does. A bucket that exists is left as it is, so run it again at any time.

--versions has the buckets of targets keep versions, those that exist too. --lock creates
them with Object Lock, and with versions: "on" without a default retention, or governance:DAYS
or compliance:DAYS for each object from then on. No other bucket gets either. Most stores
enable Object Lock only when a bucket is created, and never disable it.

Compliance is irreversible: nobody can delete an object or shorten its retention before its
days have passed, not Farol, not the owner of the account, nor the store's staff. Deletions
wait until then. It needs your consent on a terminal, or --yes.

--only takes names of the first column, bucket names, or identifiers of institutions.

Exit codes: 0 all buckets are as asked; 1 a bucket is not, and the others are; 2 usage
error or wrong settings.`,
		Example: `  farol bucket create
  farol bucket create --dry-run
  farol bucket create --only staging,Standard-VA --json
  farol bucket create --versions
  farol bucket create --lock governance:30
  farol bucket create --lock compliance:365 --yes`,
		Asks: true,
		Flags: []op.Flag{
			{Name: "versions", Kind: op.Truth, Help: "have the buckets of targets keep versions"},
			{Name: "lock", Help: "create the buckets of targets with Object Lock: on, governance:DAYS or compliance:DAYS"},
			{Name: "only", Kind: op.Texts, Help: "create only these, separated by commas"},
		},
	}.Alone(create)
}

// protection is what the buckets of targets are to have.
func protection(versions bool, lock string) (p setup.Protection, err error) {
	p.Versions = versions || lock != ""
	p.Lock = lock != ""
	mode, days, found := strings.Cut(strings.ToUpper(lock), ":")
	if !p.Lock || mode == "ON" && !found {
		return p, nil
	}
	p.Mode = mode
	p.Days, err = strconv.Atoi(days)
	if err != nil || mode != "GOVERNANCE" && mode != "COMPLIANCE" || p.Days < 1 || p.Days > mostDays {
		return p, cli.Usage(fmt.Errorf("--lock is %q", lock), fmt.Sprintf("give on, governance:DAYS or compliance:DAYS, with 1 to %d days", mostDays))
	}
	return p, nil
}

func create(c *op.Call) error {
	cmd, only := c.Cmd, c.Texts("only")
	want, err := protection(c.Given("versions"), c.Text("lock"))
	if err != nil {
		return err
	}
	if cmd.Flags().Changed("only") && len(only) == 0 {
		return cli.Usage(errors.New("--only names no bucket"), "name some, or leave it out")
	}
	if err := connect.Refuse(cmd.Context(), "this command"); err != nil {
		return err
	}
	config, err := connect.Load(settings.Buckets{})
	if err != nil {
		return err
	}
	places, err := choose(cmd, config, only)
	if err != nil {
		return err
	}
	does := true
	if c.Care.DryRun || want.Mode == "COMPLIANCE" {
		does, err = c.Care.Allows(cmd, fmt.Sprintf("Create buckets in which nobody can delete an object for %s", human.Count(want.Days, "day", "days")), false)
	}
	if err != nil {
		return err
	}
	m := maker{want: want, origin: config.Site.Origin(), look: !does}
	list := m.all(cmd.Context(), places)
	if err := cli.Print(cmd, c.JSON, list, write); err != nil {
		return err
	}
	if !does {
		err = cli.Unchanged(cmd)
	}
	if n := len(slices.DeleteFunc(list, func(r row) bool { return r.State != failed })); n > 0 {
		err = cli.Failure{
			Code: cli.ExitFailed, Err: fmt.Errorf("%d of %s failed", n, human.Count(len(places), "bucket", "buckets")),
			Next: "follow the to-do of each, and run it again",
		}
	}
	return err
}

// write writes a row for each bucket, and below those that failed what to do. Rows are not cut:
// their ends are needed most.
func write(out io.Writer, list []row) error {
	width := len("BUCKET FOR")
	for _, b := range list {
		width = max(width, utf8.RuneCountInString(human.Line(b.For)))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%-*s  %-9s  FOUND\n", width, "BUCKET FOR", "STATE")
	for _, b := range list {
		found := b.URL
		if b.Has != "" {
			found += ", " + b.Has
		}
		if b.State == failed {
			found = fmt.Sprintf("bucket %q of %s: %s", b.Bucket, b.Setting, b.Error)
		}
		fmt.Fprintf(&text, "%-*s  %-9s  %s\n", width, human.Line(b.For), b.State, human.Line(found))
		if b.Next != "" {
			fmt.Fprintf(&text, "%*s  to do:     %s\n", width, "", human.Line(b.Next))
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// choose returns the buckets that --only chooses, or all. Those of institutions are asked for
// only if one may be meant.
func choose(cmd *cobra.Command, c settings.Buckets, only []string) (chosen []place, err error) {
	all := ofSettings(c)
	matches := func(name string) func(place) bool {
		return func(p place) bool {
			return slices.ContainsFunc(append(p.names, p.target.Bucket), func(n string) bool { return strings.EqualFold(n, name) })
		}
	}
	unknown := func(name string) bool { return !slices.ContainsFunc(all, matches(name)) }
	if c.Database != nil && (len(only) == 0 || slices.ContainsFunc(only, unknown)) {
		all = append(all, ofInstitutions(cmd, c)...)
	}
	if len(only) == 0 {
		return all, nil
	}
	broken := slices.ContainsFunc(all, func(p place) bool { return p.err != nil })
	if i := slices.IndexFunc(only, unknown); i >= 0 && !broken {
		var names []string
		for _, p := range all {
			names = append(names, p.names[0])
		}
		return nil, cli.Usage(fmt.Errorf("--only names %q, and there is no such bucket", only[i]), "name some of: "+strings.Join(names, ", "))
	}
	for _, p := range all {
		if p.err != nil || slices.ContainsFunc(only, func(name string) bool { return matches(name)(p) }) {
			chosen = append(chosen, p)
		}
	}
	return chosen, nil
}
