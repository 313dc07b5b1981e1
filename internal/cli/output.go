package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Group is a command that only holds others.
func Group(use, short string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, SuggestionsMinimumDistance: 2,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
			if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
				text += "; did you mean " + strings.Join(like, " or ") + "?"
			}
			return errors.New(text)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(commands...)
	return c
}

// OneArg asks for a single argument and says which.
func OneArg(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("name one %s; there are %d", what, len(args))
		}
		return nil
	}
}

// JSONFlag adds --json to a command.
func JSONFlag(c *cobra.Command, asJSON *bool) {
	c.Flags().BoolVar(asJSON, "json", false, "print JSON")
}

// WriteJSON writes a value as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// WriteJSONLine writes one of several values, each in a line of its own.
func WriteJSONLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// CheckLimit refuses a --limit that no list has.
func CheckLimit(n int) error {
	if n < 1 || n > 10000 {
		return Usage(fmt.Errorf("--limit is %d", n), "name a number from 1 to 10000")
	}
	return nil
}

// OneOf returns the allowed value that equals the value of a flag but for the case of
// its letters; "" for an empty one.
func OneOf(flag, value string, allowed []string) (string, error) {
	if value == "" {
		return "", nil
	}
	for _, a := range allowed {
		if strings.EqualFold(a, value) {
			return a, nil
		}
	}
	what := strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(flag, "--"), "the "), "-", " ")
	switch what {
	case "to", "after":
		what = "stage"
	case "may":
		what = "right"
	}
	return "", Usage(fmt.Errorf("unknown %s %q", what, value), "name one of: "+strings.Join(allowed, ", "))
}
