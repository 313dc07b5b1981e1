package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/farol-preservation/farol/internal/commands/cli"
	"github.com/farol-preservation/farol/internal/rigs/testenv"
	"github.com/farol-preservation/farol/internal/rigs/testenv/must"
)

// A demo that is interrupted leaves nothing behind, at any time. A browser can look before
// the first bag is uploaded.
func TestAnInterruptedDemoLeavesNothing(t *testing.T) {
	t.Parallel()
	program := testenv.DevBinary(t)
	for _, seen := range []string{"Starting PostgreSQL", "Up after", "http://127.0.0.1:"} {
		scratch := t.TempDir()
		c := exec.CommandContext(t.Context(), program, "demo")
		c.Env = []string{"TMPDIR=" + scratch, "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "PG_BINDIR=" + os.Getenv("PG_BINDIR")}
		var stderr strings.Builder
		c.Stderr = &stderr
		out := must.Get(c.StdoutPipe())(t)
		must.Do(t, c.Start())
		interrupted := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if !interrupted && strings.HasPrefix(lines.Text(), seen) {
				interrupted = true
				if err := c.Process.Signal(os.Interrupt); err != nil {
					t.Error(err)
				}
			}
		}
		err := c.Wait()
		left, readErr := os.ReadDir(scratch)
		if err == nil || !interrupted || c.ProcessState.Sys().(syscall.WaitStatus).ExitStatus() != cli.ExitFailed || stderr.String() != "farol: interrupted\n" { //nolint:forcetypeassert // on all systems we run on
			t.Errorf("after %q: %v\n%s", seen, err, stderr.String())
		}
		if readErr != nil || len(left) > 0 {
			t.Errorf("after %q: %v stays, %v", seen, left, readErr)
		}
	}
}
