package rig

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/farol-preservation/farol/internal/rigs/devstack"
)

// A Tree is a commit of this repository in a directory of its own, to be measured next to the
// tree that is worked on.
type Tree struct {
	Commit string // its number and its date

	dir   string
	bench []string // the command of its bench program
}

// Checkout unpacks a commit of the repository in root into a new directory, which is the
// caller's to delete. Unlike a worktree, it leaves nothing in the repository.
func Checkout(ctx context.Context, root, rev, dir string) (*Tree, error) {
	commit, err := devstack.Checkout(ctx, root, rev, dir)
	if err != nil {
		return nil, err //nolint:wrapcheck // it names the commit
	}
	return &Tree{Commit: commit, dir: dir}, nil
}

// BuildFarol builds farol and farol-dev into dir, as [devstack.Build] does.
func (t *Tree) BuildFarol(ctx context.Context, dir string) (farol string, err error) {
	if t.Has("cmd/farol-dev") { // which was not yet a module of its own
		farol = filepath.Join(dir, "farol")
		_, err = devstack.Output(ctx, t.dir, "go", "build", "-trimpath", "-o", dir+"/", "./cmd/farol", "./cmd/farol-dev")
	} else {
		farol, err = devstack.Build(ctx, t.dir, dir)
	}
	if err != nil {
		return "", fmt.Errorf("build farol of commit %s: %w", t.Commit, err)
	}
	return farol, nil
}

// BuildBench builds one of the programs that measure, for [Tree.Bench]. Without paths, what was
// compiled once is not compiled again in the next temporary directory.
func (t *Tree) BuildBench(ctx context.Context, program string) error {
	dir, binary := filepath.Join(t.dir, "bench"), filepath.Join(t.dir, "measure")
	pkg := "."
	t.bench = []string{binary, program}
	if !t.Has("bench/main.go") { // each was a command of its own
		pkg, t.bench = "./"+program, t.bench[:1]
	}
	if _, err := devstack.Output(ctx, dir, "go", "build", "-trimpath", "-o", binary, pkg); err != nil {
		return fmt.Errorf("build bench of commit %s: %w", t.Commit, err)
	}
	return nil
}

// Has says whether the tree has a file.
func (t *Tree) Has(file string) bool {
	_, err := os.Stat(filepath.Join(t.dir, file))
	return err == nil
}

// Bench runs the program that [Tree.BuildBench] has built and returns what it prints, also if it
// fails. When ctx ends, or this program is killed, it is told to stop its servers and to end.
func (t *Tree) Bench(ctx context.Context, args ...string) ([]byte, error) {
	args = append(t.bench[1:len(t.bench):len(t.bench)], args...)
	c := exec.CommandContext(ctx, t.bench[0], args...)
	c.Dir = filepath.Join(t.dir, "bench")
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = time.Minute
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	runtime.LockOSThread() // the signal comes when the thread ends that started it
	defer runtime.UnlockOSThread()
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		return stdout.Bytes(), fmt.Errorf("run bench %s of commit %s: %w\n%s", strings.Join(args, " "), t.Commit, err, stderr.Bytes())
	}
	return stdout.Bytes(), nil
}
