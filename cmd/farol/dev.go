package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/farol-preservation/farol/internal/commands/cli"
)

func devCommand() *cobra.Command {
	return besideCommand("up", &cobra.Command{
		Use:   "dev",
		Short: "Run Farol and its servers on this machine until Ctrl-C",
		Long: `Run PostgreSQL, Redis, an S3 gateway and nsqd on loopback ports, with all of Farol
on top, with the console for a browser. It starts the program farol-dev, which has to be
in the directory of farol: farol dev --help shows its options.`,
		Example: `  farol dev
  farol dev --data /srv/farol
  . ./.farol/env && farol item list`,
	})
}

func demoCommand() *cobra.Command {
	return besideCommand("demo", &cobra.Command{
		Use:   "demo",
		Short: "Watch real bags go from a receiving bucket into preservation storage",
		Long: `Ingest sample bags on private servers, restore some and delete one. It starts the
program farol-dev, which has to be in the directory of farol: farol demo --help
shows its options.`,
		Example: `  farol demo
  farol demo --keep
  farol demo --data ./demo-data`,
	})
}

// besideCommand makes c replace this process by a command of farol-dev, which gets
// its arguments, its signals and its exit code.
func besideCommand(name string, c *cobra.Command) *cobra.Command {
	c.DisableFlagParsing = true
	c.RunE = func(_ *cobra.Command, args []string) error {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		dir := filepath.Dir(self)
		path := filepath.Join(dir, "farol-dev")
		if _, err := exec.LookPath(path); err != nil {
			return cli.Usage(fmt.Errorf("the program farol-dev, which runs the servers, is not in %s", dir),
				"build it from the sources with `make build`, and put it there; production needs no farol-dev")
		}
		return syscall.Exec(path, append([]string{path, name}, args...), os.Environ())
	}
	return c
}
