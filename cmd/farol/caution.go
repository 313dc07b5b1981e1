package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// caution is the one rule for commands that change many things at once, or take away
// what does not come back: --dry-run changes nothing, --yes asks nothing, and without
// either a person at a terminal is asked. Where nobody can be asked, what the command
// line names is done, as is what the scheduler does at any time; what a condition
// chooses is only shown, since its author may not know what that is.
type caution struct{ dryRun, yes bool }

func (c *caution) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "show what would be done, and change nothing")
	cmd.Flags().BoolVar(&c.yes, "yes", false, "do it without asking")
}

// allows tells whether to do what was asked for. safe says that it may be done where
// nobody can be asked.
func (c caution) allows(cmd *cobra.Command, what string, safe bool) (bool, error) {
	if c.dryRun && c.yes {
		return false, usage(errors.New("--dry-run and --yes contradict each other"), "give one of them, or neither")
	}
	if c.dryRun || c.yes {
		return c.yes, nil
	}
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !isTerminal(in) || !isTerminal(os.Stderr) {
		return safe, nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s? [y/N] ", what)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return false, failure{code: exitFailed, err: errors.New("nothing was changed: there was no answer"), next: "add --yes to do it without being asked"}
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

// unchanged says that nothing was done, and how to have it done.
func unchanged(cmd *cobra.Command) error {
	_, err := fmt.Fprintln(cmd.ErrOrStderr(), "Nothing has changed. Add --yes to do it.")
	return err
}
