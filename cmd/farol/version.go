package main

import (
	"fmt"

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
			b := build.This()
			if asJSON {
				return cli.WriteJSON(cmd.OutOrStdout(), b)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "farol %s\n", b.Text())
			return err
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}
