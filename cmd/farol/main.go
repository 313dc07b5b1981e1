// Farol is a digital preservation pipeline whose registry is its queue.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	root := &cobra.Command{Use: "farol", SilenceUsage: true}
	root.AddCommand(internalCommand())
	if err := root.Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "farol:", err)
		os.Exit(1)
	}
}
