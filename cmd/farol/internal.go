package main

import "github.com/spf13/cobra"

// internalCommand holds the subcommands that Farol starts itself as children.
func internalCommand() *cobra.Command {
	return &cobra.Command{Use: "internal", Hidden: true}
}
