package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/connect"
	"github.com/farol-preservation/farol/internal/human"
	"github.com/farol-preservation/farol/internal/settings"
)

// Which buckets' rights are tried by writing to them.
const (
	writeNothing = ""
	writeHot     = "hot" // those that charge by the day
	writeAll     = "all" // and those that charge for months, whatever becomes of an object
)

func checkCommand() *cobra.Command {
	var write string
	var asJSON bool
	var wait waiting
	c := &cobra.Command{
		Use:   "check",
		Short: "Check settings and all services that a worker needs",
		Long: `Check the database (schema, rights of the role), Redis (persistence, eviction), each
bucket that the settings and the institutions name, the clocks, the virus scanner,
TMPDIR and the limits of this host. All checks run at the same time and end within 20
seconds. Nothing is changed.

With --write, also try what a worker does in the buckets, and name the rights that are
missing: PUT, HEAD, GET, LIST, COPY, DELETE and those of multipart uploads, on a
temporary key under farol-check/ that is removed afterwards. No object is written to
targets in an archive class (GLACIER, DEEP_ARCHIVE and the like), which charge for
months: there only a multipart upload is begun and aborted. --write=all writes to them
too. In receiving and restore buckets no object is written either.

Exit codes: 0 a worker can run, though there may be warnings; 1 something failed;
2 wrong usage or settings.`,
		Example: `  farol check
  farol check --write
  farol check --json
  farol check --wait=30s`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if write != writeNothing && write != writeHot && write != writeAll {
				return cli.Usage(fmt.Errorf("--write is %q", write), "give --write, or --write=all for archive classes too")
			}
			return runCheck(cmd.Context(), cmd.OutOrStdout(), write, wait, asJSON)
		},
	}
	c.Flags().StringVar(&write, "write", writeNothing, "try the rights in the buckets by writing; all: in archive classes too")
	c.Flags().Lookup("write").NoOptDefVal = writeHot
	wait.flag(c, "repeat the checks until none fails, or for so long")
	cli.JSONFlag(c, &asJSON)
	return c
}

// checked is what farol check prints as JSON.
type checked struct {
	State  string    `json:"state"` // the worst of all
	At     time.Time `json:"at"`
	Checks []finding `json:"checks"`
}

func runCheck(ctx context.Context, out io.Writer, write string, wait waiting, asJSON bool) error {
	config, err := connect.Load(settings.ReadWorker)
	if err != nil {
		return err
	}
	s := surroundingsOf(&config)
	s.write = write
	all, err := wait.until(ctx, s, func(list []finding) bool { return worst(list) != stateFailed }, connect.NewLogger(config.Log), nil)
	if err != nil {
		return err
	}
	if asJSON {
		err = cli.WriteJSON(out, checked{worst(all), time.Now().UTC(), all})
	} else {
		err = writeFound(out, all)
	}
	failed := 0
	for _, f := range all {
		if f.State == stateFailed {
			failed++
		}
	}
	switch {
	case err != nil:
		return err
	case failed > 0:
		return cli.Failure{
			Code: cli.ExitFailed, Err: fmt.Errorf("%s failed", human.Count(failed, "check", "checks")),
			Next: "do what is named behind each; \"Check an installation\" in docs/operators.md explains",
		}
	}
	return nil
}

// surroundingsOf are those of a worker.
func surroundingsOf(c *settings.Worker) surroundings {
	return surroundings{
		command: "work", database: &c.Database, redis: &c.Redis, s3: &c.Storage.S3, storage: &c.Storage,
		viruses: c.Viruses, host: &hostNeeds{maxFiles: c.MaxFiles, children: c.Identify.Workers},
	}
}

// writeFound writes a row for each finding, and below those that need it what to do.
// Rows are not cut: what follows is what is needed most.
func writeFound(out io.Writer, all []finding) error {
	var b strings.Builder
	width := 0
	for _, f := range all {
		width = max(width, utf8.RuneCountInString(f.name()))
	}
	fmt.Fprintf(&b, "%-*s  STATE    FOUND\n", width, "WHAT")
	for _, f := range all {
		fmt.Fprintf(&b, "%-*s  %-7s  %s\n", width, f.name(), f.State, human.Line(f.Found))
		if f.Todo != "" {
			fmt.Fprintf(&b, "%*s  to do:   %s\n", width, "", human.Line(f.Todo))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (f finding) name() string { return human.Line(f.Service + ", " + f.Check) }

// alikeFindings are a finding, with the names of others about which the same is to be done.
type alikeFindings struct {
	finding

	also []string
}

// alike groups some of the findings, and counts them.
func alike(all []finding, some func(finding) bool) (groups []alikeFindings, n int) {
	at := map[[2]string]int{}
	for _, f := range all {
		if !some(f) {
			continue
		}
		n++
		key := [2]string{f.Code, cmp.Or(f.cause, f.Todo)}
		if i, ok := at[key]; ok {
			groups[i].also = append(groups[i].also, f.name())
			continue
		}
		at[key] = len(groups)
		groups = append(groups, alikeFindings{finding: f})
	}
	return groups, n
}

// refusal is what a process says that cannot start, with all that is in its way.
func refusal(command string, all []finding) error {
	var b strings.Builder
	groups, n := alike(all, func(f finding) bool { return f.Fatal })
	if n == 0 {
		return nil
	}
	for _, g := range groups {
		fmt.Fprintf(&b, "\n  %s: %s", g.name(), human.Line(g.Found))
		if len(g.also) > 0 {
			fmt.Fprintf(&b, "\n    likewise: %s", strings.Join(g.also, "; "))
		}
		fmt.Fprintf(&b, "\n    to do: %s", human.Line(g.Todo))
	}
	return cli.Failure{
		Code: cli.ExitUsage, Err: errors.New("farol " + command + " cannot start: " + human.Count(n, "thing it needs is", "things it needs are") + " missing or wrong:" + b.String()),
		Next: "do what is named above, or start it with --wait; `farol check` shows more",
	}
}
