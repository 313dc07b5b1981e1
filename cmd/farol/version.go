package main

import (
	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/build"
	"github.com/farol-preservation/farol/internal/cli"
)

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  farol version
  farol version --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return printVersion(cmd, asJSON)
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}

func printVersion(cmd *cobra.Command, asJSON bool) error {
	b := build.This()
	return cli.Printf(cmd, asJSON, b, "farol %s\n", b.Text())
}
