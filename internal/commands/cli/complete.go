package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// Values lists what a shell may complete.
type Values func(*cobra.Command) []string

// Complete completes a flag or an argument with one of the values; several says that it
// takes a list with commas.
func Complete(v Values, several bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		before, word := "", begun
		if i := strings.LastIndex(begun, ","); several && i >= 0 {
			before, word = begun[:i+1], begun[i+1:]
		}
		found := []string{}
		for _, name := range v(cmd) {
			if len(name) >= len(word) && strings.EqualFold(name[:len(word)], word) {
				found = append(found, before+name)
			}
		}
		return found, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteFirst completes the first argument with one of the values.
func CompleteFirst(v Values) cobra.CompletionFunc {
	first := Complete(v, false)
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return first(cmd, args, begun)
	}
}

// Constant lists values that are known without asking a server.
func Constant[S ~string](names func() []S) Values {
	return func(*cobra.Command) []string { return Strings(names()) }
}
