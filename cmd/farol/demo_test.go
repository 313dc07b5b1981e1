package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/farol-preservation/farol/internal/cli"
	"github.com/farol-preservation/farol/internal/human"
)

// A demo that is interrupted leaves nothing behind, at any time.
func TestAnInterruptedDemoLeavesNothing(t *testing.T) {
	t.Parallel()
	farol := filepath.Join(t.TempDir(), "farol")
	if err := linkSelf(farol); err != nil {
		t.Fatal(err)
	}
	for _, seen := range []string{"Starting PostgreSQL", "Up after"} {
		scratch := t.TempDir()
		c := exec.CommandContext(t.Context(), farol, "demo")
		c.Env = []string{"TMPDIR=" + scratch, "PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "PG_BINDIR=" + os.Getenv("PG_BINDIR")}
		var stderr strings.Builder
		c.Stderr = &stderr
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		interrupted := false
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if !interrupted && strings.HasPrefix(lines.Text(), seen) {
				interrupted = true
				if err := c.Process.Signal(os.Interrupt); err != nil {
					t.Error(err)
				}
			}
		}
		err = c.Wait()
		left, readErr := os.ReadDir(scratch)
		if err == nil || !interrupted || c.ProcessState.Sys().(syscall.WaitStatus).ExitStatus() != cli.ExitFailed || stderr.String() != "farol: interrupted\n" { //nolint:forcetypeassert // on all systems we run on
			t.Errorf("after %q: %v\n%s", seen, err, stderr.String())
		}
		if readErr != nil || len(left) > 0 {
			t.Errorf("after %q: %v stays, %v", seen, left, readErr)
		}
	}
}

// No word is lost, and no line is longer than the terminal but for a single long word.
func TestLinesAreBrokenBetweenWords(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.StringMatching(`[a-zü.]{1,12}`), 1, 30).Draw(t, "words")
		most := rapid.IntRange(1, 60).Draw(t, "most")
		lines := human.Wrap(strings.Join(words, " "), most)
		if got := strings.Fields(strings.Join(lines, " ")); strings.Join(got, " ") != strings.Join(words, " ") {
			t.Errorf("%v became %v", words, got)
		}
		for _, line := range lines {
			if utf8.RuneCountInString(line) > most && strings.Contains(line, " ") {
				t.Errorf("%q is longer than %d", line, most)
			}
		}
	})
}
