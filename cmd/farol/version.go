package main

import (
	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/commands/op"
	"github.com/farol-preservation/farol/internal/process/build"
)

func versionCommand() *cobra.Command {
	return op.Command{Use: "version", Short: "Print the version"}.Alone(func(c *op.Call) error { return printVersion(c.Cmd, c.JSON) })
}

func printVersion(cmd *cobra.Command, asJSON bool) error {
	b := build.This()
	return cli.Printf(cmd, asJSON, b, "farol %s\n", b.Text())
}
