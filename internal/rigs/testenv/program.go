package testenv

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Program is a program that a test runs. What it printed is logged if the test fails.
type Program struct {
	Process *os.Process
	Ended   chan error // gets how it ended, once

	t testing.TB
}

// Start runs a program, with variables added to the environment, until it ends or the
// test does.
func Start(t testing.TB, args []string, env ...string) *Program {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	log, err := os.Create(path)
	must(t, err)
	defer log.Close() //nolint:errcheck // the program has it
	c := exec.CommandContext(t.Context(), args[0], args[1:]...)
	c.Env = append(append(os.Environ(), "TMPDIR="+t.TempDir()), env...)
	c.Stdout, c.Stderr = log, log // not a pipe, which a child that outlives it would hold open
	must(t, c.Start())
	p := &Program{Process: c.Process, Ended: make(chan error, 1), t: t}
	go func() { p.Ended <- c.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			printed, _ := os.ReadFile(path)
			t.Logf("%s printed: %s", args, printed)
		}
	})
	return p
}

// Stop sends SIGTERM, and expects the program to exit with 0.
func (p *Program) Stop() {
	p.t.Helper()
	must(p.t, p.Process.Signal(syscall.SIGTERM))
	if err := <-p.Ended; err != nil {
		p.t.Errorf("it ended with %v, want 0", err)
	}
}

// Lines returns the lines of a file, one empty line if it does not exist.
func Lines(t testing.TB, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}
