package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/connect"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/process/settings"
	"github.com/farol-preservation/farol/preflight"
)

func checkCommand() *cobra.Command {
	var wait waiting
	c := op.Command{
		Use:   "check",
		Short: "Check settings and all services that a worker needs",
		Long: `Check the database (schema, rights of the role), Redis (persistence, eviction), each
bucket of the settings and the institutions, the clocks, the virus scanner, TMPDIR, the
limits of this host, and whether fixity checks keep up with their policies. All checks run at the same time and end within 20 seconds.
Nothing is changed.

With --write, also try the operations of a worker in the buckets, and report missing
rights: PUT, HEAD, GET, LIST, COPY, DELETE and those of multipart uploads, on a
temporary key under farol-check/ that is removed afterwards. Targets in an archive
class (GLACIER, DEEP_ARCHIVE and the like) charge an object for months: there a
multipart upload is started and aborted, and no object is written, except with
--write=all. No object is written to receiving and restore buckets.

Exit codes: 0 a worker can run, maybe with warnings; 1 a check failed; 2 usage error or
wrong settings.`,
		Example: `  farol check
  farol check --write
  farol check --json
  farol check --wait=30s`,
		Flags: []op.Flag{{Name: "write", Default: preflight.WriteNothing, Help: "try the rights in the buckets by writing; all includes archive classes"}},
	}.Alone(func(c *op.Call) error { return runCheck(c, wait) })
	c.Flags().Lookup("write").NoOptDefVal = preflight.WriteHot
	wait.flag(c, "repeat the checks until none fails, at most for this long")
	return c
}

// checked is what farol check prints as JSON.
type checked struct {
	State  string              `json:"state"` // the worst of all
	At     time.Time           `json:"at"`
	Checks []preflight.Finding `json:"checks"`
}

func runCheck(c *op.Call, wait waiting) error {
	write := c.Text("write")
	if write != preflight.WriteNothing && write != preflight.WriteHot && write != preflight.WriteAll {
		return cli.Usage(fmt.Errorf("--write is %q", write), "give --write, or --write=all for archive classes too")
	}
	config, err := connect.Load(settings.Worker{})
	if err != nil {
		return err
	}
	s := surroundingsOf(&config)
	s.Write = write
	site, err := connect.Load(settings.Site{})
	if err != nil {
		return err
	}
	s.Origin = site.Origin()
	all, err := wait.until(c.Cmd.Context(), s, func(list []preflight.Finding) bool { return preflight.Worst(list) != preflight.Failed }, connect.NewLogger(config.Log), nil)
	if err != nil {
		return err
	}
	if err := cli.Print(c.Cmd, c.JSON, checked{preflight.Worst(all), time.Now().UTC(), all}, writeFound); err != nil {
		return err
	}
	if _, failed := preflight.Alike(all, func(f preflight.Finding) bool { return f.State == preflight.Failed }); failed > 0 {
		return cli.Failure{
			Code: cli.ExitFailed, Err: fmt.Errorf("%s failed", human.Count(failed, "check", "checks")),
			Next: "follow the to-do of each; see \"Check an installation\" in docs/operators.md",
		}
	}
	return nil
}

// surroundingsOf are those of a worker.
func surroundingsOf(c *settings.Worker) preflight.Surroundings {
	return preflight.Surroundings{
		Command: "work", Database: &c.Database, Redis: &c.Redis, S3: &c.Storage.S3, Storage: &c.Storage,
		Viruses: c.Virus.Scanner, Host: &preflight.HostNeeds{MaxFiles: c.MaxFiles, Children: c.Identify.Workers}, Days: c.Fixity.Days, Keeps: !c.Deletes(),
	}
}

// writeFound writes a row for each finding, and below those that need it what to do.
// Rows are not cut: their ends are needed most.
func writeFound(out io.Writer, c checked) error {
	var b strings.Builder
	width := 0
	for _, f := range c.Checks {
		width = max(width, utf8.RuneCountInString(f.Name()))
	}
	fmt.Fprintf(&b, "%-*s  STATE    FOUND\n", width, "WHAT")
	for _, f := range c.Checks {
		fmt.Fprintf(&b, "%-*s  %-7s  %s\n", width, f.Name(), f.State, human.Line(f.Found))
		if f.Todo != "" {
			fmt.Fprintf(&b, "%*s  to do:   %s\n", width, "", human.Line(f.Todo))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// refusal is the error of a process that cannot start, with everything that it lacks.
func refusal(command string, all []preflight.Finding) error {
	var b strings.Builder
	groups, n := preflight.Alike(all, func(f preflight.Finding) bool { return f.Fatal })
	if n == 0 {
		return nil
	}
	for _, g := range groups {
		fmt.Fprintf(&b, "\n  %s: %s", g.Name(), human.Line(g.Found))
		if len(g.Also) > 0 {
			fmt.Fprintf(&b, "\n    likewise: %s", strings.Join(g.Also, "; "))
		}
		fmt.Fprintf(&b, "\n    to do: %s", human.Line(g.Todo))
	}
	return cli.Failure{
		Code: cli.ExitUsage, Err: errors.New("farol " + command + " cannot start: " + human.Count(n, "requirement is", "requirements are") + " missing or wrong:" + b.String()),
		Next: "follow each to-do above, or start it with --wait; `farol check` shows more",
	}
}
