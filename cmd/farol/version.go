package main

import (
	"fmt"
	"io"

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
			return printVersion(cmd.OutOrStdout(), asJSON)
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}

func printVersion(out io.Writer, asJSON bool) error {
	b := build.This()
	if asJSON {
		return cli.WriteJSON(out, b)
	}
	_, err := fmt.Fprintf(out, "farol %s\n", b.Text())
	return err
}
