package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/format"
)

// internalCommand holds the subcommand that a worker starts as a child.
func internalCommand() *cobra.Command {
	c := &cobra.Command{Use: "internal", Hidden: true}
	c.AddCommand(&cobra.Command{
		Use: "identify", Short: "Identify file formats for the worker that is the parent", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return format.Serve(os.Stdin, os.Stdout) },
	})
	return c
}
