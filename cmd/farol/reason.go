package main

import (
	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/registry"
)

// written is a text of the command line that is kept for people to read.
type written struct{ to *string }

func (w written) String() string {
	if w.to == nil {
		return ""
	}
	return *w.to
}

func (w written) Set(text string) error {
	*w.to = registry.CleanText(text)
	return nil
}

func (w written) Type() string { return "string" }

// reasonFlag adds the flag for the reason of a change.
func reasonFlag(c *cobra.Command, to *string, help string) {
	c.Flags().Var(written{to}, "reason", help)
}
