package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// Caution is the one rule for commands that change many things at once, or whose effect
// cannot be undone: --dry-run changes nothing, --yes asks nothing, and without either a
// person at a terminal is asked. Without a terminal the command does what its arguments
// name, and what the scheduler does at any time; but items that a condition selects are
// only shown, since its author may not know which they are.
type Caution struct{ DryRun, Yes bool }

// Flags adds --dry-run and --yes to a command.
func (c *Caution) Flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.DryRun, "dry-run", false, "show what would be done, and change nothing")
	cmd.Flags().BoolVar(&c.Yes, "yes", false, "do it without asking")
}

// Allows reports whether to make the change that the question names. safe says that it
// may be made without a terminal.
func (c Caution) Allows(cmd *cobra.Command, what string, safe bool) (bool, error) {
	if c.DryRun && c.Yes {
		return false, Usage(errors.New("--dry-run and --yes contradict each other"), "give one of them, or neither")
	}
	if c.DryRun || c.Yes {
		return c.Yes, nil
	}
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !IsTerminal(in) || !IsTerminal(os.Stderr) {
		return safe, nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s? [y/N] ", what)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return false, Failure{Code: ExitFailed, Err: errors.New("nothing was changed: there was no answer"), Next: "add --yes to do it without being asked"}
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	}
	return false, nil
}

// Unchanged says that nothing was done, and how to have it done.
func Unchanged(cmd *cobra.Command) error {
	_, err := fmt.Fprintln(cmd.ErrOrStderr(), "Nothing has changed. Add --yes to do it.")
	return err
}
