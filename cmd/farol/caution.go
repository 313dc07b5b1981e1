package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// caution is the one rule for commands that change many things at once: --dry-run
// changes nothing, --yes asks nothing, and without either a person at a terminal is
// asked. Where nobody can be asked, what is safe to do at any time is done, as the
// scheduler does it, and what a person's condition chooses is only shown.
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
