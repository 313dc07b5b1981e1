package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
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

// Print prints a value as JSON, or for people as text does.
func Print[T any](cmd *cobra.Command, asJSON bool, v T, text func(io.Writer, T) error) error {
	if asJSON {
		return WriteJSON(cmd.OutOrStdout(), v)
	}
	return text(cmd.OutOrStdout(), v)
}

// Printf prints a value as JSON, or a text for people.
func Printf(cmd *cobra.Command, asJSON bool, v any, format string, args ...any) error {
	return Print(cmd, asJSON, v, func(w io.Writer, _ any) error {
		_, err := fmt.Fprintf(w, format, args...)
		return err
	})
}

// PrintList prints a list as JSON, or for people as a table with a row for each element.
// what names them in the plural.
func PrintList[T any](cmd *cobra.Command, asJSON bool, list []T, what string, header []string, row func(T) []string) error {
	return Print(cmd, asJSON, list, func(w io.Writer, list []T) error { return WriteList(w, what, header, Rows(list, row)) })
}

// PrintPage prints a page of a list as [Print] does. If the page is full, it says how to
// see more: next returns the flag for the page after the last element.
func PrintPage[T any](cmd *cobra.Command, asJSON bool, page []T, limit int, text func(io.Writer, []T) error, next func(last T) string) error {
	if err := Print(cmd, asJSON, page, text); err != nil || asJSON || len(page) < limit {
		return err
	}
	_, err := fmt.Fprintf(cmd.ErrOrStderr(), "There may be more: add %s.\n", next(page[len(page)-1]))
	return err
}

// WriteJSON writes a value as indented JSON. A nil slice is an empty list, not null.
func WriteJSON(w io.Writer, v any) error {
	if list := reflect.ValueOf(v); list.Kind() == reflect.Slice && list.IsNil() {
		v = []any{}
	}
	return encode(w, v, "  ")
}

// WriteJSONLine writes one of several values, each in a line of its own.
func WriteJSONLine(w io.Writer, v any) error { return encode(w, v, "") }

func encode(w io.Writer, v any, indent string) error {
	e := json.NewEncoder(w)
	e.SetIndent("", indent)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	return nil
}

// InRange refuses a number that a flag cannot have.
func InRange(flag string, n, least, most int) error {
	if n < least || n > most {
		return Usage(fmt.Errorf("%s is %d", flag, n), fmt.Sprintf("name a number from %d to %d", least, most))
	}
	return nil
}

// CheckPage refuses a page that no list has: limit, before and after are its flags.
func CheckPage(limit int, before, after int64) error {
	if before < 0 || after < 0 {
		return Usage(fmt.Errorf("%d is not an ID", min(before, after)), "give --before or --after an ID from the list")
	}
	return InRange("--limit", limit, 1, 10000)
}

// ParseID reads the ID of something, such as "an item". next says where IDs are found.
func ParseID(arg, what, next string) (int64, error) {
	id, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || id < 1 {
		return 0, Usage(fmt.Errorf("%q is not the ID of %s, which is a whole number above 0", arg, what), next)
	}
	return id, nil
}

// OneOf returns the allowed value that equals the value of a flag but for the case of
// its letters; "" for an empty one.
func OneOf[S ~string](flag string, value S, allowed []S) (S, error) {
	if value == "" {
		return "", nil
	}
	for _, a := range allowed {
		if strings.EqualFold(string(a), string(value)) {
			return a, nil
		}
	}
	what := strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(flag, "--"), "the "), "-", " ")
	switch what {
	case "to", "after":
		what = "stage"
	case "may":
		what = "right"
	case "permissions":
		what = "permission"
	case "items":
		what = "state"
	case "retrieve":
		what = "tier"
	}
	text := fmt.Sprintf("unknown %s %q", what, value)
	if like := likely(string(value), Strings(allowed)); like != "" {
		text += "; did you mean " + like + "?"
	}
	return "", Usage(errors.New(text), "name one of: "+strings.Join(Strings(allowed), ", "))
}

// Strings are values as text.
func Strings[S ~string](values []S) (texts []string) {
	for _, v := range values {
		texts = append(texts, string(v))
	}
	return texts
}
