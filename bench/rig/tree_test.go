package rig_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farol-preservation/farol/bench/rig"
)

// repository makes a small one: at its tag old each program of bench is a command of its own,
// at its tag new there is one command.
func repository(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	git := func(args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"}, args...)...)
		c.Dir = root
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// It prints its arguments, and fails if there are many.
	const program = `package main

import "os"

func main() {
	for _, arg := range os.Args[1:] {
		println(arg)
		os.Stdout.WriteString(arg + " ")
	}
	if len(os.Args) > 3 {
		os.Exit(1)
	}
}
`
	git("init", "-q")
	write("bench/go.mod", "module example.org/bench\n\ngo 1.26\n")
	write("bench/queue/main.go", program)
	git("add", ".")
	git("commit", "-qm", "old")
	git("tag", "old")
	write("bench/main.go", program)
	git("add", ".")
	git("commit", "-qm", "new")
	git("tag", "new")
	return root
}

// A commit is measured by its own program, however that was called at the time.
func TestCommitIsMeasuredByItsOwnProgram(t *testing.T) {
	t.Parallel()
	root := repository(t)
	for rev, want := range map[string]string{"old": "-json ", "new": "queue -json "} {
		tree, err := rig.Checkout(t.Context(), root, rev, filepath.Join(t.TempDir(), "tree"))
		if err != nil {
			t.Fatal(err)
		}
		if err := tree.BuildBench(t.Context(), "queue"); err != nil {
			t.Fatal(err)
		}
		if out, err := tree.Bench(t.Context(), "-json"); err != nil || string(out) != want {
			t.Errorf("%s printed %q, %v; want %q", rev, out, err, want)
		}
		out, err := tree.Bench(t.Context(), "a", "b", "c")
		if err == nil || !strings.Contains(err.Error(), "a\nb\nc") || !strings.HasSuffix(string(out), "a b c ") {
			t.Errorf("%s failed with %v and printed %q", rev, err, out)
		}
		if tree.Has("bench/main.go") != (rev == "new") {
			t.Errorf("%s has the files of another commit", rev)
		}
	}
}

func TestCommitThatCannotBeMeasuredIsNamed(t *testing.T) {
	t.Parallel()
	root, dir := repository(t), filepath.Join(t.TempDir(), "tree")
	for _, rev := range []string{"none", "-x", "", "new:bench"} {
		if _, err := rig.Checkout(t.Context(), root, rev, dir); err == nil || !strings.Contains(err.Error(), `find commit "`+rev+`"`) ||
			!strings.Contains(err.Error(), "git fetch --unshallow") {
			t.Errorf("%q came to %v", rev, err)
		}
	}
	tree, err := rig.Checkout(t.Context(), root, "old", dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := tree.BuildBench(t.Context(), "table"); err == nil || !strings.Contains(err.Error(), "build bench of commit "+tree.Commit) {
		t.Errorf("a program that there was not came to %v", err)
	}
}
