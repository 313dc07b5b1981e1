// Command mutants breaks the queue on purpose, one place at a time, and runs the
// tests that have to notice. A mutant that survives is a promise that no test
// holds. The files of the tree stay as they are: the compiler is given others in
// their place.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "run the mutants whose name matches this regular expression")
	list := flag.Bool("list", false, "print the mutants, and the tests that must notice each")
	flag.Parse()
	if *list {
		for _, m := range mutants() {
			fmt.Printf("%-28s %s  by %s\n", m.name, m.file, m.tests)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string) error {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	var survived []string
	for _, m := range mutants() {
		if !chosen.MatchString(m.name) {
			continue
		}
		begun := time.Now()
		killed, err := m.killed(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		verdict := "killed"
		if !killed {
			verdict = "SURVIVED"
			survived = append(survived, m.name)
		}
		fmt.Printf("%-9s %-28s %5.1f s  by %s\n", verdict, m.name, time.Since(begun).Seconds(), m.tests)
	}
	if len(survived) > 0 {
		return fmt.Errorf("no test noticed: %s", strings.Join(survived, ", "))
	}
	return nil
}

// mutant is one deliberate mistake and the tests that have to notice it.
type mutant struct {
	name  string
	file  string // from the root of the module
	old   string // occurs there once
	new   string
	pkg   string
	tests string // a regular expression, as for go test -run
}

// mistake is a mutant, by its fields in their order.
func mistake(name, file, old, changed, pkg, tests string) mutant {
	return mutant{name, file, old, changed, pkg, tests}
}

// applied returns the file with the mistake in it.
func (m mutant) applied(root string) (string, error) {
	content, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(content), m.old); n != 1 {
		return "", fmt.Errorf("%s has %q %d times: once is expected", m.file, m.old, n)
	}
	return strings.Replace(string(content), m.old, m.new, 1), nil
}

const (
	testTime  = 15 * time.Minute // a mutant may stop a test until its patience ends, or that of go test (10 minutes)
	noLonger  = 20 * time.Second // for a process that was interrupted
	rootOfAll = "../../.."
)

// killed runs the tests on the mutant and tells whether they failed, as tests do
// and not as what does not compile.
func (m mutant) killed(ctx context.Context) (bool, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return false, err
	}
	content, err := m.applied(root)
	if err != nil {
		return false, err
	}
	dir, err := os.MkdirTemp("", "farol-mutant-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	broken, overlay := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, m.file): broken}})
	if err != nil {
		return false, err
	}
	if err := errors.Join(os.WriteFile(broken, []byte(content), 0o600), os.WriteFile(overlay, list, 0o600)); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, testTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-count=1", "-run", m.tests, m.pkg)
	cmd.Dir, cmd.WaitDelay = root, noLonger
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return false, fmt.Errorf("the tests were stopped: %w", context.Cause(ctx))
	case err == nil:
		if strings.Contains(string(out), "no tests to run") {
			return false, fmt.Errorf("%s has no test that matches %s", m.pkg, m.tests)
		}
		return false, nil
	case errors.As(err, &exit) && (strings.Contains(string(out), "--- FAIL") || strings.Contains(string(out), "panic: test timed out")):
		return true, nil // one that never ends was noticed, too
	default:
		return false, fmt.Errorf("the tests did not run: %w\n%s", err, out)
	}
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}
