package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/cli"
)

// version is set by the linker (-X main.version=v1.2.3) and by nothing else.
var version string

type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"` // of the sources, "+" behind it if they were changed
	Go       string `json:"go"`
}

func thisBuild() build {
	b := build{Version: version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	changed := ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			if s.Value == "true" {
				changed = "+"
			}
		}
	}
	if b.Revision != "" {
		b.Revision += changed
	}
	b.Version = cmp.Or(b.Version, info.Main.Version, "(devel)")
	return b
}

// text is what people are told of a build.
func (b build) text() string {
	revision := ""
	if b.Revision != "" {
		revision = ", revision " + b.Revision
	}
	return fmt.Sprintf("%s (%s%s)", b.Version, b.Go, revision)
}

func versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  farol version
  farol version --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := thisBuild()
			if asJSON {
				return cli.WriteJSON(cmd.OutOrStdout(), b)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "farol %s\n", b.text())
			return err
		},
	}
	cli.JSONFlag(c, &asJSON)
	return c
}
